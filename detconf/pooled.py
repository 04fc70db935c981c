"""Operations of several processes, wherever they ran: for runs that share their work out among another number of them.

What a data worker computes in one run, the program itself computes in another. So operations are not aligned in order: all
that one line wrote is held against all that the same line wrote in the other run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from detconf.comparing.result import Finding, Verdict
from detconf.comparison import Divergence, Kind
from detconf.digests import NO_OPERATION, NOTHING
from detconf.recording.event import Event
from detconf.recording.reading import Recording

Line = tuple[str, str, str]
"""Name, scope and source of an operation."""


@dataclass(slots=True)
class _Pool:
    """All events of one line: the first of them in any process, and how often each digest was there."""

    first: Event
    read: Counter[bytes] = field(default_factory=Counter)
    wrote: Counter[bytes] = field(default_factory=Counter)
    drew: Counter[bytes] = field(default_factory=Counter)


def first_apart(ours: Sequence[str], theirs: Sequence[str]) -> tuple[Finding, ...]:
    """The lines of both sides that did not write the same: those that read the same first, in the order of their steps.

    Args:
        ours, theirs: recordings of all processes of a run.

    Raises:
        DetconfError: a recording is damaged.
    """
    x, y = _pools(ours), _pools(theirs)
    apart = [(line, x[line], y[line]) for line in x if line in y and x[line].wrote != y[line].wrote]
    found = [(a.read != b.read, a.first.step, place, a, b) for place, (_, a, b) in enumerate(apart)]
    return tuple(_finding(a, b) for _, _, _, a, b in sorted(found, key=lambda each: each[:3]))


def _pools(paths: Sequence[str]) -> dict[Line, _Pool]:
    pools: dict[Line, _Pool] = {}
    with ExitStack() as stack:
        for event in _events([stack.enter_context(Recording(path)) for path in paths]):
            pool = pools.setdefault((event.name, event.scope, event.source), _Pool(event))
            pool.read.update(event.inputs)
            pool.wrote.update(output.digest for output in event.outputs if output.digest != NOTHING)
            pool.drew.update([event.random])
    return pools


def _events(recordings: Sequence[Recording]) -> Iterator[Event]:
    """Those of processes that a program started before its own: what they compute, it reads."""
    for recording in [*recordings[1:], *recordings[:1]]:
        yield from (event for event in recording.events() if not event.flags & NO_OPERATION)


def _finding(a: _Pool, b: _Pool) -> Finding:
    event = a.first
    output = event.outputs[0]
    drawn = "the generator's state differs" if a.drew != b.drew else ""
    return Finding(
        divergence=Divergence(
            name=event.name,
            kind=Kind.BITS,
            step=event.step,
            origin="recorded",
            scope=event.scope,
            source=event.source,
            shape=output.shape,
            dtype=output.dtype,
        ),
        verdict=Verdict.INTRODUCED if a.read == b.read else Verdict.PROPAGATED,
        digests=(output.digest.hex(), b.first.outputs[0].digest.hex()),
        hint=drawn,
    )
