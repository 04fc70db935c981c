"""Digests of NumPy's arrays and scalars, and of the state of its generators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from xxhash import xxh3_128

from detconf.arrays import Array
from detconf.digests import NOTHING, mix, prefix
from detconf.frameworks.numpy import tensors

Layout = tuple[str, tuple[int, ...]]
_PLAIN_KINDS = "biufc"
_names: dict[Any, str] = {}


def describe(value: Any) -> tuple[bytes, Layout]:
    """(digest, (dtype, shape)) of an array or a number. The digest is that of `Array`.

    `NOTHING` for arrays of Python objects: they hold pointers, not values.
    """
    if not isinstance(value, np.ndarray):
        value = np.asarray(value)
    name = _names.get(value.dtype) or _name(value.dtype)
    if not name:
        return _unusual(value)
    shape = value.shape
    state = xxh3_128(prefix(name, shape))
    if value.size:
        state.update(value if value.flags.c_contiguous else np.ascontiguousarray(value))
    return state.digest(), (name, shape)


def _name(dtype: Any) -> str:
    """Empty for a dtype whose memory is not its bytes: other byte orders, padding, text, dates, extensions."""
    usual = dtype.kind in _PLAIN_KINDS and dtype.isnative and dtype not in (np.dtype(np.longdouble), np.dtype(np.clongdouble))
    _names[dtype] = str(dtype) if usual else ""
    return _names[dtype]


def _unusual(value: Any) -> tuple[bytes, Layout]:
    try:
        array = tensors.to_array(value)
    except Exception:  # noqa: BLE001  # Python objects: no bytes, and the program must go on
        return NOTHING, (str(value.dtype), value.shape)
    return bytes.fromhex(array.digest), (array.dtype, array.shape)


def array(value: Any) -> Array:
    """The bytes of an array or a number, owned; no bytes for Python objects."""
    try:
        return tensors.to_array(value).owned()
    except Exception:  # noqa: BLE001  # as above
        return Array("none", (), b"")


def number(value: Any) -> bytes:
    """A witness of a number that is an argument."""
    return mix(type(value).__name__.encode(), value.tobytes() if isinstance(value, np.generic) else repr(value).encode())


def state_of(bits: Any) -> bytes:
    """Digest of the state of a bit generator, or of the dictionary that is one."""
    return mix(b"".join(_parts(bits if isinstance(bits, Mapping) else bits.state)))


def _parts(state: Mapping[str, Any]) -> list[bytes]:
    parts: list[bytes] = []
    for key, value in state.items():
        parts.append(mix(key.encode()))
        if isinstance(value, Mapping):
            parts += _parts(value)
        else:
            parts.append(mix(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()))
    return parts
