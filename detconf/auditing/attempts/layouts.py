"""The same elements in another order: of what was computed, or of what goes in."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from detconf.auditing.attempts.parting import Parting
from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import agrees
from detconf.auditing.question import Finding, put
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.arrangements import Arrangement, arrangements, blocks
from detconf.shadows.pool import Pool
from detconf.shadows.regions import plain
from detconf.shadows.study import Operation, Study, Value
from detconf.values import Cause

_FIRST, _ARRANGEMENTS = 60, 400
_OPERANDS = 8
_SECONDS = 15.0
"""Orders tried per operand, first and in all; operands; and the time."""


def arranged(parting: Parting) -> Finding | None:
    """Find the order, of what comes out, of what was computed, of one operand, or of the blocks of several."""
    return _result(parting) or _reordered(parting) or _operands(parting)


def _result(parting: Parting) -> Finding | None:
    ours, theirs = parting.a.known[parting.output].shadow, parting.b.known[parting.output].shadow
    if ours.shape != theirs.shape or ours.size < 2:
        return None
    for each in itertools.islice(arrangements(theirs.shape), _ARRANGEMENTS):
        if agrees(ours, each.apply(theirs)):
            words = f"{parting.output} holds the reference's elements in another order: {each.words}"
            return _layout(words, f"{parting.output} {each.words}", None)
    return None


def _reordered(parting: Parting) -> Finding | None:
    """Values with the elements of one of the reference's, in another order: each by itself, then all."""
    found: dict[int, Callable[[Any], Any]] = {}
    named: list[Value] = []
    for value in (*parting.theirs.leaves, *(each for operation in parting.theirs.operations[:200] for each in operation.writes)):
        if value.shadow is None or plain(value.shadow) or value.shadow.size < 2 or parting.pool.find(value.shadow):
            continue
        for other in parting.pool.find(value.shadow, ordered=False)[:4]:
            if other.shadow is None or other.shadow.size != value.shadow.size:
                continue
            amendment = put(other.shadow.reshape(value.shape))
            named.append(value)
            if parting.repaired(amendments={value.index: amendment}):
                found = {value.index: amendment}
                return _elements(parting, [value])
            found.setdefault(value.index, amendment)
    return _elements(parting, named) if len(found) > 1 and parting.repaired(amendments=found) else None


def _elements(parting: Parting, values: list[Value]) -> Finding:
    words = f"{_words(values[0], parting.b.study)} holds the reference's elements in another order"
    return _layout(words, "its elements in the reference's order", _maker(values[0], parting))


def _operands(parting: Parting) -> Finding | None:
    end = time.process_time() + _SECONDS
    for words, amendments in _rearranged(parting):
        if time.process_time() > end:
            parting.question.tried.append("orders of the operands' elements: not all of them, for lack of time")
            return None
        found = parting.question.laboratory.study(parting.question.b, amendments=amendments)
        after = None if found is None else _after(parting, found)
        if after is not None:
            return _layout(f"an operand is in another order: {words}{after}", words + after, next(iter(parting.theirs.sources), None))
    parting.question.tried.append("other orders of the operands' elements: none makes the sides agree")
    return None


def _after(parting: Parting, found: Observation) -> str | None:
    """Empty where a run agrees with the reference; where it does but for the order of the result, that order; else None."""
    if parting.question.same_shadows(parting.a.known, found.known, [parting.output]):
        return ""
    ours, theirs = parting.a.known[parting.output].shadow, found.known.get(parting.output)
    if theirs is None or ours.shape != theirs.shadow.shape or not Pool([(0, ours)], 1e-9).find(theirs.shadow, ordered=False):
        return None
    orders = itertools.islice(arrangements(ours.shape), _ARRANGEMENTS)
    return next((f", and the result {each.words}" for each in orders if agrees(ours, each.apply(theirs.shadow))), None)


def _rearranged(parting: Parting) -> Iterator[tuple[str, dict[int, Callable[[Any], Any]]]]:
    """The first orders of single operands, then the blocks of several at once, then the other orders."""
    operands = [read.value for read in parting.theirs.anchors if read.value.shadow is not None and read.value.shadow.size > 1]
    operands = [value for value in operands if np.issubdtype(value.shadow.dtype, np.inexact) and not plain(value.shadow)][:_OPERANDS]
    yield from _exchanges(parting, operands)
    yield from _single(parting, operands, 0, _FIRST)
    yield from _groups(operands)
    yield from _single(parting, operands, _FIRST, _ARRANGEMENTS)


def _exchanges(parting: Parting, operands: Sequence[Value]) -> Iterator[tuple[str, dict[int, Callable[[Any], Any]]]]:
    """Two operands of one shape in each other's place."""
    for one, other in itertools.combinations(operands, 2):
        if one.shape == other.shape:
            words = f"{_words(one, parting.b.study)} and {_words(other, parting.b.study)} in each other's place"
            yield words, {one.index: put(other.shadow), other.index: put(one.shadow)}


def _single(parting: Parting, operands: Sequence[Value], start: int, end: int) -> Iterator[tuple[str, dict[int, Callable[[Any], Any]]]]:
    for value in operands:
        for each in itertools.islice(arrangements(value.shape), start, end):
            yield f"{_words(value, parting.b.study)}, {each.words}", {value.index: each.apply}


def _groups(operands: Sequence[Value]) -> Iterator[tuple[str, dict[int, Callable[[Any], Any]]]]:
    """Operands that share the length of an axis, their blocks along it in one order."""
    seen = set()
    for value in operands:
        for axis, length in enumerate(value.shape):
            partners = [
                (other, each)
                for other in operands
                for each, size in enumerate(other.shape)
                if size == length and (other is not value or each == axis)
            ]
            partners = list({id(other): (other, each) for other, each in reversed(partners)}.values())
            if len(partners) < 2 or length in seen:
                continue
            seen.add(length)
            for order in itertools.chain.from_iterable(blocks((length,), 0, count) for count in (2, 3, 4)):
                yield f"{len(partners)} operands, {order.words}", {other.index: _along(order, each) for other, each in partners}


def _along(order: Arrangement, axis: int) -> Callable[[Any], Any]:
    def apply(array: Any) -> Any:
        places = order.apply(np.arange(array.shape[axis]))
        return np.take(array, places, axis=axis)

    return apply


def _layout(summary: str, what: str, operation: Operation | None) -> Finding:
    proof = Proof("removed", f"with {what}, in higher precision, the sides agree")
    return Finding(
        Cause.LAYOUT,
        summary,
        proof,
        [Evidence(summary)],
        [Fix(f"bring the operand into the reference's order: {what}", verified=True)],
        operation=operation,
    )


def _maker(value: Value, parting: Parting) -> Operation | None:
    return parting.b.study.operations[value.maker] if value.maker >= 0 else None


def _words(value: Value, study: Study) -> str:
    what = study.operations[value.maker].name if value.maker >= 0 else value.origin or "an input"
    return f"{what} of shape {list(value.shape)}"
