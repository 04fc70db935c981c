"""Is the difference made by graph capture: a compiler, a tracer, `to_static`? Shown by running without it, and otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from detconf.arrays import Array
from detconf.auditing.attempts.drawing import evaluated
from detconf.auditing.attempts.tipping import tipped
from detconf.auditing.laboratory import Side
from detconf.auditing.meaning import COARSE, SEEN, close, numbers
from detconf.auditing.question import Finding, Question, Results, everywhere, experiments
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.comparison import diverge
from detconf.errors import TargetError
from detconf.frameworks.base import Remedy
from detconf.shadows.study import Study
from detconf.values import Cause

_REMOVED = "removed"


def captured(question: Question) -> Finding | None:
    """Run both sides without capture. Where they then agree, find what about the capture made the difference."""
    names = question.captured[0].names | question.captured[1].names
    if not names:
        return None
    if _is_rounding(question):
        return _roundings_left_out(question) if _is_coarse(question) else None
    if question.same_results(question.real_a, question.real_b) is not None:  # as they are: there is nothing to take away
        return None
    with everywhere("without"):
        share = _agree(question)
    if share is None:
        question.tried.append(f"without {', '.join(sorted(names))} the sides differ as well")
        return None
    words = f"{', '.join(sorted(names))}: without it, as plain Python, the two sides agree"
    removed = Evidence(words, share)
    for remedy in _remedies(question):
        with remedy.inside():
            share = _agree(question)
        if share is None:
            question.tried.append(f"{remedy.words}: still different")
            continue
        proof = Proof(_REMOVED, f"with {remedy.words} the sides agree", share)
        return Finding(remedy.cause, _WORDS[remedy.cause], proof, [removed], [Fix(remedy.words, verified=True)])
    shown = _single_constants(question) or tipped(question)
    if shown is not None:
        shown.evidence.insert(0, removed)
        return shown
    with everywhere("anew"):
        share = _agree(question)
    if share is not None:
        proof = Proof(_REMOVED, "captured again at each call, on that call's own arguments and values, the sides agree", share)
        summary = "something that was decided or computed while the graph was captured is frozen in it"
        fix = Fix("do not capture what depends on Python values or on data: without capture the sides agree", verified=True)
        return Finding(Cause.MODE, summary, proof, [removed], [fix])
    question.tried.append("captured again at each call: still different")
    found = evaluated(question)
    if found is not None:
        found.summary = f"captured in training mode: {found.summary}"
        return found
    proof = Proof(_REMOVED, words, removed.figure if isinstance(removed.figure, float) else None)
    summary = "the captured graph computes something else than the program that it was captured from"
    return Finding(Cause.SEMANTICS, summary, proof, [removed], [Fix("run this part without capture", verified=True)])


def _remedies(question: Question) -> Iterator[Remedy]:
    """Settings to be tried. Where nothing is drawn, no generator makes a difference."""
    observations = question.exact_a, question.exact_b
    still = all(each is not None and not each.study.drawn and not each.study.losses for each in observations)
    for module in experiments():
        yield from (each for each in module.remedies() if not (still and each.cause is Cause.RNG))


def _single_constants(question: Question) -> Finding | None:
    """Does the captured side compute with the program's Python numbers rounded to float32?"""
    for who, seen, side, exact in (
        ("candidate", question.captured[1], question.b, question.exact_b),
        ("reference", question.captured[0], question.a, question.exact_a),
    ):
        alterations = _in_single(exact.study) if seen.names and exact is not None and _matters(question, side) else {}
        shift = _shifted(question, exact.study) if alterations and exact is not None else None
        if shift is not None:
            words = f"the {who}'s graph holds {shift:.0f} in float32, as {float(np.float32(shift)):.0f}"
            proof = Proof("re-created", f"every element is off by exactly what {shift:.0f} loses in float32", 1.0)
            return Finding(
                Cause.DTYPE, words, proof, [Evidence(words, shift)], [Fix("pass such numbers as arrays of the dtype that is meant")]
            )
        found = question.laboratory.study(side, alterations=alterations) if alterations else None
        names = [name for name in question.differing if found is not None and name in found.known]
        real = question.real_b if who == "candidate" else question.real_a
        if found is None or len(names) != len(question.differing):
            continue
        if all(_fits(question, name, real[name], found.known[name].shadow) for name in names):
            numbers_ = sorted({value for each in alterations.values() for value in each.values()})[:4]
            words = f"the {who}'s graph holds the program's numbers in float32 ({', '.join(map(repr, numbers_))})"
            proof = Proof(
                "re-created", "the program with its Python numbers rounded to float32, in higher precision, gives the captured side"
            )
            fix = Fix("pass such numbers as arrays of the dtype that is meant")
            return Finding(Cause.DTYPE, words, proof, [Evidence(words, len(alterations))], [fix])
    return None


