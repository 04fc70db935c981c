"""Elements that one side drops at random, as dropout does: dropped by the other as well, or kept by both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from detconf.auditing.laboratory import Observation
from detconf.auditing.question import Finding, Question, put
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Operation, Value
from detconf.values import Cause

_MOST = 32
"""Droppings taken away one after another: each takes a run."""
_FIX = Fix("let dropout follow the mode of its layer (training=self.training), and call eval() before inference")


def undropped(question: Question) -> Finding | None:
    """Does one side drop elements at random where the other keeps them all?"""
    for asked, who, other in ((question, "candidate", "reference"), (question.exchanged(), "reference", "candidate")):
        found = _replaced(asked, lambda whole: whole)
        if found:
            first, count = found
            words = f"the {who} drops elements at random at {first.name}, where the {other} keeps them"
            proof = Proof(
                "removed",
                f"with all elements kept there ({count} place{'s' if count > 1 else ''}), in higher precision, the {who} agrees with the {other}",
            )
            return Finding(
                Cause.MODE, words, proof, [Evidence(f"droppings by the {who} that the results depend on", count)], [_FIX], operation=first
            )
    return None


def drops(question: Question) -> int:
    """Let the candidate drop what the reference drops of the same elements; how many times until they agree, or 0."""
    a = question.exact_a
    ours = [made.shadow for _, made, _ in _dropped(a, question.differing)] if a else []
    found = _replaced(question, lambda whole: next((shadow for shadow in ours if _drop_of(shadow, whole)), None))
    return found[1] if found else 0


def _replaced(question: Question, instead: Callable[[Any], Any]) -> tuple[Operation, int] | None:
    """Put something else in place of what the candidate drops, one dropping after another, until the sides agree.

    Args:
        instead: of the elements before some were dropped; None to leave this one.

    Returns:
        (the first operation, how many); None if they never agree.
    """
    a, b = question.exact_a, question.exact_b
    if a is None or b is None:
        return None
    amendments: dict[int, Callable[[Any], Any]] = {}
    operations: list[Operation] = []
    while len(amendments) < _MOST and b is not None:
        waiting = ((each, made, instead(whole)) for each, made, whole in _dropped(b, question.differing) if made.index not in amendments)
        found = next(((each, made, other) for each, made, other in waiting if other is not None), None)
        if found is None:
            return None
        operation, made, other = found
        operations.append(operation)
        amendments[made.index] = put(other.reshape(made.shape))
        b = question.laboratory.study(question.b, amendments=amendments)  # what comes after it is only known once it is put right
        if b is not None and question.same_shadows(a.known, b.known):
            return operations[0], len(amendments)
    return None


def _dropped(observation: Observation, names: list[str]) -> Iterator[tuple[Operation, Value, Any]]:
    """Operations towards results that drop some of what they read by a drawn mask: (operation, what it wrote, what it read)."""
    _, towards = ancestors(observation.study, [observation.known[name].value for name in names if name in observation.known])
    drawn: set[int] = set()
    for operation in observation.study.operations:
        masked = operation.random or any(each.value.index in drawn and _is_mask(each.shadow) for each in operation.reads)
        if operation.random or any(each.value.index in drawn for each in operation.reads):
            drawn.update(value.index for value in operation.writes)
        if masked and operation.index in towards:
            for read in operation.reads:
                made = next((value for value in operation.writes if _drop_of(value.shadow, read.shadow)), None)
                if made is not None:
                    yield operation, made, read.shadow


def _is_mask(shadow: Any) -> bool:
    """Zeros, and one other number."""
    return shadow is not None and np.unique(shadow[shadow != 0]).size == 1


def _drop_of(shadow: Any, of: Any) -> bool:
    """Some elements zero, the others all scaled alike."""
    if shadow is None or of is None or shadow.size != of.size or not np.issubdtype(of.dtype, np.inexact):
        return False
    shadow, of = shadow.reshape(-1), of.reshape(-1)
    there = of != 0
    ratio = np.unique(np.round((shadow[there] / of[there]).astype(np.float64), 9))
    return ratio.size == 2 and bool(ratio.min() == 0) and ratio.max() > 0
