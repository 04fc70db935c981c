"""Results that could not be followed: what the arrays alone can show."""

from __future__ import annotations

import numpy as np

from detconf.auditing.attempts.quantizing import quantized
from detconf.auditing.meaning import COARSE, SEEN, numbers
from detconf.auditing.question import Finding, Question
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.comparison import diverge
from detconf.shadows.arrangements import arrangements
from detconf.shadows.formats import ROUNDINGS, round_to
from detconf.values import Cause

_ONE_FUNCTION = 4
"""ULP that NumPy and the vector mathematics libraries allow one elementary function."""


def opaque(question: Question) -> Finding | None:
    """Judge by the arrays, where that is enough; results that could be followed are not judged here."""
    alone = question.a.function is None or question.b.function is None
    names = [name for name in question.differing if alone or name not in question.splits or not question.splits[name].complete]
    followed = [each for each in question.complete if each.name not in names]
    if not names or any(each.units > SEEN or max(each.roughness) > COARSE for each in followed):
        return None
    question.unexamined.extend(f"{name}: it could not be followed how it was computed" for name in names)
    for attempt in (_few_ulp, _rounded, quantized, _reordered):
        found = attempt(question, names)
        if found:
            return found
    return None


def _few_ulp(question: Question, names: list[str]) -> Finding | None:
    worst = 0
    for name in names:
        found = diverge(name, question.real_a[name], question.real_b[name])
        if found is None or found.max_ulp is None or found.nonfinite or found.max_ulp > _ONE_FUNCTION:
            return None
        worst = max(worst, found.max_ulp)
    words = f"no element differs by more than {worst} ULP, which one elementary function is allowed ({_ONE_FUNCTION})"
    proof = Proof("bounded", words)
    return Finding(Cause.ROUNDING, "the last digits differ, by what other kernels of one function may", proof, [Evidence(words, worst)])


def _rounded(question: Question, names: list[str]) -> Finding | None:
    for form in ROUNDINGS:
        for who, ours, theirs in (("candidate", question.real_a, question.real_b), ("reference", question.real_b, question.real_a)):
            pairs = [(numbers(ours[name]), numbers(theirs[name])) for name in names]
            if all(x is not None and y is not None and np.isrealobj(x) and np.array_equal(round_to(x, form), y) for x, y in pairs):
                words = f"the {who} is the other side's result rounded to {form}"
                proof = Proof("re-created", f"rounding to {form} gives it bit for bit", 1.0)
                return Finding(Cause.DTYPE, words, proof, [Evidence(words)], [Fix("store both in the same format")])
    return None


def _reordered(question: Question, names: list[str]) -> Finding | None:
    name = names[0]
    x, y = numbers(question.real_a[name]), numbers(question.real_b[name])
    if x is None or y is None or x.shape != y.shape:
        return None
    for each in arrangements(x.shape):
        if np.array_equal(each.apply(x), y):
            words = f"{name} holds the reference's elements in another order: {each.words}"
            return Finding(
                Cause.LAYOUT,
                words,
                Proof("re-created", words, 1.0),
                [Evidence(words)],
                [Fix(f"put {name} into the same order: {each.words}", verified=True)],
                name,
            )
    return None
