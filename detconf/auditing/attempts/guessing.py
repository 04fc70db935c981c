"""One side is arrays alone: which one change of the other side's program gives them?

There is nothing to look into on the side of the arrays. So the program's shadow is changed in one thing after the other
(the order of its result's elements, of its inputs', an option of one operation), and held against the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.auditing.attempts.choices import harmless, words_like
from detconf.auditing.laboratory import Observation, Side
from detconf.auditing.meaning import COARSE, numbers
from detconf.auditing.question import Finding, Question
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.arrangements import arrangements
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Operation, Value
from detconf.values import Cause

_OPERATIONS, _ARRANGEMENTS = 40, 150
"""Operations whose options are tried, from the result backwards; runs spent on orders of elements."""
_VALUES = 8


@dataclass(slots=True)
class _Target:
    """What is looked for.

    Attributes:
        side: the one with a program.
        observation: its exact run.
        name: of the result.
        arrays: its elements on the other side.
        noise: of the program's result.
        who: the side of arrays, in words.
    """

    question: Question
    side: Side
    observation: Observation
    name: str
    arrays: Any
    noise: Any
    who: str

    @property
    def shadow(self) -> Any:
        """Of the program's result."""
        return self.observation.known[self.name].shadow

    def is_met(self, shadow: Any) -> bool:
        """Is that what the arrays hold, up to rounding? Noise goes by element, whose order may be another: the largest counts."""
        if shadow is None or shadow.shape != self.arrays.shape:
            return False
        with np.errstate(all="ignore"):
            gap = np.abs(shadow - self.arrays)
            return bool(np.all(gap <= COARSE * float(np.max(self.noise, initial=0.0))))

    def changed(self, **options: Any) -> bool:
        """Does the program give the arrays, with a change to its shadows?"""
        found = self.question.laboratory.study(self.side, **options)
        known = found.known.get(self.name) if found else None
        return known is not None and self.is_met(known.shadow)


def guessed(question: Question) -> Finding | None:
    """Find the change; None where there are two programs, or none, or nothing that was tried gives the arrays."""
    target = _target(question)
    if target is None:
        return None
    for attempt in (_ordered, _scaled, _chosen, _arranged):
        found = attempt(target)
        if found is not None:
            found.output = target.name
            return found
    question.tried.append("one option of an operation, another order of an operand, a factor: none gives the arrays")
    return None


def _target(question: Question) -> _Target | None:
    if (question.a.function is None) == (question.b.function is None):
        return None
    program = question.a if question.a.function else question.b
    exact, who = (question.exact_a, "candidate") if program is question.a else (question.exact_b, "reference")
    other = question.real_b if program is question.a else question.real_a
    for each in question.complete:
        arrays = numbers(other[each.name])
        if exact is not None and each.name in exact.known and arrays is not None and arrays.shape == each.noise.shape:
            return _Target(question, program, exact, each.name, arrays, each.noise, who)
    return None


def _ordered(target: _Target) -> Finding | None:
    for each in arrangements(target.shadow.shape):
        if target.is_met(each.apply(target.shadow)):
            words = f"the {target.who} holds the other side's result in another order: {each.words}"
            fix = Fix(f"put it into the same order: {each.words}", verified=True)
            return Finding(Cause.LAYOUT, words, Proof("re-created", f"{words}, up to rounding"), [Evidence(words)], [fix])
    return None


def _scaled(target: _Target) -> Finding | None:
    """A constant factor, or a constant that is added."""
    shadow, arrays = np.asarray(target.shadow, np.float64), np.asarray(target.arrays, np.float64)
    size = float(np.sum(shadow**2))
    if shadow.size < 2 or shadow.dtype.kind != "f" or not size or not np.isfinite(size):
        return None
    factor, added = float(np.sum(shadow * arrays)) / size, float(np.mean(arrays - shadow))
    for change, found in ((f"times {factor:.6g}", shadow * factor), (f"plus {added:.6g}", shadow + added)):
        if target.is_met(found) and np.ptp(shadow) > COARSE * float(np.max(target.noise)):
            words = f"the {target.who} is the other side's result {change}"
            return Finding(Cause.SEMANTICS, words, Proof("re-created", f"{words}, up to rounding"), [Evidence(words)], [])
    return None


def _near(target: _Target) -> list[Operation]:
    _, found = ancestors(target.observation.study, [target.observation.known[target.name].value])
    return [target.observation.study.operations[index] for index in sorted(found, reverse=True)][:_OPERATIONS]


def _chosen(target: _Target) -> Finding | None:
    for operation in _near(target):
        for key, value in operation.options.items():
            for other in (each for each in _others(value) if harmless(key, value, each)):
                if target.changed(alterations={operation.index: {key: other}}):
                    words = f"{operation.name}: {key}={value!r} on one side; with {other!r} it gives the {target.who}"
                    fix = Fix(f"set {key} of {operation.name} to {other!r} (tried in the float64 shadow)", verified=True)
                    proof = Proof(
                        "re-created", f"with {key}={other!r} in place of {value!r} the program gives the {target.who}, up to rounding"
                    )
                    return Finding(Cause.SEMANTICS, words, proof, [Evidence(words)], [fix], operation=operation)
    return None


def _others(value: Any) -> Iterator[Any]:
    """Other values of an option."""
    if isinstance(value, bool):
        yield not value
    elif value is None:
        yield from (0, 1)
    elif isinstance(value, int):
        yield from (each for each in (0, 1, -1, value - 1, value + 1) if each != value)
    elif isinstance(value, float):
        yield from (each for each in (0.0, 1.0, -value, 1 - value, value / 10, value * 10, value / 1000, value * 1000) if each != value)
    elif isinstance(value, str):
        yield from words_like(value)


def _arranged(target: _Target) -> Finding | None:
    """Another order of an input."""
    spent = 0
    indexes, _ = ancestors(target.observation.study, [target.observation.known[target.name].value])
    for value in (each for each in target.observation.study.values if each.index in indexes and _is_operand(each)):
        for each in arrangements(value.shape):
            spent += 1
            if spent > _ARRANGEMENTS:
                return None
            if target.changed(amendments={value.index: each.apply}):
                words = f"{value.origin or 'an input'} of shape {list(value.shape)}, {each.words}, gives the {target.who}"
                fix = Fix(f"bring that operand into the same order: {each.words}", verified=True)
                return Finding(Cause.LAYOUT, words, Proof("re-created", f"{words}, up to rounding"), [Evidence(words)], [fix])
    return None


def _is_operand(value: Value) -> bool:
    return value.maker < 0 and value.shadow is not None and value.shadow.size > 1 and value.shadow.dtype.kind == "f"
