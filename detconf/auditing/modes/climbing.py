"""Runs a program on its rungs and compares what each gave with the first."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from detconf.arrays import Array
from detconf.auditing.modes.verdict import Verdict
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.comparison import Divergence, Kind, compare_results
from detconf.errors import TargetError
from detconf.frameworks.rungs import Outcome, Settings, Status, Subject, Survey, Trial
from detconf.results import flatten
from detconf.values import Cause, show


@dataclass(slots=True)
class Row:
    """One rung that was run.

    Attributes:
        name: of the rung.
        outcome: what became of it.
        arrays: name -> result.
        differences: from the first rung.
    """

    name: str
    outcome: Outcome
    arrays: dict[str, Array] = field(default_factory=dict)
    differences: list[Divergence] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return self.outcome.ran and not self.differences

    def measured(self) -> str:
        """How much differs, in words."""
        if not self.differences:
            return ""
        first = self.differences[0]  # outputs come first; gradients that are zero by construction have any number of ULP
        ulp = f" by up to {first.max_ulp} ULP" if first.max_ulp else f" in {first.kind}" if first.kind is not Kind.BITS else ""
        return f"{len(self.differences)} of {len(self.arrays)} results differ, {first.name}{ulp}"

    def gain(self, after: Row) -> float:
        """How many times closer to the first rung another run is: the median over the results that differ here."""
        left = {each.name: _distance(each) for each in after.differences}
        gains = [_times(_distance(each), left.get(each.name, 0.0)) for each in self.differences]
        return sorted(gains)[(len(gains) - 1) // 2] if gains else 1.0

    def share(self, reference: Mapping[str, Array]) -> float:
        """Share of elements that are equal."""
        total = sum(math.prod(array.shape) for array in reference.values())
        apart = sum(each.elements if each.differing is None else each.differing for each in self.differences)
        return 1.0 - apart / total if total else 1.0


def _times(before: float, after: float) -> float:
    if math.isinf(after):
        return 1.0 if math.isinf(before) else 0.0
    return before / after if after else math.inf


def _distance(found: Divergence) -> float:
    """Mean absolute difference."""
    return found.mean_abs if found.kind is Kind.BITS and found.mean_abs is not None else math.inf


class Climb:
    """A program and its rungs.

    Args:
        subject: the program.
        base: the rung that the others are compared with.
        say: takes lines about the progress.

    Raises:
        TargetError: it does not run on `base`, or gives nothing to compare.
    """

    def __init__(self, subject: Subject, base: str, say: Callable[[str], None]) -> None:
        self.subject, self.base, self.say = subject, base, say
        self.rows: list[Row] = []
        self.unexamined: list[str] = []
        self.race: Verdict | None = None
        self._trials: dict[str, Row] = {}
        self._surveys: dict[str, Survey] = {}
        first = self._run(base, {})
        if not first.outcome.ran:
            msg = f"{base}: {first.outcome.status}: {first.outcome.why}"
            raise TargetError(msg)
        self.reference = first.arrays
        if not any(array.nbytes for array in self.reference.values()):
            msg = f"{base}: nothing was compared: it gave no arrays. Return a tensor, or a nesting of them."
            raise TargetError(msg)
        self.outcome = first.outcome
        self._check_itself(self._run(base, {}))

    def _check_itself(self, again: Row) -> None:
        """A program that disagrees with itself is not explained further than by what makes it repeat."""
        distinct = max(self.outcome.distinct, again.outcome.distinct, 1 + bool(again.differences))
        if distinct == 1:
            return
        words = f"{self.base} does not repeat: it disagrees with itself from the same parameters, inputs and generator states"
        where = again.differences[0] if again.differences else None
        cause, remedies = self._of_itself()
        proof = Proof("removed", f"it repeats with: {remedies[0]}") if remedies else None
        fixes = [Fix(each, verified=True) for each in remedies]
        self.race = Verdict(cause, words, where, [Evidence(words, distinct)], proof, fixes)

    def _of_itself(self) -> tuple[Cause, list[str]]:
        """(why it does not repeat, what makes it), by experiment; only in this process."""
        if self.subject.apart:
            return Cause.UNKNOWN, []
        from detconf.rerun import verify  # only where it is needed

        self.say(f"{self.base} does not repeat; looking for what makes it ...")
        found = verify(lambda: self._run(self.base, {}).arrays, runs=5)
        remedies = [str(each.restored_by) for each in found.axes if each.restored_by]
        return (found.cause if remedies and found.cause is not Cause.EQUAL else Cause.UNKNOWN), remedies

    def step(self, name: str) -> None:
        """Run a rung."""
        if self.race is None:
            row = self._run(name, {})
            self.rows.append(row)
            self.say(f"{name}: {row.measured() or ('equal' if row.outcome.ran else f'{row.outcome.status}: {row.outcome.why}')}")

    def row(self, name: str) -> Row | None:
        return next((each for each in self.rows if each.name == name), None)

    def run(self, name: str, settings: Settings) -> Row:
        """Run a rung under settings, once."""
        key = f"{name} {sorted((key, show(value)) for key, value in settings.items())}"
        known = self.row(name) if not settings else self._trials.get(key)
        if known is None:
            self.say(f"trying {name} with {', '.join(settings) or 'nothing changed'} ...")
            known = self._trials[key] = self._run(name, settings)
        return known

    def survey(self, name: str, settings: Settings) -> Survey:
        """Look inside a rung, once."""
        key = f"{name} {sorted(settings.items())}"
        if key not in self._surveys:
            self.say(f"looking inside {name} ...")
            self._surveys[key] = self.subject.survey(name, settings)
        return self._surveys[key]

    def beside(self, row: Row, other: Row) -> Row:
        """`row`, compared with `other` in place of the first rung."""
        return Row(row.name, row.outcome, row.arrays, compare_results(other.arrays, row.arrays)) if other.outcome.ran else other

    @property
    def surveys(self) -> list[Survey]:
        return list(self._surveys.values())

    def trials(self, name: str, survey: Survey, outcome: Outcome) -> list[Trial]:
        return list(self.subject.remedies(name, survey, outcome))

    def _run(self, name: str, settings: Settings) -> Row:
        start = time.monotonic()
        outcome = self.subject.run(name, settings)
        self.say(f"{name} ran in {time.monotonic() - start:.1f} s")
        try:
            arrays = {path: array.owned() for key, value in outcome.values.items() for path, array in flatten(value, key).items()}
        except TargetError as error:
            return Row(name, Outcome(Status.RAISED, why=str(error)))
        reference: Any = getattr(self, "reference", arrays)
        return Row(name, outcome, arrays, compare_results(reference, arrays) if outcome.ran else [])
