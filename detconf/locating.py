"""The second pass of `verify`, where reruns differ: runs that are recorded, compared until two part, and measured where they do.

First digests of every operation, with its module and line; then the arrays around the place that was found. A race may
hide from the recorder, which slows operations down, so that several runs are tried; and a recorder could change bits, so
that what recorded runs give is held against the plain ones.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from detconf import observing
from detconf.arrays import Place, Sealed
from detconf.causes.reruns import runs_needed
from detconf.comparing.findings import OBSERVED_HINT
from detconf.comparing.recordings import compare_recordings
from detconf.comparing.result import Comparison, Finding
from detconf.comparison import Kind, diverge
from detconf.errors import DetconfError
from detconf.execution import Execution, InChildren
from detconf.lookup import first_line
from detconf.verification import Evidence, Operation, Run

_SECONDS = 60.0
"""After which no further run is begun, beyond the two that there must be; for each of the two passes."""
_MOST_RUNS = 60
_OTHERS = 5
"""Most operations that are listed beside the first."""
_SIDES = ("one run", "another")


def measure(evidence: Evidence, execution: Execution) -> None:
    """Run twice more where only digests of state were seen to differ, keeping that array: to say where and by how much."""
    found = evidence.divergence
    if found is None or found.origin != "state" or not isinstance(execution, InChildren) or evidence.reference is None:
        return
    place = Place(found.name, found.step, found.occurrence, found.rank, found.origin)
    sealed = evidence.reference.get(place)
    arrays = execution.kept(sealed.index) if isinstance(sealed, Sealed) else []
    measured = diverge(place, *arrays) if len(arrays) > 1 else None
    evidence.divergence = measured or found


def locate(evidence: Evidence, execution: Execution) -> Operation:
    """The first operation by which runs part that are like those of `evidence`, but recorded.

    Args:
        evidence: of plain runs that differ.
        execution: how they were run.
    """
    search = _Search(evidence, execution)
    try:
        finding = search.found()
    except DetconfError as error:
        return Operation(None, search.runs, (*search.notes, f"the first operation is not known: {first_line(error)}"))
    return Operation(finding, search.runs, tuple(dict.fromkeys(search.notes)), search.others)


@dataclass(slots=True)
class _Search:
    """Recorded runs, made until two part.

    Attributes:
        runs: how many there were.
        notes: what the finding does not show.
        others: operations that introduce a difference too.
    """

    evidence: Evidence
    execution: Execution
    runs: int = 0
    notes: list[str] = field(default_factory=list)
    others: tuple[Finding, ...] = ()

    def found(self) -> Finding | None:
        """The first operation; None where recorded runs agree, or where what they part by is no operation.

        Raises:
            DetconfError: they cannot be recorded, or nothing was.
        """
        parted = self._part(None)
        if parted is None or parted.first is None:
            self.notes.append(
                f"{self.runs} recorded runs agree: the difference is rarer than that, or recording hides it, which slows operations down"
            )
            return None
        self.notes += parted.notes
        if OBSERVED_HINT in parted.first.hint:
            self.notes.append(f"recorded runs part first in {parted.first.divergence.name}; what computed it is not recorded")
            return None
        places = {_place(finding): finding for finding in reversed(parted.introduced)}
        places.pop(_place(parted.first), None)
        self.others = tuple(sorted(places.values(), key=lambda finding: finding.events[0] or 0))[:_OTHERS]
        return self._measured(parted.first)

    def _measured(self, finding: Finding) -> Finding:
        """The finding with figures, from runs that part at the same event and kept its arrays."""
        event = finding.events[0]
        if event is None or finding.divergence.kind is not Kind.BITS:
            return finding
        again = self._part(event)
        same = again is not None and again.first is not None and _site(again.first) == _site(finding)
        return again.first if again and again.first and same else finding

    def _part(self, keep: int | None) -> Comparison | None:
        """The first recorded run, against the first that parts from it; None where none does in so many runs and seconds."""
        with (
            tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder,
            closing(self.execution.recorded(folder, keep)) as source,
        ):
            path, run = next(source)
            first = self._seen(run)
            for other, again in self._more(source):
                found = _compared(path, other) if self._may_part(first, self._seen(again)) else None
                if found is not None and not found.equal:
                    return found
                shutil.rmtree(other, ignore_errors=True)
        return None

    def _more(self, source: Iterator[tuple[str, Run]]) -> Iterator[tuple[str, Run]]:
        """At least one more run, and no more than could be expected to show a difference."""
        end = time.monotonic() + _SECONDS
        for _ in range(min(_MOST_RUNS, runs_needed(self.evidence))):
            yield next(source)
            if time.monotonic() > end:
                return

    def _may_part(self, ours: dict[Place, str], theirs: dict[Place, str]) -> bool:
        """Is it worth comparing? Runs with equal results part nowhere that matters, but what the recorder leaves out may differ."""
        hidden = self.evidence.divergence is None or self.evidence.divergence.origin == "state"
        return ours != theirs or hidden or not ours

    def _seen(self, run: Run) -> dict[Place, str]:
        """The digests of a recorded run. Notes what speaks against its being like the plain ones."""
        self.runs += 1
        if run.ending.reason and not self.evidence.failures:
            self.notes.append(f"a recorded run failed, and no plain one: {run.ending.reason}")
        seen = {place: array.digest for place, array in run.results.items()}
        plain = [_shown(digests) for digests in self.evidence.digests]
        if seen in plain and seen:
            return seen
        stable = [place for place in seen if len({digests.get(place) for digests in plain}) == 1]
        changed = [place.name for place in stable if seen[place] != plain[0].get(place)]
        if changed:
            self.notes.append(f"recording changed {', '.join(changed)}, which all plain runs give alike: this may be the recorder's doing")
        elif not stable:
            self.notes.append("that recording leaves the bits alone is not shown here: no result that it shows is alike in all plain runs")
        return seen


def _shown(digests: dict[Place, str]) -> dict[Place, str]:
    """Without the state at the end of steps: a run that is recorded operation by operation does not show that."""
    return {place: digest for place, digest in digests.items() if place.origin != "state"}


def _compared(ours: str, theirs: str) -> Comparison:
    return compare_recordings(observing.recordings(ours), observing.recordings(theirs), _SIDES)


def _place(finding: Finding) -> tuple[object, ...]:
    """Where in the program."""
    found = finding.divergence
    return found.name, found.scope, found.source


def _site(finding: Finding) -> tuple[object, ...]:
    return *_place(finding), finding.divergence.step, finding.divergence.rank
