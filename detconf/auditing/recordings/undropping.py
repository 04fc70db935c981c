"""Does one side of two recorded ones drop elements where the other does not? Its operations are carried out without that.

A recording shows a mask that is drawn, perhaps scaled, and multiplied; or one operation that draws and gives what it read, in part
zeros, in part scaled by one number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import SEEN
from detconf.auditing.question import Finding
from detconf.auditing.recordings.recomputing import kind
from detconf.auditing.recordings.recorded_pair import Alike, RecordedPair
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.study import Operation, Read, Study, Value
from detconf.values import Cause

_NEAR = 1e-2
"""Factors of one scale agree to this, whatever the dtype."""


def undropped(pair: RecordedPair) -> Finding | None:
    """One side alone drops: without that, do the sides agree?"""
    for who, own, other, pool in (("candidate", pair.b, pair.a, pair.ours), ("reference", pair.a, pair.b, pair.theirs)):
        drops = _drops(pair, own, pool)
        if not drops or unmatched(pair, other, pair.theirs if other is pair.a else pair.ours):
            continue
        without = _without(own, drops)
        again = RecordedPair(*((other, without) if own is pair.b else (without, other)), pair.differing)
        if again.whole and all(each.units <= SEEN for each in again.splits.values()):
            return _finding(who, [own.study.operations[index] for index in drops])
    return None


def unmatched(pair: RecordedPair, own: Observation, other: Alike) -> list[Operation]:
    """The operations of a side that draw what the other side has nowhere."""
    drawn = (each for each in pair.leading(own) if each.random)
    return [each for each in drawn if not any(value.shadow is not None and other.find(value.shadow) for value in each.writes)]


def _drops(pair: RecordedPair, own: Observation, other: Alike) -> dict[int, Read]:
    """Numbers of the operations that drop, and what each gives where nothing is dropped."""
    drawing = {each.index for each in unmatched(pair, own, other)}
    masks, found = set[int](), dict[int, Read]()
    for operation in pair.leading(own):
        kept = [each for each in operation.reads if each.value.index not in masks]
        whole = next((each for each in kept if operation.index in drawing and scaled(operation, each)), None)
        if whole is not None:
            found[operation.index] = whole
        elif operation.index in drawing or (operation.reads and not kept):
            masks |= {each.index for each in operation.writes}
        elif kind(operation.name) == "mul" and len(kept) == 1 < len(operation.reads):
            found[operation.index] = kept[0]
    return found


def scaled(operation: Operation, read: Read) -> bool:
    """Is its result what it read, scaled by one number but where it is zero?"""
    x, y = read.shadow, operation.writes[0].shadow if operation.writes else None
    if x is None or y is None or x.shape != y.shape or not {x.dtype.kind, y.dtype.kind} <= {"f"}:
        return False
    left = (y != 0) & (x != 0)
    ratios = y[left] / x[left]
    return bool(np.any(x) and np.all(np.abs(ratios / ratios[:1] - 1) <= _NEAR))


def _without(own: Observation, drops: Mapping[int, Read]) -> Observation:
    """The side with operations that give what they read in place of those that drop."""
    study = Study(keep_real=True)
    study.values = list(own.study.values)
    for index, read in drops.items():
        value = own.study.operations[index].writes[0]
        study.values[value.index] = replace(value, shadow=np.broadcast_to(read.shadow, value.shape))
    study.operations = [_same(each, drops.get(each.index), study.values) for each in own.study.operations]
    known = {name: replace(each, value=study.values[each.value.index]) for name, each in own.known.items()}
    return Observation(own.arrays, known, study)


def _same(operation: Operation, read: Read | None, values: list[Value]) -> Operation:
    reads = operation.reads if read is None else [read]
    name, options = (operation.name, operation.options) if read is None else ("detconf.same", {})
    writes = [values[each.index] for each in operation.writes]
    return replace(
        operation, name=name, options=options, writes=writes, reads=[Read(values[each.value.index], each.view) for each in reads]
    )


def _finding(who: str, drops: list[Operation]) -> Finding:
    places = ", ".join(dict.fromkeys(each.source or each.name for each in drops))
    words = f"the {who} drops elements at random ({places}), and the other side does not"
    what = f"carried out again without that, the {who}'s recorded operations agree with the other side"
    fix = Fix(f"evaluate the {who} in evaluation mode, or train both (tried on its recorded operations)", verified=True)
    return Finding(Cause.MODE, words, Proof("removed", what), [Evidence(words, len(drops))], [fix], operation=drops[0])
