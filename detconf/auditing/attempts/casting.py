"""Casts to a coarser dtype on the way to a result: rounding that both sides ask for, or arithmetic that only one does in it.

Two sides that round the same number to bfloat16 in the end differ, by one number of bfloat16, where their own rounding has
brought it over the middle between two: in few elements. A side that computes in bfloat16 differs in many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.auditing.laboratory import Observation, Side
from detconf.auditing.meaning import COARSE, Part, Split, part
from detconf.auditing.question import Finding, Question, Results
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.auditing.sums.terms import keeps
from detconf.shadows.formats import unit
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Operation
from detconf.values import Cause

_FEW = 0.05
"""The part of the elements that may lie so near the middle between two numbers of the coarser dtype."""
_SINGLE = 2.0**-24
_SEEDS = 2


@dataclass(slots=True)
class _Coarse:
    """What the results were computed from in the coarsest dtype.

    Attributes:
        values: how many arrays, not counting those that hold what another one does.
        computed: the first operation that is no cast and writes in it.
    """

    values: int = 0
    computed: Operation | None = None


def count_casts(question: Question, each: Split) -> None:
    """Where the sides differ in few elements, and what is left of both is what their casts do to it, count that as noise."""
    if each.a.floor != each.b.floor or each.a.floor <= _SINGLE or _apart(each) > _FEW:
        return
    sides = ((question.a, question.real_a, each.a), (question.b, question.real_b, each.b))
    effects = [_effect(question, each.name, *side) for side in sides]
    if all(effect is not None for effect in effects):
        for own, effect in zip((each.a, each.b), effects, strict=True):
            own.noise = np.maximum(own.noise, effect + own.floor * np.abs(own.shadow))


def inside(question: Question, each: Split) -> Finding | None:
    """One side computes in a coarse dtype what the other computes in a finer one and only casts to the coarse one."""
    floor = each.a.floor
    if floor != each.b.floor or floor <= _SINGLE or _apart(each) <= _FEW:
        return None
    a, b = (_coarse(observation, each.name, floor) for observation in (question.exact_a, question.exact_b))
    for who, own, other, fine in (
        ("candidate", b, a, (question.a, question.real_a, each.a)),
        ("reference", a, b, (question.b, question.real_b, each.b)),
    ):
        if own.computed is None or other.computed is not None or own.values <= other.values or _effect(question, each.name, *fine) is None:
            continue
        dtype = next(value.dtype for value in own.computed.writes if unit(value.dtype) == floor)
        words = f"the {who} computes in {dtype}; the other side computes in a finer dtype, and casts to {dtype} what it has computed"
        what = f"in higher precision both agree, and their casts alone would part them in few elements, not in {_apart(each):.0%}"
        evidence = [Evidence(f"roundings to {dtype} by the {who} and by the other side", f"{own.values}, {other.values}")]
        fix = Fix("compute in the same dtype on both sides, and cast at the same places")
        return Finding(Cause.DTYPE, words, Proof("bounded", what), evidence, [fix], each.name, own.computed)
    return None


def _apart(each: Split) -> float:
    """The share of elements that differ."""
    return float(np.mean(each.a.real != each.b.real.reshape(each.a.real.shape))) if each.a.real.size else 0.0


def _effect(question: Question, name: str, side: Side, real: Results, own: Part) -> Any:
    """What a side's casts do to each element, where that and rounding explain its own error; None where they do not."""
    if float(np.max(own.rough, initial=0.0)) <= COARSE:
        return np.zeros(own.real.shape)
    exact = question.laboratory.study(side, casts="kept")
    noisy = [question.laboratory.study(side, casts="kept", noise=seed) for seed in range(_SEEDS)]
    shadows: list[Any] = [each.known[name].shadow if each and name in each.known else None for each in (exact, *noisy)]
    kept = part(real[name], shadows[0], shadows[1:], 0.0)
    if kept is None or kept.shadow is None or float(np.mean(kept.rough > COARSE)) > _FEW:
        return None
    return np.abs(kept.shadow - own.shadow)


def _coarse(observation: Observation | None, name: str, floor: float) -> _Coarse:
    found = _Coarse()
    if observation is None or name not in observation.known:
        return found
    _, operations = ancestors(observation.study, [observation.known[name].value])
    for operation in (observation.study.operations[index] for index in sorted(operations)):
        if not any(unit(value.dtype) == floor for value in operation.writes):
            continue
        if not keeps(operation):
            found.computed = found.computed or operation
        elif operation.reads[0].value.dtype == operation.writes[0].dtype:
            continue
        found.values += 1
    return found
