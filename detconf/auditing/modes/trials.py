"""A family of rungs some of which differ, and what is tried to make them agree."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from detconf.auditing.modes.verdict import Verdict
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.comparison import Divergence, Kind, diverge
from detconf.frameworks.rungs import Operation, Status, Survey, Trial
from detconf.values import Cause

if TYPE_CHECKING:
    from detconf.auditing.modes.climbing import Climb, Row


@dataclass(slots=True)
class Case:
    """A family of rungs some of which differ.

    Attributes:
        rows: those that ran.
        first: the first that differs.
        at: the one that is looked into and repaired.
        done: the trials so far, with what each gave.
    """

    climbed: Climb
    rows: list[Row]
    first: Row
    at: Row
    done: list[tuple[Trial, Row]] = field(default_factory=list)

    def agrees(self, trial: Trial, row: Row) -> bool:
        """Does a trial make all bits agree: the rung's with the first one's, or the first one's with the rung's?"""
        if not row.outcome.ran or row.outcome.distinct > 1:
            return False
        return row.arrays == self.at.arrays if trial.against == "rung" else row.equal

    @property
    def solved(self) -> tuple[Trial, Row] | None:
        """The first trial that made all bits agree."""
        return next(((trial, row) for trial, row in self.done if self.agrees(trial, row)), None)

    def look(self, *, deep: bool = True) -> Survey:
        return self.climbed.survey(self.at.name, {"deep": deep})

    def verdict(self, cause: Cause, summary: str, proof: Proof | None, operation: Operation | None = None) -> Verdict:
        """With what every verdict says: where, how much, what was tried, what helps."""
        evidence = [Evidence(f"{row.name}: {row.measured()}", len(row.differences)) for row in self.rows if row.differences]
        evidence += [Evidence(*each) for each in self._table()]
        failed = [
            f"{trial.text}: {row.measured() if row.outcome.ran else f'{row.outcome.status}, {row.outcome.why}'}"
            for trial, row in self.done
            if not self.agrees(trial, row)
        ]
        return Verdict(cause, summary, self.where(operation), evidence, proof, self.fixes(), tried=failed)

    def _table(self) -> list[tuple[str, float]]:
        """What can be switched off, and how many of the elements are then equal."""
        found = [(trial.ablation, row) for trial, row in self.done if trial.ablation and row.outcome.ran]
        return [
            (f"{name}: {row.share(self.climbed.reference):.0%} of the elements are equal", row.share(self.climbed.reference))
            for name, row in found
        ]

    def where(self, operation: Operation | None) -> Divergence | None:
        """The first result that differs, named after the operation."""
        found = self.first.differences[0] if self.first.differences else None
        if operation is None:
            return found
        if found is None:
            return Divergence(name=operation.name, kind=Kind.BITS, source=operation.source)
        own = diverge(operation.name, *operation.sides) if operation.sides else None
        return replace(own or found, name=operation.name, scope=found.name, source=operation.source)

    def fixes(self) -> list[Fix]:
        """What makes all bits agree: the trial that did, and rungs that do."""
        found = []
        if self.solved:
            trial, row = self.solved
            found.append(Fix(trial.text, verified=True, cost=self._cost(row.name, trial)))
        else:
            self.climbed.say("nothing that was tried makes all bits agree")
        for row in self.climbed.rows:
            advice = self.climbed.subject.advice.get(row.name)
            if advice and row.equal and row.outcome.distinct == 1 and row is not self.at:
                eager = "" if row.outcome.status is not Status.EAGER else ": it runs eagerly here, no graph is made"
                found.append(Fix(advice + eager, verified=True, cost=self._cost(row.name, None)))
        return found

    def _cost(self, rung: str, trial: Trial | None) -> str:
        self.climbed.say("measuring what it costs ...")
        ratio = self.climbed.subject.cost(rung, trial.settings if trial else {}, self.at.name)
        return "" if ratio is None else f"{ratio:.2f} times the time of {self.at.name} (median of paired runs here)"


def attempt(case: Case, *, plain: bool = False) -> None:
    """Make the trials, up to the first that makes all bits agree. `plain`: only those that show no cause of their own."""
    survey = case.look(deep=False)
    for trial in case.climbed.trials(case.at.name, survey, case.at.outcome):
        if plain and trial.shows:
            continue
        row = case.climbed.run(trial.rung or case.at.name, trial.settings)
        if trial.against == "both" and row.outcome.ran:
            row = case.climbed.beside(row, case.climbed.run(case.climbed.base, trial.settings))
        case.done.append((trial, row))
        if case.agrees(trial, row):
            return


def named(operations: dict[str, str], word: str) -> Operation | None:
    """The first of some operations."""
    return next((Operation(name, "", word, source) for name, source in operations.items()), None)


def listed(names: dict[str, str] | dict[str, None], most: int = 4) -> str:
    shown = [f"{name} ({source})" if source else name for name, source in list(names.items())[:most]]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")
