"""Memory and dtypes of a program that runs whole in float64 (`widening`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

from detconf.frameworks.numpy.arguments import names
from detconf.frameworks.numpy.precision import doubled, floats
from detconf.frameworks.numpy.stores import Store


class Memory(Store):
    """A piece of memory, and beside it the same in float64 where it is less."""

    __slots__ = ()

    def _fill(self, array: Any, shadow: Any) -> None:  # noqa: ARG002  # its own elements
        if doubled(array.dtype) != array.dtype:
            self.buffer = self.whole(array).astype(doubled(array.dtype))
            self._seen = xxh3_64_intdigest(self.buffer)

    def put_back(self) -> bool:
        """What was written in float64 is rounded into the memory itself. Was there anything?"""
        if self.buffer is None or xxh3_64_intdigest(self.buffer) == self._seen:
            return False
        with np.errstate(all="ignore"):
            found = self.shadow(self.array).astype(self.dtype)
        changed = found != self.array
        self.array[changed] = found[changed]
        return True


def widened(value: Any) -> Any:
    """A dtype of less than float64, however it is spelt, as that; anything else as it is."""
    if isinstance(value, type) and not issubclass(value, np.generic):
        return value
    try:
        found = np.dtype(value)
    except TypeError:
        return value
    return value if doubled(found) == found else doubled(found)


def in_float64(template: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Dtypes among the arguments of a function whose parameters are those of `template`."""
    if kwargs.get("dtype") is not None:
        kwargs["dtype"] = widened(kwargs["dtype"])
    if template is None or isinstance(template, np.ufunc):
        return
    known = names(template)[0]
    if "dtype" in known[: len(args)] and args[at := known.index("dtype")] is not None:
        args[at] = widened(args[at])


def any_floats(value: Any) -> bool:
    """Is there an array or a number of NumPy that rounds?"""
    if isinstance(value, (list, tuple)):
        return any(map(any_floats, value))
    return isinstance(value, (np.ndarray, np.generic)) and floats(value.dtype)


def discrete(value: Any) -> bool:
    """Does a result hold choices, or numbers of Python?"""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "biu"
    return any(map(discrete, value)) if isinstance(value, (list, tuple)) else isinstance(value, (bool, float))


def narrow(value: Any) -> bool:
    """Does a result hold floats of less than 64 bits?"""
    if isinstance(value, (np.ndarray, np.generic)):
        return bool(value.dtype != doubled(value.dtype))
    return any(map(narrow, value)) if isinstance(value, (list, tuple)) else False
