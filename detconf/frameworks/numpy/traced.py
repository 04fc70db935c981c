"""The array that user code gets while it is recorded: an `ndarray` that reports what is computed with it.

`isinstance(x, numpy.ndarray)` holds, it prints, pickles and copies as a plain array, and its bytes are those that the
plain array would have. `type(x)` is this class, which calls itself `numpy.ndarray` as well; `type(x) is numpy.ndarray` is
false, `x.flags.owndata` may be, and such an array cannot be resized in place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from detconf.frameworks.numpy.calls import Calls

_METHODS = (  # in one text: a name per line would be a page
    "all any argmax argmin argpartition argsort astype byteswap choose clip compress conj conjugate cumprod cumsum dot max mean min nonzero "
    "prod repeat round searchsorted std sum take trace var"
)
_IN_PLACE = ("fill", "partition", "put", "setfield", "sort")
_FOREIGN = frozenset(("detconf", "numpy", "paddle", "torch"))
"""What these compute for themselves with an array is theirs."""
_plain_getitem, _plain_setitem, _view = np.ndarray.__getitem__, np.ndarray.__setitem__, np.ndarray.view
calls: Calls | None = None
"""Where to report; None outside a recording. One recording per process."""


def from_foreign(depth: int = 2) -> bool:
    """Does the call come from a framework itself?"""
    return str(sys._getframe(depth).f_globals.get("__name__")).partition(".")[0] in _FOREIGN


class Traced(np.ndarray[Any, Any]):
    """See above."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        if calls is None or not calls.ready() or from_foreign():
            return bare(function, inputs, kwargs)
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        targets = inputs[:1] if method == "at" else ()
        return calls.call(f"numpy.{name}", function, inputs, kwargs, targets=targets)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if calls is None or not calls.ready() or from_foreign():
            return bare(function, args, kwargs)
        return calls.function(function, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        if calls is not None and _picks(key) and calls.ready() and not from_foreign():
            return calls.call("numpy.getitem", _plain_getitem, (self, key), {})
        return _plain_getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if calls is not None and calls.ready() and not from_foreign():
            calls.call("numpy.setitem", _plain_setitem, (self, key, value), {}, targets=(self,))
        else:
            _plain_setitem(self, key, value)

    def __repr__(self) -> str:
        return repr(_view(self, np.ndarray))

    def __str__(self) -> str:
        return str(_view(self, np.ndarray))

    def __format__(self, form: str) -> str:
        return format(_view(self, np.ndarray), form)

    def __reduce__(self) -> Any:
        return _view(self, np.ndarray).__reduce__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _view(self, np.ndarray).__reduce_ex__(protocol)


def _method(name: str, *, in_place: bool) -> Callable[..., Any]:
    plain = getattr(np.ndarray, name)
    title = f"numpy.{name}" if hasattr(np, name) and not in_place else f"numpy.ndarray.{name}"

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if calls is None or not calls.ready() or from_foreign():
            return bare(plain, (self, *args), kwargs)
        return calls.call(title, plain, (self, *args), kwargs, targets=(self,) if in_place else ())

    method.__name__, method.__qualname__, method.__doc__ = name, f"ndarray.{name}", plain.__doc__
    return method


for _name in _METHODS.split():
    setattr(Traced, _name, _method(_name, in_place=False))
for _name in _IN_PLACE:
    setattr(Traced, _name, _method(_name, in_place=True))
Traced.__name__ = Traced.__qualname__ = "ndarray"
Traced.__module__ = "numpy"


def _picks(key: Any) -> bool:
    """Is this advanced indexing, which computes a new array?"""
    if isinstance(key, tuple):
        return any(isinstance(each, (np.ndarray, list)) for each in key)
    return isinstance(key, (np.ndarray, list))


def bare(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run without a record: on plain arrays, with a plain result; an array that is written stays the object it is."""
    back: dict[int, Any] = {}
    result = function(*[plain(each, back) for each in args], **{key: plain(each, back) for key, each in kwargs.items()})
    return back.get(id(result), result)


def plain(value: Any, back: dict[int, Any]) -> Any:
    """`value` with plain arrays for traced ones, which `back` leads back to by id."""
    if isinstance(value, Traced):
        found: Any = _view(value, np.ndarray)
        back[id(found)] = value
        return found
    if type(value) in (list, tuple):
        items = [plain(each, back) for each in value]
        if any(item is not each for item, each in zip(items, value, strict=True)):
            return type(value)(items)
    return value


def traced(value: Any, back: Mapping[int, Any]) -> Any:
    """`value` as user code gets it: plain arrays of values traced, those that it gave us as they were."""
    if type(value) is np.ndarray:
        found = back.get(id(value))
        return found if found is not None else value if value.dtype.hasobject else _view(value, Traced)
    if isinstance(value, tuple):
        items = [traced(each, back) for each in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items) if type(value) is tuple else value
    if type(value) is list:
        return [traced(each, back) for each in value]
    return value
