"""Sums in the order in which NumPy and PyTorch make them on a CPU, in the dtype of the terms. Pure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_LANES = 8
"""Sums side by side in NumPy's pairwise sum (numpy/_core/src/umath/loops_utils.h.src)."""
_ROWS, _LEVELS, _LEAST = 4, 4, 4
"""Of PyTorch's cascade (aten/src/ATen/native/cpu/SumKernel.cpp): vectors side by side, levels, and log2 of the shortest level."""


def running(array: Any, axis: int = 0) -> Any:
    """Sums along an axis, one after the other: `accumulate` never goes by pairs. Of nothing: zeros."""
    if array.shape[axis] == 0:
        return np.zeros(array.shape[:axis] + array.shape[axis + 1 :], array.dtype)
    return np.take(np.add.accumulate(array, axis=axis), -1, axis=axis)


def pairwise(terms: Any, length: int) -> Any:
    """Halves of (terms, ...), each added up so, down to `length` terms: NumPy's sum of contiguous terms, with 128."""
    count = len(terms)
    if count < _LANES:
        return running(terms)
    if count <= length:
        whole = count // _LANES * _LANES
        sums = running(terms[:whole].reshape(-1, _LANES, *terms.shape[1:]))
        while len(sums) > 1:
            sums = sums[::2] + sums[1::2]
        return running(np.concatenate([sums, terms[whole:]]))
    half = count // 2
    half -= half % _LANES
    return pairwise(terms[:half], length) + pairwise(terms[half:], length)


def cascade(terms: Any, width: int) -> Any:
    """PyTorch's sum of (terms, ...): in vectors of `width`, four side by side; with 0, one by one, as of terms that lie apart."""
    if width == 0:
        return _levels(terms)
    whole = len(terms) // width * width
    vectors = terms[:whole].reshape(-1, width, *terms.shape[1:])
    size = len(vectors) // _ROWS * _ROWS
    rows = _levels(vectors[:size].reshape(-1, _ROWS, *vectors.shape[1:]))
    first = running(np.concatenate([rows[:1], vectors[size:]]))
    return running(np.concatenate([terms[whole:], running(np.concatenate([first[None], rows[1:]]))]))


def _levels(terms: Any) -> Any:
    """So many terms are added one after the other, so many of these sums again, and in the end what the levels hold."""
    step = 1 << max(_LEAST, (math.ceil(math.log2(len(terms))) if len(terms) > 1 else 1) // _LEVELS)
    held = []
    for _ in range(_LEVELS - 1):
        whole = len(terms) // step * step
        held.append(running(terms[whole:]))
        terms = running(terms[:whole].reshape(-1, step, *terms.shape[1:]), 1)
    return running(np.stack([*held, running(terms)]))
