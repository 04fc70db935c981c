"""The cause of what differs on a ladder, from trials and from looking inside. See `auditing.modes.climb`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from detconf.auditing.modes.doubles import against_double
from detconf.auditing.modes.freezing import frozen, probed, unstable
from detconf.auditing.modes.trials import Case, attempt, listed, named
from detconf.auditing.modes.verdict import Verdict
from detconf.auditing.result import Evidence, Proof
from detconf.frameworks.rungs import Operation, Survey, Trial
from detconf.values import Cause

if TYPE_CHECKING:
    from detconf.auditing.modes.climbing import Climb, Row

_MAIN = 30.0
"""A trial that takes away so much of the difference is about its main part."""
_PART = 2.0
_CONSTANTS = 1e3
"""Roundings of a typical element in float64; a constant rounded to float32 makes some 10^8."""


def judge(climbed: Climb, family: Sequence[str], focus: Sequence[str]) -> Verdict | None:
    """Why the rungs of a family differ from the first of the ladder; None where they do not."""
    rows = [row for row in climbed.rows if row.name in family and row.outcome.ran]
    differing = [row for row in rows if row.differences or row.outcome.distinct > 1]
    if not differing:
        return next(filter(None, (probed(climbed, row) for row in rows)), None)
    if all(
        any(
            other is not row and other.name not in family and other.arrays == row.arrays
            for other in climbed.rows[: climbed.rows.index(row)]
        )
        for row in differing
    ):
        return None  # bit for bit what an earlier family gave, which has its verdict
    case = Case(climbed, rows, differing[0], next((row for name in focus for row in differing if row.name == name), differing[0]))
    attempts = (unstable, frozen, _removed, _measured)
    return next(found for attempt in attempts if (found := attempt(case)) is not None)


def _removed(case: Case) -> Verdict | None:
    """A trial that shows a cause removes the difference, or its main part."""
    attempt(case)
    shows = [(trial, row) for trial, row in case.done if trial.shows and row.outcome.ran]
    whole = next(((trial, row) for trial, row in shows if case.agrees(trial, row)), None)
    rests = [(trial, row, case.at.gain(row)) for trial, row in shows if not (trial.against == "rung" or case.agrees(trial, row))]
    main = next(((trial, row) for trial, row, gain in rests if gain >= (_MAIN if trial.shows == Cause.RNG else _PART)), None)
    if whole is not None and (main is None or whole[0].shows == main[0].shows):
        return _shown(case, *whole)
    return _shown(case, *main) if main is not None else None


def _shown(case: Case, trial: Trial, row: Row) -> Verdict:
    cause = _scalar(case.at) if trial.shows == "scalar" else Cause(trial.shows)
    survey = case.look(deep=cause is Cause.DTYPE)
    operation = named(survey.random, "generator") if cause is Cause.RNG else next(iter(_culprits(case, survey)), None)
    if cause is Cause.DTYPE and survey.roundings:
        operation = named(survey.roundings, "elided rounding")
    if cause is Cause.SEMANTICS:
        operation = named(survey.writes, "write in place") or operation
    name = f" at {operation.name}{f' ({operation.source})' if operation.source else ''}" if operation else ""
    words = _WORDS.get(cause, f"differs by {cause}") if trial.shows != "scalar" else "computes with the program's constants in another way"
    verdict = case.verdict(cause, f"{case.at.name} {words}{name}: {_effect(case, trial, row)}", _removal(case, trial, row), operation)
    if survey.random:
        verdict.evidence.append(Evidence(f"random operations: {listed(survey.random)}", len(survey.random)))
    if cause is not Cause.RNG:
        verdict.evidence += _classes(case, survey)
    if cause is Cause.DTYPE and survey.roundings:
        words = f"where the program rounds to {', '.join(sorted(survey.low))}: {listed(survey.roundings)}"
        verdict.evidence.append(Evidence(words, len(survey.roundings)))
    verdict.unexamined += survey.unexamined
    return verdict


_STAGES = {"replaced": "which replaces", "folding": "which folds"}
_WORDS = {
    Cause.RNG: "draws other random numbers",
    Cause.DTYPE: "rounds in other places",
    Cause.SEMANTICS: "loses a write",
    Cause.CONFIG: "and the first rung do not obey the same settings",
}


def _effect(case: Case, trial: Trial, row: Row) -> str:
    if trial.against == "rung":
        return trial.text
    return f"{trial.text} removes it" if case.agrees(trial, row) else f"{trial.text} removes that; what then remains: {row.measured()}"


def _removal(case: Case, trial: Trial, row: Row) -> Proof:
    if trial.against == "rung":
        return Proof("re-created", trial.text, 1.0)
    share = row.share(case.climbed.reference)
    if case.agrees(trial, row):
        return Proof("removed", f"{trial.text}: all bits agree", share)
    also = f"; with {case.solved[0].text} all bits agree" if case.solved else ""
    return Proof("removed", f"{trial.text}: {share:.0%} of the elements agree; what then remains: {row.measured()}{also}", share)


def _scalar(row: Row) -> Cause:
    """What constants did: far beyond the roundoff of the result's dtype, they were held in a lower one; else it is the kernel."""
    for each in row.differences:
        if "float" not in each.dtype or (each.dtype == "float64" and (each.scaled or 0.0) > _CONSTANTS):
            return Cause.DTYPE
    return Cause.ROUNDING


