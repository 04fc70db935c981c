"""What a contraction other than a product of two matrices adds up: batched products, sums by labels, convolutions. Pure.

Which axes go together, strides, paddings and groups are told from shapes and numbers, as recordings do not say them: a reading
counts where the terms that it gives, added up, are the result's elements.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.auditing.sums.convolutions import convolutions

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_EQUATION = re.compile(r"[A-Za-z.\s]+,[A-Za-z.\s]+(->[A-Za-z.\s]*)?")
_FEW = 8
"""Elements by which a reading is tried first."""
_NUMBERS = 3
"""Arrays that are read at most: two factors, and one that is added."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A sum over the labels that the result has not, of products of two arrays.

    Attributes:
        left, right, result: a label for each axis. An axis of one element goes with any.
    """

    left: str
    right: str
    result: str

    def factors(self, left: Any, right: Any, shape: Sequence[int], places: Any) -> tuple[Any, Any] | None:
        """(terms, elements) of either factor, of the elements at some places of the flat result; None where shapes do not fit."""
        sizes: dict[str, int] = {}
        axes = [*zip(self.left, left.shape, strict=True), *zip(self.right, right.shape, strict=True)]
        for label, size in axes:
            sizes[label] = max(size, sizes.get(label, 1))
        made = [sizes.get(each, 0) for each in self.result]
        if any(size not in {1, sizes[label]} or (size == 1 and label not in self.result) for label, size in axes if size != sizes[label]):
            return None
        if [each for each in made if each != 1] != [each for each in shape if each != 1]:
            return None
        index = dict(zip(self.result, np.unravel_index(places, made or [1]), strict=False))
        summed = [each for each in self.left if each not in self.result]
        if sorted(summed) != sorted(each for each in self.right if each not in self.result):
            return None
        return _picked(left, self.left, index, summed), _picked(right, self.right, index, summed)


def _picked(array: Any, labels: str, index: Mapping[str, Any], summed: Sequence[str]) -> Any:
    """(terms, elements): the axes of the result at their places, those that are summed as they come."""
    fixed = [label for label in labels if label in index]
    moved = np.transpose(array, [labels.index(label) for label in (*fixed, *summed)])
    picked = (
        moved[tuple(np.minimum(index[label], size - 1) for label, size in zip(fixed, moved.shape, strict=False))] if fixed else moved[None]
    )
    return picked.reshape(picked.shape[0], -1).T


@dataclass(frozen=True, slots=True)
class Contraction:
    """A reading of an operation as a contraction.

    Attributes:
        left, right: numbers of the arrays that are multiplied.
        how: gives their factors.
        added: numbers of arrays that are added to the sums, with the axis of the result that each lies along; None for the last ones.
        shape: of the result.
        places: of a filter, which are the terms of one channel; 1 where there is none.
    """

    left: int
    right: int
    how: Any
    added: tuple[tuple[int, int | None], ...]
    shape: tuple[int, ...]
    places: int

    def terms(self, arrays: Sequence[Any], places: Any) -> tuple[Any, Any, Any] | None:
        """(left factors, right factors, what is added, or None) at some places of the flat result; None where nothing fits."""
        arrays = [np.asarray(each, np.float64) for each in arrays]
        found = self.how.factors(arrays[self.left], arrays[self.right], self.shape, places)
        if found is None or not found[0].size or found[0].shape != found[1].shape:
            return None
        added = None
        for place, axis in self.added:
            array = arrays[place] if axis is None else arrays[place].reshape(-1, *[1] * (len(self.shape) - axis - 1))
            part = np.broadcast_to(array, self.shape).reshape(-1)[places]
            added = part if added is None else added + part
        return (*found, added)


def contraction(arrays: Sequence[Any], result: Any, options: Mapping[str | int, Any], places: Any, near: float) -> Contraction | None:
    """The reading that gives a result, to `near` relative to the sums of absolute products; None for none.

    Args:
        arrays: what was read, in the precision of the result.
        result: what it gave.
        options: of the operation, as far as they are known.
        places: of the elements of the flat result that are looked at.
    """
    if not 2 <= len(arrays) <= _NUMBERS or any(np.ndim(each) == 0 for each in arrays):
        return None
    arrays = [np.asarray(each, np.float64) for each in arrays]
    few = places[np.unique(np.linspace(0, len(places) - 1, _FEW).astype(np.int64))]
    for each in _readings(arrays, result, options):
        if all(_fits(each, arrays, result, some, near) for some in (few, places)):
            return each
    return None


def _readings(arrays: Sequence[Any], result: Any, options: Mapping[str | int, Any]) -> Iterator[Contraction]:
    for left, right in itertools.permutations(range(len(arrays)), 2):
        others = [place for place in range(len(arrays)) if place not in {left, right}]
        a, b = arrays[left], arrays[right]
        ways = itertools.chain(
            ((how, None) for how in _labelled(a.ndim, b.ndim, options, swapped=left > right)), convolutions(a.shape, b.shape, result.shape)
        )
        for how, channels in ways:
            axes = {each: channels if arrays[each].ndim == 1 else None for each in others}
            if all(_adds(arrays[each].shape, result.shape, axis) for each, axis in axes.items()):
                yield Contraction(left, right, how, tuple(axes.items()), result.shape, 1 if channels is None else math.prod(b.shape[2:]))


def _adds(shape: Sequence[int], result: Sequence[int], axis: int | None) -> bool:
    """Can an array be added to the result, along that axis?"""
    if axis is not None:
        return shape[0] in {1, result[axis]}
    return len(shape) <= len(result) and all(a in {1, b} for a, b in zip(shape[::-1], result[::-1], strict=False))


def _labelled(a: int, b: int, options: Mapping[str | int, Any], *, swapped: bool) -> Iterator[Labelled]:
    """Readings of a product of arrays of so many axes."""
    for each in options.values():
        if isinstance(each, str) and _EQUATION.fullmatch(each.strip()):
            yield from _of_equation(each, b if swapped else a, a if swapped else b, swapped=swapped)
    if "axes" in options and not swapped:
        yield from _of_axes(options["axes"], a, b)
    row, column, summed, batch, own = "y", "x", "z", _LETTERS[:20], _LETTERS[26:46]
    for x, y in itertools.product(_ends(a, row, summed), _ends(b, column, summed)):
        p, q = a - len(x), b - len(y)
        rows, columns, wide = row * (len(x) - 1), column * (len(y) - 1), max(p, q)
        for out in dict.fromkeys((rows + columns, columns + rows)):
            yield Labelled(batch[wide - p : wide] + x, batch[wide - q : wide] + y, batch[:wide] + out)
        if q:  # every batch with every one
            yield Labelled(batch[:p] + x, own[:q] + y, batch[:p] + rows + own[:q] + columns)


def _ends(axes: int, own: str, summed: str) -> list[str]:
    """The last axes: of a vector, or of matrices, as they are and transposed."""
    return [summed] if axes == 1 else [own + summed, summed + own]


def _of_axes(axes: Any, a: int, b: int) -> Iterator[Labelled]:
    """`tensordot`."""
    try:
        pairs = zip(range(a - axes, a), range(axes), strict=True) if isinstance(axes, int) else zip(*map(np.atleast_1d, axes), strict=True)
        left, right = list(_LETTERS[:a]), list(_LETTERS[a : a + b])
        for x, y in pairs:
            right[int(y)] = left[int(x)]
    except (TypeError, ValueError, IndexError):
        return
    result = [each for each in left if each not in right] + [each for each in right if each not in left]
    yield Labelled("".join(left), "".join(right), "".join(result))


def _of_equation(equation: str, a: int, b: int, *, swapped: bool) -> Iterator[Labelled]:
    """`einsum`, of two arrays of so many axes."""
    given, _, result = "".join(equation.split()).partition("->")
    free = [each for each in _LETTERS if each not in given]
    operands = []
    for labels, axes in zip(given.split(","), (a, b), strict=True):
        operands.append(labels.replace("...", "".join(free[: axes - len(labels.replace("...", ""))][::-1])))
    together = "".join(operands)
    if "->" not in equation:
        result = "".join(sorted(each for each in set(together) if together.count(each) == 1 or each in free))
    else:
        dots = max((each for each in operands), key=lambda each: sum(label in free for label in each))
        result = result.replace("...", "".join(each for each in dots if each in free))
    if all(len(set(labels)) == len(labels) == axes for labels, axes in zip(operands, (a, b), strict=True)):
        left, right = operands[::-1] if swapped else operands
        yield Labelled(left, right, result)


def _fits(reading: Contraction, arrays: Sequence[Any], result: Any, places: Any, near: float) -> bool:
    found = reading.terms(arrays, places)
    if found is None:
        return False
    left, right, added = found
    exact = np.sum(left * right, axis=0) + (0.0 if added is None else added)
    scale = np.sum(np.abs(left * right), axis=0)
    with np.errstate(all="ignore"):
        return bool(np.all(np.abs(exact - result.reshape(-1)[places]) <= near * scale))
