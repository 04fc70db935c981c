"""Which event of one recording is which of the other.

Anchors first: what was written once in either recording, with equal bytes, in the same order. Between them, operations
of the same kind are aligned step by step, so that what is inserted, missing, or different after a divergence leaves the
rest aligned. The time grows with the number of events, and with the square of the differences in structure, up to a
limit; beyond it alignment is cruder, never wrong about what it calls equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from detconf.comparing.sequences import common_ends, greedy, increasing, longest_common, unique_pairs

_SMALL = 1 << 14
"""Product of two lengths up to which a longest common subsequence is looked for at once."""
_DIFFERENCES = 500
_WORK = 1 << 23
"""Inner steps of all of these searches together."""
Gap = tuple[int, int, int, int]
"""Start and end in one recording and in the other."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Events as numbers, those of one thread together; each a NumPy array.

    Attributes:
        full: equal where name, layouts and every byte that was written are.
        key: equal where name, layouts and number of inputs are.
        name: equal where the name is.
        step: steps that had ended.
        bounds: per thread, where its events start and end.
    """

    full: Any
    key: Any
    name: Any
    step: Any
    bounds: dict[int, tuple[int, int]]


def align(a: Tokens, b: Tokens) -> Any:
    """Per event of `a` the place in `b` of its counterpart, -1 where it has none."""
    threads = sorted(a.bounds.keys() & b.bounds.keys())
    aligner = _Aligner(a, b)
    aligner.align([(*a.bounds[thread], *b.bounds[thread]) for thread in threads])
    return aligner.match


class _Aligner:
    """Fills `match`."""

    def __init__(self, a: Tokens, b: Tokens) -> None:
        import numpy as np

        self.a, self.b = a, b
        self.match: Any = np.full(len(a.key), -1, "int64")
        self.work = _WORK

    def align(self, outer: list[Gap]) -> None:
        import numpy as np

        gaps = _joined([self._anchored(gap) for gap in outer])
        gaps = self._same(gaps)
        gaps = self._same(_joined([self._steps(gap) for gap in gaps.tolist()]))
        for level in ("full", "key", "name"):
            x, y = getattr(self.a, level), getattr(self.b, level)
            gaps = np.array([rest for gap in gaps.tolist() for rest in self._refined(x, y, gap)], "int64").reshape(-1, 4)

    def _anchored(self, gap: Gap) -> Any:
        """Match what is the same in bytes: from either end, then what stands once on either side. Returns what is between."""
        import numpy as np

        a0, a1, b0, b1 = self._trimmed(self.a.full, self.b.full, gap)
        i, j = unique_pairs(self.a.full[a0:a1], self.b.full[b0:b1])
        i, j = i + a0, j + b0
        if len(i):
            # A number that comes up by chance in another step is no anchor.
            shift = self.b.step[j] - self.a.step[i]
            kinds, counts = np.unique(shift, return_counts=True)
            likely = shift == kinds[counts == counts.max()][0]
            i, j = i[likely], j[likely]
            rising = increasing(j)
            i, j = i[rising], j[rising]
        return self._matched((a0, a1, b0, b1), i, j)

    def _trimmed(self, x: Any, y: Any, gap: Gap) -> Gap:
        """Match the common start and end; the gap that is left."""
        import numpy as np

        a0, a1, b0, b1 = gap
        start, end = common_ends(x[a0:a1], y[b0:b1])
        self.match[a0 : a0 + start] = np.arange(b0, b0 + start)
        self.match[a1 - end : a1] = np.arange(b1 - end, b1)
        return a0 + start, a1 - end, b0 + start, b1 - end

    def _matched(self, gap: Gap, i: Any, j: Any) -> Any:
        """Match `i` with `j`; the gaps between them that have something on either side."""
        import numpy as np

        a0, a1, b0, b1 = gap
        self.match[i] = j
        starts = (np.concatenate([[first], places + 1]) for first, places in ((a0, i), (b0, j)))
        ends = (np.concatenate([places, [last]]) for last, places in ((a1, i), (b1, j)))
        (a_start, b_start), (a_end, b_end) = starts, ends
        gaps = np.stack([a_start, a_end, b_start, b_end], axis=1).astype("int64")
        return gaps[(gaps[:, 0] < gaps[:, 1]) & (gaps[:, 2] < gaps[:, 3])]

    def _same(self, gaps: Any) -> Any:
        """Match gaps of equal length and kinds throughout, all at once; the others."""
        import numpy as np

        length = gaps[:, 1] - gaps[:, 0]
        fits = length == gaps[:, 3] - gaps[:, 2]
        if not fits.any():
            return gaps
        length, chosen = length[fits], gaps[fits]
        offset = np.cumsum(length) - length
        inside = np.arange(length.sum()) - np.repeat(offset, length)
        i, j = (np.repeat(chosen[:, column], length) + inside for column in (0, 2))
        good = np.logical_and.reduceat(self.a.key[i] == self.b.key[j], offset)
        keep: Any = np.repeat(good, length)
        self.match[i[keep]] = j[keep]
        left: Any = np.ones(len(gaps), bool)
        left[np.flatnonzero(fits)[good]] = False
        return gaps[left]

    def _steps(self, gap: Gap) -> Any:
        """A gap cut at the ends of steps, where both sides have some."""
        import numpy as np

        a0, a1, b0, b1 = gap
        before = a0 - 1
        shift = int(self.b.step[b0 - 1] - self.a.step[before]) if before >= 0 and b0 and self.match[before] == b0 - 1 else 0
        (ours, i), (theirs, j) = (np.unique(side, return_index=True) for side in (self.a.step[a0:a1] + shift, self.b.step[b0:b1]))
        if len(ours) == 1 or len(theirs) == 1:
            return np.array([gap], "int64")
        _, p, q = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
        a_ends: Any = np.append(i, a1 - a0)
        b_ends: Any = np.append(j, b1 - b0)
        return np.stack([a0 + i[p], a0 + a_ends[p + 1], b0 + j[q], b0 + b_ends[q + 1]], axis=1).astype("int64")

    def _refined(self, x: Any, y: Any, gap: Gap) -> Iterator[Gap]:
        """Match what is common in a gap; what is left between."""
        waiting = [tuple(gap)]
        while waiting:
            a0, a1, b0, b1 = self._trimmed(x, y, waiting.pop())  # type: ignore[arg-type]  # four numbers
            if a0 == a1 or b0 == b1:
                continue
            if (a1 - a0) * (b1 - b0) > _SMALL:
                i, j = unique_pairs(x[a0:a1], y[b0:b1])
                rising = increasing(j)
                if rising.any():
                    waiting += map(tuple, self._matched((a0, a1, b0, b1), i[rising] + a0, j[rising] + b0).tolist())
                    continue
            yield from self._matched((a0, a1, b0, b1), *self._common(x[a0:a1], y[b0:b1], (a0, b0))).tolist()

    def _common(self, x: Any, y: Any, base: tuple[int, int]) -> tuple[Any, Any]:
        """Places of a common subsequence, counted from `base`."""
        import numpy as np

        # What the other side has nowhere is in no common subsequence, and would only be searched for.
        i, j = np.flatnonzero(np.isin(x, y)), np.flatnonzero(np.isin(y, x))
        pairs = np.array(self._searched(x[i].tolist(), y[j].tolist()), "int64").reshape(-1, 2)
        return i[pairs[:, 0]] + base[0], j[pairs[:, 1]] + base[1]

    def _searched(self, x: list[int], y: list[int]) -> list[tuple[int, int]]:
        if self.work > 0:
            pairs, work = longest_common(x, y, _DIFFERENCES)
            self.work -= work
            if pairs is not None:
                return pairs
        return greedy(x, y)


def _joined(parts: list[Any]) -> Any:
    import numpy as np

    return np.concatenate([np.empty((0, 4), "int64"), *parts])
