"""The sides mean different things: where do they part, and which one change makes them agree?

The candidate's region (`shadows.regions`) is what leads to its results without a counterpart in the reference. Its sources
read what the reference has too. A cause is named when repairing exactly one thing there, in the shadows, makes the sides agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from detconf.auditing.attempts.carried import carried
from detconf.auditing.attempts.choices import decided, optional, unlike
from detconf.auditing.attempts.flipping import branches, flips, settled
from detconf.auditing.attempts.layouts import arranged
from detconf.auditing.attempts.parting import Parting, first_output, part
from detconf.auditing.question import Finding, Question, put
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.formats import ROUNDINGS, round_to, unit
from detconf.shadows.study import Operation, Value
from detconf.values import Cause

_TOLERANCES = (1e-9, 1e-7, 1e-5)
_FINE, _SMALL = 1e-12, 1e-7
"""What is tried before these where the sides are no further apart than the second, relative to the result: float64 programs."""


def repaired(question: Question) -> Finding | None:
    """Find the operation where the sides part, and a repair that proves it: of the candidate, else of the reference."""
    return _repaired(question) or _exchanged(_repaired(question.exchanged()))


def parted(question: Question) -> Finding | None:
    """Where no repair was found, say where the sides part, if it is shown that they mean different things there."""
    found = _unrepaired(question)
    return found if found or _flips(question) else _exchanged(_unrepaired(question.exchanged()))


def _flips(question: Question) -> bool:
    """Did a decision fall otherwise within rounding? What is behind it may well be the same."""
    a, b = question.exact_a, question.exact_b
    name = first_output(question, b)
    if a is None or b is None or not name:
        return False
    parting = part(question, a, b, name, _TOLERANCES[0])
    return bool(flips(parting)) or branches(parting)


def _exchanged(finding: Finding | None) -> Finding | None:
    """In words that were written with the sides in each other's place."""
    if finding is None:
        return None

    def words(text: str) -> str:
        return text.replace("reference", "\0").replace("candidate", "reference").replace("\0", "candidate")

    proof = finding.proof and replace(finding.proof, what=words(finding.proof.what))
    evidence = [replace(each, statement=words(each.statement)) for each in finding.evidence]
    fixes = [replace(each, text=words(each.text)) for each in finding.fixes]
    return replace(finding, summary=words(finding.summary), proof=proof, evidence=evidence, fixes=fixes)


def _repaired(question: Question) -> Finding | None:
    a, b = question.exact_a, question.exact_b
    name = first_output(question, b)
    if a is None or b is None or not name:
        return None
    before: list[int] | None = None
    for tolerance in _tolerances(question, name):
        parting = part(question, a, b, name, tolerance)
        place = [operation.index for operation in parting.theirs.sources]
        if place == before:  # nothing new to try
            continue
        before = place
        found, parting = settled(parting)
        if found:
            found.output = name
            return found
        for attempt in (_formatted, _near, _wrapped, carried, decided, unlike, optional, arranged):
            found = attempt(parting)
            if found:
                found.output = name
                return found
    return None


def _tolerances(question: Question, name: str) -> tuple[float, ...]:
    gap = question.splits[name].gap
    scale = float(np.max(np.abs(question.splits[name].a.shadow), initial=0.0))
    return (_FINE, *_TOLERANCES) if float(np.max(np.abs(gap), initial=0.0)) <= _SMALL * scale else _TOLERANCES


def _formatted(parting: Parting) -> Finding | None:
    """Values from outside that are the reference's, rounded to another format."""
    if not any(_floats(each) for each in parting.theirs.leaves):
        return None
    kept = parting.question.laboratory.study(parting.question.a, keep_real=True)  # it is the real value that was rounded
    values = [value for value in (kept.study.values if kept else ()) if _floats(value) and value.real is not None]
    found: dict[str, dict[int, Callable[[Any], Any]]] = {}
    for leaf in (each for each in parting.theirs.leaves if _floats(each)):
        for value in (each for each in values if each.shape == leaf.shape):
            form = next((each for each in ROUNDINGS if np.array_equal(round_to(value.real, each), leaf.shadow)), "")
            if form:
                found.setdefault(form, {})[leaf.index] = put(value.shadow)
                break
    for form, amendments in found.items():
        if parting.repaired(amendments=amendments):
            words = f"{len(amendments)} of the candidate's inputs are the reference's values rounded to {form}"
            proof = Proof("re-created", f"rounding the reference's values to {form} gives the candidate's, bit for bit", 1.0)
            fix = Fix(f"keep the precision of what both sides compute with: nothing rounded to {form}")
            return Finding(Cause.DTYPE, words, proof, [Evidence(words, len(amendments))], [fix])
    return None