def _measured(case: Case) -> Verdict:
    """Each operation that differs, and each result, against float64."""

    survey = case.look()
    culprits = _culprits(case, survey)
    settled = next((row for trial, row in case.done if trial.shows == Cause.RNG and row.outcome.ran), case.at)
    doubled = against_double(case.climbed, settled)
    wrong = [each for each in culprits if each.faithful is False]
    known = [each for each in culprits if each.faithful is not None]
    first = wrong[0] if wrong else next(iter(culprits), None)
    named = f"{first.name}{f' ({first.source})' if first.source else ''}" if first else case.first.differences[0].name
    if wrong and not (doubled and doubled.alike):
        words = f"{case.first.name} computes something else at {named}: beyond what rounding explains, on equal inputs"
        proof = Proof(
            "re-created", f"{named} alone, on equal inputs, gives the difference ({wrong[0].scaled:.3g} roundings of a typical element)"
        )
        verdict = case.verdict(Cause.SEMANTICS, words, proof, wrong[0])
    elif known or (doubled and doubled.alike):
        cause = Cause.ILL_CONDITIONED if doubled and doubled.amplified else Cause.ROUNDING
        at = _STAGES.get(first.stage if first else "", "first at")
        words = f"bits change on {case.first.name}, {at} {named}; each side is as far from float64 as the other"
        verdict = case.verdict(cause, words, _bounded(case, survey, doubled.words if doubled and doubled.alike else ""), first)
    else:
        solved = case.solved
        words = (
            f"{solved[0].text} removes it, and whether it is rounding could not be shown" if solved else "nothing that was tried shows why"
        )
        verdict = case.verdict(Cause.UNKNOWN, f"bits change on {case.first.name}; {words}", None, first)
    if doubled:
        verdict.evidence.append(Evidence(doubled.words, doubled.ratio))
        verdict.tolerance = doubled.tolerance
    verdict.evidence += _classes(case, survey)
    verdict.unexamined += survey.unexamined
    return verdict


def _bounded(case: Case, survey: Survey, doubled: str) -> Proof:
    parts = list(survey.shown)
    known = [each for each in survey.operations if each.faithful is not None]
    if known:
        parts.append(f"each of {len(known)} operations that differ on equal inputs is as close to float64 as eager's")
    parts += [doubled] if doubled else []
    solved = case.solved
    if solved:
        parts.append(f"with {solved[0].text} all bits agree")
    return Proof("bounded", "; ".join(parts), solved[1].share(case.climbed.reference) if solved else None)


def _culprits(case: Case, survey: Survey) -> list[Operation]:
    """The operations to name: of the stage at which bits first change, then the others."""
    stages = list(dict.fromkeys(each.stage for each in survey.operations))
    early = case.climbed.subject.stages.get(case.first.name, "")
    return sorted(survey.operations, key=lambda each: (each.stage != early, stages.index(each.stage)))


def _classes(case: Case, survey: Survey) -> list[Evidence]:
    """What made operations differ, in classes, and whether looking changed anything."""
    counted = Counter(each.word for each in survey.operations)
    found = [Evidence(each) for each in survey.shown]
    for word, count in counted.most_common():
        names = dict.fromkeys(f"{each.name}{f' ({each.source})' if each.source else ''}" for each in survey.operations if each.word == word)
        found.append(Evidence(f"{word}: {listed(names)}", count))
    if survey.examined:
        found.append(Evidence(f"{survey.examined} operations of {case.at.name} compared with eager ones on equal inputs", survey.examined))
    if survey.invasive is not None:
        words = (
            "changed the results, so the operations named are those of the graph that was looked into"
            if survey.invasive
            else "changed no bit"
        )
        found.append(Evidence(f"looking inside {words}", int(survey.invasive)))
    return found
