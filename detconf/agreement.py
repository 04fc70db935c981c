"""Do values agree: the reruns of a test with each other, a value with its golden. Data; the texts are in the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from detconf.arrays import Array, Place
from detconf.comparison import Divergence, Kind, diverge
from detconf.errors import TargetError
from detconf.goldens import Bound, Kept, Record
from detconf.machine import unlike
from detconf.samples import Furthest, beyond, decimal, elements, furthest, parse, pick, unravel
from detconf.verification import Evidence, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One array that is not what was expected.

    Attributes:
        found: in what the two differ; None where every compared element agrees and only the digests differ.
        compared: how many elements were compared, of `elements`.
        absolute, relative: the greatest differences; None where there are no numbers.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    found: Divergence | None
    compared: int
    elements: int
    absolute: Furthest | None = None
    relative: Furthest | None = None


@dataclass(slots=True)
class Reruns:
    """What the runs of one test gave.

    Attributes:
        wanted: how many there are to be.
        labels: what is varied in the last of them, each in words.
        finished: how many ended well.
        evidence: what they gave.
        first: the first difference, measured.
        between: the runs it lies between, from 1.
    """

    wanted: int
    labels: tuple[str, ...] = ()
    finished: int = 0
    evidence: Evidence = field(default_factory=Evidence)
    first: Mismatch | None = None
    between: tuple[int, int] = (1, 1)

    def add(self, results: Mapping[Place, Array]) -> None:
        """Take what one more run gave."""
        evidence, known = self.evidence, self.evidence.divergence
        self.finished += 1
        evidence.add(Run(dict(results)))
        if evidence.reference is None:
            evidence.reference = dict(results)
            return
        evidence.compare(results)
        found = evidence.divergence
        if found is not None and found is not known:
            place = Place(found.name, found.step, found.occurrence, found.rank, found.origin)
            self.first, self.between = _measure(found, evidence.reference.get(place), results.get(place)), (1, self.finished)

    def label(self, run: int) -> str:
        """What is varied in that run, from 1; empty for a plain one."""
        place = run - 1 - (self.wanted - len(self.labels))
        return self.labels[place] if 0 <= place < len(self.labels) else ""

    @property
    def parted(self) -> bool:
        """Have all plain runs been made, and do they differ already?"""
        return self.finished == self.wanted - len(self.labels) and self.evidence.distinct > 1

    def end(self) -> None:
        """Make no further run."""
        self.wanted, self.labels = self.finished, self.labels[: max(0, self.finished - (self.wanted - len(self.labels)))]

    @property
    def last(self) -> bool:
        """Is there none to come?"""
        return self.finished == self.wanted


def _measure(found: Divergence, expected: Array | None, actual: Array | None) -> Mismatch:
    both = furthest(expected, actual) if found.kind is Kind.BITS and expected and actual else None
    absolute, relative = both or (None, None)
    return Mismatch(
        name=found.name, dtype=found.dtype, shape=found.shape, found=found, compared=found.elements, elements=found.elements,
        absolute=absolute, relative=relative,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """A value beside its golden.

    Attributes:
        unlike: facts in which this process and the recorded class of machine differ: (recorded, here).
        bound: what was allowed; None for not a bit.
        missing, extra: names of arrays that only the record, only the value has.
        first: the first array that is not within what was allowed, measured on what the file knows of it.
        sampled: arrays whose bits differ and whose sample is within the bound.
        profiles: (recorded, here).
    """

    unlike: Mapping[str, tuple[str, str]]
    bound: Bound | None
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    first: Mismatch | None
    sampled: tuple[str, ...]
    profiles: tuple[str | None, str | None]

    @property
    def ok(self) -> bool:
        """Every bit is equal, or every sample within the bound on another class of machine."""
        return not (self.missing or self.extra or self.first)


def judge_golden(record: Record, arrays: Mapping[str, Array], here: Record) -> Verdict:
    """Compare `arrays` with what was recorded: bit for bit within the class of machine, within a bound outside.

    Args:
        record: the golden.
        arrays: the value now.
        here: as it would be recorded now: the class of this machine, the profile in force, the bound that holds.

    Raises:
        TargetError: the recorded sample cannot be read.
    """
    differing = unlike(record.machine, here.machine)
    allowed = here.bound if differing else None
    first, sampled = None, []
    for name, kept in record.arrays.items():
        array = arrays.get(name)
        if array is None or array.digest == kept.digest:
            continue
        if allowed and _close(name, kept, array, allowed):
            sampled.append(name)
        elif first is None:
            first = _mismatch(name, kept, array, allowed)
    return Verdict(
        unlike=differing,
        bound=allowed,
        missing=tuple(name for name in record.arrays if name not in arrays),
        extra=tuple(name for name in arrays if name not in record.arrays),
        first=first,
        sampled=tuple(sampled),
        profiles=(record.profile, here.profile),
    )


def _close(name: str, kept: Kept, array: Array, allowed: Bound) -> bool:
    if (kept.dtype, kept.shape) != (array.dtype, array.shape) or not kept.sample:
        return False
    return not beyond(*_sampled(name, kept, array), allowed.rtol, allowed.atol)


def _sampled(name: str, kept: Kept, array: Array) -> tuple[Array, Array]:
    try:
        return parse(kept.sample, kept.dtype), pick(array, kept.sample)
    except (ValueError, OverflowError, IndexError, TypeError) as error:
        msg = f"the recorded sample of {name!r} cannot be read: {error}. Restore the goldens from version control, or delete the file."
        raise TargetError(msg) from error


def _mismatch(name: str, kept: Kept, array: Array, allowed: Bound | None) -> Mismatch:
    """Measured on the sample, with indices of the whole array; on everything where the sample is everything."""
    about: dict[str, Any] = {"name": name, "dtype": kept.dtype, "shape": kept.shape, "elements": kept.elements}
    if (kept.dtype, kept.shape) != (array.dtype, array.shape):
        return Mismatch(**about, found=diverge(name, Array(kept.dtype, kept.shape, b""), array), compared=0)
    if not kept.sample:
        return Mismatch(**about, found=None, compared=0)
    expected, actual = _sampled(name, kept, array)
    found, both, places = diverge(name, expected, actual), furthest(expected, actual), list(kept.sample)
    if found is None or found.index is None or both is None:
        return Mismatch(**about, found=None, compared=len(places))
    wrong = beyond(expected, actual, allowed.rtol, allowed.atol) if allowed else []
    if wrong:
        here, there = (decimal(elements(side)[wrong[0]]) for side in (expected, actual))
        found = replace(found, differing=len(wrong), index=(wrong[0],), values=(here, there))

    def whole(index: tuple[int, ...] | None) -> tuple[int, ...]:
        return unravel(places[index[0]] if index else 0, kept.shape)

    absolute, relative = (Furthest(each.value, whole(each.index)) for each in both)
    return Mismatch(
        **about, found=replace(found, index=whole(found.index)), compared=len(places), absolute=absolute, relative=relative,
    )  # fmt: skip