def _matters(question: Question, side: Side) -> bool:
    """Does the side give anything else without capture? That something was compiled in this process before says nothing of it."""
    real = question.real_a if side is question.a else question.real_b
    try:
        plain = question.laboratory.plain(side, inside=everywhere("without"))
    except TargetError:
        return True
    return any(plain.get(name) != real[name] for name in question.differing)


def _in_single(study: Study) -> dict[int, dict[str | int, Any]]:
    """Every number among the options of operations that float32 does not hold, rounded to it."""
    found: dict[int, dict[str | int, Any]] = {}
    for operation in study.operations:
        for key, value in operation.options.items():
            if _inexact(value):
                found.setdefault(operation.index, {})[key] = type(value)(float(np.float32(value)))
    return found


def _inexact(value: Any) -> bool:
    """A number that float32 does not hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST and float(np.float32(value)) != value


def _shifted(question: Question, study: Study) -> float | None:
    """A number among the options whose rounding to float32 is the whole difference of integer results; None if there is none."""
    pairs = [(numbers(question.real_a[name]), numbers(question.real_b[name])) for name in question.differing]
    if any(x is None or y is None or x.shape != y.shape for x, y in pairs):
        return None
    for given, single in {
        (value, float(np.float32(value))) for each in study.operations for value in each.options.values() if _inexact(value)
    }:
        if all(np.array_equal(y - x, np.full(x.shape, single - given)) for x, y in pairs):
            return float(given)
    return None


def _fits(question: Question, name: str, real: Array, shadow: Any) -> bool:
    each, values = question.splits.get(name), numbers(real)
    if each is None or not each.complete or values is None or values.size != shadow.size:
        return False
    return close(values, shadow.reshape(values.shape), each.noise) and max(each.roughness) > COARSE


_LARGEST = 1e38


def _roundings_left_out(question: Question) -> Finding | None:
    """Where the program computes in less than single precision, its own roundings are large enough to hide that some are missing."""
    before = _distance(question, question.real_a, question.real_b)
    for remedy in _remedies(question):
        with remedy.inside():
            after = _distance(question, *_both(question))
        if after <= before / _SHRINKS:
            proof = Proof(_REMOVED, f"with {remedy.words} the largest difference falls from {before:.3g} to {after:.3g}")
            return Finding(remedy.cause, _WORDS[remedy.cause], proof, [Evidence(proof.what, after)], [Fix(remedy.words, verified=True)])
        question.tried.append(f"{remedy.words}: the largest difference is {after:.3g}, and {before:.3g} without")
    return None


_SHRINKS = 8.0
_SINGLE = 2.0**-24
_WORDS = {
    Cause.RNG: "the compiled program draws its random numbers from another generator",
    Cause.DTYPE: "the compiler leaves out roundings that the program asks for",
    Cause.RACE: "the executor runs operations in an order that is not fixed",
    Cause.ROUNDING: "the graph is decomposed into other operations, each of which rounds",
}


def _is_rounding(question: Question) -> bool:
    """Do all differing results mean the same, and does rounding explain them?"""
    parts = question.complete
    return len(parts) == len(question.differing) and all(each.units <= SEEN and max(each.roughness) <= COARSE for each in parts)


def _is_coarse(question: Question) -> bool:
    return any(max(each.a.floor, each.b.floor) > _SINGLE for each in question.complete)


def _distance(question: Question, a: Results, b: Results) -> float:
    """The largest difference of any result; infinite where they cannot be compared."""
    found = [diverge(name, a[name], b[name]) if name in a and name in b else None for name in question.differing]
    if not all(name in a and name in b for name in question.differing):
        return math.inf
    return max((math.inf if each.max_abs is None else each.max_abs for each in found if each is not None), default=0.0)


def _agree(question: Question) -> float | None:
    return question.same_results(*_both(question))


def _both(question: Question) -> tuple[Results, Results]:
    """The results of both sides, run again where something of them is captured."""
    a, b = question.captured
    ours = _again(question, question.a) if a.names else question.real_a
    return ours, _again(question, question.b) if b.names else question.real_b


def _again(question: Question, side: Side) -> Results:
    with suppress(TargetError):
        return question.laboratory.plain(side)
    return {}
