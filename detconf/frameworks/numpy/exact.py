"""Products of long doubles at the speed of BLAS: cut into slices whose products are exact in float64 (Ozaki et al. 2012)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_BITS = 66
"""Bits of each row, and of each column, that take part: those of a long double and two more."""


def product(a: Any, b: Any) -> Any:
    """`a @ b` to within about 2^-62 of the largest element of each row times the largest of each column times the length.

    Args:
        a, b: long doubles of two dimensions or more.
    """
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return a @ b
    # Sums of `length` products of integers of so many bits stay below 2^53.
    bits = (53 - math.ceil(math.log2(max(a.shape[-1], 2)))) // 2
    count = -(-_BITS // bits)
    left, left_scale = _slices(a, -1, bits, count)
    right, right_scale = _slices(b, -2, bits, count)
    total: Any = np.longdouble(0)
    for order in reversed(range(count)):  # smallest first
        for first in range(order + 1):
            total = total + np.ldexp((left[first] @ right[order - first]).astype(np.longdouble), -bits * (order + 2))
    return total * left_scale * right_scale


def _slices(array: Any, axis: int, bits: int, count: int) -> tuple[list[Any], Any]:
    """Integers of that many bits in float64, which make the array when weighted by 2^-bits, 2^-2bits, ... and the scale."""
    largest = np.max(np.abs(array), axis=axis, keepdims=True)
    scale = np.ldexp(np.longdouble(1), np.frexp(largest)[1])
    rest, found = array / scale, []
    for _ in range(count):
        rest = np.ldexp(rest, bits)
        whole = np.rint(rest)
        found.append(whole.astype(np.float64))
        rest = rest - whole
    return found, scale
