"""The operation by which rows of a batch part from the same rows alone: all arrays of two recorded runs, row by row.

Other shapes make every digest another, so that digests cannot be compared. An array follows the rows where one of its
dimensions is the batch, or the batch times something, as in a tensor whose first two dimensions were joined. What does not
follow them and differs all the same, such as a mean over the batch, mixes rows: it is named where what differs read it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from detconf import observing
from detconf.arrays import Array, Place, Sealed
from detconf.comparing.result import Finding, Verdict
from detconf.comparing.sequences import greedy
from detconf.comparison import diverge
from detconf.digests import NO_OPERATION, NOTHING
from detconf.errors import DetconfError
from detconf.locating import Arm
from detconf.lookup import first_line
from detconf.recording.event import Event
from detconf.recording.reading import Recording
from detconf.verification import Operation

_MOST = 1 << 30
"""Bytes that operations of one run write, from the first on: so many are kept."""
_RUNS = 4
"""Two with digests, of which the size of the arrays is known, and two with arrays."""
Pair = tuple[Event, Event]


def locate(whole: Arm, part: Arm, size: int, count: int) -> Operation:
    """The first operation that gives the first `count` rows other bits than in the batch of `size`."""
    notes: tuple[str, ...] = ()
    finding = None
    try:
        with ExitStack() as stack:
            pairs, kept = _pairs(*(_recorded(stack, arm, keep=False) for arm in (whole, part)))
            ours, theirs = (_recorded(stack, arm, keep=kept) for arm in (whole, part))
            search = _Search(ours, theirs, size, count)
            finding = next(filter(None, map(search.differs, pairs)), None)
            if finding is None:
                which = f"of the first {kept.stop} operations" if isinstance(kept, range) else "of the recorded operations"
                notes = (f"the first operation is not known: none {which} that follow the rows differs",)
    except DetconfError as error:
        notes = (f"the first operation is not known: {first_line(error)}",)
    return Operation(finding, _RUNS, notes)


def _recorded(stack: ExitStack, arm: Arm, *, keep: bool | range) -> Recording:
    """One recorded run."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True))
    with closing(arm.execution.recorded(folder, keep, arm.setting)) as source:
        path, _ = next(source)
    files = observing.recordings(path)
    if not files:
        msg = "nothing was recorded. Accepted: a program that computes with torch, paddle or NumPy."
        raise DetconfError(msg)
    return stack.enter_context(Recording(files[0]))


def _pairs(whole: Recording, part: Recording) -> tuple[list[Pair], bool | range]:
    """Events that belong together by name and place, and those between them where there are as many; which ones may be kept."""
    sides = [list(each.events()) for each in (whole, part)]
    numbers: dict[tuple[str, str, str], int] = {}
    keys = [[numbers.setdefault((event.name, event.scope, event.source), len(numbers)) for event in side] for side in sides]
    pairs: list[Pair] = []
    starts = (0, 0)
    for ends in [*greedy(*keys), (len(sides[0]), len(sides[1]))]:
        between = [side[start:end] for side, start, end in zip(sides, starts, ends, strict=True)]
        if len(between[0]) == len(between[1]):
            pairs += zip(*between, strict=True)
        pairs += zip(*(side[end : end + 1] for side, end in zip(sides, ends, strict=True)), strict=True)
        starts = (ends[0] + 1, ends[1] + 1)
    room = _MOST
    for stop, event in enumerate(sides[0]):
        room -= sum(Sealed(output.dtype, output.shape, b"").nbytes for output in event.outputs)
        if room < 0:
            return [pair for pair in pairs if max(event.index for event in pair) < stop], range(stop)
    return pairs, True


@dataclass(slots=True)
class _Search:
    """Compares pair by pair.

    Attributes:
        mixing: for the digest of what an event of the whole wrote and no row follows: the finding of the event that mixed them.
    """

    whole: Recording
    part: Recording
    size: int
    count: int
    mixing: dict[str, Finding] = field(default_factory=dict)

    def differs(self, pair: Pair) -> Finding | None:
        """The finding of a pair that follows the rows and differs, or of what mixed them before, where it read that."""
        ours, theirs = (recording.values(event.index) for recording, event in zip((self.whole, self.part), pair, strict=True))
        read = [array for (role, _), array in ours.items() if role == "input"]
        mixed = next((self.mixing[array.digest] for array in read if array.digest in self.mixing), None)
        for place in range(min(len(event.outputs) for event in pair)):
            x, y = ours.get(("output", place)), theirs.get(("output", place))
            if x is None or y is None or NOTHING in (pair[0].outputs[place].digest, pair[1].outputs[place].digest) or x == y:
                continue
            leading = list(_leading(x, y.shape, self.size, self.count))
            if not leading and x.shape == y.shape and not pair[0].flags & NO_OPERATION:
                self.mixing.setdefault(x.digest, mixed or _finding(pair, place, x, y))
            elif leading and y not in leading and not (_joined(x, y, self.count) and _moved(x, read)):
                return mixed or _finding(pair, place, leading[0], y)
        return None


def _leading(whole: Array, shape: tuple[int, ...], size: int, count: int) -> Iterator[Array]:
    """The part of an array that `count` rows of `size` would give, in each way to understand its shape; none if it follows no row."""
    import numpy as np

    if len(whole.shape) != len(shape):
        return
    data = np.frombuffer(whole.data, "uint8").reshape(*whole.shape, -1)
    for at, (ours, theirs) in enumerate(zip(whole.shape, shape, strict=True)):
        if (
            ours == theirs
            or ours % size
            or theirs * size != ours * count
            or whole.shape[:at] + whole.shape[at + 1 :] != shape[:at] + shape[at + 1 :]
        ):
            continue
        for split in dict.fromkeys(((size, ours // size), (ours // size, size))):
            apart = data.reshape(*whole.shape[:at], *split, *data.shape[at + 1 :])
            rows = np.take(apart, range(count), at + (split[0] != size))
            yield Array(whole.dtype, shape, rows.tobytes())


def _joined(whole: Array, part: Array, count: int) -> bool:
    """Is no dimension the batch itself, but only joined with others?"""
    return all(theirs != count for ours, theirs in zip(whole.shape, part.shape, strict=True) if ours != theirs)


def _moved(written: Array, read: Sequence[Array]) -> bool:
    """Does an array hold nothing but what was read? Then it may follow the rows in another order than is known here."""
    import numpy as np

    width = len(written.data) // max(1, math.prod(written.shape))
    if width not in (1, 2, 4, 8):
        return False
    known = [np.frombuffer(array.data, f"u{width}") for array in read if array.dtype == written.dtype]
    return bool(known) and bool(np.isin(np.frombuffer(written.data, f"u{width}"), np.concatenate(known)).all())


def _finding(pair: Pair, place: int, ours: Array, theirs: Array) -> Finding:
    event = pair[0]
    found = diverge(Place(event.name, event.step), ours, theirs)
    assert found is not None  # noqa: S101  # they are not equal
    return Finding(
        divergence=replace(found, scope=event.scope, source=event.source, origin="recorded"),
        verdict=Verdict.INTRODUCED,
        events=(pair[0].index, pair[1].index),
        output=place,
        digests=(ours.digest, theirs.digest),
    )
