"""What a child answers, in one file: JSON, and the bytes of arrays after it. Nothing is unpickled."""

from __future__ import annotations

import dataclasses
import json
import struct
from enum import Enum
from typing import Any

from detconf.arrays import Array

_LENGTH = struct.Struct("<Q")
_ARRAY = "$array"


def pack(value: Any, path: str) -> None:
    """Write any nesting of dataclasses, mappings, sequences, numbers, text and arrays."""
    blobs: list[Array] = []
    text = json.dumps(_plain(value, blobs)).encode()
    with open(path, "wb") as file:
        file.write(_LENGTH.pack(len(text)))
        file.write(text)
        file.writelines(each.data for each in blobs)


def unpack(path: str) -> Any:
    """What `pack` wrote: dataclasses as mappings, tuples as lists."""
    with open(path, "rb") as file:
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        plain = json.loads(file.read(length))
        return _rebuilt(plain, file.read(), [0])


def _plain(value: Any, blobs: list[Array]) -> Any:
    if isinstance(value, Array):
        blobs.append(value)
        return {_ARRAY: [value.dtype, list(value.shape), value.nbytes]}
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name), blobs) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(each, blobs) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each, blobs) for each in value]
    return value


def _rebuilt(value: Any, data: bytes, at: list[int]) -> Any:
    """`at`: where the next array's bytes begin; they were written in the order of the text."""
    if isinstance(value, dict):
        if _ARRAY in value:
            dtype, shape, size = value[_ARRAY]
            at[0] += size
            return Array(dtype, tuple(shape), data[at[0] - size : at[0]])
        return {key: _rebuilt(each, data, at) for key, each in value.items()}
    return [_rebuilt(each, data, at) for each in value] if isinstance(value, list) else value
