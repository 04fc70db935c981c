"""What a difference is made of: the rounding of each side, and what the two sides mean. Pure.

    A - B = (A - A*)  +  (A* - B*)  +  (B* - B)          A*, B*: float64 shadows of outputs A, B

Everything is measured per element in units of `noise`: what rounding each operation's inputs and outputs at random, by
the unit roundoff of their own dtypes, does to that element (the largest of several seeds), and at least half a unit of
the element itself. Benign programs stay below 52 such units (a naive sum of 20,000 float32), the smallest arithmetic of
another format reaches 13,000: `COARSE` lies between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.arrays import Array
from detconf.shadows.formats import UNIT, unit

COARSE = 300.0
"""Units of noise that no order of operations explains."""
SEEN = 8.0
"""Units of noise below which a difference in meaning is not told from rounding."""
AMPLIFIED = 1e4
"""Noise relative to the roundoff from which a result is called ill-conditioned."""
_NOTHING = 1e-3
"""Of its noise: an output that is smaller has no digit."""
_MANY, _PART = 1 << 12, 0.25
"""Elements from which the samples of noise of some are far too small by chance; the part of the expected noise that counts then."""
_SINGLE = 2.0**-24
_SLACK = 0.05
_FAITHFUL = 1e-9
"""Two float64 shadows of one formula agree better than this, relative to the largest element."""


@dataclass(slots=True)
class Part:
    """One output of one side.

    Attributes:
        real: its elements in float64 (long double for float64; complex likewise).
        shadow: the same, carried in higher precision; None where it was lost or never was.
        noise: the largest effect of rounding noise, per element; None without shadow.
        unit: unit roundoff of the output's dtype.
        floor: of the coarsest dtype of the values that the output was computed from.
    """

    real: Any
    shadow: Any
    noise: Any
    unit: float
    floor: float = 0.0

    @property
    def rough(self) -> Any:
        """Units of noise that the real elements are away from their shadows; 0 where either is not finite.

        An operation that cancels inside (the tail of gelu, 1 + erf) errs by the scale of what it cancels, which noise on its
        inputs and outputs does not show: a roundoff of a typical element is allowed besides.
        """
        return _ratio(self.real - self.shadow, np.maximum(self.noise, self.unit * _rms(self.shadow)))

    @property
    def condition(self) -> float:
        """Noise relative to the roundoff, at the output's scale (its root mean square).

        None where the output is zero but for noise (the gradient of a bias in front of a normalisation): it has no digits
        that could be lost.
        """
        scale = _rms(self.shadow)
        worst = float(np.max(_finite(self.noise), initial=0.0))
        if scale <= _NOTHING * worst:
            return 0.0
        return worst / (max(self.floor, self.unit) * scale) if scale and max(self.floor, self.unit) else 0.0


def numbers(array: Array) -> Any:
    """The elements of an array as float64, long double for float64, complex likewise; None for what has no numbers."""
    dtype = array.dtype
    if dtype.startswith(("bfloat", "float8")):
        import ml_dtypes

        kind = np.dtype(getattr(ml_dtypes, dtype))
    elif dtype in UNIT or dtype == "bool" or (dtype.lstrip("u").startswith("int") and dtype[-1].isdigit()):
        kind = np.dtype(dtype)
    else:
        return None
    flat = np.frombuffer(array.data, kind)
    if flat.size != int(np.prod(array.shape, dtype=np.int64)):
        return None
    wide = {"float64": np.longdouble, "complex128": np.clongdouble, "complex64": np.complex128}.get(dtype, np.float64)
    with np.errstate(invalid="ignore"):  # memory that was never written may hold signalling NaN
        return flat.reshape(array.shape).astype(wide)


def part(array: Array, shadow: Any, noisy: Sequence[Any], floor: float) -> Part | None:
    """The pieces of one output; None for what has no numbers."""
    real = numbers(array)
    if real is None:
        return None
    if shadow is not None and shadow.dtype == bool:  # of a truth value; NumPy does not subtract these
        shadow, noisy = shadow.astype(real.dtype), [None if each is None else each.astype(real.dtype) for each in noisy]
    own = unit(array.dtype)
    if shadow is None or shadow.shape != real.shape:
        return Part(real, None, None, own, floor)
    spread = [np.abs(each - shadow) for each in noisy if each is not None and each.shape == shadow.shape]
    with np.errstate(all="ignore"):
        largest = np.max(spread, axis=0) if spread else np.zeros(shadow.shape)
        noise = np.maximum(np.maximum(largest, _expected(largest)), 0.5 * own * np.abs(shadow))
    return Part(real, shadow, noise, own, floor)


def _expected(noise: Any) -> Any:
    """Of large arrays, a part of the noise that an element's row and column lead to expect; else nothing.

    Among many elements some have next to no noise in all samples, by chance. Scales that differ from row to row, or from
    column to column, are kept: root mean squares of both, multiplied.
    """
    if noise.size < _MANY or not np.all(np.isfinite(noise)):
        return 0.0
    flat = (noise.reshape(noise.shape[0], -1) if noise.ndim > 1 else noise.reshape(1, -1)).astype(np.float64)
    whole = float(np.sqrt(np.mean(flat**2)))
    rows, columns = np.sqrt(np.mean(flat**2, axis=1)), np.sqrt(np.mean(flat**2, axis=0))
    if noise.ndim < 2:  # a column of one element is no mean
        columns = np.full_like(columns, 0.0)
    return (_PART * np.outer(rows, columns) / whole).reshape(noise.shape) if whole else 0.0


@dataclass(slots=True)
class Split:
    """One output of both sides, taken apart.

    Attributes:
        name: of the output.
        a, b: its parts.
    """

    name: str
    a: Part
    b: Part

    @property
    def complete(self) -> bool:
        """Are both shadows there?"""
        return self.a.shadow is not None and self.b.shadow is not None

    @property
    def gap(self) -> Any:
        """What the sides mean, apart."""
        return _align(self.b.shadow, self.a.shadow) - self.a.shadow

    @property
    def noise(self) -> Any:
        """Of both sides together."""
        return np.maximum(_finite(self.a.noise), _finite(self.b.noise))

    @property
    def overflowed(self) -> str:
        """ "a" or "b" where that side alone becomes non-finite, and shadows say that it should not; else empty."""
        for name, side, other in (("a", self.a, self.b), ("b", self.b, self.a)):
            lost = ~np.isfinite(side.real.astype(np.complex128 if np.iscomplexobj(side.real) else np.float64))
            if side.shadow is None or not lost.any():
                continue
            if np.any(lost & np.isfinite(side.shadow) & np.isfinite(_align(other.real, side.real))):
                return name
        return ""

    @property
    def units(self) -> float:
        """The gap in units of noise of single precision or better: above `SEEN` the sides mean different things.

        Where both compute in less than single precision their noise would hide much: what float32 could not explain
        counts. Shadows themselves agree to about 1e-9 of an ill-conditioned result's scale.
        """
        if self._finite_otherwise:
            return float("inf")
        coarse = max(self.a.floor, self.b.floor, self.a.unit, self.b.unit)
        noise = self.noise * min(1.0, _SINGLE / coarse if coarse else 1.0)
        condition = max(self.a.condition, self.b.condition)
        faithful = (1e-12 + 1e4 * 2.0**-53 * min(condition, 1e8)) * _scale(self.a.shadow)
        return float(np.max(_ratio(self.gap, np.maximum(noise, faithful / SEEN)), initial=0.0))

    @property
    def _finite_otherwise(self) -> bool:
        """Is an element finite on one side alone, and meant to be?"""
        real, meant = (np.isfinite(x) != np.isfinite(_align(y, x)) for x, y in ((self.a.real, self.b.real), (self.a.shadow, self.b.shadow)))
        return bool(np.any(real & _align(meant, real)))

    @property
    def roughness(self) -> tuple[float, float]:
        """The largest own error of each side, in its own units of noise."""
        return float(np.max(self.a.rough, initial=0.0)), float(np.max(self.b.rough, initial=0.0))

    def apart(self, side: Part) -> float:
        """The largest real difference, in units of one side's noise."""
        return float(np.max(_ratio(_align(self.b.real, self.a.real) - self.a.real, side.noise), initial=0.0))


