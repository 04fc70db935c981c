"""Two rungs against the same program in float64: is one as far from it as the other?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from detconf.arrays import Array
from detconf.auditing.meaning import numbers
from detconf.auditing.result import Tolerance
from detconf.shadows.formats import unit

if TYPE_CHECKING:
    from detconf.auditing.modes.climbing import Climb, Row

_LIKE = 32.0
"""Benign roundings of two orders of operations may be so many times apart, worst element against worst element."""
_FAR = 1e-2
"""Relative: a first rung that is farther from float64 draws other random numbers there, or takes another branch."""
_AMPLIFIED = 1e4
"""Roundings of a typical element from which a result is called ill-conditioned."""


@dataclass(slots=True)
class Doubled:
    """What the comparison gave.

    Attributes:
        alike: both are as far from float64 as rounding of their dtype.
        ratio: the worst error of the rung / that of the first rung.
        words: for people.
        amplified: both are far from float64: the program amplifies rounding.
        tolerance: what a correct program keeps.
    """

    alike: bool
    ratio: float
    words: str
    amplified: bool = False
    tolerance: list[Tolerance] = field(default_factory=list)


def against_double(climbed: Climb, row: Row) -> Doubled | None:
    """Compare a rung and the first one with the first one in float64; None where that says nothing."""
    wide = climbed.run(climbed.base, {"double": True})
    names = [each.name for each in row.differences if _comparable(each.name, climbed.reference, row.arrays, wide.arrays)]
    if not wide.outcome.ran or not names:
        return None
    found = {name: _errors(climbed.reference[name], row.arrays[name], wide.arrays[name]) for name in names}
    if any(not np.isfinite(sum(each[:2])) for each in found.values()):
        return None
    relative = {name: first / scale if scale else 0.0 for name, (first, _, scale, _) in found.items()}
    outputs = [name for name in names if "grad." not in name and "buffer." not in name]
    condition = max((relative[name] / unit(climbed.reference[name].dtype) for name in outputs), default=0.0)
    alike = all(_alike(*each) for each in found.values())
    ratio = max((other / max(first, floor)) for first, other, _, floor in found.values())
    if max((relative[name] for name in outputs), default=0.0) > _FAR and not (alike and condition >= _AMPLIFIED and not _draws(climbed)):
        return None
    name = max(found, key=lambda each: found[each][1] / max(found[each][0], found[each][3]))
    words = f"against the program in float64, {row.name} is at most {ratio:.2g} times as far off as {climbed.base} ({name})"
    return Doubled(
        alike,
        ratio,
        words,
        condition >= _AMPLIFIED,
        [_bound(name, climbed.reference[name], row.arrays[name], found[name]) for name in names],
    )


def _draws(climbed: Climb) -> bool:
    return any(survey.random for survey in climbed.surveys)


def _comparable(name: str, *sides: Mapping[str, Array]) -> bool:
    arrays = [side.get(name) for side in sides]
    return all(each is not None and unit(each.dtype) for each in arrays) and len({each.shape for each in arrays if each is not None}) == 1


def _errors(first: Array, other: Array, wide: Array) -> tuple[float, float, float, float]:
    """(worst error of each side, root mean square of the exact values, the error that one rounding makes)."""
    exact = numbers(wide)
    with np.errstate(all="ignore"):
        errors = [float(np.max(np.abs(numbers(side) - exact), initial=0.0)) for side in (first, other)]
        scale = float(np.sqrt(np.mean(np.square(np.abs(exact).astype(np.float64))))) if exact.size else 0.0
    return errors[0], errors[1], scale, 2 * unit(first.dtype) * scale


def _alike(first: float, other: float, _scale: float, floor: float) -> bool:
    return other <= _LIKE * max(first, floor)


def _bound(name: str, first: Array, other: Array, errors: tuple[float, float, float, float]) -> Tolerance:
    """What both sides keep, with room for another order of operations."""
    rtol, atol = 4 * unit(first.dtype), 4 * (max(errors[0], errors[3]) + max(errors[1], errors[3]))
    ours: Any = numbers(first)
    bound = np.maximum(atol + rtol * np.abs(ours), 1e-300)
    return Tolerance(name, rtol, atol, float(np.max(np.abs(numbers(other) - ours) / bound, initial=0.0)))
