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
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from detconf import observing
from detconf.arrays import Place, Sealed
from detconf.causes.changes import Setting
from detconf.causes.reruns import runs_needed
from detconf.comparing.findings import OBSERVED_HINT
from detconf.comparing.recordings import compare_recordings
from detconf.comparing.result import Comparison, Finding, Verdict
from detconf.comparison import Kind, diverge
from detconf.errors import DetconfError
from detconf.execution import Execution, InChildren
from detconf.lookup import first_line
from detconf.pooled import first_apart
from detconf.verification import Evidence, Operation, Run

_SECONDS = 60.0
"""After which no further run is begun, beyond the two that there must be."""
_AGAIN = 3.0
"""The second pass, which only adds figures, begins no further run after so many times what the first took, or half of the above."""
_MOST_RUNS = 60
_OTHERS = 5
"""Most operations that are listed beside the first."""
_SIDES = ("one run", "another")
_POOLED = "work is shared out among other numbers of processes: all that one line computed is held against all that it did in the other run"
_ALONE = (
    "only one side shows that operation: the other does without it, or compiled code does it, inside which `detconf audit --modes` looks"
)


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


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to run the target, and what plain runs of it gave: what recorded ones are made like, and held against."""

    execution: Execution
    setting: Setting
    evidence: Evidence


def locate(ours: Arm, theirs: Arm | None = None) -> Operation:
    """The first operation by which runs part that are recorded.

    Args:
        ours: whose plain runs differ from each other,
        theirs: or from those of this one.
    """
    search = _Search(ours, theirs or ours)
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
        begun: when the search began, on the monotonic clock.
        notes: what the finding does not show.
        others: operations that introduce a difference too.
    """

    ours: Arm
    theirs: Arm
    runs: int = 0
    begun: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)
    others: tuple[Finding, ...] = ()

    def found(self) -> Finding | None:
        """The first operation; None where recorded runs agree, or where what they part by is no operation.

        Raises:
            DetconfError: they cannot be recorded, or nothing was.
        """
        parted = self._part()
        if parted is None or parted.first is None:
            self.notes.append(
                f"{self.runs} recorded runs agree: the difference is rarer than that, or recording hides it, which slows operations down"
            )
            return None
        self.notes += parted.notes
        if OBSERVED_HINT in parted.first.hint:
            self.notes.append(f"recorded runs part first in {parted.first.divergence.name}; what computed it is not recorded")
            return None
        if parted.first.verdict in (Verdict.MISSING, Verdict.EXTRA):
            self.notes.append(_ALONE)
        places = {_place(finding): finding for finding in reversed(parted.introduced)}
        places.pop(_place(parted.first), None)
        self.others = tuple(sorted(places.values(), key=lambda finding: finding.events[0] or 0))[:_OTHERS]
        return self._measured(parted.first)

    def _measured(self, finding: Finding) -> Finding:
        """The finding with figures, from runs that part at the same event and kept its arrays."""
        ours, theirs = finding.events
        if ours is None or theirs is None or finding.divergence.kind is not Kind.BITS:
            return finding
        seconds = min(_SECONDS / 2, _AGAIN * (time.monotonic() - self.begun))
        again = self._part(range(ours, ours + 1), range(theirs, theirs + 1), seconds)
        same = again is not None and again.first is not None and _site(again.first) == _site(finding)
        return again.first if again and again.first and same else finding

    def _part(self, keep: bool | range = False, keep_theirs: bool | range = False, seconds: float = _SECONDS) -> Comparison | None:
        """The first recorded run, against the first that parts from it; None where none does in so many runs and seconds."""
        with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
            source = _recorded(stack, self.ours, folder, keep)
            path, run = next(source)
            first = self._seen(self.ours, run)
            if self.theirs is not self.ours:
                source = _recorded(stack, self.theirs, folder, keep_theirs)
            for other, again in self._more(source, seconds):
                found = _compared(path, other) if self._may_part(first, self._seen(self.theirs, again)) else None
                if found is not None and not found.equal:
                    return found
                shutil.rmtree(other, ignore_errors=True)
        return None

    def _more(self, source: Iterator[tuple[str, Run]], seconds: float) -> Iterator[tuple[str, Run]]:
        """At least one more run, and no more than could be expected to show a difference."""
        end = time.monotonic() + seconds
        evidence = self.theirs.evidence
        for _ in range(min(_MOST_RUNS, runs_needed(evidence)) if evidence.distinct > 1 else 1):
            yield next(source)
            if time.monotonic() > end:
                return

    def _may_part(self, ours: dict[Place, str], theirs: dict[Place, str]) -> bool:
        """Is it worth comparing? Runs with equal results part nowhere that matters, but what the recorder leaves out may differ."""
        if self.theirs is not self.ours:
            return True
        found = self.ours.evidence.divergence
        return ours != theirs or found is None or found.origin == "state" or not ours

    def _seen(self, arm: Arm, run: Run) -> dict[Place, str]:
        """The digests of a recorded run. Notes what speaks against its being like the plain ones."""
        self.runs += 1
        if run.ending.reason and not arm.evidence.failures:
            self.notes.append(f"a recorded run failed, and no plain one: {run.ending.reason}")
        seen = {place: array.digest for place, array in run.results.items()}
        plain = [_shown(digests) for digests in arm.evidence.digests]
        if seen in plain and seen:
            return seen
        stable = [place for place in seen if len({digests.get(place) for digests in plain}) == 1]
        changed = [place.name for place in stable if seen[place] != plain[0].get(place)]
        if changed:
            self.notes.append(f"recording changed {', '.join(changed)}, which all plain runs give alike: this may be the recorder's doing")
        elif not stable:
            self.notes.append("that recording leaves the bits alone is not shown here: no result that it shows is alike in all plain runs")
        return seen


def _recorded(stack: ExitStack, arm: Arm, folder: str, keep: bool | range) -> Iterator[tuple[str, Run]]:
    """Recorded runs of an arm, in a folder of their own."""
    return stack.enter_context(closing(arm.execution.recorded(tempfile.mkdtemp(dir=folder), keep, arm.setting)))


def _shown(digests: dict[Place, str]) -> dict[Place, str]:
    """Without the state at the end of steps: a run that is recorded operation by operation does not show that."""
    return {place: digest for place, digest in digests.items() if place.origin != "state"}


def _compared(ours: str, theirs: str) -> Comparison:
    files = observing.recordings(ours), observing.recordings(theirs)
    found = compare_recordings(*files, _SIDES)
    apart = first_apart(*files) if len(files[0]) != len(files[1]) else ()
    if not apart:
        return found
    return replace(found, first=apart[0], introduced=tuple(each for each in apart if each.verdict is Verdict.INTRODUCED), notes=(_POOLED,))


def _place(finding: Finding) -> tuple[object, ...]:
    """Where in the program."""
    found = finding.divergence
    return found.name, found.scope, found.source


def _site(finding: Finding) -> tuple[object, ...]:
    return *_place(finding), finding.divergence.step, finding.divergence.rank