def split(name: str, a: Part | None, b: Part | None) -> Split | None:
    """Both sides of an output; None where they cannot be compared element by element."""
    if a is None or b is None or a.real.size != b.real.size or _squeezed(a.real) != _squeezed(b.real):
        return None
    return Split(name, a, b)


def close(a: Any, b: Any, noise: Any) -> bool:
    """Do two sets of elements agree up to rounding: within `COARSE` units of noise, non-finite elements alike?"""
    b = _align(b, a)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return bool(np.all(same | (np.abs(a - b) <= COARSE * np.maximum(noise, _SLACK * _SINGLE * _rms(a)))))


def agrees(a: Any, b: Any, *, tolerance: float = _FAITHFUL, noise: Any = None) -> bool:
    """Do two shadows agree: to `tolerance` of the scale, or within what is not told from rounding?"""
    if a is None or b is None or a.size != b.size:
        return False
    b = _align(b, a)
    if bool in (a.dtype, b.dtype):  # NumPy does not subtract truth values
        a, b = a.astype(np.float64), b.astype(np.float64)
    bound = tolerance * _scale(a) if noise is None else np.maximum(tolerance * _scale(a), SEEN * noise)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        return bool(np.all(same | (np.abs(a - b) <= bound)))


def _squeezed(array: Any) -> tuple[int, ...]:
    return tuple(size for size in array.shape if size != 1)


def _align(array: Any, like: Any) -> Any:
    return array if array.shape == like.shape else array.reshape(like.shape)


def _finite(array: Any) -> Any:
    return np.where(np.isfinite(array), array, 0.0)


def _ratio(difference: Any, noise: Any) -> Any:
    """|difference| / noise per element; 0 where both are 0 or anything is not finite."""
    with np.errstate(all="ignore"):
        found = np.abs(difference) / np.where(noise > 0, noise, 1e-300)
    return np.where((difference == 0) | ~np.isfinite(difference) | ~np.isfinite(noise), 0.0, np.minimum(found, 1e300)).astype(np.float64)


def _rms(array: Any) -> float:
    values = np.abs(_finite(array)).astype(np.float64)
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _scale(array: Any) -> float:
    return float(np.max(np.abs(_finite(array)), initial=0.0))
