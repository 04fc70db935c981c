"""The tolerance that a correct program keeps, from what rounding noise does to both sides."""

from __future__ import annotations

import numpy as np

from detconf.auditing.meaning import Split
from detconf.auditing.question import Question
from detconf.auditing.result import Tolerance

_MARGIN = 8.0
"""Noise is a standard deviation or so, of three samples; benign sides are seldom further apart than this many."""


def tolerances(question: Question) -> tuple[Tolerance, ...]:
    """Per differing array of which both sides could be followed."""
    return tuple(tolerance(each) for each in question.complete) if "splits" in question.__dict__ else ()


def tolerance(each: Split) -> Tolerance:
    """rtol from the elements of the array's own size, atol for those that are small by cancellation."""
    size = np.abs(each.a.shadow).astype(np.float64)
    noise = _MARGIN * np.asarray(each.a.noise + each.b.noise.reshape(each.a.noise.shape), dtype=np.float64)
    finite = np.isfinite(size) & np.isfinite(noise)
    size, noise = size[finite], noise[finite]
    if not size.size:
        return Tolerance(each.name, 0.0, 0.0)
    large = size >= np.sqrt(np.mean(size**2))
    rtol = float(np.max(noise[large] / size[large], initial=0.0)) if np.any(size > 0) else 0.0
    atol = float(np.max(noise - rtol * size, initial=0.0))
    gap = np.abs(each.b.real.reshape(each.a.real.shape) - each.a.real)[finite].astype(np.float64)
    bound = atol + rtol * np.abs(each.a.real)[finite].astype(np.float64)
    measured = float(np.max(gap / np.where(bound > 0, bound, 1e-300), initial=0.0)) if gap.size else 0.0
    return Tolerance(each.name, rtol, atol, measured)
