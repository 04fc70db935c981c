"""By how much two arrays differ: sums over blocks that fit into a processor's cache.

A block that is equal costs one subtraction of its bits and the squares of the reference. In the others, numbers so close that
their own type holds the difference take a short way; what holds a NaN or an infinity takes the longest, with the same result.
Bits are compared as integers of their width, and everything is written into the same few buffers (see `Scratch`).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Any

LARGEST = sys.float_info.max
BLOCK = 1 << 15
"""Numbers at a time: both blocks and what is computed of them fit into a second-level cache, 256 KiB each at most."""
_SAFE = (1e-200, 1e200)
"""Sums of squares between these have lost nothing to underflow or overflow."""
_SAMPLE = 64
"""Numbers that are looked at first: where signs differ at random, they show it."""
_LINE = 64
"""Bytes of a cache line: vectors that straddle two of them cost a fifth of the time."""


class Scratch:
    """Buffers for one block of up to `size` numbers.

    Attributes:
        steps, ranks, others: integers of the width of the type.
        near: `steps` as numbers of the type.
        wide, distance: float64.
    """

    def __init__(self, size: int = 0, kind: Any = "uint8", bits: Any = "uint8") -> None:
        self.size = size
        self.steps, self.ranks, self.others = (_aligned(size, bits) for _ in range(3))
        self.near = self.steps.view(kind)
        self.wide, self.distance = (_aligned(size, "float64") for _ in range(2))


def _aligned(size: int, dtype: Any) -> Any:
    """An empty array that begins with a cache line."""
    import numpy as np

    kind = np.dtype(dtype)
    memory = np.empty(size * kind.itemsize + _LINE, "uint8")
    start = -memory.ctypes.data % _LINE
    return memory[start : start + size * kind.itemsize].view(kind)


@dataclass(slots=True)
class Tally:
    """Sums over the blocks of two arrays.

    Attributes:
        kind: type of the numbers; None where there are none, only bytes.
        parts: numbers of an element, 2 where it is complex; bytes where there are no numbers.
        bits: the integer of its width: signed where its bits are sign and magnitude, or where it is a signed integer.
        eps: of the type, where it is a floating-point one.
        exact: ULP up to which two of its numbers have a difference that NumPy forms in the type, exactly.
        values: of every pattern of bits as float64, where there are few of them.
        seen: elements so far.
        first: place of the first element that differs.
        differing: how many do.
        shown: both sides at the first, as text.
        max_ulp, max_abs, nonfinite: as in `Divergence`.
        pairs, total: finite pairs, and the sum of their distances.
        count, squares: finite elements of the reference, and the sum of their squares,
        scaled: except for those whose squares need care: (how many, root mean square).
    """

    kind: Any = None
    parts: int = 1
    bits: Any = "uint8"
    eps: float | None = None
    exact: int = -1
    values: Any = None
    scratch: Scratch = field(default_factory=Scratch)
    seen: int = 0
    first: int = 0
    differing: int = 0
    shown: tuple[str, str] | None = None
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

    def add(self, ours: Any, theirs: Any) -> None:
        """A block: 1-d arrays of numbers, or bytes, all parts of each element side by side."""
        import numpy as np

        if ours.size > self.scratch.size:
            self.scratch = Scratch(ours.size, self.kind or "uint8", self.bits)
        steps = np.subtract(ours.view(self.bits), theirs.view(self.bits), out=self.scratch.steps[: ours.size])
        changed = self._elements(steps)
        count = int(np.count_nonzero(changed))
        if count and not self.differing:
            self.first = self.seen + int((changed != 0).argmax())
        self.differing += count
        self.seen += ours.size // self.parts
        if self.eps is not None:
            self._add_floats(ours, theirs, changed, count)
        elif self.kind:
            self._add_integers(ours, theirs, count)

    def _elements(self, numbers: Any) -> Any:
        """One per element, which is 0 where all of its parts are."""
        if self.parts <= 2:
            return numbers if self.parts == 1 else numbers[::2] | numbers[1::2]
        return numbers.reshape(-1, self.parts).any(axis=1)

    def _add_floats(self, ours: Any, theirs: Any, changed: Any, count: int) -> None:
        """`changed`: per element, 0 where it is equal; `count`: how many are not."""
        import numpy as np

        wide = self._widened(ours, self.scratch.wide[: ours.size])
        finite = self._add_reference(wide)
        if not count:
            self._add_pairs(wide.size if finite else int(np.isfinite(wide).sum()))
            return
        steps = None if self._signs_differ(ours[:_SAMPLE], theirs[:_SAMPLE]) else self._steps(ours.size)
        if not (finite and (self._add_near(ours, theirs, steps) or self._add_far(ours, theirs, wide, steps))):
            self._add_any(ours, theirs, changed)

    def _widened(self, numbers: Any, out: Any = None) -> Any:
        """As float64."""
        import numpy as np

        if self.values is not None:
            return np.take(self.values, numbers.view("uint8"), out=out, mode="clip")  # without `clip` it fills a buffer first
        if out is None:
            return numbers.astype("float64")
        np.copyto(out, numbers, casting="unsafe")
        return out

    def _add_reference(self, x: Any) -> bool:
        """Squares of the reference; are all of them finite?"""
        import numpy as np

        square = float(np.einsum("i,i", x, x))  # BLAS would start threads for this
        if _SAFE[0] < square < _SAFE[1] or not (square or x.any()):
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

    def _signs_differ(self, ours: Any, theirs: Any) -> bool:
        """Do those of any pair? Where there is no sign, they are not known to agree."""
        import numpy as np

        if self.bits.kind == "u":
            return True
        return bool(np.bitwise_xor(ours.view(self.bits), theirs.view(self.bits), out=self.scratch.ranks[: ours.size]).min() < 0)

    def _steps(self, size: int) -> int:
        """The most steps from one number to another, where no two have different signs."""
        steps = self.scratch.steps[:size]
        return max(int(steps.max()), -int(steps.min()))

    def _add_near(self, ours: Any, theirs: Any, steps: int | None) -> bool:
        """The short way, for a finite reference and numbers within a factor of two. Else does nothing.

        So few steps lie between no finite numbers of other signs, as bits; an infinity or a NaN shows in the distance. The type
        holds the difference of two such numbers (Sterbenz 1974).
        """
        import numpy as np

        if steps is None or steps > self.exact:
            return False
        distance = np.subtract(ours, theirs, out=self.scratch.near[: ours.size])
        largest = float(np.abs(distance, out=distance).max())
        if not math.isfinite(largest):
            return False
        self._add_pairs(ours.size, largest, float(distance.sum(dtype="float64")))
        self._add_ulp(steps)
        return True

    def _add_far(self, ours: Any, theirs: Any, wide: Any, steps: int | None) -> bool:
        """Where all is finite, and so are the distances. Else does nothing."""
        import numpy as np

        distance = self._widened(theirs, self.scratch.distance[: ours.size])
        np.subtract(wide, distance, out=distance)
        largest = float(np.abs(distance, out=distance).max())
        if not math.isfinite(largest):
            return False
        self._add_pairs(ours.size, largest, float(distance.sum()))
        if steps is None or self._signs_differ(ours, theirs):
            self._add_any_ulp(ours.view(self.bits), theirs.view(self.bits))
        else:
            self._add_ulp(steps)
        return True

    def _add_ulp(self, ulp: int) -> None:
        self.max_ulp = max(self.max_ulp or 0, ulp)

    def _add_any_ulp(self, x: Any, y: Any) -> None:
        """The most between two finite numbers, of any sign; nothing is done where it cannot be more than is known."""
        import numpy as np

        own = self.scratch
        buffers = (own.steps[: x.size], own.ranks[: x.size], own.others[: x.size])
        if self.max_ulp is not None and self.bits.kind == "i":
            magnitude = np.iinfo(self.bits).max
            at_most = np.bitwise_and(x, magnitude, out=buffers[0])
            np.add(at_most, np.bitwise_and(y, magnitude, out=buffers[1]), out=at_most)  # that far apart are other signs
            if int(at_most.view(f"uint{8 * at_most.itemsize}").max()) <= self.max_ulp:
                return
        self._add_ulp(int(ulps(x, y, buffers).max()))

    def _add_any(self, ours: Any, theirs: Any, changed: Any) -> None:
        """The long way: what is not a number, or not finite, is left out and poisons nothing."""
        import numpy as np

        differs: Any = np.repeat(changed != 0, self.parts)
        x, y = self._widened(ours), self._widened(theirs)
        bad = ~(np.isfinite(x) & np.isfinite(y))
        self.nonfinite += int(np.count_nonzero(self._elements(bad & differs)))
        unequal = differs & ~(np.isnan(x) | np.isnan(y))
        if unequal.any():
            self._add_ulp(int((ulps(ours.view(self.bits), theirs.view(self.bits)) * unequal).max()))
        distance = np.abs(x - y)
        distance[bad] = 0.0
        self._add_pairs(bad.size - int(np.count_nonzero(bad)), float(distance.max()), float(distance.sum()))

    def _add_integers(self, ours: Any, theirs: Any, count: int) -> None:
        number, largest, total = ours.size, 0, 0.0
        if count:
            x, y = ((side != 0).view(self.bits) if side.dtype == bool else side for side in (ours, theirs))
            distance = apart(x, y, self.scratch.steps[:number], self.scratch.ranks[:number])
            largest = int(distance.max())
            narrow = next((kind for kind, most in _EXACT if largest * number < most), "float64")
            total = float(distance.sum(dtype=narrow))
        self.max_abs = max(self.max_abs or 0, largest)
        self.pairs += number
        self.total += total


_EXACT = (("uint32", 1 << 32), ("uint64", 1 << 53))
"""Sums below these are the same in the type as in float64; NumPy adds narrower numbers faster."""


def ulps(x: Any, y: Any, buffers: tuple[Any, Any, Any] = (None, None, None)) -> Any:
    """How many steps lie between two floating-point numbers, each step to the next one, as unsigned integers of their width.

    Args:
        x, y: bits of the numbers: signed integers for sign and magnitude, unsigned ones where there is no sign.
        buffers: to write to.
    """
    import numpy as np

    out, spare, mask = buffers
    if x.dtype.kind == "u":
        return apart(x, y, out, spare)
    least = np.iinfo(x.dtype).min
    high, low = np.maximum(x, y, out=out), np.minimum(x, y, out=spare)
    mask = np.right_shift(np.bitwise_xor(high, low, out=mask), 8 * x.dtype.itemsize - 1, out=mask)  # -1 for two signs, else 0
    np.subtract(np.bitwise_xor(low, mask, out=low), mask, out=low)  # -low for two signs:
    np.subtract(high, low, out=high)  # the sum of both magnitudes then, but for the bit of the sign
    np.bitwise_xor(high, np.bitwise_and(mask, least, out=mask), out=high)
    return high.view(f"uint{8 * x.dtype.itemsize}")


def apart(x: Any, y: Any, out: Any = None, spare: Any = None) -> Any:
    """|x - y| of integers as unsigned ones: the difference may need every bit of their width and wraps to the right one."""
    import numpy as np

    high, low = np.maximum(x, y, out=out), np.minimum(x, y, out=spare)
    return np.subtract(high, low, out=high).view(f"uint{8 * high.dtype.itemsize}")
