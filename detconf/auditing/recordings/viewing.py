"""Which elements of an array a view of it holds, told from the elements alone: recordings do not say how a view was taken.

A slice, a transpose, a flip or a broadcast is an offset and a stride per dimension. Where no such numbers give the view's elements,
the elements themselves say where they come from, if each stands once in the array.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

_TRIES = 32
"""Places that are tried for one element that stands in an array several times; and combinations of strides."""


def viewed(before: Any, view: Any, after: Any) -> Any:
    """`after`, read as `before` was read as `view`; None where that cannot be told.

    Args:
        before, after: of one shape.
        view: some elements of `before`, in any shape.
    """
    places = elements(before, view)
    return None if places is None else after.reshape(-1)[places]


def elements(whole: Any, view: Any) -> Any:
    """Per element of `view` its place in `whole`, counted in C order; None where that cannot be told."""
    if whole.size == view.size and np.array_equal(whole.reshape(-1), view.reshape(-1), equal_nan=True):
        return np.arange(view.size).reshape(view.shape)
    if not view.size or not whole.size:
        return None
    strided = next(_strided(whole.reshape(-1), view), None)
    return _sorted(whole.reshape(-1), view) if strided is None else strided


def _strided(flat: Any, view: Any) -> Iterator[Any]:
    """Places by an offset and strides."""
    first = view.reshape(-1)[0]
    for offset in np.flatnonzero(flat == first)[:_TRIES]:
        lines = [list(_strides(flat, int(offset), view, axis)) for axis in range(view.ndim)]
        for strides in itertools.islice(itertools.product(*lines), _TRIES):
            grids = (np.arange(size).reshape([-1 if at == axis else 1 for at in range(view.ndim)]) for axis, size in enumerate(view.shape))
            places = np.broadcast_to(sum((step * grid for step, grid in zip(strides, grids, strict=True)), int(offset)), view.shape)
            if np.min(places) >= 0 and np.max(places) < flat.size and np.array_equal(flat[places], view, equal_nan=True):
                yield places


def _strides(flat: Any, offset: int, view: Any, axis: int) -> Iterator[int]:
    """The strides that give the first line of a view along a dimension."""
    line = np.moveaxis(view, axis, 0).reshape(view.shape[axis], -1)[:, 0]
    if len(line) == 1:
        yield 0
        return
    for place in np.flatnonzero(flat == line[1])[:_TRIES]:
        step = int(place) - offset
        last = offset + step * (len(line) - 1)
        if 0 <= last < flat.size and np.array_equal(flat[offset + step * np.arange(len(line))], line, equal_nan=True):
            yield step


def _sorted(flat: Any, view: Any) -> Any:
    """Places of elements by their values; of as many equal ones in order."""
    seen = view.reshape(-1)
    order = np.argsort(flat, kind="stable")
    known = flat[order]
    if flat.size == seen.size:
        target = np.argsort(seen, kind="stable")
        if not np.array_equal(known, seen[target], equal_nan=True):
            return None
        found = np.empty(flat.size, dtype=np.int64)
        found[target] = order
        return found.reshape(view.shape)
    at = np.searchsorted(known, seen)
    if np.any(at >= flat.size) or not np.array_equal(known[at], seen):
        return None
    once = np.concatenate([[True], known[1:] != known[:-1]]) & np.concatenate([known[1:] != known[:-1], [True]])
    return order[at].reshape(view.shape) if np.all(once[at]) else None
