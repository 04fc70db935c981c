"""Elements that one side drops at random, as dropout does, where the other keeps them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detconf.auditing.attempts.tying import dropped
from detconf.auditing.question import Finding, Question, put
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.study import Operation
from detconf.values import Cause

_MOST = 32
"""Droppings taken away one after another: each takes a run."""
_FIX = Fix("let dropout follow the mode of its layer (training=self.training), and call eval() before inference")


def undropped(question: Question) -> Finding | None:
    """Does one side drop elements at random where the other keeps them all?"""
    for asked, who, other in ((question, "candidate", "reference"), (question.exchanged(), "reference", "candidate")):
        found = _kept(asked)
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


def _kept(question: Question) -> tuple[Operation, int] | None:
    """Keep what the candidate drops, one dropping after another, until the sides agree: (the first operation, how many)."""
    a, b = question.exact_a, question.exact_b
    if a is None or b is None:
        return None
    amendments: dict[int, Callable[[Any], Any]] = {}
    operations: list[Operation] = []
    while len(amendments) < _MOST and b is not None:
        found = next((each for each in dropped(b, question.differing) if each.made.index not in amendments), None)
        if found is None:
            return None
        operations.append(found.operation)
        amendments[found.made.index] = put(found.read.shadow.reshape(found.made.shape))
        b = question.laboratory.study(question.b, amendments=amendments)  # what comes after it is only known once it is put right
        if b is not None and question.same_shadows(a.known, b.known):
            return operations[0], len(amendments)
    return None
