"""What reruns gave: the evidence as it is gathered, and the verification made of it. Data only."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from detconf.arrays import Array, Place
from detconf.comparing.result import Finding
from detconf.comparison import Divergence, differences
from detconf.errors import TargetError
from detconf.supervise import Ending
from detconf.values import Cause, Printable

_CONFIDENCE = 0.95


def runs_until(share: float, least: int, most: int) -> int:
    """How many runs until a difference that shows in `share` of reruns would have shown with 95 %, within two limits.

    Raises:
        TargetError: `share` is no share, or the limits leave nothing.
    """
    if type(share) not in (int, float) or not 0 < share < 1:
        msg = f"until: {share!r} is not accepted. Accepted: a share of reruns between 0 and 1, such as 0.05."
        raise TargetError(msg)
    if type(most) is not int or most < least:
        msg = f"most_runs: {most!r} is not accepted. Accepted: an integer that is not below runs ({least})."
        raise TargetError(msg)
    return min(most, max(least, 1 + math.ceil(math.log(1 - _CONFIDENCE) / math.log(1 - share))))


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that did not end as a program should.

    Attributes:
        run: from 0.
        reason: exit status, signal, or timeout.
        lines: the last lines that it wrote to stderr (stdout where it wrote none there).
    """

    run: int
    reason: str
    lines: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"run": self.run, "reason": self.reason, "lines": list(self.lines)}


@dataclass(frozen=True, slots=True)
class Tried:
    """One experiment: what was changed, in how many runs, and whether they agreed."""

    changes: tuple[str, ...]
    runs: int
    agreed: bool
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"changes": list(self.changes), "runs": self.runs, "agreed": self.agreed, "note": self.note}


