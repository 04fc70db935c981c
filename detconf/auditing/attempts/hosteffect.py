"""Host scalars seen inside: a value that both sides mean alike, all of whose elements are off by one and the same scalar.

A scalar that is wrong by a few hundred units in the last place may hardly show in the results: an optimizer adds its
small update to large parameters. The moments in between show it on every element. So values of the two runs are paired
by their float64 shadows, and the pairs counted whose real elements are apart; the rerun in float32 must bring them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from detconf.arrays import Array
from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import numbers
from detconf.auditing.question import Question, Results
from detconf.auditing.result import Evidence
from detconf.shadows.formats import unit
from detconf.shadows.pool import Pool
from detconf.shadows.regions import ancestors, plain
from detconf.shadows.study import Operation, Value

_APART, _TOGETHER = 16.0, 2.0
"""Units of roundoff by which most elements of a pair differ before, and at most after."""
_MEANT, _ALIKE = 1e-7, 1e-4
"""To which float64 shadows of one meaning agree; and recorded values, which carry the scalar."""
_ELEMENTS = 8
"""Values with fewer show nothing."""
_BETTER, _SEEN = 4.0, 8.0
"""Times that the largest difference of the results must shrink, in units in the last place; and how large it must be."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What was seen inside.

    Attributes:
        operation: of the rerun side, the first whose result is off.
        evidence: in words, with figures.
    """

    operation: Operation
    evidence: list[Evidence]


def last_places(a: Results, b: Results, names: Iterable[str]) -> float | None:
    """The largest difference of some results, in units in the last place of their element; None where it has no meaning."""
    worst = 0.0
    for name in names:
        x, y = numbers(a[name]) if name in a else None, numbers(b[name])
        if x is None or x.shape != y.shape or not np.isrealobj(x):
            return None
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(y).astype(np.float64), np.finfo(np.float32).tiny)
            worst = max(worst, float(np.max(np.abs(x - y) / (2 * _unit(a[name], b[name]) * 2.0 ** np.floor(np.log2(size))), initial=0.0)))
    return worst if np.isfinite(worst) else None


def _unit(a: Array, b: Array) -> float:
    return max(unit(a.dtype), unit(b.dtype))


def shrinks(before: float | None, after: float | None) -> bool:
    """Are the results that much closer?"""
    return before is not None and after is not None and before >= _SEEN and after * _BETTER <= before


def effect(question: Question, *, reference: bool, inside: AbstractContextManager[Any]) -> Effect | None:
    """What the rerun does to values in between; None where it brings no systematic difference to nothing.

    Args:
        reference: that side is rerun, else the candidate.
        inside: under which it is.
    """
    side, against = (question.a, question.b) if reference else (question.b, question.a)
    laboratory = question.laboratory
    own, other = laboratory.study(side, keep_real=True), laboratory.study(against, keep_real=True)
    with inside:
        rerun = laboratory.study(side, keep_real=True)
    if own is None or other is None or rerun is None or len(own.study.values) != len(rerun.study.values):
        return None
    return brought_together(own, rerun, other)


def brought_together(own: Observation, rerun: Observation, other: Observation, *, recorded: bool = False) -> Effect | None:
    """What became of values that are apart by one scalar; None unless most of them come together.

    Args:
        own, rerun: a side as it is, and with its scalars in float32.
        other: the other side.
        recorded: there are no shadows: values that a scalar sets apart are found by themselves, and so are some that mean
            something else. Those that the rerun moves by about what they are apart count.
    """
    found = [each for each in _pairs(own, other, _ALIKE if recorded else _MEANT) if each[2] > _APART]
    if recorded:
        found = [each for each in found if 2 * (_apart(rerun.study.values[each[0].index], each[0]) or 0.0) >= each[2]]
    closer = [(x, y, gap) for x, y, gap in found if (left := _apart(rerun.study.values[x.index], y)) is not None and left <= _TOGETHER]
    if not closer or 2 * len(closer) < len(found):
        return None
    return _effect(own, rerun, other, closer)


def _effect(own: Observation, rerun: Observation, other: Observation, closer: list[tuple[Value, Value, float]]) -> Effect:
    x, y, gap = closer[0]
    operation, again = own.study.operations[x.maker], rerun.study.operations[x.maker]
    equal = float(np.mean(rerun.study.values[x.index].real == y.real))
    place = f"{operation.name} at {operation.source}, step {operation.step}"
    against = other.study.operations[y.maker].name
    words = f"{place}: half of the elements and more are off those of {against} by this, relative, though the formula is the same"
    evidence = [Evidence(words, f"{gap * unit(x.dtype):.3g}")]
    for key, value in operation.options.items():
        single = again.options.get(key)
        if isinstance(value, float) and isinstance(single, float) and value and single != value:
            words = f"its scalar is {float(value)!r} where it is formed in float64, and {float(single)!r} in float32; apart, relative"
            evidence.append(Evidence(words, f"{abs(single - value) / abs(value):.3g}"))
    words = (
        f"formed in float32, {len(closer)} such values come to within {_TOGETHER:g} units of roundoff; of the first, this share is equal"
    )
    evidence.append(Evidence(words, equal))
    return Effect(operation, evidence)


def _pairs(own: Observation, other: Observation, tolerance: float) -> list[tuple[Value, Value, float]]:
    """Computed values of both sides with the same meaning, in order, with their distance in units of roundoff."""
    candidates = _computed(other)
    pool = Pool(((value, value.shadow) for value in candidates), tolerance)
    found = []
    for value in _computed(own):
        alike = (each for each in pool.find(value.shadow) if np.allclose(value.shadow, each.shadow, rtol=10 * tolerance, atol=0))
        gaps = [(gap, each) for each in alike if (gap := _apart(value, each)) is not None]
        if gaps:
            gap, nearest = min(gaps, key=itemgetter(0))
            found.append((value, nearest, gap))
    return found


def _computed(observation: Observation) -> list[Value]:
    """Floats that the results were computed through, or that were written along with those: an optimizer's moments."""
    _, operations = ancestors(observation.study, [each.value for each in observation.known.values()])
    return [
        value
        for value in observation.study.values
        if value.maker in operations
        and not value.lost
        and value.dtype == "float32"
        and value.real is not None
        and value.shadow is not None
        and value.shadow.size >= _ELEMENTS
        and not plain(value.shadow)
    ]


def _apart(a: Value, b: Value) -> float | None:
    """The median distance of real elements, in units of roundoff of the first's dtype."""
    if a.real is None or b.real is None or a.real.shape != b.real.shape or a.dtype != b.dtype:
        return None
    x, y = a.real.astype(np.float64), b.real.astype(np.float64)
    size = np.abs(y)
    with np.errstate(all="ignore"):
        gaps = np.abs(x - y)[size > 0] / (unit(a.dtype) * size[size > 0])
    return float(np.median(gaps)) if gaps.size and np.all(np.isfinite(gaps)) else None
