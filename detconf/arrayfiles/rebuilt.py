"""What a pickle may name: arrays and scalars of NumPy; and how what it held becomes arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from detconf.arrayfiles.nodes import Name, Node, Ordered, checked_key
from detconf.arrayfiles.pickles import Reader, read_pickle
from detconf.arrays import Array
from detconf.results import flatten

Loader = Callable[[], Array]
"""Gives an array when it is called for."""
_DTYPE = re.compile(r"[biufcSUmMV]\d{1,5}|[?]")
_ORDERS = ("<", ">", "=", "|")
_STATE = 8
"""Length of the state of a dtype that has neither fields nor metadata."""


def plain_array(value: Any) -> Array:
    """A NumPy array as its bytes."""
    (found,) = flatten(value).values()
    return found


def item_size(dtype: str) -> int:
    """Bytes of one element, of a dtype as `Array` spells it."""
    import ml_dtypes
    import numpy as np

    return int(np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize)


def loaders(value: Any) -> dict[str, Loader]:
    """The arrays in what a pickle held, by path."""
    return {name: _same(array) for name, array in flatten(value).items()}


def _same(array: Array) -> Loader:
    return lambda: array


def pickled_dict(source: str, data: memoryview) -> dict[str, Loader]:
    """The arrays of a pickle of plain data and arrays of NumPy."""
    return loaders(read_pickle(source, Reader(data), NUMPY, NUMPY_WORDS))


class Dtype(Node):
    """numpy.dtype."""

    def __init__(self, text: Any, *_: Any) -> None:
        if not (isinstance(text, str) and (_DTYPE.fullmatch(text) or text == "O8")):
            msg = f"dtype {text!r}"
            raise ValueError(msg)
        self.text, self.order = text, "="

    def build(self, state: Any) -> None:
        if len(state) != _STATE or state[1] not in _ORDERS or any(state[2:5]):
            raise ValueError("a dtype with fields or metadata")
        self.order = state[1]

    @property
    def is_object(self) -> bool:
        """Pointers to Python objects."""
        return self.text == "O8"

    @property
    def made(self) -> Any:
        """As NumPy has it."""
        import numpy as np

        return np.dtype(self.text).newbyteorder(self.order)  # type: ignore[arg-type]  # one of four

    def finish(self) -> Any:
        return f"numpy.dtype({self.text})"


class Values(Node):
    """numpy.ndarray."""

    def __init__(self, *state: Any) -> None:
        self.state = state

    def build(self, state: Any) -> None:
        if len(state) != 5 or self.state:
            raise ValueError("an array with another state than NumPy gives it")
        self.state = state[1:]

    def finish(self) -> Any:
        import numpy as np

        shape, dtype, fortran, data = self.state
        if dtype.is_object:
            if shape != () or not isinstance(data, list) or len(data) != 1:
                raise ValueError("an array of Python objects")
            return data[0]
        buffer = data.encode("latin-1") if isinstance(data, str) else data
        if math.prod(map(_size, shape)) * dtype.made.itemsize != len(buffer):
            raise ValueError("an array with more or fewer bytes than its shape needs")
        return plain_array(np.frombuffer(buffer, dtype.made).reshape(shape, order="F" if fortran else "C"))


def _size(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a size that is no number")
    return value


def _empty(_kind: Name, _shape: Any, _code: Any) -> Values:
    return Values()


def _from_buffer(data: Any, dtype: Dtype, shape: Any, order: str, *_: Any) -> Values:
    return Values(shape, dtype, order == "F", data)


def _scalar(dtype: Dtype, data: Any) -> Values:
    return Values((), dtype, False, data)


def _encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes in another encoding than latin1")
    return text.encode("latin-1")


def _tuple(items: Any = ()) -> tuple[Any, ...]:
    if not isinstance(items, (list, tuple)):
        raise TypeError("a tuple of what is no list")
    return tuple(items)


def _ordered(pairs: Any = ()) -> Ordered:
    return Ordered({checked_key(key): value for key, value in _tuple(pairs)})


_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
NUMPY: Mapping[str, Callable[..., Any]] = {
    **{f"{module}._reconstruct": _empty for module in _MULTIARRAY},
    **{f"{module}.scalar": _scalar for module in _MULTIARRAY},
    **{f"{module}._frombuffer": _from_buffer for module in ("numpy.core.numeric", "numpy._core.numeric")},
    "numpy.dtype": Dtype,
    "_codecs.encode": _encode,
    "builtins.tuple": _tuple,
    "__builtin__.tuple": _tuple,
    "collections.OrderedDict": _ordered,
}
"""What a pickle of arrays of NumPy may call, in NumPy 1 and 2."""
NUMPY_WORDS = frozenset({"numpy.ndarray"})