@dataclass(frozen=True, slots=True)
class Operation:
    """The first operation by which runs part, seen in runs that were recorded.

    Attributes:
        finding: None where none was found; the notes say why.
        runs: recorded runs.
        others: operations behind it that introduce a difference too, each place once. Where the first one's result is overwritten
            before it is read, such as weights that are loaded over, it is one of these that matters.
        notes: what it does not show, such as that the recorder leaves the bits alone.
    """

    finding: Finding | None
    runs: int
    notes: tuple[str, ...] = ()
    others: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        found = self.finding.to_dict() if self.finding else {"name": None}
        return {**found, "others": [each.to_dict() for each in self.others], "runs": self.runs, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that was varied, and whether the results stayed.

    Attributes:
        axis: its name.
        invariant: None where it was not judged.
        divergence: the first result that did not stay.
        restored_by: what was tried here and brings agreement back.
        note: which variants were run, or which one differed.
        cause: of the difference, where it was shown.
        evidence: for the cause, in sentences.
        operation: the first operation by which recorded runs part there; None where they were not looked at.
    """

    axis: str
    invariant: bool | None
    divergence: Divergence | None
    restored_by: str | None = None
    note: str = ""
    cause: Cause = Cause.UNKNOWN
    evidence: tuple[str, ...] = ()
    operation: Operation | None = None

    def to_dict(self) -> dict[str, Any]:
        divergence = self.divergence and self.divergence.to_dict()
        return {
            "axis": self.axis,
            "invariant": self.invariant,
            "divergence": divergence,
            "restored_by": self.restored_by,
            "note": self.note,
            "cause": None if self.invariant is None else str(Cause.EQUAL if self.invariant else self.cause),
            "evidence": list(self.evidence),
            "operation": self.operation and self.operation.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Observed:
    """How much was compared: arrays, steps and ranks with published values, hidden states, and bytes."""

    arrays: int
    steps: int
    ranks: int
    state: int
    bytes: int

    def to_dict(self) -> dict[str, int]:
        return {"arrays": self.arrays, "steps": self.steps, "ranks": self.ranks, "state": self.state, "bytes": self.bytes}


@dataclass(frozen=True, kw_only=True)
class Verification(Printable):
    """Whether reruns agreed, and where they first did not.

    Attributes:
        target: what was run, in words.
        profile: what was in force; None for nothing of ours.
        runs: how often.
        until: the share of differing reruns that had to be noticed with 95 %; None for a fixed number of runs.
        distinct: different results, a failure counting as one.
        cause: `equal` when stable.
        divergence: the first result, in the order of recording, that differs between two runs; None where runs differ
            only in that some failed.
        operation: that of the first axis that is not invariant; None where all are.
        axes: what was varied.
        observed: how much was compared.
        digests: per run one over everything ("runs"), and per array one for each run ("arrays").
        failures: the runs that crashed, hung or returned an error.
        tried: the experiments by which the cause was looked for.
        environment: facts of this process.
    """

    target: str
    profile: str | None
    runs: int
    until: float | None = None
    distinct: int
    cause: Cause
    divergence: Divergence | None
    operation: Operation | None = None
    axes: tuple[Axis, ...]
    observed: Observed
    digests: Mapping[str, Any]
    failures: tuple[Failure, ...]
    tried: tuple[Tried, ...] = ()
    environment: Mapping[str, Any]

    @property
    def stable(self) -> bool:
        """Every run gave the same bits, none failed, and nothing that was varied made a difference."""
        return self.distinct == 1 and all(axis.invariant is not False for axis in self.axes)

    @property
    def missed_at_95(self) -> float | None:
        """The largest share of differing runs that this many equal ones miss with a chance of 5 %; None if they differ."""
        return 1 - (1 - _CONFIDENCE) ** (1 / (self.runs - 1)) if self.distinct == 1 else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "detconf.verification/1",
            "target": self.target,
            "profile": self.profile,
            "stable": self.stable,
            "runs": self.runs,
            "until": self.until,
            "distinct": self.distinct,
            "cause": str(self.cause),
            "divergence": self.divergence and self.divergence.to_dict(),
            "operation": self.operation and self.operation.to_dict(),
            "axes": [axis.to_dict() for axis in self.axes],
            "missed_at_95": self.missed_at_95,
            "observed": self.observed.to_dict(),
            "digests": dict(self.digests),
            "failures": [failure.to_dict() for failure in self.failures],
            "tried": [each.to_dict() for each in self.tried],
            "environment": dict(self.environment),
        }


@dataclass(slots=True)
class Run:
    """What one run gave, and how it ended."""

    results: dict[Place, Array]
    ending: Ending = field(default_factory=Ending)


@dataclass(slots=True)
class Evidence:
    """What all runs gave, with the arrays of one of them only: two sets of results are in memory at a time.

    Attributes:
        reference: the first run that did not fail.
        places: every result of any run, in order of recording.
        digests: per run, place -> digest.
        endings: per run.
        divergence: the first result that differs between the reference and any other run.
        bytes: the most that a run gave.
    """

    reference: dict[Place, Array] | None = None
    places: dict[Place, int] = field(default_factory=dict)
    digests: list[dict[Place, str]] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    divergence: Divergence | None = None
    bytes: int = 0

    def add(self, run: Run) -> None:
        for place in run.results:
            self.places.setdefault(place, len(self.places))
        self.digests.append({place: array.digest for place, array in run.results.items()})
        self.endings.append(run.ending)
        self.bytes = max(self.bytes, sum(array.nbytes for array in run.results.values()))

    def compare(self, results: Mapping[Place, Array]) -> None:
        """Keep the earlier of the first difference of `results` and the one known."""
        found = next(differences(self.reference or {}, results), None)
        if found and (self.divergence is None or self._order(found) < self._order(self.divergence)):
            self.divergence = found

    def _order(self, found: Divergence) -> int:
        return self.places[Place(found.name, found.step, found.occurrence, found.rank, found.origin)]

    @property
    def distinct(self) -> int:
        """Different outcomes. At least one run did not fail, so that 1 means that none did."""
        return len(set(self.combined()))

    @property
    def parted(self) -> bool:
        """Is the last run unlike the first?"""
        return (self.digests[-1], self.endings[-1].reason) != (self.digests[0], self.endings[0].reason)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The runs that failed."""
        return tuple(Failure(run, ending.reason, ending.lines) for run, ending in enumerate(self.endings) if ending.reason)

    @property
    def observed(self) -> Observed:
        """How much was compared."""
        steps = {place.step for place in self.places} - {None}
        ranks = {place.rank for place in self.places}
        states = sum(place.origin == "state" for place in self.places)
        return Observed(len(self.places), len(steps), len(ranks), states, self.bytes)

    def combined(self) -> list[str]:
        """One digest per run: over its results, whatever their order, and the way it ended."""
        from xxhash import xxh3_128_hexdigest  # as in `Array.digest`

        rows = zip(self.digests, self.endings, strict=True)
        return [xxh3_128_hexdigest(json.dumps([sorted(map(str, digests.items())), ending.reason]).encode()) for digests, ending in rows]

    def table(self) -> list[dict[str, Any]]:
        """Per array its place and a digest for each run, None where a run has no such array."""
        return [{**place._asdict(), "digests": [digests.get(place) for digests in self.digests]} for place in self.places]
