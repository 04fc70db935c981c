"""Finding arrays again: which value of one run is a value of another, as it is or with its elements in another order. Pure.

Two shadows of the same numbers agree to the precision that they are carried in, times what the problem amplifies, not
bit for bit. So each array is known by four sums, which change little when its elements do: plain, of squares, and two
weighted by fixed pseudo-random numbers, one by position (`ordered`), one by rank (`sorted`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

_WEIGHTS = np.random.Generator(np.random.PCG64(20260101))
_weights: Any = np.empty(0)


def weights(count: int) -> Any:
    """`count` fixed numbers between 0.5 and 1.5; a longer request begins as a shorter one does."""
    global _weights  # noqa: PLW0603  # grows
    if len(_weights) < count:
        _weights = np.concatenate([_weights, 0.5 + _WEIGHTS.random(max(count - len(_weights), 1 << 12))])
    return _weights[:count]


def marks(array: Any) -> Any:
    """(scale, sum, sum of squares, sum weighted by position, sum weighted by rank) of an array, in logical order."""
    flat = np.asarray(array).reshape(-1)
    flat = (flat.real + np.sqrt(2) * flat.imag) if np.iscomplexobj(flat) else flat
    flat = flat.astype(np.float64, copy=False)
    if not np.isfinite(flat.sum()):
        flat = np.nan_to_num(flat, nan=1.2345678e30, posinf=2.3456789e30, neginf=-2.3456789e30)
    weight = weights(flat.size)
    return np.array(
        [np.abs(flat).sum(), flat.sum(), float(flat @ flat), float(weight @ flat), float(weight @ np.sort(flat))], dtype=np.float64
    )


class Pool:
    """Arrays of one run, to be found by content.

    Args:
        arrays: (key, array); the key is what a search returns.
        tolerance: of the sums, relative to the sum of magnitudes.
    """

    def __init__(self, arrays: Iterable[tuple[Any, Any]], tolerance: float) -> None:
        self.tolerance = tolerance
        keys: dict[int, list[Any]] = defaultdict(list)
        rows: dict[int, list[Any]] = defaultdict(list)
        for key, array in arrays:
            keys[array.size].append(key)
            rows[array.size].append(marks(array))
        self._keys = keys
        self._rows = {size: np.array(found) for size, found in rows.items()}

    def find(self, array: Any, *, ordered: bool = True) -> list[Any]:
        """The keys of arrays with these elements, in this order or (not `ordered`) in any."""
        rows = self._rows.get(array.size)
        if rows is None:
            return []
        own = marks(array)
        scale = np.maximum(rows[:, 0], own[0]) + 1e-300
        fits = np.abs(rows[:, 1] - own[1]) <= self.tolerance * scale
        fits &= np.abs(rows[:, 2] - own[2]) <= 4 * self.tolerance * np.maximum(rows[:, 2], own[2]) + 1e-300
        place = 3 if ordered else 4
        fits &= np.abs(rows[:, place] - own[place]) <= 2 * self.tolerance * scale
        return [self._keys[array.size][index] for index in np.flatnonzero(fits)]
