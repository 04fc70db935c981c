"""Values that a dtype cannot hold: does a side become infinite or NaN where its shadow stays finite, in a result or on the way to one?"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import COARSE, Split, close
from detconf.auditing.question import Finding, Question
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.formats import UNIT
from detconf.shadows.study import Operation, Value
from detconf.values import Cause

_FIX = Fix("use a form of the formula that stays in range, or a dtype with a wider one")


def overflowed(question: Question) -> Finding | None:
    """A side becomes non-finite where its shadow, and the other side, are not."""
    return next(filter(None, (_lost(question, each) or _hidden(question, each) for each in question.complete)), None)


def _lost(question: Question, each: Split) -> Finding | None:
    """The result itself is not finite."""
    which = each.overflowed
    if not which:
        return None
    who, observation = _side(question, which)
    assert observation is not None  # noqa: S101  # there was a shadow
    operation = next(iter(_infinite(_kept(question, which))), None)
    finite = float(np.mean(np.isfinite(observation.known[each.name].shadow)))
    evidence = Evidence(f"{each.name}: {finite:.0%} of the {who}'s elements are finite in higher precision", finite)
    proof = Proof("bounded", "the same operations on the same values stay finite when carried in higher precision")
    return _finding(each, who, operation, proof, evidence)


def _hidden(question: Question, each: Split) -> Finding | None:
    """A value on the way is not finite, and the result is finite and wrong: what is divided by infinity becomes 0.

    Many an infinity is harmless: 1 / (1 + exp(-x)) is 0 for a very negative x with and without it. So it is put into the
    shadow, and must give the side's own result there.
    """
    for which, part in (("a", each.a), ("b", each.b)):
        if float(np.max(part.rough, initial=0.0)) <= COARSE:
            continue
        who, _ = _side(question, which)
        found = _infinite(_kept(question, which))
        if not found:
            continue
        amendments = {value.index: partial(_with, value) for values in found.values() for value in values}
        side = question.a if which == "a" else question.b
        amended = question.laboratory.study(side, amendments=amendments)
        known = amended.known.get(each.name) if amended else None
        if known is not None and known.shadow.size == part.real.size and close(part.real, known.shadow, part.noise):
            lost = sum(int(np.sum(_places(value))) for values in found.values() for value in values)
            evidence = Evidence(f"{each.name}: finite, from {lost} infinite or NaN elements on the way to it", lost)
            proof = Proof("re-created", f"with these elements put into its float64 shadow, it gives the {who}'s own result")
            return _finding(each, who, next(iter(found)), proof, evidence)
    return None


def _finding(each: Split, who: str, operation: Operation | None, proof: Proof, evidence: Evidence) -> Finding:
    where = f" at {operation.name}" if operation else ""
    summary = f"the {who} becomes infinite or NaN{where}, in an intermediate value that its dtype cannot hold"
    return Finding(Cause.OVERFLOW, summary, proof, [evidence], [_FIX], each.name, operation)


def _side(question: Question, which: str) -> tuple[str, Observation | None]:
    return ("reference", question.exact_a) if which == "a" else ("candidate", question.exact_b)


def _kept(question: Question, which: str) -> Observation | None:
    return question.laboratory.study(question.a if which == "a" else question.b, keep_real=True)


def _infinite(observation: Observation | None) -> dict[Operation, list[Value]]:
    """The operations that make a non-finite real value of a finite shadow, in order, with those values."""
    found: dict[Operation, list[Value]] = {}
    for operation in observation.study.operations if observation else ():
        values = [value for value in operation.writes if np.any(_places(value))]
        if values:
            found[operation] = values
    return found


def _places(value: Value) -> Any:
    """Where the real elements alone are not finite."""
    if value.real is None or value.shadow is None or value.dtype not in UNIT or value.real.shape != value.shadow.shape:
        return False
    return ~np.isfinite(value.real) & np.isfinite(value.shadow)


def _with(value: Value, shadow: Any) -> Any:
    """A shadow with the real value's non-finite elements in it."""
    return np.where(_places(value), value.real.astype(shadow.dtype), shadow)
