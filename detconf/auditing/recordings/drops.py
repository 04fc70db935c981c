"""Random operations of a recording: what they draw, and whether that is a layer in training mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detconf.auditing.question import Finding
from detconf.auditing.recordings.recorded_pair import RecordedPair
from detconf.auditing.recordings.undropping import scaled, unmatched
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.study import Operation
from detconf.values import Cause


def drawn(pair: RecordedPair) -> Finding | None:
    """Does the candidate draw other numbers than the reference, or one side alone draw?"""
    left_on = _trained(list(pair.leading(pair.a)), list(pair.leading(pair.b)))
    if left_on is not None:
        return left_on
    sources = {each.index for each in pair.region.sources}
    random = (each for each in pair.region.operations if each.random and (_is_free(each) or each.index in sources))
    first = next((each for each in random if _draws(pair, each)), None)
    if first is None:
        return None
    words = f"{first.name} drew other numbers than anything in the reference"
    fix = Fix("give both sides the same generator state, or the same numbers")
    return Finding(
        Cause.RNG, words, Proof("bounded", "what it read is equal, and what it drew is not"), [Evidence(words)], [fix], operation=first
    )


def _draws(pair: RecordedPair, operation: Operation) -> bool:
    """Did it draw other numbers than a reference that draws as well?

    One that reads arrays may have drawn nothing: what it drew must be there, a mask that the reference has nowhere.
    """
    if _is_free(operation):
        return bool(unmatched(pair, pair.a, pair.theirs))
    masks = (each for each in operation.writes if each.dtype in ("bool", "uint8") and each.shadow is not None)
    return any(not pair.ours.find(each.shadow) for each in masks)


def _is_free(operation: Operation) -> bool:
    """Does it draw whatever it reads, which is sizes and bounds at most?"""
    return operation.random and not any(
        read.shadow is not None and read.shadow.size > 1 and read.shadow.dtype.kind in "fc" for read in operation.reads
    )


def _trained(ours: Sequence[Operation], theirs: Sequence[Operation]) -> Finding | None:
    """Does one side drop elements at random where the other draws nothing at all? Then that one runs in training mode.

    Args:
        ours, theirs: what leads to the results that differ, of the reference and of the candidate.
    """
    for who, own, other in (("candidate", theirs, ours), ("reference", ours, theirs)):
        first = next(filter(_drops, own), None)
        if first is not None and not any(_is_free(each) or _drops(each) for each in other):
            words = f"{first.name} drops elements at random in the {who}, and the other side draws nothing"
            proof = Proof("bounded", "what it gives is zero, or what it read times one factor; nothing of that kind is on the other side")
            fix = Fix("give both sides the same mode: evaluation for inference")
            return Finding(Cause.MODE, f"the {who} runs in training mode: {words}", proof, [Evidence(words)], [fix], operation=first)
    return None


def _drops(operation: Operation) -> bool:
    return operation.random and any(
        scaled(operation, each) and bool(np.any((operation.writes[0].shadow == 0) & (each.shadow != 0))) for each in operation.reads
    )
