"""What user code holds while a study runs: arrays and scalars of NumPy that are followed.

`isinstance(x, numpy.ndarray)` holds of `Followed`, and of a followed scalar that it is a `numpy.float32` or what it was; they
print, pickle and copy as plain ones, and their bytes are those that plain ones would have. An array's shadow lies in a
`Store`, found by the array's memory; a scalar carries its own.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dis import opmap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from detconf.frameworks.numpy.following import Following
    from detconf.frameworks.numpy.stores import Store
    from detconf.shadows.study import Known

_METHODS = (  # in one text: a name per line would be a page
    "all any argmax argmin argpartition argsort astype byteswap choose clip compress conj conjugate copy cumprod cumsum dot flatten max mean "
    "min nonzero prod ravel repeat reshape round searchsorted std sum take trace var"
)
_IN_PLACE = ("fill", "partition", "put", "sort")
_SCALAR_METHODS = "astype clip conj conjugate copy cumsum max mean min prod reshape round std sum var"
_FOREIGN = frozenset(("detconf", "numpy", "paddle", "torch"))
"""What these compute for themselves with an array is theirs."""
_HANDING = ("paddle.io.", "torch.utils.data.")
"""But for those parts of them that put the program's arrays together."""
plain_getitem: Any = np.ndarray.__getitem__
plain_setitem: Any = np.ndarray.__setitem__
plain_view: Any = np.ndarray.view
following: Following | None = None
"""Where to report; None outside a study. One study per process."""


def heard(depth: int = 2) -> Following | None:
    """Where a call is reported that the caller, `depth` frames up, made; None where it is not to be."""
    found = following
    if found is None or not found.ready():
        return None
    name = str(sys._getframe(depth).f_globals.get("__name__"))
    return None if name.partition(".")[0] in _FOREIGN and not name.startswith(_HANDING) else found


