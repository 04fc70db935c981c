"""Why reruns differ, found by taking sources of variation away and giving them back one at a time.

First each change alone; where none is enough, all of them at once, and then each is dropped in turn. What cannot be
dropped is the cause, and putting it back is a fix that was tried here (delta debugging, Zeller and Hildebrandt 2002,
over a handful of switches). Where even all of them do not make the runs agree, the cause is unknown. Enough runs are made each time that a difference as frequent as the one first seen
would be missed with a chance of at most 5 %; where that would take too many, the cause stays unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from detconf.causes.changes import EVALUATE, OF_LAYERS, PRECEDENCE, Change, Setting, without
from detconf.errors import DetconfError
from detconf.lookup import first_line
from detconf.values import Cause
from detconf.verification import Evidence, Tried

_MISS = 0.05
_MOST_RUNS = 400
Again = Callable[[Setting, int], Evidence]
"""Run the target so often under a setting, ending at the first difference."""


@dataclass(slots=True)
class Explanation:
    """What was shown.

    Attributes:
        cause: `unknown` where nothing was.
        restored_by: the changes with which the runs agreed and without any of which they did not; None if unknown.
        changes: the same as data.
        tried: every experiment, in order.
    """

    cause: Cause = Cause.UNKNOWN
    restored_by: str | None = None
    changes: tuple[Change, ...] = ()
    tried: list[Tried] = field(default_factory=list)


class _Laboratory:
    """Runs experiments and keeps their record."""

    def __init__(self, again: Again, runs: int) -> None:
        self.again = again
        self.runs = runs
        self.tried: list[Tried] = []

    def agree(self, changes: Sequence[Change]) -> bool:
        """Do enough runs under these changes agree? A run that fails, or a change that cannot be made, does not."""
        note = ""
        done = 0
        try:
            evidence = self.again(Setting(tuple(changes)), self.runs)
            done = len(evidence.endings)
            agreed = evidence.distinct == 1 and done >= self.runs and not evidence.failures  # failing alike is no agreement
            if evidence.distinct == 1 and not agreed:
                note = f"agreed, but {self.runs} runs would be needed and there was time for {done}"
        except DetconfError as error:
            agreed, note = False, first_line(error)
        self.tried.append(Tried(tuple(change.words for change in changes), done, agreed, note))
        return agreed


def explain(first: Evidence, changes: Sequence[Change], again: Again, trained: Callable[[], bool | None]) -> Explanation:
    """Find the smallest set of `changes` under which the runs agree.

    Args:
        first: the runs that differ.
        changes: in the order in which doing without is tried.
        again: runs the target under a setting.
        trained: has the target, when it last ran, called backward? None where that cannot be told.
    """
    runs = runs_needed(first)
    if runs > _MOST_RUNS:
        return Explanation(
            tried=[Tried((), 0, agreed=False, note=f"too rare a difference: {runs} runs would be needed for each experiment")]
        )
    laboratory = _Laboratory(again, runs)
    found = Explanation(tried=laboratory.tried)
    apart = tuple(change for change in changes if change.apart)
    over = bool(apart) and _settles(first) and laboratory.agree(())  # what no longer differs, nothing takes away
    needed = _smallest(laboratory, apart if over else tuple(changes))
    if not needed:
        return found
    if not over and all(change in OF_LAYERS for change in needed) and laboratory.agree((EVALUATE,)) and trained() is False:
        needed = (EVALUATE,)
    found.cause = _first({change.cause for change in needed})
    found.changes = needed
    found.restored_by = "; ".join(change.words for change in needed)
    return found


def _settles(first: Evidence) -> bool:
    """Did no outcome come again after another one, as where a first run leaves something behind for the others?"""
    outcomes = first.combined()
    return sum(x != y for x, y in pairwise(outcomes)) == len(set(outcomes)) - 1


def _smallest(laboratory: _Laboratory, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The changes that cannot be done without; empty where even all of them do not make the runs agree."""
    for change in reversed(changes):  # most causes are single, and one experiment is cheaper than all
        if laboratory.agree((change,)):
            return (change,)
    if len(changes) < 2 or not laboratory.agree(changes):
        return ()
    for change in changes:
        rest = without(changes, change)
        if len(rest) > 1 and laboratory.agree(rest):
            changes = rest
    return changes


def _first(causes: set[Cause]) -> Cause:
    return next((cause for cause in (Cause.MODE, *PRECEDENCE) if cause in causes), Cause.UNKNOWN)


def runs_needed(first: Evidence) -> int:
    """How many runs must agree before a difference as frequent as in `first` would have shown with 95 %."""
    counts = Counter(first.combined())
    share = 1 - max(counts.values()) / sum(counts.values())
    return max(3, 1 + math.ceil(math.log(_MISS) / math.log(1 - share))) if share < 1 else 3
