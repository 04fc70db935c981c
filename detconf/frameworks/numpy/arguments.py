"""The arguments of one call: plain ones for the real computation, shadows for ours, and what was read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from detconf.frameworks.numpy import followed
from detconf.frameworks.numpy.precision import floats, lowered, raised, shadow_dtype, up
from detconf.shadows.number import Number

if TYPE_CHECKING:
    from detconf.frameworks.numpy.keeper import Keeper
    from detconf.shadows.study import Known, Read

_NUMBERS = (int, complex, str, bytes, type(None), type, slice, np.dtype, type(Ellipsis))
_REDUCTION = ("array", "axis", "dtype", "out", "keepdims", "initial", "where")
_UNSAID = {"dot": ("a", "b", "out"), "concatenate": ("arrays", "axis", "out")}
"""Parameters of functions that have no signature before NumPy 2."""
_HIDDEN = ("out", "a", "x", "subok", "like")


class Arguments:
    """Takes arguments apart.

    Args:
        keeper: of their shadows.
        disturb: changes the shadow of each float input, given its real dtype.
    """

    def __init__(self, keeper: Keeper, *, disturb: Callable[[Any, Any], Any] | None = None) -> None:
        self.keeper, self._disturb = keeper, disturb
        self.back: dict[int, Any] = {}
        self.reads: list[Read] = []
        self.stores: list[Any] = []
        self._dtypes: dict[int, Any] = {}

    def pair(self, value: Any) -> tuple[Any, Any]:
        """(plain, shadow) of an argument; lists and tuples are searched."""
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, np.generic):
            return self._scalar(value)
        if type(value) in (list, tuple):
            pairs = [self.pair(each) for each in value]
            return type(value)([each for each, _ in pairs]), type(value)([each for _, each in pairs])
        if isinstance(value, float):
            known = self.keeper.elsewhere(value)
            return (float(value), self._noted(float(value), known)) if known is not None else (value, value)
        if isinstance(value, _NUMBERS) or not hasattr(value, "__array__"):
            return value, value
        known = self.keeper.elsewhere(value)
        return value, value if known is None else self._noted(value, known)

    def target(self, value: Any) -> Any:
        """An argument that is written and not read, plain."""
        if isinstance(value, tuple):
            return tuple(self.target(each) for each in value)
        return followed.plain(value, self.back)

    def _array(self, value: Any) -> tuple[Any, Any]:
        if shadow_dtype(value.dtype) is None:
            return value, value
        plain = followed.plain(value, self.back)
        store = self.keeper.store(value, plain)
        read = self.keeper.read(store, plain)
        self.stores.append(store)
        self.reads.append(read)
        return plain, self._ready(plain if self.keeper.study.local else store.shadow(plain), plain.dtype)

    def _scalar(self, value: Any) -> tuple[Any, Any]:
        if followed.is_scalar(value):
            plain = followed.plainly(value)
            if self.keeper.ours(value.known.value):
                return plain, self._noted(plain, value.known)
            value = plain
        known = self.keeper.elsewhere(float(value)) if value.dtype.kind == "f" else None  # such as numpy.float64(x.mean())
        return value, up(value) if known is None else self._noted(value, known)

    def _noted(self, value: Any, known: Known) -> Any:
        self.reads.append(self.keeper.reading(known))
        shadow = np.asarray(value if self.keeper.study.local else known.shadow)
        return self._ready(shadow, np.dtype(known.value.dtype))[()]

    def _ready(self, shadow: Any, dtype: Any) -> Any:
        if floats(dtype) and shadow.dtype != shadow_dtype(dtype):
            shadow = shadow.astype(shadow_dtype(dtype))
        if self._disturb is not None and floats(dtype):
            shadow = self._disturb(shadow, dtype)
        self._dtypes[id(shadow)] = dtype
        return shadow

    def real_dtype(self, shadow: Any) -> Any:
        """The dtype of what a shadow is one of."""
        return self._dtypes.get(id(shadow), shadow.dtype)


@lru_cache(maxsize=1024)
def names(function: Any) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """The names of a function's positional parameters, as far as they are known, and the defaults of all that have one."""
    if isinstance(getattr(function, "__self__", None), np.ufunc):
        return _REDUCTION, {}
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return _UNSAID.get(getattr(function, "__name__", ""), ()), {}
    fixed = [each for each in found if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    defaults = {each.name: each.default for each in found if each.default is not each.empty and each.default is not np._NoValue}
    return tuple(each.name for each in fixed), defaults


def by_name(template: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments, with an `out` that was given by place, and what follows it, by name."""
    known = names(template)[0] if template is not None and not isinstance(template, np.ufunc) else ()
    at = known.index("out") if "out" in known else len(args)
    if len(args) <= at or args[at] is None:
        return args, kwargs
    return args[:at], {**dict(zip(known[at:], args[at:], strict=False)), **kwargs}


def options(template: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str | int, Any]:
    """What was given besides arrays, by name where there is one, with defaults filled in."""
    known, defaults = names(template) if template is not None else ((), {})
    if isinstance(template, np.ufunc):
        known, defaults = (), {}
    found: dict[str | int, Any] = {key: each for key, each in defaults.items() if key not in _HIDDEN}
    for index, each in enumerate(args):
        key = known[index] if index < len(known) else index
        found.pop(key, None)
        if not _holds_arrays(each) and key != "out":
            found[key] = each
    for name, each in kwargs.items():
        found.pop(name, None)
        if not _holds_arrays(each) and name != "out":
            found[name] = each
    return found


def _holds_arrays(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_arrays(each) for each in value)
    return (
        isinstance(value, (np.ndarray, Number))
        or followed.is_scalar(value)
        or (hasattr(value, "__array__") and not isinstance(value, np.generic))
    )


def altered(template: Any, args: list[Any], kwargs: dict[str, Any], changes: Mapping[str | int, Any]) -> None:
    """Put other options into the arguments of a shadow's computation."""
    known = names(template)[0] if template is not None and not isinstance(template, np.ufunc) else ()
    for key, value in changes.items():
        place = key if isinstance(key, int) else known.index(key) if key in known else len(args)
        if place < len(args):
            args[place] = value
        else:
            kwargs[str(key)] = value


def in_shadows(template: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """No `out`, and float dtypes in the formats of shadows."""
    known = names(template)[0] if template is not None and not isinstance(template, np.ufunc) else ()
    for index, name in enumerate(known[: len(args)]):
        if name == "out":
            args[index] = None
        elif name == "dtype" and args[index] is not None:
            args[index] = _in_shadows(args[index])
    for name in ("out", "signature", "sig"):
        kwargs.pop(name, None)
    if kwargs.get("dtype") is not None:
        kwargs["dtype"] = _in_shadows(kwargs["dtype"])


def _in_shadows(dtype: Any) -> Any:
    found = np.dtype(dtype)
    return shadow_dtype(found) if floats(found) else found


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with `change` applied to each array and scalar in its lists and tuples."""
    if isinstance(value, (np.ndarray, np.generic)):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)([mapped(each, change) for each in value])
    return value


def widened(value: Any, *, integers: bool) -> Any:
    """Arguments in long double, integers too where there is nothing else."""

    def change(each: Any) -> Any:
        return each.astype(np.longdouble) if integers and each.dtype.kind in "biu" else raised(each)

    return mapped(value, change)


def narrowed(value: Any) -> Any:
    """Arguments in float64."""
    return mapped(value, lowered)


def any_floats(value: Any) -> bool:
    """Is there an array or a scalar of floats?"""
    if isinstance(value, (list, tuple)):
        return any(any_floats(each) for each in value)
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "fc"
