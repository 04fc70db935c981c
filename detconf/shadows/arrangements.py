"""Ways in which the elements of an array are put in another order by mistake. Pure data: words, and what does it.

Each keeps the shape: mistakes that change it are noticed by the program itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations
from typing import Any

import numpy as np

_FEW, _BLOCKS = 4, 6
"""Blocks up to which all their orders are tried: gates of recurrent cells, query/key/value, colours."""
_AXES = 5
_GROUPS = 16
Shape = Sequence[int]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Another order of the elements of arrays of one shape.

    Attributes:
        words: what was done.
        apply: the array in that order, of the same shape.
    """

    words: str
    apply: Callable[[Any], Any]


def arrangements(shape: Shape) -> Iterator[Arrangement]:
    """The orders that mistakes lead to, the simplest first, and those of few blocks before those of many."""
    yield from _transposed(shape)
    yield from _flipped(shape)
    yield from _reinterpreted(shape)
    for count in range(2, _BLOCKS + 1):
        for axis in range(len(shape)):
            yield from blocks(shape, axis, count)
        if count == _FEW:
            for axis in range(len(shape)):
                yield from _interleaved(shape, axis)
                yield from _regrouped(shape, axis)


def blocks(shape: Shape, axis: int, count: int) -> Iterator[Arrangement]:
    """So many equal blocks along an axis in all other orders; none where the axis has no such blocks."""
    if shape[axis] % count == 0 and shape[axis] >= count:
        for order in list(permutations(range(count)))[1:]:
            words = f"the {count} blocks along axis {axis} taken in the order {order}"
            yield Arrangement(words, partial(_reorder, axis=axis, order=order))


def _reorder(array: Any, axis: int, order: Sequence[int]) -> Any:
    parts = np.split(array, len(order), axis=axis)
    return np.concatenate([parts[place] for place in order], axis=axis)


def _transposed(shape: Shape) -> Iterator[Arrangement]:
    if len(shape) <= _AXES:
        for order in list(permutations(range(len(shape))))[1:]:
            if tuple(shape[axis] for axis in order) == tuple(shape):
                yield Arrangement(f"transposed, axes {order}" if len(shape) > 2 else "transposed", partial(np.transpose, axes=order))


def _flipped(shape: Shape) -> Iterator[Arrangement]:
    axes = [axis for axis, length in enumerate(shape) if length > 1]
    for count in (1, 2, 3):
        for chosen in combinations(axes, count):
            yield Arrangement(
                f"reversed along {'axis' if count == 1 else 'axes'} {', '.join(map(str, chosen))}", partial(np.flip, axis=chosen)
            )


def _reinterpreted(shape: Shape) -> Iterator[Arrangement]:
    """Memory of one order of axes read as another: channels-last taken for channels-first, a weight's (in, out) for (out, in)."""
    if 2 <= len(shape) <= 4:
        for order in list(permutations(range(len(shape))))[1:]:
            if sum(length > 1 for length in shape) > 1:
                yield Arrangement(f"stored with its axes in the order {order} and read as if in this", partial(_stored, order=order))
                yield Arrangement(f"read with its axes in the order {order} though stored in this", partial(_read, order=order))


def _stored(array: Any, order: Sequence[int]) -> Any:
    return np.ascontiguousarray(np.transpose(array, order)).reshape(array.shape)


def _read(array: Any, order: Sequence[int]) -> Any:
    permuted = np.ascontiguousarray(array).reshape([array.shape[axis] for axis in order])
    return np.transpose(permuted, np.argsort(order))


def _interleaved(shape: Shape, axis: int) -> Iterator[Arrangement]:
    """An axis that is made of two, in the other order: halves against pairs of a rotary embedding, heads against features."""
    length = shape[axis]
    for count in range(2, length):
        if length % count == 0 and length // count > 1 and (count <= 64 or length // count <= 64):
            yield Arrangement(
                f"axis {axis} split as ({count}, {length // count}) and merged the other way", partial(_merge, axis=axis, count=count)
            )


def _merge(array: Any, axis: int, count: int) -> Any:
    shape = array.shape
    inner = (*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :])
    return np.swapaxes(array.reshape(inner), axis, axis + 1).reshape(shape)


def _regrouped(shape: Shape, axis: int) -> Iterator[Arrangement]:
    """An axis that is made of three, the first two in the other order: heads of queries, keys and values, or these of each head."""
    length = shape[axis]
    for first in range(2, min(length, _GROUPS) + 1):
        for second in range(2, min(length // first, _GROUPS) + 1):
            if length % (first * second) == 0 and length > first * second:
                words = f"axis {axis} split as ({first}, {second}, {length // first // second}), the first two exchanged"
                yield Arrangement(words, partial(_regroup, axis=axis, counts=(first, second)))


def _regroup(array: Any, axis: int, counts: tuple[int, int]) -> Any:
    shape = array.shape
    inner = (*shape[:axis], *counts, shape[axis] // counts[0] // counts[1], *shape[axis + 1 :])
    return np.swapaxes(array.reshape(inner), axis, axis + 1).reshape(shape)
