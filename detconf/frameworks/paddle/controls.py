"""The controls of Paddle: its FLAGS, the switches beside them, threads and generators.

Every function here runs only when paddle is imported, and takes it from `sys.modules`.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from detconf.access import Access
from detconf.facts import start_environ
from detconf.frameworks.base import Stray
from detconf.lookup import Missing, in_fork, loaded, mapped, resolve
from detconf.values import Value, same


def _paddle() -> Any:
    return loaded("paddle")


def _core() -> Any:
    return _paddle().base.core


def devices() -> frozenset[str]:
    """The device kinds that this build of Paddle can drive, and `cinn` where it has that compiler."""
    compiled = {kind for kind in ("rocm", "cuda", "cinn") if getattr(_paddle(), f"is_compiled_with_{kind}", bool)()}
    if "rocm" in compiled:
        compiled.discard("cuda")  # a ROCm build answers yes to both
    return frozenset({"cpu", "x86"} | compiled)


@dataclass(frozen=True)
class Flag(Access):
    """One of Paddle's global FLAGS.

    `set_flags` accepts None for a boolean in silence and coerces integers and booleans into each other, so values
    are checked against the knob before they come here. A flag that the build lacks does not exist: a GPU flag on a
    CPU build raises ValueError in Python and is ignored in silence in the environment (measured on 3.3.1).
    """

    name: str
    module: str = "paddle"

    @property
    def variable(self) -> str:  # type: ignore[override]  # the flag's name is the variable's
        return self.name

    def _present(self) -> Any:
        loaded(self.module)
        flags = _core().globals()
        if self.name not in flags:
            msg = f"{self.name} does not exist in this build of Paddle"
            raise Missing(msg)
        return flags

    def read(self) -> Value:
        return self._present().get(self.name)

    def write(self, value: Value) -> None:
        self._present()
        _paddle().set_flags({self.name: value})


@dataclass(frozen=True)
class Switch(Access):
    """A getter and a setter of `paddle.base.core` that older builds lack."""

    getter: str
    setter: str
    module: str = "paddle"

    def _function(self, name: str) -> Any:
        loaded(self.module)
        function = getattr(_core(), name, None)
        if function is None:
            msg = f"this build of Paddle has no {name}"
            raise Missing(msg)
        return function

    def read(self) -> Value:
        return self._function(self.getter)()

    def write(self, value: Value) -> None:
        self._function(self.setter)(value)


def _ask_mkl(function: str) -> int:
    """What Paddle's own MKL-ML answers.

    Paddle opens that library at its first product. Opening it to ask would make it read its variables now, so until
    then a forked copy of the process is asked.

    Raises:
        Missing: this build brings no MKL-ML, or it does not answer.
    """
    path = os.path.join(_paddle().__path__[0], "libs", "libmklml_intel.so")

    def answer() -> int:
        return int(getattr(ctypes.CDLL(path), function)())

    found = (answer() if next(mapped(("libmklml",)), "") else in_fork(answer)) if os.path.exists(path) else None
    if found is None:
        msg = f"this build of Paddle brings no MKL that answers {function}"
        raise Missing(msg)
    return int(found)


def math_threads() -> int:
    """Threads of Paddle's MKL; `core.set_num_threads` has no getter of its own."""
    return _ask_mkl("MKL_Get_Max_Threads")


def set_math_threads(count: int) -> None:
    _core().set_num_threads(count)


def mkl_dynamic() -> bool:
    """May Paddle's MKL take fewer threads than it has?"""
    return bool(_ask_mkl("MKL_Get_Dynamic"))


def set_mkl_dynamic(value: bool) -> None:
    ctypes.CDLL(os.path.join(_paddle().__path__[0], "libs", "libmklml_intel.so")).MKL_Set_Dynamic(int(value))


def to_static_enabled() -> bool:
    """Do functions under `to_static` run as graphs? The public setter has no getter."""
    return bool(resolve("paddle.jit.dy2static.program_translator:ProgramTranslator")().enable_to_static)


def ignored_variables() -> Iterator[Stray]:
    """FLAGS_* variables that were assigned after Paddle had read its environment at import.

    Paddle reads them once; a later write to `os.environ` only misleads logs and child processes
    (PaddlePaddle/Paddle#46012). A variable that was there at process start was read; a flag that differs from such a
    one was changed on purpose.
    """
    flags = _core().globals()
    for variable, value in sorted(os.environ.items()):
        if not re.fullmatch(r"FLAGS_\w+", variable) or variable not in flags or same(start_environ().get(variable), value):
            continue
        now = flags.get(variable)
        if not _means(value, now):
            yield Stray(
                f"env.{variable}", value, now,
                f"Paddle read its environment at import and says {now}; call paddle.set_flags({{{variable!r}: ...}}) or set the variable before the process starts",
            )  # fmt: skip


def _means(text: str, value: Value) -> bool:
    """Does the text of a variable stand for the flag's present value?"""
    if isinstance(value, bool):
        return (text.strip().lower() in ("1", "true", "t", "yes", "y")) == value
    if isinstance(value, (int, float)):
        try:
            return float(text) == value
        except ValueError:
            return False
    return text == str(value)


class Generator:
    """Paddle's default generators, on every device."""

    def seed(self, seed: int) -> None:
        _paddle().seed(seed)

    def state(self) -> Any:
        return _paddle().get_rng_state()

    def restore(self, state: Any) -> None:
        _paddle().set_rng_state(state)

    def fresh(self, seed: int) -> bool:
        return self.digest() == _text([_seeded(seed)])

    def digest(self) -> str:
        return _text(self.state()[:1])


def _seeded(seed: int) -> Any:
    """The state that `paddle.seed(seed)` leaves on CPU, found without drawing from or keeping a change in the generator."""
    generator = _core().default_cpu_generator()
    kept = generator.get_state()
    try:
        generator.manual_seed(seed)
        return generator.get_state()
    finally:
        generator.set_state(kept)


def _text(states: list[Any]) -> str:
    # A state prints as device, seed, offset, the address of its engine, and the engine's words; the address says nothing.
    tokens = [token for state in states for token in str(state).split() if not token.startswith("0x")]
    return blake2b(" ".join(tokens).encode(), digest_size=8).hexdigest()


GENERATOR = Generator()
