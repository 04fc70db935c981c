"""Rungs that do not repeat, and rungs that follow on other inputs or calls what they captured on the first."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from detconf.auditing.modes.trials import Case, attempt, listed, named
from detconf.auditing.modes.verdict import Verdict
from detconf.auditing.result import Evidence, Proof
from detconf.comparison import compare_results
from detconf.values import Cause

if TYPE_CHECKING:
    from detconf.auditing.modes.climbing import Climb, Row

_PLACE = re.compile(r"^(?:inputs(\d+)\.?)?(?:call(\d+)\.?)?")
_PROBES = (-1.0, 8.0, 0.0)
"""Factors on inputs that are to lead a program into its other branches."""


def unstable(case: Case) -> Verdict | None:
    """A rung that does not repeat is not explained further than by what makes it repeat."""
    found = next((row for row in case.rows if row.outcome.distinct > 1), None)
    if found is None:
        return None
    case.at = case.first = found
    attempt(case)
    words = f"{found.name} does not repeat: {found.outcome.distinct} different results from one state; the first rung repeats"
    solved = case.solved
    proof = Proof("removed", f"it repeats, and agrees bit for bit, with: {solved[0].text}", 1.0) if solved else None
    random = case.look(deep=False).random
    verdict = case.verdict(Cause.RACE, words, proof, named(random, "generator"))
    verdict.evidence.insert(0, Evidence(words, found.outcome.distinct))
    if random:
        verdict.evidence.append(Evidence(f"random operations of the program: {listed(random)}", len(random)))
    return verdict


def frozen(case: Case) -> Verdict | None:
    """Equal on the capturing input and call, different on another."""
    row = case.at if case.at.differences else case.first
    places = {_place(each.name) for each in row.differences}
    if not places or (0, 0) in places:
        return None
    other = min(places)
    return _other_input(case, row, other[0]) if other[0] else _other_call(case, row)


def _other_input(case: Case, row: Row, index: int) -> Verdict | None:
    again = case.climbed.run(row.name, {"capture": index})
    if not again.outcome.ran or any(_place(each.name)[0] == index for each in again.differences):
        return None
    words = f"{row.name} follows on other inputs what it captured on the first: a branch or value of that input is frozen"
    said = f", {row.outcome.warned}" if row.outcome.warned else ""
    proof = Proof("removed", f"captured on inputs {index + 1} it agrees with eager on them, bit for bit{said}", 1.0)
    return _mode(case, row, words, proof)


def _other_call(case: Case, row: Row) -> Verdict | None:
    """The first call agrees and later ones do not: they repeat the first, where eager does not."""
    later = [each.name for each in row.differences]
    first = {
        name: _PLACE.sub(lambda found: f"inputs{found[1]}." if found[1] else "", name, count=1).rstrip(".") or "result" for name in later
    }
    repeated = [name for name in later if row.arrays.get(name) == row.arrays.get(first[name])]
    if not repeated:
        return None
    words = f"{row.name} froze a value that the program computes anew at each call"
    share = len(repeated) / len(later)
    proof = Proof(
        "re-created", f"the second call of {row.name} gives the first one's bits again; eager's does not, from the same state", share
    )
    return _mode(case, row, words, proof)


def _mode(case: Case, row: Row, words: str, proof: Proof) -> Verdict:
    case.first = case.at = row
    attempt(case, plain=True)
    verdict = case.verdict(Cause.MODE, words, proof)
    if row.outcome.warned and verdict.where is not None:
        verdict.where = replace(verdict.where, source=row.outcome.warned)
    return verdict


def probed(climbed: Climb, row: Row) -> Verdict | None:
    """A tracer warned of a constant and all agrees: try inputs of another size and sign, where the user gave one set only."""
    if not row.outcome.warned or climbed.subject.cases > 1:
        return None
    for factor in _PROBES:
        ours, theirs = (climbed.run(name, {"probe": factor}) for name in (climbed.base, row.name))
        if not (ours.outcome.ran and theirs.outcome.ran):
            continue
        found = compare_results(ours.arrays, theirs.arrays)
        if found:
            place = row.outcome.warned
            words = f"{row.name} agrees on the given inputs and not on {factor:g} times them: what {place} decides was frozen at capture"
            again = climbed.run(row.name, {"probe": factor, "capture": -1})
            same = again.outcome.ran and not compare_results(ours.arrays, again.arrays)
            proof = Proof("removed", f"captured on {factor:g} times the inputs it agrees there, bit for bit", 1.0) if same else None
            where = replace(found[0], source=place)
            return Verdict(Cause.MODE if same else Cause.UNKNOWN, words, where, [Evidence(words, factor)], proof)
    climbed.unexamined.append(
        f"{row.name}: the tracer says that {row.outcome.warned} became a constant; equal on the given inputs and on "
        f"{', '.join(f'{each:g}' for each in _PROBES)} times them. Give several inputs: inputs=[(a,), (b,)]"
    )
    return None


def _place(name: str) -> tuple[int, int]:
    """(which inputs, which call) a result is of, from 0."""
    found = _PLACE.match(name)
    assert found is not None  # noqa: S101  # every part is optional
    return int(found[1] or 1) - 1, int(found[2] or 1) - 1
