"""Number formats: their unit roundoff, and rounding to those that no framework here computes in. Pure NumPy.

TF32 has 10 explicit bits of significand and the exponent of float32 (NVIDIA, "TensorFloat-32", Ampere white paper).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

UNIT: Mapping[str, float] = MappingProxyType(
    {
        "float8_e4m3fn": 2.0**-4,
        "float8_e5m2": 2.0**-3,
        "bfloat16": 2.0**-8,
        "float16": 2.0**-11,
        "float32": 2.0**-24,
        "float64": 2.0**-53,
        "complex64": 2.0**-24,
        "complex128": 2.0**-53,
    }
)
"""Unit roundoff by dtype: half the distance from 1 to the next number."""

ROUNDINGS: Mapping[str, tuple[int, int, int, bool]] = MappingProxyType(
    {
        # name: bits of significand, with the hidden one; exponents of the smallest and the largest normal; truncates
        "float32": (24, -126, 127, False),
        "tf32": (11, -126, 127, False),
        "tf32 truncated": (11, -126, 127, True),
        "bfloat16": (8, -126, 127, False),
        "bfloat16 truncated": (8, -126, 127, True),
        "float16": (11, -14, 15, False),
    }
)
"""Formats that `round_to` knows."""


def unit(dtype: str) -> float:
    """Unit roundoff of a dtype; 0 for those that are exact (integers, booleans)."""
    return UNIT.get(dtype, 0.0)


def round_to(array: Any, name: str) -> Any:
    """A float64 array with each element rounded to a format, to nearest even or towards zero; subnormals kept.

    Args:
        array: float64 of any shape; not changed.
        name: one of `ROUNDINGS`.
    """
    bits, lowest, highest, truncates = ROUNDINGS[name]
    array = np.asarray(array, dtype=np.float64)
    exponent = np.maximum(np.frexp(array)[1] - 1, lowest)
    quantum = np.ldexp(1.0, np.where(np.isfinite(array), exponent, 0) - bits + 1)
    scaled = array / quantum
    result = (np.trunc(scaled) if truncates else np.rint(scaled)) * quantum
    limit = 2.0 ** (highest + 1) - 2.0 ** (highest + 1 - bits)
    return np.where(np.abs(result) > limit, limit if truncates else np.inf, np.abs(result)) * np.where(np.signbit(array), -1.0, 1.0)
