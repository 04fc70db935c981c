"""What was added up in a result: the terms of a product or of a sum among a run's operations, as the real computation had them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.auditing.attempts.fingerprint import factors, spread
from detconf.auditing.sums.accumulating import Terms
from detconf.auditing.sums.contractions import contraction
from detconf.frameworks.base import PRODUCTS, TERMS
from detconf.shadows.study import Known, Operation, Read, Study, Value

_SIDE = 8
"""Rows and columns that are sampled; of what is no matrix, its square."""
_SHORT = 3
"""Additions that are no chain yet."""
_ELEMENTS = 1 << 22
"""Terms of all sampled elements together."""
_EQUAL = 1e-9


_LINKS, _LOOKED_UP = 1 << 12, 1 << 26
"""Additions that are followed back, and elements among which those of views are looked up."""
_Found = tuple[Any, Callable[[Sequence[Any], Any], Terms]]
_At = tuple[int, int]
"""A read: number of the operation, and which of its reads."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the terms of some elements come out of what a run's operations read.

    Attributes:
        reads: what is needed: (number of the operation, which of its reads).
        places: of the elements that are sampled, in the flat result.
        at: the arrays that were read, and places of elements -> the terms of these.
        loop: single additions, one after the other.
    """

    reads: Sequence[_At]
    places: Any
    at: Callable[[Sequence[Any], Any], Terms]
    loop: bool = False

    def of(self, arrays: Sequence[Any]) -> Terms:
        """The terms of the sampled elements."""
        return self.at(arrays, self.places)

    def real(self, study: Study) -> Terms | None:
        """The terms as the real computation had them, in a study of the same program that kept its arrays."""
        if any(index >= len(study.operations) for index, _ in self.reads):
            return None
        arrays = [_real(study.operations[index].reads[place]) for index, place in self.reads]
        return None if any(each is None for each in arrays) else self.of(arrays)


def last_sum(study: Study, known: Known) -> Recipe | None:
    """Of the product or sum that a result comes straight out of, but for casts, or of the additions that follow one another there."""
    value = known.value
    if value.shadow is None or not np.array_equal(np.ravel(known.shadow), np.ravel(value.shadow)):
        return None  # a part of it, or in another order
    while value.maker >= 0:
        operation = study.operations[value.maker]
        found = recipe(operation, value.shadow) or _chain(study, value)
        if found is not None:
            return found
        if not keeps(operation):
            return None
        value = operation.reads[0].value
    return None


def keeps(operation: Operation) -> bool:
    """Does an operation give the numbers that it reads, in another dtype or shape?"""
    read, written = operation.reads[:1], operation.writes[:1]
    return len(operation.reads) == len(operation.writes) == 1 and _same(read[0].shadow, written[0].shadow)


def _same(shadow: Any, other: Any) -> bool:
    return shadow is not None and np.size(shadow) == np.size(other) and bool(np.array_equal(np.ravel(shadow), np.ravel(other)))


def recipe(operation: Operation, result: Any, near: float = _EQUAL) -> Recipe | None:
    """Of one operation; None where it is neither a contraction of two arrays nor a sum or mean.

    Args:
        operation: the operation.
        result: what it gave, in the precision of the shadows that it read.
        near: how far these may be apart, relative to sums of absolute terms.
    """
    result, reads = np.asarray(result), [each.shadow for each in operation.reads]
    if result.dtype.kind != "f" or not result.size or any(each is None or np.asarray(each).dtype.kind != "f" for each in reads):
        return None
    if operation.adds == TERMS:
        found = _sum(np.asarray(reads[0]), result, near) if len(reads) == 1 else None
    else:
        found = _product(reads, result, near) or (_contraction(operation, reads, result, near) if operation.adds == PRODUCTS else None)
    return found and Recipe([(operation.index, place) for place in range(len(reads))], *found)


def _product(reads: Sequence[Any], result: Any, near: float) -> _Found | None:
    found = factors(reads, result, near)
    if found is None:
        return None
    places = _grid(found.shape)

    def terms(arrays: Sequence[Any], places: Any) -> Terms:
        left, right = found.of(arrays)
        rows, columns = np.divmod(places, found.shape[1])
        added = None
        for each in (np.asarray(arrays[at], np.float64) for at in found.added):
            part = np.broadcast_to(each.reshape(-1, each.shape[-1]), found.shape).reshape(-1)[places]
            added = part if added is None else added + part
        return Terms(left.T[:, rows], right[:, columns], added)

    return places, terms


def _contraction(operation: Operation, reads: Sequence[Any], result: Any, near: float) -> _Found | None:
    places = spread(result.size, _SIDE**2)
    found = contraction(reads, result, operation.options, places, near)
    if found is None:
        return None

    def terms(arrays: Sequence[Any], places: Any) -> Terms:
        parts = found.terms(arrays, places)
        assert parts is not None  # noqa: S101  # it fitted arrays of the same shapes
        return Terms(*parts, places=found.places)

    return places, terms


def _grid(shape: tuple[int, int]) -> Any:
    rows, columns = (spread(size, _SIDE if min(shape) > 1 else _SIDE**2) for size in shape)
    return (rows[:, None] * shape[1] + columns[None, :]).reshape(-1)


def _sum(array: Any, result: Any, near: float) -> _Found | None:
    for number in range(1, array.ndim + 1):
        for axes in itertools.combinations(range(array.ndim), number):
            count = math.prod(array.shape[axis] for axis in axes)
            if array.size != result.size * count:
                continue
            total, scale = np.sum(array, axis=axes).reshape(-1), np.sum(np.abs(array), axis=axes).reshape(-1)
            for divisor in dict.fromkeys((1, count)):
                if bool(np.all(np.abs(result.reshape(-1) * divisor - total) <= near * scale)):
                    return _reduction(axes, count, divisor, result.size)
    return None


def _reduction(axes: tuple[int, ...], count: int, divisor: int, size: int) -> _Found:
    places = spread(size, max(1, min(_SIDE**2, _ELEMENTS // count)))

    def terms(arrays: Sequence[Any], places: Any) -> Terms:
        array = np.asarray(arrays[0], np.float64)
        first = np.moveaxis(array, axes, range(len(axes)))
        return Terms(first.reshape(count, size)[:, places], count=divisor)

    return places, terms


def _chain(study: Study, value: Value) -> Recipe | None:
    """Of additions, each of which adds to the result of the one before, element by element."""
    ends: list[_At] = []
    at = _additions(study, value.maker, ends)
    if len(ends) < _SHORT:
        return None
    first = study.operations[at[0]].reads[at[1]].shadow
    ends = [*([at] if np.any(first != 0) else []), *reversed(ends)]
    factors_of = [_factors(study, each) for each in ends]
    multiplied = all(factors_of)
    reads = [read for each, pair in zip(ends, factors_of, strict=True) for read in (pair if multiplied else (_uncast(study, each),))]
    if sum(np.size(study.operations[index].reads[place].value.shadow) for index, place in reads) > _LOOKED_UP:
        return None
    shape = np.shape(value.shadow)
    places = spread(math.prod(shape), max(1, min(_SIDE**2, _ELEMENTS // len(ends))))

    def terms(arrays: Sequence[Any], places: Any) -> Terms:
        rows = np.stack([np.broadcast_to(each, shape).reshape(-1)[places] for each in arrays])
        return Terms(rows[::2], rows[1::2]) if multiplied else Terms(rows)

    return Recipe(reads, places, terms, loop=True)


def _additions(study: Study, index: int, ends: list[_At]) -> _At:
    """Append what each addition adds, the last one first. Returns where the chain begins."""
    at = (index, 0)
    while index >= 0 and len(ends) < _LINKS and _is(study.operations[index], np.add):
        before = [_maker(study, _uncast(study, (index, place))) for place in (0, 1)]
        chained = next((place for place, maker in enumerate(before) if maker >= 0 and _is(study.operations[maker], np.add)), 0)
        ends.append((index, 1 - chained))
        at, index = (index, chained), before[chained]
    return at


def _factors(study: Study, at: _At) -> tuple[_At, ...]:
    maker = _maker(study, _uncast(study, at))
    return ((maker, 0), (maker, 1)) if maker >= 0 and _is(study.operations[maker], np.multiply) else ()


def _maker(study: Study, at: _At) -> int:
    read = study.operations[at[0]].reads[at[1]]
    return read.value.maker if read.view is None else -1


def _uncast(study: Study, at: _At) -> _At:
    """Where it was read before it was cast."""
    while (maker := _maker(study, at)) >= 0 and keeps(study.operations[maker]):
        at = (maker, 0)
    return at


def _is(operation: Operation, function: Any) -> bool:
    """Does it compute this function of two arrays? By what it gave: operations have other names elsewhere."""
    reads, made = [each.shadow for each in operation.reads], operation.writes[0].shadow if len(operation.writes) == 1 else None
    if made is None or len(reads) != 2 or any(each is None or each.dtype.kind != "f" for each in (*reads, made)):
        return False
    try:
        return bool(np.array_equal(function(*reads), made))
    except ValueError:  # shapes that do not go together
        return False


def _real(read: Read) -> Any:
    """What was read, as the real computation had it, in float64; None where that was not kept.

    Of a view only the shadow is known: each of its elements is looked up in the shadow of the whole.
    """
    value: Value = read.value
    if value.real is None or value.shadow is None:
        return None
    whole = np.asarray(value.real).astype(np.float64)
    if read.view is None:
        return whole
    shadow, wanted = np.ravel(value.shadow), np.ravel(read.view)
    order = np.argsort(shadow, kind="stable")
    found = np.minimum(np.searchsorted(shadow[order], wanted), shadow.size - 1)
    places = order[found]
    return whole.reshape(-1)[places].reshape(np.shape(read.view)) if np.array_equal(shadow[places], wanted) else None
