"""What NumPy says of itself."""

from __future__ import annotations

import mmap
import os
import sys
from ctypes import string_at
from functools import lru_cache
from glob import glob
from hashlib import blake2b
from importlib.util import find_spec
from typing import Any

from detconf.values import Value

# Highest first, by the names that NumPy has used: groups since 2.4, single sets before (numpy/_core/src/common/npy_cpu_features.h).
_ABOVE = {
    "x86-64-v3": (
        "AVX512_SPR", "AVX512_ICL", "AVX512_CNL", "AVX512_CLX", "AVX512_SKX", "AVX512_KNM", "AVX512_KNL", "AVX512CD", "AVX512F", "X86_V4",
    ),
}  # fmt: skip


def _umath() -> Any:
    core = getattr(sys.modules["numpy"], "_core", None) or sys.modules["numpy"].core  # 1.x has no _core
    return core._multiarray_umath


@lru_cache(maxsize=1)
def _dispatchable() -> frozenset[str]:
    """The instruction sets that this NumPy dispatches to, found without importing it.

    A loaded NumPy says so itself. Otherwise its extension module is searched for the targets it was compiled with:
    its own lists are in there as text. The file does not change while it is installed, so planning stays repeatable.
    """
    if "numpy" in sys.modules:
        return frozenset(_umath().__cpu_dispatch__)
    spec = find_spec("numpy")
    folder = os.path.dirname(spec.origin) if spec and spec.origin else ""
    names = {name for above in _ABOVE.values() for name in above}
    for path in glob(os.path.join(folder, "_core", "_multiarray_umath*")) + glob(os.path.join(folder, "core", "_multiarray_umath*")):
        with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            modern = data.find(b"\0X86_V4\0") >= 0
            groups = {"X86_V4", "AVX512_ICL", "AVX512_SPR"}
            return frozenset(groups if modern else {name for name in names - {"X86_V4"} if data.find(b"\0" + name.encode() + b"\0") >= 0})
    return frozenset()


def disable_above(level: Value) -> Value:
    """For `serves`: the features above `level`, named as the NumPy at hand names them; leaves the variable alone
    where NumPy has none of them to disable."""
    if level not in _ABOVE:
        return NotImplemented
    names = [name for name in _ABOVE[level] if name in _dispatchable()]
    return " ".join(names) if names else NotImplemented


def disabled_features() -> str | None:
    """The features of NPY_DISABLE_CPU_FEATURES that are really off, in the variable's words and order.

    NumPy ignores a name it does not dispatch to, with an ImportWarning that is hidden by default.
    """
    if "numpy" not in sys.modules:
        return None
    features = _umath().__cpu_features__
    asked = os.environ.get("NPY_DISABLE_CPU_FEATURES", "").replace(",", " ").split()
    return " ".join(name for name in asked if name in features and not features[name])


def machine() -> dict[str, str]:
    """The instruction sets that NumPy's kernels may use here, of those that this build can choose from."""
    if "numpy" not in sys.modules:
        return {}
    features = _umath().__cpu_features__
    return {"NumPy kernels": " ".join(name for name in _umath().__cpu_dispatch__ if features.get(name)) or "baseline"}


_MT19937 = 4 * (624 + 1)
"""Bytes of the state: its words, and the place among them."""


class Generator:
    """NumPy's legacy global generator, which also orders Paddle's shuffling DataLoader."""

    def _random(self) -> Any:
        return sys.modules["numpy"].random

    def seed(self, seed: int) -> None:
        self._random().seed(seed)

    def state(self) -> Any:
        return self._random().get_state(legacy=False)

    def restore(self, state: Any) -> None:
        self._random().set_state(state)

    def fresh(self, seed: int) -> bool:
        return _digest(self.state()) == _digest(self._random().RandomState(seed).get_state(legacy=False))

    def digest(self) -> str:
        return _digest(self.state())

    def glance(self) -> object:
        """The bytes of the state where they can be had without a copy word by word, which takes 0.1 ms."""
        generator = self._random().mtrand._rand._bit_generator
        return string_at(generator.ctypes.state_address, _MT19937) if type(generator).__name__ == "MT19937" else self.digest()


def _digest(state: dict[str, Any]) -> str:
    inner = state["state"]
    words = {key: value.tobytes() if hasattr(value, "tobytes") else value for key, value in inner.items()}
    rest = {key: value for key, value in state.items() if key != "state"}
    return blake2b(repr((sorted(words.items()), sorted(rest.items(), key=str))).encode(), digest_size=8).hexdigest()


GENERATOR = Generator()
