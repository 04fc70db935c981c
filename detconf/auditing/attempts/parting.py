"""Where two sides part: the region of either that the other has no counterpart of, and a repair tried in the shadows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from detconf.auditing.laboratory import Observation
from detconf.auditing.question import Question, pool
from detconf.shadows.pool import Pool
from detconf.shadows.regions import Region, region


@dataclass(slots=True)
class Parting:
    """Both regions, at the tolerance at which shadows count as the same."""

    question: Question
    a: Observation
    b: Observation
    output: str
    theirs: Region
    """Of the candidate."""
    ours: Region
    """Of the reference."""
    pool: Pool
    """The reference's contents."""

    @property
    def resumes(self) -> bool:
        """Does one side load saved states, after steps of an optimizer, that the other does not load?"""
        ours, theirs = self.question.captured
        return ours.resumed != theirs.resumed

    @property
    def restores(self) -> bool:
        """The same, or does the candidate load more of them at any time?"""
        ours, theirs = self.question.captured
        return self.resumes or theirs.restored > ours.restored

    def repaired(self, **options: Any) -> bool:
        """Does the candidate, with a change to its shadows, agree with the reference in the result at hand?"""
        found = self.question.laboratory.study(self.question.b, **options)
        return found is not None and self.question.same_shadows(self.a.known, found.known, [self.output])


def first_output(question: Question, b: Observation | None) -> str:
    """The differing result that the candidate computes first."""
    if b is None or question.exact_a is None:
        return ""
    names = [each.name for each in question.complete if each.units > 1 and each.name in b.known and each.name in question.exact_a.known]
    return min(names, key=lambda name: b.known[name].value.index, default="")


def part(question: Question, a: Observation, b: Observation, name: str, tolerance: float) -> Parting:
    """The regions of both sides behind one result."""
    ours, theirs = pool(a, tolerance), pool(b, tolerance)
    return Parting(
        question,
        a,
        b,
        name,
        region(b.study, [b.known[name]], ours),
        region(a.study, [a.known[name]], theirs),
        ours,
    )
