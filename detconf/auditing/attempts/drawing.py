"""Is the difference made by random draws, or by layers in training mode? Shown by taking either away."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from detconf.auditing.attempts.tying import draws, reaching, tied, transplants
from detconf.auditing.laboratory import Observation, Side
from detconf.auditing.question import Finding, Question, abroad, put
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.errors import TargetError
from detconf.frameworks import frameworks
from detconf.frameworks.base import Modes
from detconf.lookup import is_imported, resolve
from detconf.shadows.pool import Pool
from detconf.shadows.study import Operation, Value
from detconf.values import Cause

_FIXES = (
    Fix("give both sides the same generator state where they begin to draw, and let nothing else draw in between"),
    Fix("give every consumer of random numbers a generator of its own"),
)


def drawn(question: Question) -> Finding | None:
    """Do the sides agree where every draw starts from one and the same generator state, or from the other side's?"""
    a, b = question.exact_a, question.exact_b
    if a is None or b is None or not (a.study.drawn or b.study.drawn):
        return None
    alike = _same_draws(*(list(reaching(side, question.differing).values()) for side in (a, b)))
    if alike and _same_draws(*(list(draws(side).values()) for side in (a, b))):
        return None
    laboratory = question.laboratory
    # Where the numbers that results are computed of are the very same, fixed draws would hide an exchange of them.
    frozen_a, frozen_b = (None if alike else laboratory.study(side, draws="frozen") for side in (question.a, question.b))
    if frozen_a and frozen_b and question.same_shadows(frozen_a.known, frozen_b.known):
        how = "every random operation started from one fixed generator state on both sides: they agree"
        return _finding(question, how, a, b)
    for words, states in _pairings(a, b, question.differing):
        replayed = laboratory.study(question.b, draws="replay", states=states)
        if replayed and question.same_shadows(a.known, replayed.known):
            return _finding(question, f"the candidate's draws started from the reference's generator states ({words}): they agree", a, b)
    for words, amendments in (
        (
            "the reference's draws put in place of the candidate's",
            transplants(*(reaching(side, question.differing).values() for side in (a, b))),
        ),
        ("the reference's numbers, in the order in which it drew them, put in place of the candidate's", _poured(a, b, question.differing)),
        ("the reference's draws, and what it drops at random dropped by the candidate too", tied(a, b, question.differing).amendments),
    ):
        found = laboratory.study(question.b, amendments=amendments) if amendments else None
        if found and question.same_shadows(a.known, found.known):
            return _finding(question, f"{words} ({len(amendments)} times): they agree", a, b)
    question.tried.append("draws from fixed generator states, from the other side's, and its very numbers: still different")
    return None


def _same_draws(a: list[Operation], b: list[Operation]) -> bool:
    """Are the very same numbers drawn, if perhaps in another order?"""
    ours, theirs = ([value.shadow for each in side for value in each.writes] for side in (a, b))
    if not ours or len(ours) != len(theirs):
        return False
    pools = [Pool(((None, each) for each in side if each is not None), 1e-9) for side in (ours, theirs)]
    return all(each is not None and pools[1].find(each) for each in ours) and all(
        each is not None and pools[0].find(each) for each in theirs
    )


def _finding(question: Question, how: str, a: Observation, b: Observation) -> Finding:
    evidence = [Evidence(f"draws: {a.study.drawn} in the reference, {b.study.drawn} in the candidate", b.study.drawn - a.study.drawn)]
    operation = _first_draw(a, b, question.differing)
    proof = Proof("removed", how)
    restored = question.captured[1].restored - question.captured[0].restored
    if restored:
        evidence.append(Evidence(f"the candidate loads a saved state {restored} times more often than the reference", restored))
        summary = "after a saved state is loaded, random numbers are drawn from where the generator happened to be, which was not saved"
        fix = Fix("save the state of every generator with the checkpoint and load it again")
        return Finding(Cause.STATE, summary, proof, evidence, [fix], operation=operation)
    return Finding(Cause.RNG, "the sides draw different random numbers", proof, evidence, list(_FIXES), operation=operation)


def _pairings(a: Observation, b: Observation, names: list[str]) -> list[tuple[str, Mapping[int, Any]]]:
    """Which draw of the candidate corresponds to which of the reference: (in words, number of a draw -> state)."""
    ours, theirs = reaching(a, names), reaching(b, names)
    found = [("those that reach the results, in order", _states(ours, theirs))]
    lines: dict[tuple[str, str], list[Operation]] = {}
    for each in draws(a).values():
        lines.setdefault((each.name, each.source), []).append(each)
    same_line = {}
    for number, each in draws(b).items():
        waiting = lines.get((each.name, each.source))
        if waiting:
            same_line[number] = waiting.pop(0).state
    found.append(("those of one source line, in order", same_line))
    return [(words, states) for words, states in found if states]


