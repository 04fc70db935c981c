"""NumPy arrays and scalars as bytes."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from detconf.arrays import Array, raw
from detconf.errors import TargetError

_X87 = (63, 10)
"""Mantissa bits of an x86 long double, and how many of its bytes carry it; the rest is whatever was in memory."""


def is_tensor(value: Any) -> bool:
    """An array or a scalar of numpy, ml_dtypes included."""
    np = sys.modules["numpy"]
    return isinstance(value, (np.ndarray, np.generic))


def components(value: Any) -> Any:
    """What stands for `value` where its bytes alone do not; None for a plain array.

    A masked array is its data, zero where masked (what lies there is left over from some computation), and its mask.
    """
    ma = sys.modules.get("numpy.ma")
    if ma is None or not isinstance(value, ma.MaskedArray):
        return None
    mask = ma.getmaskarray(value)
    data = ma.getdata(value).copy()
    data[mask] = sys.modules["numpy"].zeros((), data.dtype)
    return {"data": data, "mask": mask}


def to_array(value: Any) -> Array:
    """Any shape and strides; byte order made native, padding of structured types and long doubles left out or zeroed.

    Raises:
        TargetError: the elements are Python objects.
    """
    array = sys.modules["numpy"].asarray(value)
    if array.dtype.hasobject:
        msg = f"an array of dtype {array.dtype} holds pointers to Python objects, not values. Accepted: any other dtype; use astype()."
        raise TargetError(msg)
    array = _without_padding(array.astype(_packed(array.dtype), copy=False))
    return Array(str(array.dtype), array.shape, raw(array))


def _packed(dtype: Any) -> Any:
    native = dtype.newbyteorder("=")
    return import_module("numpy.lib.recfunctions").repack_fields(native, recurse=True) if dtype.names else native


def _without_padding(array: Any) -> Any:
    np = sys.modules["numpy"]
    if array.dtype not in (np.longdouble, np.clongdouble) or np.finfo(np.longdouble).nmant != _X87[0]:
        return array
    clean = array.copy(order="C")
    clean.reshape(-1).view("uint8").reshape(-1, np.dtype(np.longdouble).itemsize)[:, _X87[1] :] = 0
    return clean
