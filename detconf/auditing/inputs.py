"""A function's arguments taken from files or arrays: `--inputs x=in.npz:x,W=w.npy`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from detconf.arrayfiles.opened import KINDS, open_arrays
from detconf.arrays import Array
from detconf.auditing.elsewhere.packing import Pack, Unpacked
from detconf.errors import TargetError
from detconf.results import BARE, flatten
from detconf.targets import label
from detconf.values import suggest

_FORM = "Accepted: NAME=FILE or NAME=FILE:ARRAY, joined by commas; FILE alone for all arrays of a file"


def parse(text: str) -> dict[str, Array]:
    """The arrays that `x=in.npz:x,W=w.npy` names; `in.npz` alone stands for all arrays in it, by their own names.

    Raises:
        DetconfError: a file cannot be read, or has no such array.
    """
    found: dict[str, Array] = {}
    for part in filter(None, text.split(",")):
        name, equals, place = part.partition("=")
        named = {name: _at(place)} if equals else {own: array for own, array in open_arrays(name).items() if own != BARE}
        for own, array in named.items():
            if own in found or not own:
                msg = f"inputs: {own or part!r} is named twice, or has no name. {_FORM}."
                raise TargetError(msg)
            found[own] = array.owned()
    if text and not found:
        msg = f"inputs: {text!r} names no array. {_FORM}."
        raise TargetError(msg)
    return found


def _at(place: str) -> Array:
    """The array of "file" or "file:name"."""
    path, _, name = (place, "", "") if os.path.isfile(place) else place.rpartition(":")
    arrays = open_arrays(path or place)
    if not name and len(arrays) == 1:
        return next(iter(arrays.values()))
    if name not in arrays:
        known = ", ".join(list(arrays)[:8])
        msg = f"{path or place} has no array {name!r}.{suggest(name, list(arrays))} It has: {known}."
        raise TargetError(msg)
    return arrays[name]


def arrays_of(inputs: Any) -> dict[str, Any]:
    """NumPy arrays by name, of text as `parse` reads it or a mapping of arrays of any framework.

    Raises:
        TargetError: something without numbers.
        DetconfError: see `parse`.
    """
    if isinstance(inputs, Mapping):
        found = {name: array for key, value in inputs.items() for name, array in flatten(value, str(key)).items()}
    elif isinstance(inputs, str):
        found = parse(inputs)
    else:
        msg = f"inputs: {type(inputs).__name__} is not accepted. {_FORM}, or a mapping of name to array."
        raise TargetError(msg)
    return {name: numpy_of(name, array) for name, array in found.items()}


def numpy_of(name: str, array: Array) -> Any:
    """An array as NumPy's (ml_dtypes' for bfloat16 and float8).

    Raises:
        TargetError: it holds no numbers.
    """
    import numpy as np  # loaded where there are inputs

    try:
        kind = np.dtype(_ml_dtype(array.dtype) or array.dtype)
        found = np.frombuffer(bytes(array.data), kind).reshape(array.shape).copy()
    except (TypeError, ValueError, AttributeError):
        found = None
    if found is None or found.dtype.hasobject or found.dtype.names:
        msg = f"inputs: {name} is of dtype {array.dtype} and holds no numbers. Accepted: arrays of {KINDS}."
        raise TargetError(msg)
    return found


def _ml_dtype(name: str) -> Any:
    if not name.startswith(("bfloat", "float8")):
        return None
    import ml_dtypes  # only where there are such arrays

    return getattr(ml_dtypes, name)


def given(function: Callable[..., Any], arrays: Mapping[str, Any]) -> Callable[[], Any]:
    """`function` with arguments by name, each a fresh copy at each call. Arguments that it does not take are left out.

    Raises:
        TargetError: it takes an argument that is not among them.
    """
    taken = {name: arrays[name] for name in _accepted(function, list(arrays))}

    def with_inputs() -> Any:
        return function(**{name: array.copy() for name, array in taken.items()})

    with_inputs.__module__ = getattr(function, "__module__", with_inputs.__module__)
    with_inputs.__qualname__ = label(function)
    with_inputs.file = getattr(getattr(function, "__code__", None), "co_filename", "")  # type: ignore[attr-defined]  # where its lines are
    return with_inputs


def _accepted(function: Callable[..., Any], names: Sequence[str]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return list(names)
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return list(names)
    by_name = [name for name, each in parameters.items() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    missing = [name for name in by_name if name not in names and parameters[name].default is inspect.Parameter.empty and name != "rows"]
    if missing:
        msg = f"{label(function)} takes {', '.join(missing)}, which the inputs do not name. They name: {', '.join(names)}."
        raise TargetError(msg)
    used = [name for name in by_name if name in names]
    if not used:
        msg = f"{label(function)} takes none of the inputs {', '.join(names)}. Accepted: a function with arguments of those names."
        raise TargetError(msg)
    return used


def pack(path: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays for another process."""
    packed = Pack()
    packed.write(path, {"inputs": {name: packed.array(array) for name, array in arrays.items()}})


def load_packed(path: str) -> dict[str, Any]:
    """What `pack` wrote.

    Raises:
        DetconfError: damaged.
    """
    file = Unpacked(path)
    found: dict[str, Any] = file.guarded(lambda: {name: file.array(number) for name, number in file.document["inputs"].items()})
    return found