def _poured(a: Observation, b: Observation, names: list[str]) -> dict[int, Callable[[Any], Any]]:
    """Number of a value that the candidate drew -> as many of the reference's numbers, where both draw as many in other portions."""
    ours, theirs = (_by_name(reaching(side, names).values()) for side in (a, b))
    found: dict[int, Callable[[Any], Any]] = {}
    for name, values in theirs.items():
        numbers = np.concatenate([each.shadow.reshape(-1) for each in ours.get(name, ())] or [np.empty(0)])
        if numbers.size != sum(each.shadow.size for each in values) or len(values) == len(ours[name]):
            return {}
        start = 0
        for each in values:
            found[each.index] = put(numbers[start : start + each.shadow.size].reshape(each.shape))
            start += each.shadow.size
    return found


def _by_name(operations: Iterable[Operation]) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for each in operations:
        found.setdefault(each.name, []).extend(value for value in each.writes if value.shadow is not None)
    return found


def _states(ours: Mapping[int, Operation], theirs: Mapping[int, Operation]) -> dict[int, Any]:
    """By name, in order."""
    waiting: dict[str, list[Operation]] = {}
    for each in ours.values():
        waiting.setdefault(each.name, []).append(each)
    found = {}
    for number, each in theirs.items():
        if waiting.get(each.name):
            found[number] = waiting[each.name].pop(0).state
    return {number: state for number, state in found.items() if state is not None}


def _first_draw(a: Observation, b: Observation, names: list[str]) -> Operation | None:
    """The candidate's first draw, of those that its results depend on before others, that the reference does not draw too."""
    drawn = Pool(((None, value.shadow) for each in draws(a).values() for value in each.writes if value.shadow is not None), 1e-9)
    later = (*reaching(b, names).values(), *draws(b).values())
    unlike = (each for each in later if not all(value.shadow is not None and drawn.find(value.shadow) for value in each.writes))
    return next(unlike, None) or next(iter(later), None)


def evaluated(question: Question) -> Finding | None:
    """Is one side in training mode where the other is not, and does it agree with the other in evaluation mode?"""
    return _evaluated(question, alone=True)


def evaluated_anyway(question: Question) -> Finding | None:
    """The same where both sides have layers in training mode, if nothing else explains the difference."""
    return _evaluated(question, alone=False)


def _evaluated(question: Question, *, alone: bool) -> Finding | None:
    if question.same_results(question.real_a, question.real_b) is not None:  # as they are: there is nothing to take away
        return None
    ours, theirs = _training(question, question.a), _training(question, question.b)
    for side, seen, other, own, who in (
        (question.b, theirs, ours, question.real_a, ("candidate", "reference")),
        (question.a, ours, theirs, question.real_b, ("reference", "candidate")),
    ):
        # What is called before the last backward pass is training, and rightly so.
        if seen.calls == seen.after or (alone and other.calls > other.after):
            continue
        found = _in_evaluation(question, side, Modes(since=seen.after))
        share = None if found is None else question.same_results(own, found)
        if share is not None:
            layers = ", ".join(sorted(seen.training))
            proof = Proof("removed", f"with the {who[0]}'s layers in evaluation mode it agrees with the {who[1]} as it is", share)
            evidence = [Evidence(f"layers called in training mode by the {who[0]}: {layers}", len(seen.training))]
            fix = Fix("call eval() before inference", verified=True)
            return Finding(Cause.MODE, f"the {who[0]} runs in training mode, the {who[1]} does not", proof, evidence, [fix])
    return None


def _training(question: Question, side: Side) -> Modes:
    """Which layers a side calls in training mode, nothing overruled."""
    seen = Modes(since=sys.maxsize)
    _in_evaluation(question, side, seen)
    return seen


def _in_evaluation(question: Question, side: Side, seen: Modes) -> Mapping[str, Any] | None:
    if side.function is None:
        return None
    with ExitStack() as stack:
        for framework in frameworks():
            if framework.modes and is_imported(framework.module):
                stack.enter_context(resolve(framework.modes)(seen, evaluate=True))
        for elsewhere in abroad:
            stack.enter_context(elsewhere.evaluating(seen))
        try:
            return question.laboratory.plain(side)
        except TargetError:
            return None
