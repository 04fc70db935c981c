"""Which of NumPy's operations add up, and what."""

from __future__ import annotations

from collections.abc import Mapping

from detconf.frameworks.base import PRODUCTS, TERMS

_MULTIPLYING = "matmul dot einsum tensordot inner outer vdot vecdot matvec vecmat linalg.multi_dot convolve correlate"
_SUMMING = (
    "sum nansum mean nanmean average var nanvar std nanstd trace cumsum nancumsum cumulative_sum add.reduce add.reduceat "
    "add.accumulate linalg.norm linalg.vector_norm linalg.matrix_norm linalg.trace logaddexp.reduce cov corrcoef"
)
CONTRACTIONS = frozenset(f"numpy.{name}" for name in _MULTIPLYING.split())
SUMS: Mapping[str, str] = {**{f"numpy.{name}": TERMS for name in _SUMMING.split()}, **dict.fromkeys(CONTRACTIONS, PRODUCTS)}
