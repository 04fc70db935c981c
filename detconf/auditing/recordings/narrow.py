"""Between two recordings: a side that computes in a dtype with too little range, or too few digits, where the other does not."""

from __future__ import annotations

import numpy as np

from detconf.auditing.meaning import COARSE, SEEN, Split
from detconf.auditing.question import Finding
from detconf.auditing.recordings.recomputing import moves, overflows, vanishes
from detconf.auditing.recordings.recorded_pair import RecordedPair
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.formats import unit
from detconf.shadows.study import Operation
from detconf.values import Cause

_SINGLE = 2.0**-24
_FEW = 0.05
"""The part of the elements that may lie so near the middle between two numbers of the coarser dtype."""


def overflowed(pair: RecordedPair) -> Finding | None:
    """One side alone has infinite or NaN values, in results or on the way, from an operation whose float64 result is finite."""
    finite = [
        all(found is None or bool(np.all(np.isfinite(found))) for found in (each.known[name].shadow for name in pair.differing))
        for each in (pair.a, pair.b)
    ]
    for who, own, observation in (("candidate", 1, pair.b), ("reference", 0, pair.a)):
        if (finite[own] or not finite[1 - own]) and not _on_the_way(pair, own, alike=finite[0] == finite[1]):
            continue
        first = next(filter(overflows, pair.leading(observation)), None)
        if first is None and _alike(pair):
            first = next(filter(vanishes, pair.leading(observation)), None)
        if first is not None:
            over = overflows(first)
            becomes = "infinite or NaN" if over else "zero"
            words = f"the {who} becomes {becomes} at {first.name}, in an intermediate value that its dtype cannot hold"
            is_ = "finite" if over else "not zero"
            what = f"in float64 the same operation is {is_} on the same recorded inputs, and right elsewhere"
            fix = Fix("use a form of the formula that stays in range")
            return Finding(Cause.OVERFLOW, words, Proof("bounded", what), [Evidence(words)], [fix], operation=first)
    return None


def _on_the_way(pair: RecordedPair, own: int, *, alike: bool) -> bool:
    """Does a side of finite results err by far more than rounding, where both mean the same and the other does not?"""
    if not alike or not any(overflows(each) or vanishes(each) for each in pair.leading((pair.a, pair.b)[own])):
        return False
    return pair.whole and _alike(pair) and any(each.roughness[own] > COARSE >= each.roughness[1 - own] for each in pair.splits.values())


def _alike(pair: RecordedPair) -> bool:
    """Do both sides mean the same finite numbers, as far as float64 carries their operations?"""
    splits = pair.splits.values()
    return pair.splits.keys() == set(pair.differing) and all(
        each.units <= SEEN and bool(np.all(np.isfinite(each.a.shadow)) and np.all(np.isfinite(each.b.shadow))) for each in splits
    )


def coarser(pair: RecordedPair, evidence: list[Evidence]) -> Finding | None:
    """The sides mean the same, but one rounds to a coarser dtype."""
    for name in pair.differing:
        a, b = pair.a.arrays[name].dtype, pair.b.arrays[name].dtype
        each = pair.splits.get(name)
        words = f"the results have the dtypes {a} and {b}" if a != b else "" if each is None else _floors(each) or _computed(pair, each)
        if words:
            proof = Proof("bounded", "the same values to the coarser dtype's rounding, and no operation errs by more than that does")
            fix = Fix("compute and store in the same dtype on both sides")
            return Finding(Cause.DTYPE, words, proof, [Evidence(words), *evidence], [fix])
    return None


def _floors(each: Split) -> str:
    for who, own, fine in (("candidate", each.b, each.a), ("reference", each.a, each.b)):
        if own.floor > fine.floor and each.apart(fine) > COARSE:
            return f"the {who} computes in a dtype of unit roundoff {own.floor:.1e}, the other side in one of {fine.floor:.1e}"
    return ""


def _computed(pair: RecordedPair, each: Split) -> str:
    """Both round to a coarse dtype, and one computes in it: then they differ in more than the few elements that casts part."""
    floor, real = each.a.floor, each.a.real
    if floor != each.b.floor or floor <= _SINGLE or np.mean(real != each.b.real.reshape(real.shape)) <= _FEW:
        return ""
    ours, theirs = (any(_computes(operation, floor) for operation in pair.leading(side)) for side in (pair.a, pair.b))
    who = "candidate" if theirs else "reference"
    return "" if ours == theirs else f"the {who} computes in a dtype of unit roundoff {floor:.1e}; the other side only casts to it"


def _computes(operation: Operation, floor: float) -> bool:
    return not moves(operation.name) and not operation.random and any(unit(value.dtype) == floor for value in operation.writes)
