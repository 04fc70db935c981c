"""Two recordings with values, side by side: what one has that the other has nowhere, and their results taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import COARSE, SEEN, Split
from detconf.auditing.recordings.recomputing import reading, result
from detconf.auditing.recordings.recorded_splits import recorded_splits
from detconf.lookup import first_line
from detconf.shadows.pool import Pool
from detconf.shadows.regions import Region, ancestors, contents, region
from detconf.shadows.study import Operation, Read

_ROUNDS = 64
TOLERANCE = 1e-5
"""At which values of two machines count as the same, root mean square."""


class Alike(Pool):
    """The contents of a recording, to be found to `TOLERANCE`: sums alone would not see errors that cancel.

    Args:
        observation: of the recording.
    """

    def __init__(self, observation: Observation) -> None:
        rows = list(contents(observation.study, observation.known.values()))
        super().__init__((((value, array), array) for value, array in rows), TOLERANCE)
        self._found: dict[int, list[Any]] = {}

    def find(self, array: Any, *, ordered: bool = True) -> list[Any]:
        """The values with these elements, in this order or in any. `array` is one of a recording, which keeps it."""
        if not ordered:
            return [value for value, _ in super().find(array, ordered=False)]
        if id(array) not in self._found:
            self._found[id(array)] = self.alike(array)
        return self._found[id(array)]

    def alike(self, array: Any) -> list[Any]:
        """The same for any array."""
        return [value for value, own in super().find(array) if near(own, array)]

    def take(self, array: Any, for_: Any) -> None:
        """From now on, an array counts as this value, which differs for the sake of what it was computed from."""
        self._found[id(array)] = [for_]


def near(a: Any, b: Any) -> bool:
    """Do two arrays of as many elements agree to `TOLERANCE`?"""
    x, y = a.reshape(-1), b.reshape(-1)
    with np.errstate(all="ignore"):
        same = (x == y) | ((x != x) & (y != y))  # noqa: PLR0124  # NaN
        gap, size = np.where(same, 0, np.subtract(x, y, dtype=_wide(x, y))), np.where(np.isfinite(x), x, 0)
        return bool(np.sqrt(np.mean(np.abs(gap) ** 2)) <= TOLERANCE * np.sqrt(np.mean(np.abs(size).astype(np.float64) ** 2)))


def _one_sided(each: Split) -> bool:
    return each.a.shadow is each.b.shadow


def _wide(x: Any, y: Any) -> Any:
    return np.result_type(x, y, np.float64)


@dataclass
class RecordedPair:
    """Both recordings.

    Attributes:
        a, b: reference and candidate.
        differing: results whose bytes differ.
        unexamined: what could not be looked at.
        tried: experiments that failed.
        amplifiers: operations of the candidate that give the reference's results of the reference's inputs, and others of their own.
    """

    a: Observation
    b: Observation
    differing: list[str]
    unexamined: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    amplifiers: list[Operation] = field(default_factory=list)

    @cached_property
    def ours(self) -> Alike:
        """What the reference holds."""
        return Alike(self.a)

    @cached_property
    def theirs(self) -> Alike:
        """What the candidate holds."""
        return Alike(self.b)

    @cached_property
    def region(self) -> Region:
        """The candidate's operations, towards the differing results, whose results the reference has nowhere.

        Where an operation only amplifies what its inputs differ by, its result counts as the reference's: see `amplifiers`.
        """
        outputs = [self.b.known[name] for name in self.differing if name in self.b.known]
        for _ in range(_ROUNDS):
            found = region(self.b.study, outputs, self.ours)
            if not [each for each in found.sources if self._follows(each)]:
                break
        return found

    def _follows(self, operation: Operation) -> bool:
        """Of the reference's inputs, which are not quite its own, would it give what the reference has?"""
        place = reading(operation)
        inputs = [self._counterpart(read) for read in operation.reads]
        if place < 0 or any(each is None for each in inputs):
            return False
        given = result(operation, place, inputs)
        there = [] if given is None else self.ours.alike(given)
        if there:
            self.ours.take(operation.writes[0].shadow, there[0])
            own = result(operation, place, [read.shadow for read in operation.reads])
            entered = all(near(read.shadow, each) for read, each in zip(operation.reads, inputs, strict=True))
            if entered and (own is None or not near(own, given)):  # it has not only rounded, or read what was
                self.amplifiers.append(operation)
        return bool(there)

    def _counterpart(self, read: Read) -> Any:
        return next((each.shadow for each in self.ours.find(read.shadow) if each.shape == read.shadow.shape), None)

    def leading(self, observation: Observation) -> Iterator[Operation]:
        """The operations of a side that its differing results were computed by, in order."""
        values = [observation.known[name].value for name in self.differing if name in observation.known]
        _, operations = ancestors(observation.study, values)
        yield from (observation.study.operations[index] for index in sorted(operations))

    @cached_property
    def _apart(self) -> tuple[dict[str, Split], bool]:
        try:
            found, whole, words = recorded_splits(self.a, self.b, self.differing)
        except Exception as error:  # noqa: BLE001  # a recording may hold anything: the verdict stands without
            self.unexamined.append(f"tolerance: {type(error).__name__}: {first_line(error)}")
            return {}, False
        self.unexamined += words
        return found, whole

    @property
    def splits(self) -> dict[str, Split]:
        """The differing results taken apart, as far as the values suffice; what they do not suffice for is noted."""
        return self._apart[0]

    @property
    def whole(self) -> bool:
        """Could every operation of a side be computed again, for each of the results?"""
        return self._apart[1] and self.splits.keys() == set(self.differing)

    def _finite_alike(self, name: str) -> bool:
        x, y = self.a.known[name].shadow, self.b.known[name].shadow
        return x.size == y.size and np.array_equal(np.isfinite(x).reshape(-1), np.isfinite(y).reshape(-1))

    def near(self, name: str) -> bool:
        """Do a result's real values agree to `TOLERANCE`?"""
        x, y = self.a.known[name].shadow, self.b.known[name].shadow
        return x.size == y.size and near(x, y)

    @property
    def agree(self) -> bool:
        """Do the results mean the same, and err by no more than rounding does, wherever that can be told?

        A side that is held against the other's shadow may mean something else by as much as it may err: by little, then.
        Where values were taken as recorded, their gap stands in for noise, which single elements show too little of.
        """
        gap = SEEN if self.whole else COARSE
        if not all(map(self._finite_alike, self.differing)) or not all(name in self.splits or self.near(name) for name in self.differing):
            return False
        return all(each.units <= gap and max(each.roughness) <= (SEEN if _one_sided(each) else COARSE) for each in self.splits.values())
