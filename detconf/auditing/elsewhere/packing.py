"""Arrays and plain values packed into one file, to be read by another process: a zip of JSON and raw bytes, without pickle.

    document    JSON: what was packed; an array stands there as its number
    tables      JSON: per array its form, dtype, shape, and where its bytes begin
    bytes       the bytes of all arrays, one after the other

A long double is kept as two float64 that add up to it exactly, so that another machine can read it. One that has no such
pair (beyond the range of float64, or quadruple precision) is kept as its own bytes, for machines of the same format.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from detconf.arrayfiles.mapped import damaged, mapped, members
from detconf.arrays import raw
from detconf.errors import DetconfError

_PLAIN = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 bfloat16 float8_e4m3fn float8_e5m2".split()  # noqa: SIM905  # a name per line would be a page
)
_LONG = ("longdouble", "clongdouble")
_ALIGNED = 16
_DEEPEST = 32
_LONGEST = 1 << 29
"""Bytes of JSON that are read."""


class Pack:
    """Collects arrays, each once, and gives their numbers."""

    def __init__(self) -> None:
        self.tables: list[list[Any]] = []
        self._chunks: list[Any] = []
        self._size = 0
        self._known: dict[Any, int] = {}

    def array(self, array: Any) -> int | None:
        """The number of a NumPy array; None for None, and for dtypes that hold no numbers."""
        if array is None:
            return None
        array = np.asarray(array)
        name = _name(array.dtype)
        if not name:
            return None
        if name in _LONG:
            return self._long(array, name)
        return self._put("plain", name, array.shape, raw(array))

    def data(self, dtype: str, shape: tuple[int, ...], data: Any) -> int:
        """The number of bytes that have a dtype of their own (`arrays.Array`)."""
        return self._put("bytes", dtype, shape, data)

    def _long(self, array: Any, name: str) -> int:
        parts = np.ascontiguousarray(array).reshape(-1).view(np.longdouble)
        with np.errstate(all="ignore"):
            high = parts.astype(np.float64)
            low = np.where(np.isfinite(parts), parts - high, 0).astype(np.float64)
            exact = _joined(high, low)
        if np.array_equal(exact, parts, equal_nan=True):
            return self._put("pair", name, array.shape, raw(np.stack([high, low])))
        return self._put(_native(), name, array.shape, raw(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))

    def _put(self, form: str, dtype: str, shape: tuple[int, ...], data: Any) -> int:
        from xxhash import xxh3_128  # loaded where something is packed

        view = memoryview(data)
        key = form, dtype, tuple(shape), xxh3_128(view).digest()
        if key not in self._known:
            self._known[key] = len(self.tables)
            self.tables.append([form, dtype, list(shape), self._size, view.nbytes])
            gap = -view.nbytes % _ALIGNED
            self._chunks.append(bytes(view))
            self._chunks.append(bytes(gap))
            self._size += view.nbytes + gap
        return self._known[key]

    def write(self, path: str, document: Any) -> None:
        """Write everything into a new file, which appears under its name when it is whole."""
        temporary = f"{path}.{os.getpid()}.part"
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            archive.writestr("document", json.dumps(document))
            archive.writestr("tables", json.dumps(self.tables))
            with archive.open("bytes", "w", force_zip64=True) as file:
                for chunk in self._chunks:
                    file.write(chunk)
        os.replace(temporary, path)


def _name(dtype: Any) -> str:
    if dtype == np.longdouble and dtype != np.float64:
        return "longdouble"
    if dtype == np.clongdouble and dtype != np.complex128:
        return "clongdouble"
    name = str(dtype.newbyteorder("=") if dtype.isnative else "")
    return name if name in _PLAIN else ""


def _joined(high: Any, low: Any) -> Any:
    # A zero keeps its sign.
    return np.where(low == 0, high.astype(np.longdouble), high.astype(np.longdouble) + low.astype(np.longdouble))


def _native() -> str:
    info = np.finfo(np.longdouble)
    return f"native {info.nmant} {np.dtype(np.longdouble).itemsize}"


class Unpacked:
    """A packed file, read: nothing in it is run, and arrays are taken from the file's memory.

    Attributes:
        document: what was packed.

    Raises:
        DetconfError: no such file, or damaged.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._members = members(path, mapped(path))
        self.document: Any = self._json("document")
        self._tables = self._json("tables")
        self._bytes = self._member("bytes")
        if not isinstance(self._tables, list):
            msg = "its tables"
            raise self.damaged(msg)

    def damaged(self, why: object) -> DetconfError:
        """The error for contents that contradict what they should be."""
        return damaged(self.path, why)

    def guarded(self, action: Callable[[], Any]) -> Any:
        """`action()`, whose errors are those of a damaged file."""
        try:
            return action()
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            msg = f"{type(error).__name__}: {error}"
            raise self.damaged(msg) from error

    def _member(self, name: str) -> memoryview:
        if name not in self._members:
            msg = f"it has no {name}"
            raise self.damaged(msg)
        return self._members[name]()

    def _json(self, name: str) -> Any:
        text = self._member(name)
        if len(text) > _LONGEST:
            msg = f"its {name} has {len(text):,} bytes"
            raise self.damaged(msg)
        return self.guarded(lambda: json.loads(bytes(text), object_pairs_hook=_once))

    def data(self, number: Any) -> tuple[str, tuple[int, ...], memoryview]:
        """(dtype, shape, bytes) of what `Pack.data` packed."""
        form, dtype, shape, data = self.guarded(lambda: self._row(number))
        if form != "bytes":
            msg = "an array in place of a result"
            raise self.damaged(msg)
        return dtype, shape, data

    def array(self, number: Any) -> Any:
        """The array of a number, which cannot be written; None for None."""
        return None if number is None else self.guarded(lambda: self._array(number))

    def _row(self, number: Any) -> tuple[str, str, tuple[int, ...], memoryview]:
        if type(number) is not int or number < 0:
            msg = f"{number!r} is no array"
            raise self.damaged(msg)
        form, dtype, shape, start, size = self._tables[number]
        good = all(type(each) is int and each >= 0 for each in (*shape, start, size)) and len(shape) <= 64
        if not good or start + size > len(self._bytes) or not isinstance(dtype, str):
            msg = f"array {number} lies outside of it"
            raise self.damaged(msg)
        return str(form), dtype, tuple(shape), self._bytes[start : start + size]

    def _array(self, number: Any) -> Any:
        form, name, shape, data = self._row(number)
        if form == "plain" and name in _PLAIN:
            found = np.frombuffer(data, _dtype(name)).reshape(shape)
        elif form == "pair" and name in _LONG:
            high, low = np.frombuffer(data, np.float64).reshape(2, -1)
            found = _joined(high, low).view(getattr(np, name)).reshape(shape)
        elif form == _native() and name in _LONG:
            found = np.frombuffer(data, np.longdouble).view(getattr(np, name)).reshape(shape)
        else:
            msg = f"an array of {name} in the form {form!r}, which this machine cannot read"
            raise self.damaged(msg)
        found.flags.writeable = False
        return found


