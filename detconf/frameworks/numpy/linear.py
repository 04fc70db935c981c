"""Linear algebra in long double, which LAPACK does not have: elimination, and refinement of eigenvectors.

Of matrices up to `LARGEST`, stacked or not. What is not here (singular values, least squares, general eigenvalues) is as
exact as float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LARGEST = 256
"""Rows of a matrix up to which its long double results are computed."""


def _eliminated(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """(triangular factor, `b` eliminated alike, sign of the permutation) by rows with partial pivoting; stacked matrices."""
    a, b = np.array(a), np.array(b)
    size = a.shape[-1]
    sign = np.ones(a.shape[:-2], a.real.dtype)
    for column in range(size):
        pivot = column + np.argmax(np.abs(a[..., column:, column]), axis=-1)[..., None, None]
        order = np.where(np.arange(size)[:, None] == column, pivot, np.arange(size)[:, None])
        order = np.where((np.arange(size)[:, None] == pivot) & (pivot != column), column, order)
        a, b = np.take_along_axis(a, order, -2), np.take_along_axis(b, order, -2)
        sign = np.where(pivot[..., 0, 0] == column, sign, -sign)
        factor = a[..., column + 1 :, column, None] / a[..., column, column][..., None, None]
        a[..., column + 1 :, :] -= factor * a[..., column, None, :]
        b[..., column + 1 :, :] -= factor * b[..., column, None, :]
    return a, b, sign


def solve(a: Any, b: Any) -> Any:
    """The solution of `a x = b`; `b` has as many dimensions as `a`."""
    upper, right, _ = _eliminated(a, np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])))
    for row in reversed(range(a.shape[-1])):
        rest = upper[..., row, None, row + 1 :] @ right[..., row + 1 :, :]
        right[..., row, :] = (right[..., row, :] - rest[..., 0, :]) / upper[..., row, row][..., None]
    return right


def inverse(a: Any) -> Any:
    """The inverse."""
    return solve(a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))


def determinant(a: Any) -> Any:
    """The determinant."""
    upper, _, sign = _eliminated(a, a[..., :0])
    return sign * np.prod(np.diagonal(upper, axis1=-2, axis2=-1), axis=-1)


def logarithm(a: Any) -> tuple[Any, Any]:
    """(sign, logarithm of the absolute value) of the determinant."""
    upper, _, sign = _eliminated(a, a[..., :0])
    pivots = np.diagonal(upper, axis1=-2, axis2=-1)
    return sign * np.prod(pivots / np.abs(pivots), axis=-1), np.sum(np.log(np.abs(pivots)), axis=-1)


def cholesky(a: Any) -> Any:
    """The lower triangular factor."""
    lower = np.zeros_like(a)
    for column in range(a.shape[-1]):
        done = lower[..., column:, :column] @ np.conj(lower[..., column, :column, None])
        rest = a[..., column:, column] - done[..., 0]
        lower[..., column:, column] = rest / np.sqrt(rest[..., 0].real)[..., None]
    return lower


def symmetric(a: Any, values: Any, vectors: Any) -> tuple[Any, Any]:
    """(eigenvalues, eigenvectors) of the symmetric `a` from those in float64, refined (Ogita and Aishima 2018)."""
    eye = np.eye(a.shape[-1], dtype=a.dtype)
    for _ in range(2):
        turned = np.conj(np.swapaxes(vectors, -1, -2))
        off, diagonal = eye - turned @ vectors, turned @ a @ vectors
        values = np.diagonal(diagonal, axis1=-2, axis2=-1).real / (1 - np.diagonal(off, axis1=-2, axis2=-1).real)
        gap = values[..., None, :] - values[..., :, None]
        size = np.max(np.abs(values), axis=-1)[..., None, None]
        apart = np.abs(gap) > 1e-12 * size  # float64 does not tell the vectors of the others apart
        step = np.where(apart, (diagonal + values[..., None, :] * off) / np.where(apart, gap, 1), off / 2)
        vectors = vectors + vectors @ step
    return values, vectors
