"""Which format the shadow of a NumPy array has, and the way there and back.

float64 for what is up to 32 bits wide, `longdouble` for float64, complex likewise; integers and booleans are their own.
Where the platform's long double is no wider than a double, shadows of float64 are as exact as the real arrays.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from detconf.shadows.formats import ROUNDINGS, UNIT, round_to

DOUBLE, LONG, COMPLEX, LONG_COMPLEX = map(np.dtype, (np.float64, np.longdouble, np.complex128, np.clongdouble))
LONGS = (LONG, LONG_COMPLEX)
_RAISED, _LOWERED = {DOUBLE: LONG, COMPLEX: LONG_COMPLEX}, {LONG: DOUBLE, LONG_COMPLEX: COMPLEX}


@lru_cache(maxsize=256)
def shadow_dtype(dtype: Any) -> Any:
    """The dtype of shadows of `dtype`; itself for integers and booleans; None where there is none (text, objects, records)."""
    if dtype.kind == "f":
        return DOUBLE if dtype.itemsize < DOUBLE.itemsize else LONG
    if dtype.kind == "c":
        return COMPLEX if dtype.itemsize < COMPLEX.itemsize else LONG_COMPLEX
    if dtype.kind in "biu":
        return dtype
    return DOUBLE if str(dtype) in UNIT else None  # bfloat16 and float8 of ml_dtypes


@lru_cache(maxsize=256)
def doubled(dtype: Any) -> Any:
    """float64 for floats of less, complex128 likewise; any other dtype itself."""
    found = shadow_dtype(dtype)
    return found if found is not None and found in (DOUBLE, COMPLEX) else dtype


@lru_cache(maxsize=256)
def floats(dtype: Any) -> bool:
    """Is it a dtype that rounds?"""
    found = shadow_dtype(dtype)
    return found is not None and found.kind in "fc"


def up(value: Any) -> Any:
    """A float array or scalar in the format of its shadow, others as they are. An array may be returned as it is."""
    if not floats(value.dtype):
        return value
    target = shadow_dtype(value.dtype)
    return value if value.dtype == target else value.astype(target)


def raised(value: Any) -> Any:
    """Long doubles for doubles."""
    target = _RAISED.get(value.dtype)
    return value if target is None else value.astype(target)


def lowered(value: Any) -> Any:
    """Doubles for long doubles."""
    target = _LOWERED.get(value.dtype)
    return value if target is None else value.astype(target)


def rounded(shadow: Any, dtype: Any) -> Any:
    """A shadow rounded to a real dtype, in its own format."""
    name = str(dtype)
    if shadow.dtype.kind == "f" and name in ROUNDINGS:
        return round_to(shadow, name).astype(shadow.dtype)
    return shadow.astype(dtype).astype(shadow.dtype)
