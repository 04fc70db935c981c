"""Events that differ, put into words: what a `Comparison` of recordings lists."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from detconf.arrays import Place
from detconf.comparing.columns import Columns
from detconf.comparing.ranks import is_collective
from detconf.comparing.result import Finding, Verdict
from detconf.comparing.verdicts import EQUAL, INTRODUCED, MISSING, PROPAGATED, Judged
from detconf.comparison import Divergence, Kind, diverge
from detconf.digests import NOTHING, OBSERVED, Flag
from detconf.recording.event import Output
from detconf.recording.file import Site

MOST = 1000
"""Introduced differences that are listed,"""
MOST_ALONE = 100
"""missing and extra events, and names of state,"""
_MEASURED = 20
"""and differences whose kept values are measured."""
_UNSEEN = "its inputs differ although nothing that was recorded before it does: memory was written unseen, or lies elsewhere"
OBSERVED_HINT = "first seen here; what computed it is not recorded"
"""Of state and published values."""
_STRUCTURE = "what follows may read what it wrote"


@dataclass(slots=True)
class Finder:
    """Finds in one pair of recordings what is worth listing.

    Args:
        judged: the pair.
        rank: of the process, where there are several.
        alone: no other rank is compared.
    """

    judged: Judged
    rank: str
    alone: bool

    def introduced(self) -> list[Finding]:
        """The first events whose inputs are equal and whose outputs are not."""
        events = _where(self.judged.verdict == INTRODUCED)[:MOST].tolist()
        return [self.pair(event, measure=number < _MEASURED) for number, event in enumerate(events)]

    def missing(self) -> Iterator[Finding]:
        """Events that the first recording alone has."""
        for event in _where(self.judged.verdict == MISSING).tolist():
            yield self._alone(self.judged.a, event, Verdict.MISSING)

    def extra(self) -> Iterator[Finding]:
        """Events that the other recording alone has."""
        for event in self.judged.extra.tolist():
            yield self._alone(self.judged.b, event, Verdict.EXTRA)

    def first(self) -> Finding | None:
        """Where the two first part: an event with equal inputs; else the event by which their structures part."""
        verdict = self.judged.verdict
        differing = _where((verdict == INTRODUCED) | (verdict == PROPAGATED))
        if not len(differing):
            return self._structure(len(verdict), last=False)
        event = int(differing[0])
        if verdict[event] == INTRODUCED:
            return self.pair(event, measure=True)
        return self._structure(event, last=True) or replace(self.pair(event, measure=True), hint=_UNSEEN)

    def _structure(self, end: int, *, last: bool) -> Finding | None:
        """The first, or the last, run of missing or extra events before event `end`: its first one."""
        missing = _where(self.judged.verdict[:end] == MISSING)
        before = self.judged.extra_before()
        extra = _where(before <= end)
        ours = _run(missing, missing, last=last)
        theirs = _run(before[extra], self.judged.extra[extra], last=last)
        if ours is None and theirs is None:
            return None
        take_ours = theirs is None or (ours is not None and ((ours[0] >= theirs[0]) if last else (ours[0] < theirs[0])))
        side, event, verdict = (self.judged.a, ours, Verdict.MISSING) if take_ours else (self.judged.b, theirs, Verdict.EXTRA)
        assert event is not None  # noqa: S101  # one of them is there
        return replace(self._alone(side, event[1], verdict), hint=_STRUCTURE if last else "")

    def _alone(self, side: Columns, event: int, verdict: Verdict) -> Finding:
        site, outputs = side.described(event), side.outputs(event)
        kind = Kind.MISSING if verdict is Verdict.MISSING else Kind.EXTRA
        events = (event, None) if verdict is Verdict.MISSING else (None, event)
        output = outputs[0] if outputs else Output(NOTHING, "", ())
        return Finding(divergence=self._divergence(site, int(side.step[event]), output, kind), verdict=verdict, events=events)

    def pair(self, event: int, *, measure: bool) -> Finding:
        """A matched event that differs."""
        a, b = self.judged.a, self.judged.b
        other = int(self.judged.match[event])
        site = _both(a.described(event), b.described(other))
        place, ours, theirs = _differing(a.outputs(event), b.outputs(other))
        found = self._divergence(site, int(a.step[event]), ours, Kind.BITS)
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            found = _other_layout(found, ours, theirs)
        elif measure:
            found = self._measured(found, event, other, place)
        introduced = self.judged.verdict[event] == INTRODUCED
        return Finding(
            divergence=found,
            verdict=Verdict.INTRODUCED if introduced else Verdict.PROPAGATED,
            events=(event, other),
            output=place,
            digests=(ours.digest.hex(), theirs.digest.hex()),
            hint=self._hint(event, site) if introduced else "",
        )

    def _divergence(self, site: Site, step: int, output: Output, kind: Kind) -> Divergence:
        elements = math.prod(output.shape) if output.dtype else 0
        about: dict[str, Any] = {"scope": site.scope, "source": site.source, "rank": self.rank, "elements": elements}
        return Divergence(name=site.name, kind=kind, step=step, shape=output.shape, dtype=output.dtype, origin="recorded", **about)

    def _measured(self, found: Divergence, event: int, other: int, place: int) -> Divergence:
        """With figures, where both files hold the values."""
        key = ("output", place)
        ours, theirs = self.judged.a.recording.values(event).get(key), self.judged.b.recording.values(other).get(key)
        measured = diverge(Place(found.name), ours, theirs) if ours and theirs else None
        if measured is None:
            return found
        return replace(measured, step=found.step, rank=found.rank, origin=found.origin, scope=found.scope, source=found.source)

    def _hint(self, event: int, site: Site) -> str:
        collective = is_collective(site.name)
        hints = (
            (
                not self.judged.drawn_equal[event],
                f"the generator's state differs{'' if self.judged.drawn_equal[event] else self._drawn_before(event)}",
            ),
            (site.flags & Flag.LEAF, "data from outside"),
            (site.flags & OBSERVED, OBSERVED_HINT),
            (site.flags & Flag.COMPILED, "called by compiled code, of which only such calls are recorded"),
            (collective and self.alone, "a collective: compare the folders of all ranks to see its inputs elsewhere"),
            (collective and not self.alone, "a collective: its inputs are equal on every rank"),
        )
        return "; ".join(text for applies, text in hints if applies)

    def _drawn_before(self, event: int) -> str:
        """The last random operation before `event` that one side alone has, in words."""
        judged = self.judged
        found = ((judged.a, _where(judged.verdict == MISSING), event, "a"), (judged.b, judged.extra, int(judged.match[event]), "b"))
        for side, alone, end, name in found:
            drew = alone[(alone < end) & (side.table.random[side.site[alone]] > 0)]
            if len(drew):
                return f": only {name} drew for {side.described(int(drew[-1])).name} before (event {drew[-1]})"
        return ""

    def steps(self) -> set[int]:
        """Steps that hold an event that is not equal."""
        judged = self.judged
        return {*judged.a.step[judged.verdict != EQUAL].tolist(), *judged.b.step[judged.extra].tolist()}

    def state(self) -> tuple[list[tuple[str, int]], int]:
        """(names of state that differ, each with its first step; how many there are)."""
        import numpy as np

        judged = self.judged
        differs = (judged.verdict == INTRODUCED) | (judged.verdict == PROPAGATED)
        events = _where(differs & (judged.a.flags & OBSERVED).astype(bool))
        _, first = np.unique(judged.a.table.name[judged.a.site[events]], return_index=True)
        chosen = np.sort(events[first])
        return [(judged.a.described(event).name, int(judged.a.step[event])) for event in chosen[:MOST_ALONE].tolist()], len(chosen)


def limited(findings: Iterator[Finding]) -> tuple[Finding, ...]:
    """As many as are listed."""
    return tuple(islice(findings, MOST_ALONE))


def _where(mask: Any) -> Any:
    return mask.nonzero()[0]


def _run(order: Any, events: Any, *, last: bool) -> tuple[int, int] | None:
    """(place, event) where the first or the last run of consecutive events starts."""
    if not len(events):
        return None
    place = len(events) - 1 if last else 0
    while last and place and events[place - 1] == events[place] - 1:
        place -= 1
    return int(order[place]), int(events[place])


def _both(ours: Site, theirs: Site) -> Site:
    """The site of the first, with what only the other notes: a file, where one side ran code that was generated."""
    sources = ours.source, theirs.source
    written = (each for each in sources if each and not each.startswith("<"))
    return ours._replace(scope=ours.scope or theirs.scope, source=next(written, ours.source or theirs.source))


def _differing(ours: tuple[Output, ...], theirs: tuple[Output, ...]) -> tuple[int, Output, Output]:
    """The first output that differs."""
    nothing = Output(NOTHING, "", ())
    for place in range(max(len(ours), len(theirs))):
        x, y = (side[place] if place < len(side) else nothing for side in (ours, theirs))
        if (x.dtype, x.shape) != (y.dtype, y.shape) or (x.digest != y.digest and NOTHING not in (x.digest, y.digest)):
            return place, x, y
    return 0, *((side or (nothing,))[0] for side in (ours, theirs))  # type: ignore[return-value]  # two


def _other_layout(found: Divergence, ours: Output, theirs: Output) -> Divergence:
    if ours.dtype != theirs.dtype:
        return replace(found, kind=Kind.DTYPE, values=(ours.dtype, theirs.dtype))
    return replace(found, kind=Kind.SHAPE, values=(str(ours.shape), str(theirs.shape)))
