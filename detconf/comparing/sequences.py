"""Common subsequences of two sequences of numbers, in the time that their differences need."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

Pair = tuple[int, int]
_WINDOW = 256


def common_ends(x: Any, y: Any) -> tuple[int, int]:
    """How many elements two arrays share at their start, and then at their end."""
    size = min(len(x), len(y))
    differs = x[:size] != y[:size]
    start = int(differs.argmax()) if differs.any() else size
    rest = size - start
    differs = (x[len(x) - rest :] != y[len(y) - rest :])[::-1]
    return start, int(differs.argmax()) if differs.any() else rest


def unique_pairs(x: Any, y: Any) -> tuple[Any, Any]:
    """Places in `x` and `y` of the elements that stand once in either, in the order of `x`."""
    import numpy as np

    both = np.concatenate([x, y])
    order = np.argsort(both)
    values = both[order]
    edges = np.concatenate([[True], values[1:] != values[:-1], [True]])
    starts = np.flatnonzero(edges)
    twice = starts[:-1][np.diff(starts) == 2]
    low, high = (function(order[twice], order[twice + 1]) for function in (np.minimum, np.maximum))
    apart = (low < len(x)) & (high >= len(x))
    low, high = low[apart], high[apart] - len(x)
    sort = np.argsort(low)
    return low[sort], high[sort]


def increasing(values: Any) -> Any:
    """Which elements form a longest increasing subsequence, as a mask."""
    import numpy as np

    if len(values) < 2 or (values[1:] > values[:-1]).all():
        return np.ones(len(values), bool)
    tails: list[int] = []
    ends: list[int] = []
    before = [-1] * len(values)
    for place, value in enumerate(values.tolist()):
        at = bisect_left(tails, value)
        tails[at : at + 1], ends[at : at + 1] = [value], [place]
        before[place] = ends[at - 1] if at else -1
    mask: Any = np.zeros(len(values), bool)
    place = ends[-1]
    while place >= 0:
        mask[place] = True
        place = before[place]
    return mask


def longest_common(x: Sequence[int], y: Sequence[int], most: int) -> tuple[list[Pair] | None, int]:
    """A longest common subsequence, by Myers' greedy algorithm (1986), and the work it took.

    Args:
        x, y: what to align.
        most: differences after which it gives up: None.
    """
    reached: list[list[int]] = []
    ends = {1: 0}
    for count in range(min(most, len(x) + len(y)) + 1):
        row = []
        for diagonal in range(-count, count + 1, 2):
            down = diagonal == -count or (diagonal != count and ends[diagonal - 1] < ends[diagonal + 1])
            at = ends[diagonal + 1] if down else ends[diagonal - 1] + 1
            other = at - diagonal
            while at < len(x) and other < len(y) and x[at] == y[other]:
                at, other = at + 1, other + 1
            ends[diagonal] = at
            row.append(at)
            if at >= len(x) and other >= len(y):
                reached.append(row)
                return _walked_back(reached, len(x), len(y)), count * count
        reached.append(row)
    return None, most * most


def _walked_back(reached: list[list[int]], at: int, other: int) -> list[Pair]:
    pairs: list[Pair] = []
    for count in range(len(reached) - 1, 0, -1):
        diagonal, before = at - other, reached[count - 1]

        def end(diagonal: int, count: int = count, before: list[int] = before) -> int:
            place = (diagonal + count - 1) // 2
            return before[place] if 0 <= place < len(before) else -1

        down = diagonal == -count or (diagonal != count and end(diagonal - 1) < end(diagonal + 1))
        start = end(diagonal + 1) if down else end(diagonal - 1)
        entered = start if down else start + 1
        while at > entered:
            at, other = at - 1, other - 1
            pairs.append((at, other))
        at, other = start, start - (diagonal + 1 if down else diagonal - 1)
    pairs += [(place, place) for place in range(at - 1, -1, -1)]
    return pairs[::-1]


def greedy(x: Sequence[int], y: Sequence[int]) -> list[Pair]:
    """A common subsequence: each element of `y` with the next like it in `x` that is not far away. For what is too unlike."""
    places: dict[int, list[int]] = {}
    for place, value in enumerate(x):
        places.setdefault(value, []).append(place)
    pairs: list[Pair] = []
    start = 0
    for other, value in enumerate(y):
        found = places.get(value, [])
        at = bisect_left(found, start)
        if at < len(found) and found[at] < start + _WINDOW:
            pairs.append((found[at], other))
            start = found[at] + 1
    return pairs