class Followed(np.ndarray[Any, Any]):
    """See the module."""

    store: Store | None

    def __array_finalize__(self, source: Any) -> None:
        self.store = getattr(source, "store", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found = heard()
        if found is None:
            return bare(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)
        return found.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = heard()
        return bare(function, args, kwargs) if found is None else found.function(function, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        found = heard()
        return bare(plain_getitem, (self, key), {}) if found is None else found.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        found = heard()
        if found is None:
            bare(plain_setitem, (self, key, value), {})
        else:
            found.setitem(self, key, value)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        found = heard()
        return plain_view(self, *args, **kwargs) if found is None else found.viewed(plain_view(self, *args, **kwargs))

    def item(self, *args: Any) -> Any:
        found, plain = heard(), plain_view(self, np.ndarray)
        return plain.item(*args) if found is None else found.element(plain.item(*args), self, args)

    def tolist(self) -> Any:
        found, plain = heard(), plain_view(self, np.ndarray)
        return plain.tolist() if found is None else found.numbers_of(plain.tolist(), self)

    def __float__(self) -> float:
        found, result = heard(), float(plain_view(self, np.ndarray))
        if found is not None:
            found.escaped(result, found.known(self))
        return result

    @property
    def flat(self) -> Any:
        from detconf.frameworks.numpy.flats import Flat  # which knows this module

        return plain_view(self, np.ndarray).flat if heard() is None else Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        from detconf.frameworks.numpy.flats import Flat

        Flat(self)[:] = value

    def __bool__(self) -> bool:
        return bool(_choosing(self, bool))

    def __int__(self) -> int:
        return int(_choosing(self, int))

    def __copy__(self) -> Any:
        return copied(self)

    def __deepcopy__(self, memo: Any) -> Any:
        return copied(self)


def _choosing(value: Any, function: Callable[[Any], Any]) -> Any:
    """What a program branches on, or counts by."""
    found, own = heard(3), plain(value, {})
    if found is not None and own.dtype.kind in "fc":
        found.chosen()
    return function(own)


def copied(array: Any) -> Any:
    """A copy of a followed array, for the module `copy`."""
    found = heard(3)
    return plain_view(array, np.ndarray).copy() if found is None else found.method("copy", np.ndarray.copy, (array,), {})


def _method(name: str, kind: type, *, in_place: bool) -> Callable[..., Any]:
    plain = getattr(kind, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = heard()
        if found is None:
            return bare(plain, (self, *args), kwargs)
        return (found.in_place if in_place else found.method)(name, plain, (self, *args), kwargs)

    method.__name__, method.__qualname__, method.__doc__ = name, f"{kind.__name__}.{name}", plain.__doc__
    return method


def _as_plain(name: str) -> Callable[..., Any]:
    plain = getattr(np.ndarray, name)
    return lambda self, *args: plain(plain_view(self, np.ndarray), *args)


for _name in ("__repr__", "__str__", "__format__", "__reduce__", "__reduce_ex__"):
    setattr(Followed, _name, _as_plain(_name))
for _name in _METHODS.split():
    setattr(Followed, _name, _method(_name, np.ndarray, in_place=False))
for _name in _IN_PLACE:
    setattr(Followed, _name, _method(_name, np.ndarray, in_place=True))
Followed.__name__ = Followed.__qualname__ = "ndarray"
Followed.__module__ = "numpy"

_BINARY: Mapping[str, Callable[..., Any]] = {
    name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
}
_UNARY: Mapping[str, Callable[..., Any]] = {name: getattr(operator, name) for name in ("neg", "abs", "pos")}
_COMPARING = ("lt", "le", "gt", "ge", "eq", "ne")
_AS_UFUNC = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "power", "neg": "negative", "abs": "absolute", "pos": "positive",
}  # fmt: skip


def _scalar_operator(name: str, function: Callable[..., Any], *, swapped: bool) -> Callable[..., Any]:
    title = f"numpy.{_AS_UFUNC[name]}"

    def apply(self: Any, *others: Any) -> Any:
        args = (*others, self) if swapped else (self, *others)
        if not all(isinstance(each, (int, float, complex, np.ndarray, np.generic)) for each in others):
            return NotImplemented  # the other one takes it
        found = heard()
        return bare(function, args, {}) if found is None else found.call(title, function, args, {})

    return apply


def _comparison(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def compare(self: Any, other: Any) -> Any:
        found, answer = heard(), plain(self, other)
        if found is not None and isinstance(other, (int, float, np.generic)):
            found.chosen(f"python.{name}", (self, other), answer)
        return answer

    return compare


def _scalar_members(kind: type) -> dict[str, Any]:
    members: dict[str, Any] = {f"__{name}__": _scalar_operator(name, function, swapped=False) for name, function in _BINARY.items()}
    members |= {f"__r{name}__": _scalar_operator(name, function, swapped=True) for name, function in _BINARY.items()}
    members |= {f"__{name}__": _scalar_operator(name, function, swapped=False) for name, function in _UNARY.items()}
    members |= {name: _method(name, kind, in_place=False) for name in _SCALAR_METHODS.split()}

    def item(self: Any, *args: Any) -> Any:
        found, plain = heard(), plainly(self)
        return plain.item(*args) if found is None or self.known is None else found.number(plain.item(*args), self.known)

    def as_float(self: Any) -> float:
        found, result = heard(), float(plainly(self))
        if found is not None:
            found.escaped(result, self.known)
        return result

    def rounded(self: Any, digits: Any = None) -> Any:
        found = heard()
        return round(plainly(self), digits) if found is None or digits is None else found.call("numpy.round", round, (self, digits), {})

    members |= {f"__{name}__": _comparison(name, getattr(kind, f"__{name}__")) for name in _COMPARING}
    members |= {"__bool__": lambda self: _choosing(self, bool), "__hash__": kind.__hash__}
    members |= {
        "__round__": rounded,
        "item": item,
        "tolist": item,
        **dict.fromkeys(("__reduce__", "__reduce_ex__"), lambda self, *_: plainly(self).__reduce__()),
        "__module__": "numpy",
        "known": None,
    }
    members |= {"__repr__": lambda self: repr(plainly(self)), "__str__": lambda self: str(plainly(self))}
    members["__array_function__"] = Followed.__array_function__
    members |= {"__copy__": lambda self: self, "__deepcopy__": lambda self, _: self}
    if kind not in (np.complex64, np.complex128, np.clongdouble):
        members |= {"__float__": as_float, "__int__": lambda self: _choosing(self, int)}
    return members


class _Answering(type):
    """NumPy asks the class of an operand whether it wants to take over.

    A plain scalar of a wider type computes with a narrower one on its right without asking further than for None, which
    means that the other one shall do it. So operators get that, and universal functions the method.
    """

    @property
    def __array_ufunc__(cls) -> Any:
        frame = sys._getframe(1)
        code, place = frame.f_code.co_code, frame.f_lasti
        operated = place >= 0 and code[place] in _OPERATORS and (code[place] != _OPERATOR or code[place + 1] < _UPDATES)
        return None if operated else Followed.__array_ufunc__


_OPERATOR = opmap.get("BINARY_OP", -1)
_UPDATES = 13
"""Arguments of BINARY_OP from which on it is `+=` and its like."""
_OPERATORS = frozenset(
    number for name, number in opmap.items() if name.startswith("BINARY_") and name not in ("BINARY_SUBSCR", "BINARY_SLICE")
)
SCALARS: Mapping[Any, Any] = {
    np.dtype(kind): _Answering(kind.__name__, (kind,), _scalar_members(kind))
    for kind in (np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128, np.clongdouble)
}
"""Real dtype -> class of followed scalars, with an attribute `known`."""
_SCALAR_KINDS = tuple(SCALARS.values())


def is_scalar(value: Any) -> bool:
    """Is it a scalar with a shadow?"""
    return isinstance(value, _SCALAR_KINDS) and value.known is not None


def scalar(value: Any, known: Known) -> Any:
    """A followed scalar of the value and type of `value`."""
    found = SCALARS[value.dtype](value)
    found.known = known
    return found


def plainly(value: Any) -> Any:
    """A followed scalar as a plain one, bit for bit."""
    return np.asarray(value)[()]


def bare(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run without a report: on plain arrays, with a plain result; an array that is written stays the object it is."""
    back: dict[int, Any] = {}
    result = function(*[plain(each, back) for each in args], **{key: plain(each, back) for key, each in kwargs.items()})
    return back.get(id(result), result)


def plain(value: Any, back: dict[int, Any]) -> Any:
    """`value` with plain arrays and scalars for followed ones; `back` leads from a plain array to ours by its id."""
    if isinstance(value, Followed):
        found: Any = plain_view(value, np.ndarray)
        back[id(found)] = value
        return found
    if isinstance(value, _SCALAR_KINDS):
        return plainly(value)
    if type(value) in (list, tuple):
        items = [plain(each, back) for each in value]
        if any(item is not each for item, each in zip(items, value, strict=True)):
            return type(value)(items)
    return value