def _near(parting: Parting) -> Finding | None:
    """Values from outside that differ from the reference's by roundings, and all that comes after follows from that."""
    amendments: dict[int, Callable[[Any], Any]] = {}
    worst = 0.0
    for leaf in (each for each in parting.theirs.leaves if _floats(each)):
        others = (value for value in parting.a.study.values if value.maker < 0 and value.shape == leaf.shape and _floats(value))
        distances = [(_distance(leaf, value), value) for value in others]
        least, nearest = min(distances, key=lambda pair: pair[0], default=(np.inf, leaf))
        if least <= _ROUNDINGS:
            amendments[leaf.index] = put(nearest.shadow)
            worst = max(worst, least)
    if not amendments or not parting.repaired(amendments=amendments):
        return None
    words = f"{len(amendments)} of the inputs differ already, by {worst:.2g} roundings of their largest element"
    proof = Proof("removed", "with the reference's inputs, in higher precision, the sides agree")
    return Finding(
        Cause.ROUNDING, words, proof, [Evidence(words, worst)], [Fix("compare from the same inputs, bit for bit", verified=True)]
    )


def _wrapped(parting: Parting) -> Finding | None:
    """Integers that are the reference's numbers modulo a power of two: more than their dtype holds."""
    return wrapped(parting.ours.operations, parting.theirs.operations)


def wrapped(ours: Iterable[Operation], theirs: Iterable[Operation]) -> Finding | None:
    """The same, of operations of the reference and of the candidate."""
    whole = [value.shadow for operation in ours for value in operation.writes if value.shadow is not None and value.shadow.size]
    for operation in theirs:
        for value in operation.writes:
            bits = _BITS.get(value.dtype)
            alike = (each for each in whole if bits and value.shadow is not None and each.size == value.shadow.size)
            if any(_modulo(each, value.shadow, 2.0 ** float(bits or 0)) for each in alike):
                # integers have no shadow to be repaired; that all agree modulo so much is no accident
                words = f"{operation.name} makes numbers that {value.dtype} does not hold: the candidate has them modulo 2**{bits}"
                proof = Proof("re-created", f"the reference's numbers modulo 2**{bits} are the candidate's, every one", 1.0)
                fix = Fix(f"convert to a wider dtype before {operation.name}")
                return Finding(Cause.OVERFLOW, words, proof, [Evidence(words)], [fix], operation=operation)
    return None


_BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}


def _modulo(whole: Any, wrapped: Any, modulus: float) -> bool:
    """Whole numbers, somewhere too large, that are the others but for multiples of `modulus`."""
    if np.iscomplexobj(whole):
        return False
    difference = (whole.reshape(-1).astype(np.float64) - wrapped.reshape(-1).astype(np.float64)) / modulus
    return bool(np.any(difference != 0)) and bool(np.all(difference == np.rint(difference)))


_ROUNDINGS = 8.0


def _distance(leaf: Value, value: Value) -> float:
    """The largest difference, in units of roundoff of the coarser dtype at the largest element."""
    scale = float(np.max(np.abs(value.shadow))) * max(unit(leaf.dtype), unit(value.dtype))
    return float(np.max(np.abs(leaf.shadow - value.shadow))) / scale if scale else np.inf


def _floats(value: Value) -> bool:
    return value.shadow is not None and value.shadow.size > 0 and np.issubdtype(value.shadow.dtype, np.floating)


def _unrepaired(question: Question) -> Finding | None:
    """No repair was found: it is still shown that the same inputs mean something else, unless what goes in differs."""
    a, b = question.exact_a, question.exact_b
    name = first_output(question, b)
    if a is None or b is None or not name:
        return None
    _, parting = settled(part(question, a, b, name, _tolerances(question, name)[0]))
    theirs = parting.theirs
    if any(operation.random for operation in (*theirs.operations, *parting.ours.operations)) or theirs.leaves:
        question.tried.append("what goes in differs, or is drawn at random, and no repair was found")
        return None
    if parting.resumes:
        question.tried.append("one side goes on from saved states: what it lacks may be one that was not saved, or it has another formula")
        return None
    if flips(parting) or branches(parting):
        return None
    sources = sorted(theirs.sources, key=lambda operation: (not operation.reads, operation.index))
    units = parting.question.splits[name].units
    proof = Proof("bounded", f"in higher precision the sides are still {units:.3g} times further apart than rounding explains")
    evidence = Evidence(f"{name}: gap between the float64 shadows, in units of rounding noise", units)
    if not sources:
        if theirs.operations or parting.ours.operations:
            return None
        words = f"{name}: the sides give out different parts or views of what both compute"
        return Finding(Cause.SEMANTICS, words, proof, [evidence], output=name)
    first = sources[0]
    if any(value.lost for value in first.writes):
        question.tried.append(f"{first.name} reads what could not be followed")
        return None
    words = f"{first.name} reads what the reference has as well, and computes something that the reference never has"
    summary = f"the sides compute different formulas from {first.name} on"
    return Finding(Cause.SEMANTICS, summary, proof, [Evidence(words), evidence], output=name, operation=first)
