"""The operation by which a step of a resumed run parts from the same step of a run that went through.

What a resumed run does before its first step (it builds a model, it loads) the other one did at its own beginning, so that the
two are not aligned as a whole: operations of one step are, by their line and their order. Witnesses of what is read say nothing
across processes that came there by other ways. So an operation is named by results alone: all before it in that step gave
the same, and it did not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from detconf import observing
from detconf.causes.changes import Setting
from detconf.comparing.result import Finding, Verdict
from detconf.comparing.sequences import greedy, longest_common
from detconf.comparison import Divergence, Kind
from detconf.digests import NO_OPERATION, NOTHING
from detconf.errors import DetconfError, TargetError
from detconf.execution import InChildren
from detconf.lookup import first_line
from detconf.recording.event import Event
from detconf.recording.reading import Recording
from detconf.verification import Operation

_SETUP = 2000
"""Most operations beside those of a step by which it may differ from the other, such as those that build a model."""


def locate(children: InChildren, command: list[str], settings: tuple[Setting, Setting], at: tuple[int, int]) -> Operation:
    """Record a whole run, stop one again, and record the run that goes on from there.

    Args:
        children: run the whole command.
        command: resumes.
        settings: of a whole run, and of one that is stopped.
        at: the step of the whole run at which they part, and how many it had made where the resumed one begins.
    """
    whole, stopped = settings
    try:
        with ExitStack() as stack:
            ours = _recorded(stack, children, whole)
            for run in children.runs(1, stopped):  # for its checkpoint: the whole run may have left another
                _require(run.ending.reason)
            theirs = _recorded(stack, replace(children, target=command), whole)
            finding, notes = first_apart(ours, theirs, *at)
    except DetconfError as error:
        finding, notes = None, (f"the first operation is not known: {first_line(error)}",)
    return Operation(finding, 2, notes)


def _recorded(stack: ExitStack, children: InChildren, setting: Setting) -> list[str]:
    """The recordings of one run."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True))
    with closing(children.recorded(folder, setting=setting)) as source:
        path, run = next(source)
    _require(run.ending.reason)
    return observing.recordings(path)


def _require(failed: str) -> None:
    if failed:
        msg = f"a run that was made again for it failed: {failed}"
        raise TargetError(msg)


def first_apart(whole: Sequence[str], resumed: Sequence[str], step: int, begun: int) -> tuple[Finding | None, tuple[str, ...]]:
    """(the operation, what is to be said of it); None where none of that step differs, or none can be paired.

    Args:
        whole, resumed: recordings of all processes of a run, the ranks in one order.
        step: of the whole run.
        begun: steps that it had made where the resumed one goes on.

    Raises:
        DetconfError: a recording is damaged.
    """
    with ExitStack() as stack:
        ours, theirs = (_trainers([stack.enter_context(Recording(path)) for path in side]) for side in (whole, resumed))
        if len(ours) != len(theirs):
            return None, (f"{len(ours)} processes made steps in one run and {len(theirs)} in the resumed one: they are not paired",)
        for a, b in zip(ours, theirs, strict=True):
            found, before, alone = _apart(_of(a, step), _of(b, step - begun))
            if found is not None:
                return _finding(*found, step), tuple(_said(found, before, alone))
    return None, (f"no recorded operation of step {step} gives another result",)


def _trainers(recordings: Sequence[Recording]) -> list[Recording]:
    """Those of processes that made steps: workers that load data make none."""
    return [each for each in recordings if each.summary()["steps"]]


def _of(recording: Recording, step: int) -> list[Event]:
    """The operations of a step; those behind the last step are of none that can be compared."""
    return [event for event in _until(recording, step) if event.step == step and not event.flags & NO_OPERATION]


def _until(recording: Recording, step: int) -> Iterator[Event]:
    for event in recording.events():
        if event.step > step:
            return
        yield event


def _apart(ours: list[Event], theirs: list[Event]) -> tuple[tuple[Event, Event] | None, int, int]:
    """(the first pair that wrote differently, pairs before it, operations of the whole run before it without a counterpart)."""
    numbers: dict[tuple[object, ...], int] = {}
    x, y = ([numbers.setdefault(_line(event), len(numbers)) for event in side] for side in (ours, theirs))
    pairs, _ = longest_common(x, y, _SETUP)
    for before, (i, j) in enumerate(greedy(x, y) if pairs is None else pairs):
        if _differ(ours[i], theirs[j]):
            return (ours[i], theirs[j]), before, i - before
    return None, 0, 0


def _line(event: Event) -> tuple[object, ...]:
    return event.name, event.scope, event.source, tuple((each.dtype, each.shape) for each in event.outputs)


def _differ(a: Event, b: Event) -> bool:
    return any(NOTHING not in (x.digest, y.digest) and x.digest != y.digest for x, y in zip(a.outputs, b.outputs, strict=True))


def _finding(a: Event, b: Event, step: int) -> Finding:
    place = next(place for place, (x, y) in enumerate(zip(a.outputs, b.outputs, strict=True)) if x.digest != y.digest)
    output = a.outputs[place]
    about: dict[str, Any] = {"scope": a.scope, "source": a.source, "shape": output.shape, "dtype": output.dtype}
    return Finding(
        divergence=Divergence(name=a.name, kind=Kind.BITS, step=step, origin="recorded", **about),
        verdict=Verdict.INTRODUCED if a.inputs == b.inputs else Verdict.PROPAGATED,
        events=(a.index, b.index),
        output=place,
        digests=(output.digest.hex(), b.outputs[place].digest.hex()),
        hint="the generator's state differs" if a.random != b.random else "",
    )


def _said(found: tuple[Event, Event], before: int, alone: int) -> Iterator[str]:
    reads = "the state of its generator is" if found[0].random != found[1].random else "what it reads beside their results is"
    yield f"the {before} operations before it in that step give the same in both runs: {reads} what was not restored"
    if alone:
        yield f"{alone} more before it are in the whole run only, or cannot be paired by their line"
