"""Results of two recordings taken apart: what both sides mean, and what rounding noise on their recorded operations does.

What cannot be computed again is taken as it was recorded, and as uncertain as both sides differ there. A side whose last
operation is of that kind is taken to round as the other does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.auditing.laboratory import NOISES, Observation
from detconf.auditing.meaning import Part, Split, part, split
from detconf.auditing.question import pool
from detconf.auditing.recordings.replaying import Replay
from detconf.shadows.formats import unit
from detconf.shadows.pool import Pool
from detconf.shadows.regions import coarsest
from detconf.shadows.study import Value

_ALIKE = 1e-5


@dataclass(slots=True)
class _Carried:
    """One side's results, carried.

    Attributes:
        exact: by name.
        noisy: with noise, per seed.
        taken: operations whose results were taken as they were recorded.
    """

    observation: Observation
    exact: dict[str, Any]
    noisy: list[dict[str, Any]]
    taken: set[str]

    def serving(self, name: str, other: _Carried) -> _Carried:
        """Whose shadow serves for a result of this side: its own; that of the other, where this one's is missing or partly taken."""
        return max((self, other), key=lambda each: (name in each.exact, not each.taken))

    def part(self, name: str, array: Any) -> Part | None:
        """A result taken apart, with this side's shadow and noise."""
        known = self.observation.known[name]
        return part(
            array, self.exact[name], [each[name] for each in self.noisy if name in each], coarsest(self.observation.study, known.value)
        )


def recorded_splits(a: Observation, b: Observation, names: Sequence[str]) -> tuple[dict[str, Split], bool, list[str]]:
    """(by name the results that could be taken apart; are all, by a side of which nothing is taken; in words, what is missing).

    Args:
        a, b: reference and candidate.
        names: of the results that differ.
    """
    ours, theirs = _carried(a, b), _carried(b, a)
    found, missing = dict[str, Split](), list[str]()
    for name in names:
        if name not in ours.exact and name not in theirs.exact:
            missing.append(name)
            continue
        mine, other = ours.serving(name, theirs), theirs.serving(name, ours)
        both = split(name, mine.part(name, a.arrays[name]), other.part(name, b.arrays[name]))
        if both is not None and both.complete:
            found[name] = both
    words = []
    taken = sorted(ours.taken | theirs.taken)
    if found and taken:
        words.append(
            f"what rounding does inside {', '.join(taken)}, which cannot be computed again, and before: taken as the sides differ there"
        )
    if missing:
        words.append(
            f"tolerance of {', '.join(missing)}: what leads to it cannot be computed again ({', '.join(taken) or 'nothing was recorded'})"
        )
    whole = all(any(name in each.exact and not each.taken for each in (ours, theirs)) for name in names)
    return found, whole, words


def _carried(own: Observation, other: Observation) -> _Carried:
    replay, counterparts = Replay(own, list(own.known)), pool(other, _ALIKE)
    taken, gaps = set[str](), dict[int, Any]()

    def off(value: Value) -> Any:
        if value.index not in gaps:
            taken.add(own.study.operations[value.maker].name)
            gaps[value.index] = _apart(value, counterparts)
        return gaps[value.index]

    exact = replay.carried(off)
    noisy = [replay.carried(off, seed) for seed in range(NOISES)] if exact else []
    return _Carried(own, exact, noisy, taken)


def _apart(value: Value, counterparts: Pool) -> Any:
    """By how much a value's elements differ from those of the nearest in the other recording, and a roundoff at least."""
    if value.shadow.dtype.kind != "f":
        return None
    gaps = [
        np.abs(np.asarray(each.shadow - value.shadow, dtype=np.float64)) for each in counterparts.find(value.shadow) if _same(each, value)
    ]
    nearest = min(gaps, key=lambda gap: float(np.max(gap, initial=0.0)), default=None)
    return None if nearest is None else np.maximum(nearest, 0.5 * unit(value.dtype) * np.abs(value.shadow).astype(np.float64))


def _same(a: Value, b: Value) -> bool:
    return a.shadow is not None and a.shadow.shape == b.shadow.shape and a.shadow.dtype.kind == "f"
