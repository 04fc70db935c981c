"""Per event of two aligned recordings: equal, introduced here, propagated, missing, extra.

Equal witnesses prove equal inputs; unequal ones may still hold equal data, so that a propagated difference is one that
*may* have come from before. An event that is no operation (state, published values, a test's comparisons) reads nothing that is recorded: it
counts as introduced only where nothing before it differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from detconf.comparing.alignment import align
from detconf.comparing.columns import Columns
from detconf.comparing.result import Counts
from detconf.digests import OBSERVED

EQUAL, INTRODUCED, PROPAGATED, MISSING = range(4)


@dataclass(slots=True)
class Judged:
    """Two recordings, event by event. All but `a`, `b` and `extra` hold one value per event of the first.

    Attributes:
        a, b: the recordings.
        match: event of the other, -1 where there is none.
        verdict: EQUAL, INTRODUCED, PROPAGATED or MISSING.
        read_equal: the inputs' witnesses are equal.
        drawn_equal: the generator's states are equal, or nothing is drawn.
        uncompared: outputs that could not be compared.
        extra: events that the other alone has.
    """

    a: Columns
    b: Columns
    match: Any
    verdict: Any
    read_equal: Any
    drawn_equal: Any
    uncompared: Any
    extra: Any

    @property
    def counts(self) -> Counts:
        """How many of each."""
        import numpy as np

        equal, introduced, propagated, missing = np.bincount(self.verdict, minlength=4).tolist()
        return Counts(
            compared=equal + introduced + propagated,
            equal=equal,
            absorbed=int(((self.verdict == EQUAL) & ~self.read_equal).sum()),
            introduced=introduced,
            propagated=propagated,
            missing=missing,
            extra=len(self.extra),
            uncompared=int(self.uncompared.sum()),
        )

    def extra_before(self) -> Any:
        """Per extra event the number of events of the first recording that stand before it."""
        import numpy as np

        matched = np.flatnonzero(self.match >= 0)
        order = np.argsort(self.match[matched], kind="stable")
        j = self.match[matched][order]
        reached = np.maximum.accumulate(matched[order] + 1) if len(matched) else matched
        place = np.searchsorted(j, self.extra)
        return np.where(place > 0, reached[np.maximum(place - 1, 0)], 0) if len(matched) else np.zeros(len(self.extra), "int64")


def judge(a: Columns, b: Columns) -> Judged:
    """Align two recordings and compare what is aligned."""
    import numpy as np

    match = _match(a, b)
    extra: Any = np.ones(len(b), bool)
    extra[match[match >= 0]] = False
    size = len(a)
    judged = Judged(
        a,
        b,
        match,
        verdict=np.where(match < 0, MISSING, EQUAL).astype("int8"),
        read_equal=np.ones(size, bool),
        drawn_equal=np.ones(size, bool),
        uncompared=np.zeros(size, "int32"),
        extra=np.flatnonzero(extra),
    )
    _compare(judged)
    _settle_observed(judged)
    return judged


def _match(a: Columns, b: Columns) -> Any:
    """Aligned in an order that does not depend on which is given first, so that exchanging them mirrors the result."""
    import numpy as np

    (order, ours), (other_order, theirs) = a.tokens(), b.tokens()
    size = min(len(a), len(b))
    differs = ours.full[:size] != theirs.full[:size]
    place = int(differs.argmax()) if differs.any() else -1
    first = (len(a), int(ours.full[place]) if size else 0) <= (len(b), int(theirs.full[place]) if size else 0)
    found = align(ours, theirs) if first else align(theirs, ours)
    match: Any = np.full(len(a), -1, "int64")
    hit = np.flatnonzero(found >= 0)
    i, j = (hit, found[hit]) if first else (found[hit], hit)
    match[order[i]] = other_order[j]
    return match


def _compare(judged: Judged) -> None:
    """Verdicts of matched events."""
    import numpy as np

    a, b, match = judged.a, judged.b, judged.match
    matched = np.flatnonzero(match >= 0)
    like = a.table.key[a.site[matched]] == b.table.key[b.site[match[matched]]]
    for events, (random, inputs, outputs) in a.groups(matched[like]):
        total = random + inputs + outputs
        x, y = a.gathered(events, 0, total), b.gathered(match[events], 0, total)
        same = (x == y).all(axis=2)
        judged.drawn_equal[events] = same[:, :random].all(axis=1)
        judged.read_equal[events] = same[:, random : random + inputs].all(axis=1)
        hashed = x[:, random + inputs :].any(axis=2) & y[:, random + inputs :].any(axis=2)
        judged.uncompared[events] = (~hashed).sum(axis=1)
        differs = ~(same[:, random + inputs :] | ~hashed).all(axis=1)
        came = judged.read_equal[events]
        judged.verdict[events] = np.where(differs, np.where(came, INTRODUCED, PROPAGATED), EQUAL)
    _compare_unlike(judged, matched[~like])


def _compare_unlike(judged: Judged, events: Any) -> None:
    """Operations of one name that write another dtype or shape, or read another number of arrays."""
    import numpy as np

    a, b = judged.a, judged.b
    for chosen, (random, inputs, _) in a.groups(events):
        others = judged.match[chosen]
        site = b.site[others]
        came = (b.table.random[site] == random) & (b.table.inputs[site] == inputs)
        x, y = a.gathered(chosen[came], random, inputs), b.gathered(others[came], random, inputs)
        came[came] = (x == y).all(axis=(1, 2))
        judged.read_equal[chosen] = came
        judged.verdict[chosen] = np.where(came, INTRODUCED, PROPAGATED)


def _settle_observed(judged: Judged) -> None:
    """State and published values that differ owe it to the first difference, if that is not the first of them itself."""
    import numpy as np

    observed = (judged.a.flags & OBSERVED).astype(bool) & (judged.verdict == INTRODUCED)
    before = np.flatnonzero(judged.verdict != EQUAL)
    starts = [int(before[0])] if len(before) else []
    starts += (judged.extra_before() - 1).tolist()[:1]
    if starts:
        late = np.arange(len(judged.verdict)) > min(starts)
        judged.verdict[observed & late] = PROPAGATED
