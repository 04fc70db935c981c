"""Between two recordings: integers that wrap round, and operands in another order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from detconf.auditing.attempts.culprits import wrapped
from detconf.auditing.question import Finding
from detconf.auditing.recordings.recomputing import reading, result
from detconf.auditing.recordings.recorded_pair import RecordedPair
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.arrangements import arrangements
from detconf.shadows.regions import plain
from detconf.shadows.study import Operation
from detconf.values import Cause

_ARRANGEMENTS = 150
"""Of one operand."""


def overran(pair: RecordedPair) -> Finding | None:
    """Integers that are the reference's modulo a power of two."""
    return wrapped(pair.leading(pair.a), pair.region.operations)


def rearranged(pair: RecordedPair) -> Finding | None:
    """Where the sides part, an operand in another order gives what the reference has."""
    for operation in pair.region.sources:
        place = reading(operation)
        for number, words, arrays in _reordered(operation) if place >= 0 else ():
            given = result(operation, place, arrays)
            if given is not None and not plain(given) and pair.ours.alike(given):
                shown = f"operand {number} of {operation.name}, {words}, gives what the reference has"
                fix = Fix(f"bring that operand into the reference's order: {words}", verified=True)
                proof = Proof("re-created", f"{shown}, computed again from the recorded values")
                return Finding(Cause.LAYOUT, shown, proof, [Evidence(shown)], [fix], operation=operation)
    return None


def _reordered(operation: Operation) -> Iterator[tuple[int, str, list[Any]]]:
    """(number of the operand, in words, all operands): one operand in another order that keeps its shape."""
    inputs = [each.shadow for each in operation.reads]
    for number, array in enumerate(inputs):
        for each in islice(arrangements(array.shape), _ARRANGEMENTS):
            yield number, each.words, [*inputs[:number], each.apply(array), *inputs[number + 1 :]]
