"""By how much two arrays differ: sums over blocks that fit into a processor's cache.

Blocks that are equal cost a comparison and the squares of the reference. In the others, finite numbers of one sign take
a short way; what holds a NaN, an infinity or a change of sign takes the long one, with the same result.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Any

LARGEST = sys.float_info.max
BLOCK = 1 << 14
"""Elements at a time: two blocks and their float64 copies fit into a second-level cache."""
_SAFE = (1e-200, 1e200)
"""Sums of squares between these have lost nothing to underflow or overflow."""


@dataclass(slots=True)
class Tally:
    """Sums over the blocks of two arrays.

    Attributes:
        eps: of the type, where it is a floating-point one.
        signed: the signed integer of its width, where its bits are sign and magnitude.
        exact: ULP up to which two of its numbers have a difference that NumPy forms in the type, exactly.
        first: place of the first element that differs.
        differing: how many do.
        values: both sides at the first.
        max_ulp, max_abs, nonfinite: as in `Divergence`.
        pairs, total: finite pairs, and the sum of their distances.
        count, squares: finite elements of the reference, and the sum of their squares,
        scaled: except for those whose squares need care: (how many, root mean square).
    """

    eps: float | None = None
    signed: Any = None
    exact: int = -1
    first: int = 0
    differing: int = 0
    values: tuple[str, str] | None = None
    max_ulp: int | None = None
    max_abs: float | None = None
    nonfinite: int = 0
    pairs: int = 0
    total: float = 0.0
    count: int = 0
    squares: float = 0.0
    scaled: list[tuple[int, float]] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """The distances, as a `Divergence` has them."""
        return {
            "max_ulp": self.max_ulp,
            "max_abs": self.max_abs,
            "mean_abs": None if self.max_abs is None else min(self.total / self.pairs, LARGEST),
            "scaled": self._scaled(),
            "nonfinite": self.nonfinite,
        }

    def _scaled(self) -> float | None:
        count = self.count + sum(number for number, _ in self.scaled)
        parts = [rms * math.sqrt(number / count) for number, rms in self.scaled if number]
        unit = (self.eps or 0.0) * math.hypot(*parts, math.sqrt(self.squares / count) if count else 0.0)
        return None if self.max_abs is None or unit == 0 else min(self.max_abs / unit, LARGEST)

    def add_floats(self, ours: Any, theirs: Any, differs: Any, count: int) -> None:
        """A block of floating-point numbers.

        Args:
            ours, theirs: (elements, parts); two parts where they are complex.
            differs: per element,
            count: of which so many do.
        """
        import numpy as np

        x = ours.astype("float64").reshape(-1)
        finite = self._add_reference(x)
        if not count:
            self._add_pairs(x.size if finite else int(np.isfinite(x).sum()))
            return
        if not finite or not self._add_near(x, ours.reshape(-1), theirs.reshape(-1)):
            self._add_any(ours, theirs, differs)

    def _add_reference(self, x: Any) -> bool:
        """Squares of the reference; are all of them finite?"""
        import numpy as np

        square = float(np.einsum("i,i", x, x))  # BLAS would start threads for this
        if _SAFE[0] < square < _SAFE[1]:
            self.squares += square
            self.count += x.size
            return True
        kept = x[np.isfinite(x)]
        peak = float(abs(kept).max()) if kept.size else 0.0
        rms = peak * math.sqrt(float(((kept / peak) ** 2).mean())) if peak else 0.0
        self.scaled.append((kept.size, rms))
        return bool(kept.size == x.size)

    def _add_pairs(self, number: int, largest: float = 0.0, total: float = 0.0) -> None:
        """Finite pairs and their distances."""
        if number:
            self.max_abs = max(self.max_abs or 0.0, min(largest, LARGEST))
            self.pairs += number
            self.total += total

    def _add_near(self, x: Any, ours: Any, theirs: Any) -> bool:
        """The short way: where all is finite and of equal sign. Else does nothing."""
        import numpy as np

        if self.signed is None:
            return False
        a, b = ours.view(self.signed), theirs.view(self.signed)
        if int(np.bitwise_xor(a, b).min()) < 0:
            return False
        steps = a - b
        ulp = max(int(steps.max()), -int(steps.min()))
        near = ulp <= self.exact  # within a factor of two: the type itself holds the difference (Sterbenz 1974)
        distance = ours - theirs if near else x - theirs.astype("float64")
        np.abs(distance, out=distance)
        largest = float(distance.max())
        if not math.isfinite(largest):
            return False
        self.max_ulp = max(self.max_ulp or 0, ulp)
        self._add_pairs(x.size, largest, float(distance.astype("float64", copy=False).sum()))
        return True

    def _add_any(self, ours: Any, theirs: Any, differs: Any) -> None:
        """The long way."""
        import numpy as np

        x, y = ours.astype("float64"), theirs.astype("float64")
        both = np.isfinite(x) & np.isfinite(y)
        self.nonfinite += int((~both).any(axis=1)[differs].sum())
        numbers = differs[:, None] & ~(np.isnan(x) | np.isnan(y))
        if numbers.any():
            ulp = int(apart(ordered(ours[numbers]), ordered(theirs[numbers])).max())
            self.max_ulp = max(self.max_ulp or 0, ulp)
        distance = np.abs(x[both] - y[both])
        if distance.size:
            self._add_pairs(distance.size, float(distance.max()), float(distance.sum()))

    def add_integers(self, ours: Any, theirs: Any, _differs: Any, count: int) -> None:
        """A block of integers."""
        if not count:
            self._add_exact(ours.size, 0, 0.0)
            return
        x, y = (side if side.dtype == "uint64" else side.astype("int64") for side in (ours, theirs))
        distance = apart(x, y)
        self._add_exact(distance.size, int(distance.max()), float(distance.sum(dtype="float64")))

    def _add_exact(self, number: int, largest: int, total: float) -> None:
        self.max_abs = max(self.max_abs or 0, largest)
        self.pairs += number
        self.total += total


def ordered(values: Any) -> Any:
    """Bit patterns as int64 in the order of the numbers: sign and magnitude made two's complement."""
    import numpy as np

    if values.dtype.name == "float8_e8m0fnu":  # an exponent, without a sign
        return values.view("uint8").astype("int64")
    bits = 8 * values.dtype.itemsize
    signed = values.view(f"int{bits}").astype("int64")
    magnitude = signed & ((1 << (bits - 1)) - 1)
    return np.where(signed < 0, -magnitude, magnitude)


def apart(x: Any, y: Any) -> Any:
    """|x - y| of 64-bit integers as uint64: the difference of two int64 may need 64 bits and wraps to the right one."""
    import numpy as np

    return np.maximum(x, y).view("uint64") - np.minimum(x, y).view("uint64")