def _dtype(name: str) -> Any:
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes  # only where there are such arrays

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        msg = "a key stands there twice"
        raise ValueError(msg)
    return found


class Opaque:
    """An option of a kind that is not handed to another process: its text alone.

    Attributes:
        text: as it prints.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def pack_value(pack: Pack, value: Any, depth: int = 0) -> Any:
    """A value as JSON: numbers, text, None, bytes, arrays and containers of these come back as they were, the rest as `Opaque`."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"float": value.hex()}
    if isinstance(value, (np.ndarray, np.generic)) and _name(value.dtype):
        return {"scalar" if isinstance(value, np.generic) else "array": pack.array(value)}
    if type(value) is bytes:
        return {"bytes": value.hex()}
    if type(value) is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if depth < _DEEPEST and type(value) in (tuple, list):
        return {type(value).__name__: [pack_value(pack, each, depth + 1) for each in value]}
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {"dict": [[pack_value(pack, each, depth + 1) for each in pair] for pair in value.items()]}
    if depth < _DEEPEST and type(value) is slice:
        return {"slice": [pack_value(pack, each, depth + 1) for each in (value.start, value.stop, value.step)]}
    return {"opaque": repr(value)[:400]}


def unpack_value(file: Unpacked, value: Any) -> Any:
    """What `pack_value` packed."""
    return file.guarded(lambda: _value(file, value))


def _value(file: Unpacked, value: Any) -> Any:
    if not isinstance(value, dict):
        if value is None or type(value) in (bool, int, str):
            return value
        msg = f"a bare {type(value).__name__}"
        raise file.damaged(msg)
    [(kind, inner)] = value.items()
    if kind not in _KINDS:
        msg = f"a value of kind {kind!r}"
        raise file.damaged(msg)
    return _KINDS[kind](file, inner)


def _items(file: Unpacked, inner: Any) -> list[Any]:
    if not isinstance(inner, list):
        msg = "a container that is none"
        raise file.damaged(msg)
    return [_value(file, each) for each in inner]


def _pairs(file: Unpacked, inner: Any) -> dict[Any, Any]:
    return {_value(file, key): _value(file, each) for key, each in inner}


_KINDS: Mapping[str, Callable[[Unpacked, Any], Any]] = {
    "float": lambda _, inner: float.fromhex(inner),
    "complex": lambda _, inner: complex(*map(float.fromhex, inner)),
    "bytes": lambda _, inner: bytes.fromhex(inner),
    "tuple": lambda file, inner: tuple(_items(file, inner)),
    "list": _items,
    "dict": _pairs,
    "slice": lambda file, inner: slice(*_items(file, inner)),
    "array": lambda file, inner: file.array(inner),
    "scalar": lambda file, inner: file.array(inner)[()],
    "opaque": lambda _, inner: Opaque(str(inner)),
}
