"""`audit` of a recorded test: the operands of the first comparison in it that fails, with where they come from, are the sides.

Both sides are in one recording. What is known of them is what was recorded before the comparison began to compute.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from detconf.arrays import Array
from detconf.auditing.assertions.noting import Noted
from detconf.auditing.assertions.pairs import ROLES, Pair, one_side, require
from detconf.auditing.assertions.wording import labels, told
from detconf.auditing.laboratory import Observation
from detconf.auditing.recordings.across import judged
from detconf.auditing.recordings.recorded import Reader
from detconf.auditing.recordings.slicing import joined
from detconf.auditing.result import Audit
from detconf.digests import Flag
from detconf.errors import DetconfError, TargetError
from detconf.lookup import first_line
from detconf.recording.event import Event
from detconf.recording.names import siblings
from detconf.recording.reading import Recording


def audit_failed(path: str) -> Audit:
    """Say why the first comparison that fails in a recorded test fails.

    Args:
        path: of the recording; those that other processes of the command left beside it are looked at, too.

    Raises:
        DetconfError: it cannot be read.
        TargetError: no comparison in it fails, or it holds no values.
    """
    reached = 0
    for file in dict.fromkeys([path, *siblings(path)] if os.path.isfile(path) else siblings(path) or [path]):
        with Recording(file) as recording:
            met = [event for event in recording.events() if event.flags & Flag.COMPARED]
            reached += len(met)
            failed = [(event, _noted(recording, event)) for event in met if event.outputs]
            if failed:
                return _audited(recording, *_question(failed))
    raise TargetError(_nothing(path, reached))


def _nothing(path: str, reached: int) -> str:
    what = {0: "no comparison that detconf knows was reached", 1: "its one comparison holds"}.get(
        reached, f"all its {reached} comparisons hold"
    )
    form = "Accepted: a recording of a test that fails, by detconf record --values -o t.det -- python -m pytest test_x.py::test"
    return f"nothing was compared: in {path} {what}. {form}; or two recordings."


def _noted(recording: Recording, event: Event) -> Noted:
    """What was noted of a comparison that fails.

    Raises:
        TargetError: no values were kept.
        DetconfError: damaged.
    """
    text = recording.values(event.index).get(("output", 0))
    if text is None:
        msg = f"{recording.path} holds no values of the comparison at {event.source} that fails. Record again with --values."
        raise TargetError(msg)
    try:
        return Noted.of(bytes(text.data).decode())
    except (ValueError, TypeError, KeyError) as error:
        msg = f"{recording.path} is damaged: the comparison of event {event.index}: {first_line(error)}. Record again, or use another copy."
        raise DetconfError(msg) from error


def _question(failed: Sequence[tuple[Event, Noted]]) -> tuple[Event, Noted]:
    """The first that fails the test for certain; where there is none the last."""
    return next((each for each in failed if each[1].certain or each[1].comparison.fails), failed[-1])


def _audited(recording: Recording, event: Event, noted: Noted) -> Audit:
    reader = Reader(recording.path, recording)
    for each in recording.events(0, event.index - noted.inside):
        reader.event(each)
    reader.require_values()
    whole = joined(_operands(recording.values(event.index), noted, reader))
    require(whole)
    (a, _), (b, _) = (one_side(whole, role) for role in ROLES)
    names = [name for name in a.arrays if name in b.arrays]
    if not names:
        msg = f"nothing was compared: the operands at {event.source} have no arrays in common: {list(a.arrays)} and {list(b.arrays)}."
        raise TargetError(msg)
    return told(judged(*labels(noted.comparison), a, b, names), noted.comparison, whole)


def _operands(kept: Mapping[tuple[str, int], Array], noted: Noted, reader: Reader) -> Observation:
    pair, arrays = Pair(), iter(kept[key] for key in sorted(kept) if key[0] == "input")
    for role, names in zip(("actual", "desired"), noted.names, strict=True):
        pair.arrays[role] = dict(zip(names, arrays, strict=False))
        known = {name: reader.known(array, name) for name, array in pair.arrays[role].items()}
        pair.known[role] = {name: each for name, each in known.items() if each is not None}
    pair.broadcast()
    return pair.observation(reader.study)
