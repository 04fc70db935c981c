"""`.npy` and `.npz`: NumPy's own formats, without the pickles that NumPy would also read there."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from detconf.arrayfiles.mapped import damaged, members
from detconf.arrayfiles.rebuilt import Loader, pickled_dict, plain_array
from detconf.arrays import Array
from detconf.errors import DetconfError

MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 1 << 16


def npy(source: str, data: memoryview) -> Mapping[str, Loader] | Loader:
    """The array of a `.npy` file; the arrays of one that holds a pickled dict, as reprod_log writes it.

    Raises:
        DetconfError: damaged, or an array of other Python objects.
    """
    dtype, shape, fortran, start = _header(source, data)
    if dtype.hasobject:
        if shape != ():
            msg = f"{source} holds pointers to Python objects, not values. Accepted: arrays of numbers, or one dict of them."
            raise DetconfError(msg)
        return pickled_dict(source, data[start:])
    size = math.prod(shape) * dtype.itemsize
    if len(data) - start != size:
        raise damaged(source, f"{len(data) - start:,} bytes follow its header, which promises {size:,}")
    return partial(_array, data[start:], dtype, shape, fortran)


def _array(data: memoryview, dtype: Any, shape: tuple[int, ...], fortran: bool) -> Array:
    import numpy as np

    return plain_array(np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C"))


def _header(source: str, data: memoryview) -> tuple[Any, tuple[int, ...], bool, int]:
    """(dtype, shape, in Fortran's order?, where the values start)."""
    from numpy.lib.format import descr_to_dtype

    width = 2 if bytes(data[6:7]) == b"\1" else 4
    start = 8 + width
    length = int.from_bytes(data[8:start], "little")
    if bytes(data[:6]) != MAGIC or data[6] not in (1, 2, 3) or length > min(_LONGEST_HEADER, len(data) - start):
        raise damaged(source, "its header")
    try:
        header = ast.literal_eval(bytes(data[start : start + length]).decode("utf-8" if data[6] == 3 else "latin-1"))
        dtype, shape, fortran = (header.pop(key) for key in ("descr", "shape", "fortran_order"))
        if header or not isinstance(fortran, bool) or not _is_shape(shape):
            raise damaged(source, "its header")
        return descr_to_dtype(dtype), shape, fortran, start + length
    except (ValueError, SyntaxError, TypeError, AttributeError, KeyError, RecursionError, MemoryError) as error:
        raise damaged(source, f"its header: {type(error).__name__}") from error


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple) and len(shape) <= 64 and all(type(size) is int and 0 <= size < 1 << 62 for size in shape)


def npz(path: str, data: memoryview) -> Mapping[str, Loader]:
    """The arrays of a `.npz` file, each read when it is called for."""
    found: dict[str, Loader] = {}
    for name, member in members(path, data).items():
        if not name.endswith(".npy"):
            msg = f"{path}: its member {name!r} is no array. Accepted: .npz of NumPy, or a checkpoint of torch."
            raise DetconfError(msg)
        found[name.removesuffix(".npy")] = partial(_member, f"{path}:{name}", member)
    return found


def _member(source: str, member: Any) -> Array:
    loader = npy(source, member())
    if isinstance(loader, Mapping):
        msg = f"{source} holds pointers to Python objects, not values. Accepted: arrays of numbers."
        raise DetconfError(msg)
    return loader()
