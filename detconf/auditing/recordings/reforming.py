"""Is the difference between two recordings made by numbers that one side formed in float64?

What `hosting` does to a program that can be run, done to its recorded operations: they are carried out again with the
numbers that float32 would have formed, and must give the other side's results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from detconf.auditing.attempts.hosteffect import Effect, brought_together
from detconf.auditing.attempts.hostfloats import VARIANTS
from detconf.auditing.attempts.hosting import figures, narrowed
from detconf.auditing.laboratory import Observation
from detconf.auditing.question import Finding
from detconf.auditing.recordings.forming import Formed, formed, sites
from detconf.auditing.recordings.replaying import Replay
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.values import Cause

_SHOWN = 6


@dataclass(slots=True)
class _Experiment:
    """One side's operations carried out again, against the other side as it is.

    Attributes:
        replay: of the side.
        other: the other side.
        names: of the results that differ.
        groups: numbers that are formed alike, at one place of the program.
        effect: what was seen inside, where the results by themselves show too little.
    """

    replay: Replay
    other: Observation
    names: Sequence[str]
    groups: list[list[Formed]]
    effect: Effect | None = None

    def explains(self, groups: Sequence[Sequence[Formed]], *, places: bool | None = None) -> dict[str, Any] | None:
        """Figures of the replay with these numbers, where it matches the other side that much better."""
        found = self.rerun(groups).arrays
        counted = self.effect is not None if places is None else places
        return figures(self.replay.observation.arrays, found, self.other.arrays, self.names, places=counted)

    def shows(self) -> bool:
        """Are single elements of the results much closer, and values in between that were off by one scalar equal?"""
        if self.explains(self.groups, places=True):
            self.effect = brought_together(self.replay.observation, self.rerun(self.groups), self.other, recorded=True)
        return self.effect is not None

    def rerun(self, groups: Sequence[Sequence[Formed]]) -> Observation:
        """The replay with these numbers."""
        numbers: dict[int, dict[str | int, float]] = {}
        for each in (each for group in groups for each in group):
            numbers.setdefault(each.operation.index, {})[each.position] = each.after
        return self.replay.altered(numbers)


def reformed(a: Observation, b: Observation, names: Sequence[str]) -> Finding | None:
    """Carry out one side's operations with the numbers that float32 would have formed: does it then match the other?

    Args:
        a, b: reference and candidate.
        names: of the results that differ.
    """
    for who, own, other in (("reference", a, b), ("candidate", b, a)):
        replay = Replay(own, list(own.known))
        found = sites(replay.operations)
        for variant in VARIANTS:
            for groups in _choices(_groups(formed(found, variant))):
                experiment = _Experiment(replay, other, names, groups)
                seen = experiment.explains(groups)
                if seen is None and experiment.shows():
                    seen = experiment.explains(groups)
                if seen is not None:
                    fewest = narrowed(groups, seen["after"], experiment.explains)
                    return _finding(who, experiment, fewest, experiment.explains(fewest) or seen)
    return None


def _choices(groups: list[list[Formed]]) -> Iterator[list[list[Formed]]]:
    """All of them; then, since the digits of a number may look like what it is not, all but one."""
    if groups:
        yield groups
    if len(groups) > 1:
        yield from (groups[:at] + groups[at + 1 :] for at in range(len(groups)))


def _groups(numbers: Sequence[Formed]) -> list[list[Formed]]:
    found: dict[tuple[str, str], list[Formed]] = {}
    for each in numbers:
        found.setdefault((each.operation.source or each.operation.name, each.words), []).append(each)
    return list(found.values())


def _finding(who: str, experiment: _Experiment, groups: Sequence[Sequence[Formed]], seen: dict[str, Any]) -> Finding:
    other = "candidate" if who == "reference" else "reference"
    unit = "in units in the last place" if experiment.effect else "relative to the results"
    falls = f"the largest difference, {unit}, falls from {seen['before']:.3g} to {seen['after']:.3g}"
    firsts = [max(group, key=lambda each: abs(each.after - each.before) / abs(each.before)) for group in groups]
    places = ", ".join(dict.fromkeys(each.operation.source or each.operation.name for each in firsts))
    evidence = [Evidence(_spelt(each), f"{abs(each.after - each.before) / abs(each.before):.3g}") for each in firsts[:_SHOWN]]
    evidence += experiment.effect.evidence if experiment.effect else []
    evidence.append(Evidence(falls, seen["after"]))
    what = (
        f"carried out again with these numbers as float32 forms them, the {who}'s recorded operations give the {other}'s results: {falls}"
    )
    summary = f"the {who} forms scalars in float64 ({places}) where the {other} computes them in float32"
    fix = Fix(
        f"form the scalars of {places} in float32 in the {who}, as the {other} does (tried on its recorded operations)", verified=True
    )
    operation = experiment.effect.operation if experiment.effect else firsts[0].operation
    return Finding(Cause.DTYPE, summary, Proof("re-created", what, seen["share"]), evidence, [fix], operation=operation)


def _spelt(each: Formed) -> str:
    formed_as = f", {each.words}," if each.words else ""
    at = f"{each.operation.name} at {each.operation.source or 'an unknown line'}"
    return f"{at}: its scalar{formed_as} is {each.before!r}, in float32 {each.after!r}; apart, relative"
