"""Nested results of any framework, flattened to named arrays."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib import import_module
from numbers import Number
from struct import pack
from typing import Any, Protocol

from detconf.arrays import Array
from detconf.errors import TargetError
from detconf.frameworks import frameworks
from detconf.lookup import first_line

ACCEPTED = (
    "arrays and tensors of numpy, torch and paddle; bool, int, float, complex, str, bytes, None; mappings, sequences, "
    "dataclasses and objects with state_dict() of these"
)
BARE = "result"
"""Name of a result that is one tensor or number, and stem of the names of a bare list."""
_DEPTH = 100


class Tensors(Protocol):
    """The `tensors` module of a framework."""

    def is_tensor(self, value: Any) -> bool:
        """Is `value` an array of this framework?"""
        ...

    def components(self, value: Any) -> Any:
        """What to flatten in its place, for one that is not plain bytes (sparse, masked, quantized); else None."""
        ...

    def to_array(self, value: Any) -> Array:
        """The bytes of one without components; aliases `value` where it can."""
        ...


def flatten(value: Any, name: str = "") -> dict[str, Array]:
    """Every array, number and text in `value`, by path: "model.weight", "grads[0]", "result" for a bare one.

    The arrays may alias the tensors: take `owned()` before anything is computed in place. Names do not depend on the
    order of a mapping's keys; the order of the result does.

    Args:
        value: any nesting of `ACCEPTED`.
        name: what the paths start with.

    Raises:
        TargetError: something that has no bytes to compare, a cycle, or two values with one path.
    """
    return {path: array for path, (array, _) in leaves(value, name).items()}


def leaves(value: Any, name: str = "", look: Callable[[Any], Any] = lambda leaf: leaf) -> dict[str, tuple[Array, Any]]:
    """As `flatten`, each array beside what `look` says of the object that it is made of, before it is touched."""
    found: dict[str, tuple[Array, Any]] = {}
    for path, array, leaf in _walk(value, name, (), _tensors(), look):
        if path in found:
            msg = f"{path}: two values in this result have that name. Accepted: keys whose paths differ; rename one."
            raise TargetError(msg)
        found[path] = array, leaf
    return found


def _tensors() -> list[Tensors]:
    # A tensor can only come from a framework that is imported.
    modules: list[Any] = [import_module(each.tensors) for each in frameworks() if each.tensors and each.module in sys.modules]
    return modules


def _walk(
    value: Any, path: str, above: tuple[int, ...], tensors: Sequence[Tensors], look: Callable[[Any], Any]
) -> Iterator[tuple[str, Array, Any]]:
    leaf = value if isinstance(value, Array) else _scalar(value)
    owner = next((each for each in tensors if each.is_tensor(value)), None)
    inside: Any = None
    seen = look(value) if owner is not None or leaf is not None else None
    if owner is not None:  # before the scalars: a numpy.float64 is a float
        inside, leaf = _convert(owner, value, path or BARE)
    if leaf is not None:
        yield path or BARE, leaf, seen
        return
    if id(value) in above or len(above) >= _DEPTH:
        what = "refers to itself" if id(value) in above else f"is nested more than {_DEPTH} deep"
        msg = f"{path or BARE}: {_type(value)} {what}. Accepted: a tree of {ACCEPTED}."
        raise TargetError(msg)
    for child, item in _children(value, path) if inside is None else _children(inside, path or BARE):
        yield from _walk(item, child, (*above, id(value)), tensors, look)


def _convert(owner: Tensors, value: Any, path: str) -> tuple[Any, Array | None]:
    """(the components of a tensor, or its bytes)."""
    try:
        inside = owner.components(value)
        return inside, owner.to_array(value) if inside is None else None
    except TargetError as error:
        msg = f"{path}: {error}"
        raise TargetError(msg) from None
    except Exception as error:
        msg = f"{path}: the bytes of a {_type(value)} cannot be read: {first_line(error)}"
        raise TargetError(msg) from error


def _scalar(value: Any) -> Array | None:
    """A Python value as a 0-d array; None for anything else."""
    if value is None:
        return Array("none", (), b"")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Array("bytes", (), bytes(value))
    if isinstance(value, str):
        return Array("str", (), value.encode("utf-8", "surrogatepass"))
    if not isinstance(value, (bool, int, float, complex)):
        return None
    return _number(value)


def _number(value: complex) -> Array:
    if isinstance(value, bool):
        return Array("bool", (), pack("?", value))
    if isinstance(value, int):
        small = -(2**63) <= value < 2**63
        return Array("int64", (), pack("q", value)) if small else Array("int", (), b"%d" % value)
    if isinstance(value, float):
        return Array("float64", (), pack("d", value))
    return Array("complex128", (), pack("dd", value.real, value.imag))


def _children(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, value) of what a container holds, or of the state of an object that has one."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield _key(path, key), item
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield _key(path, field.name), getattr(value, field.name)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name, item in zip(value._fields, value, strict=True):
            yield _key(path, name), item
    elif isinstance(value, Sequence):
        for index, item in enumerate(value):
            yield f"{path or BARE}[{index}]", item
    elif callable(getattr(value, "state_dict", None)) and not isinstance(value, type):
        yield from _children(value.state_dict(), path)
    else:
        remedy = " A set has no order: sort it into a list." if isinstance(value, AbstractSet) else ""
        msg = f"{path or BARE}: {_type(value)} cannot be compared.{remedy} Accepted: {ACCEPTED}."
        raise TargetError(msg)


def _key(path: str, key: Any) -> str:
    if isinstance(key, str) and key:
        return f"{path}.{key}" if path else key
    if isinstance(key, Number):  # numpy's integers too
        return f"{path or BARE}[{key}]"
    if isinstance(key, (str, type(None))) or (isinstance(key, tuple) and all(isinstance(part, (str, int)) for part in key)):
        return f"{path or BARE}[{key!r}]"
    msg = f"{path or BARE}: a key of type {_type(key)} names nothing. Accepted: text, numbers, None, tuples of str and int."
    raise TargetError(msg)


def _type(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
