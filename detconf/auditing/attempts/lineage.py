"""What a program carries from one step to the next: by which operation it is updated, how often it was, and who reads it when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.auditing.attempts.parting import Parting
from detconf.shadows.pool import Pool
from detconf.shadows.study import Operation, Read, Study, Value

_FAR, _DEEP = 8, 64
"""Operations through which a state goes from one of its updates to the next (a sum of products has two); updates that are counted."""


@dataclass(slots=True, frozen=True)
class Update:
    """The kind of operation that makes a state of what it was, and through how many operations it goes until it comes again."""

    kind: tuple[str, str, int]
    far: int

    @staticmethod
    def of(value: Value, study: Study) -> Update | None:
        """That which made a value; None where none of its kind is near behind it."""
        if value.maker < 0:
            return None
        kind = kind_of(study.operations[value.maker])
        return next((each for each in (Update(kind, far) for far in range(1, _FAR)) if each.before(value, study) is not None), None)

    def before(self, value: Value, study: Study) -> Value | None:
        """What an update made of which another one made this value; None where there is none, or none made this."""
        if value.maker < 0 or kind_of(study.operations[value.maker]) != self.kind:
            return None
        waiting, seen = [value.maker], {value.maker}
        for _ in range(self.far):
            reads = [read.value for maker in waiting for read in study.operations[maker].reads if read.value.maker >= 0]
            found = next((each for each in reads if kind_of(study.operations[each.maker]) == self.kind), None)
            if found is not None:
                return found
            waiting = sorted({each.maker for each in reads} - seen)
            seen.update(waiting)
        return None

    def count(self, value: Value, study: Study) -> int:
        """Updates behind a value, one after the other."""
        found = 0
        made = value.maker >= 0 and kind_of(study.operations[value.maker]) == self.kind
        current: Value | None = value if made else None
        while current is not None and found < _DEEP:
            found, current = found + 1, self.before(current, study)
        return found


def kind_of(operation: Operation) -> tuple[str, str, int]:
    return operation.name, operation.source, len(operation.reads)


def family(operation: Operation, study: Study) -> list[Operation]:
    """The operations of that name in that line, in order; those that are given the same numbers where there are such others."""
    found = [each for each in study.operations if kind_of(each) == kind_of(operation)]
    given = str(dict(operation.options))  # whatever it is: arrays are not compared with ==
    alike = [each for each in found if str(dict(each.options)) == given]
    return alike if len(alike) > 1 else found


def is_whole(read: Read) -> bool:
    """Is a value read as it lies, if perhaps in another shape?"""
    value, view = read.value.shadow, read.view
    return value is not None and (view is None or (view.size == value.size and bool(np.array_equal(view.reshape(-1), value.reshape(-1)))))


def _twins(operation: Operation, parting: Parting) -> list[Operation]:
    """The reference's operations of that name with the most equal inputs, but some; the likeliest first.

    Of two, the one that writes into the same is likelier, and then the one that has more options alike: the step of a parameter
    and the update of its momentum may be one kind of operation, and read one gradient.
    """
    found: list[tuple[tuple[int, bool, int], Operation]] = []
    for other in parting.ours.operations:
        if other.name == operation.name and len(other.reads) == len(operation.reads):
            equal = [same(x.shadow, y.shadow) for x, y in zip(operation.reads, other.reads, strict=True)]
            alike = sum(operation.options.get(key) == value for key, value in other.options.items())
            found += [((sum(equal), equal[0], alike), other)] if any(equal) else []
    found.sort(key=lambda pair: pair[0], reverse=True)
    return [other for (equal, _, _), other in found if equal == found[0][0][0]]


def _as_late(operation: Operation, parting: Parting) -> list[Operation]:
    """The reference's operation of that kind that has as many of them behind it: both sides end at one time."""
    ours, theirs = (family(operation, each.study) for each in (parting.a, parting.b))
    left = len(theirs) - next((at for at, each in enumerate(theirs) if each is operation), len(theirs))
    return [ours[-left]] if 0 < left <= len(ours) else []


def _as_early(operation: Operation, parting: Parting) -> list[Operation]:
    """That has as many of them before it."""
    ours, theirs = (family(operation, each.study) for each in (parting.a, parting.b))
    at = next((at for at, each in enumerate(theirs) if each is operation), len(ours))
    return ours[at : at + 1]


WAYS: tuple[Callable[[Operation, Parting], list[Operation]], ...] = (_twins, _as_late, _as_early)


def same(a: Any, b: Any) -> bool:
    if a is None or b is None or a.shape != b.shape:
        return False
    return bool(Pool([(0, a)], 1e-9).find(b))
