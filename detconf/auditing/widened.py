"""A first pass: both sides run whole in float64, without any bookkeeping. Do they agree there?

It costs a few plain runs, where a study costs dozens. But it is no verdict: a difference in dtype or precision vanishes in
float64 as rounding does, a choice that is made of floats may fall otherwise, and a graph is captured anew. So agreement says
that the formula is one, and only where nothing was drawn, chosen or captured; then what looks for another formula is not tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.auditing.laboratory import Laboratory, Side
from detconf.auditing.meaning import SEEN, numbers
from detconf.auditing.question import Question, Results
from detconf.auditing.result import Evidence
from detconf.frameworks import frameworks
from detconf.frameworks.base import Widened
from detconf.lookup import is_imported, resolve

_FALLS = 1e-4
"""To which share the difference must fall. Rounding falls to 2**-29 of what it is in float32, whatever amplifies it."""
_NARROW = ("float32", "float16", "bfloat16", "complex64")
_WIDE = ("float64", "complex128")


@dataclass(frozen=True, slots=True)
class FirstPass:
    """What the first pass showed.

    Attributes:
        share: the largest difference of a result in float64, as a share of the difference in the program's own dtypes.
        scaled: the same, relative to the largest element of the result.
        doubts: why agreement does not show that the formula is one; empty where it does.
    """

    share: float
    scaled: float
    doubts: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Do the sides agree in float64?"""
        return self.share <= _FALLS

    def settles(self, question: Question) -> bool:
        """Is the formula one, so far as can be told, with nothing in the shadows against it?"""
        return self.agrees and not self.doubts and not self.contradicted(question)

    def contradicted(self, question: Question) -> bool:
        """Do shadows say that the sides mean different things? A branch on a dtype goes another way in float64."""
        return any(each.units > SEEN for each in question.complete)

    def evidence(self) -> Evidence:
        """In words."""
        but = f" (which by itself shows little: {'; '.join(self.doubts)})" if self.doubts else ""
        return Evidence(f"run whole in float64, both sides agree to this, relative to the results{but}", self.scaled)


def first_pass(question: Question) -> FirstPass | None:
    """Do both sides agree when they run whole in float64?"""
    captured = question.captured[0].names | question.captured[1].names
    if captured or not question.differing or not all(_narrow(question, name) for name in question.differing):
        return None
    if any(side.function is None or hasattr(side.function, "elsewhere") for side in (question.a, question.b)):
        return None
    a, b = (widened(question.laboratory, side) for side in (question.a, question.b))
    if a is None or b is None:
        return None
    distances = [_distance(question, name, a[0], b[0]) for name in question.differing]
    if any(each is None for each in distances):
        return None
    share, scaled = (max(each[place] for each in distances if each) for place in (0, 1))
    return FirstPass(share, scaled, tuple(dict.fromkeys(doubt for seen in (a[1], b[1]) for doubt in _doubts(seen))))


def _narrow(question: Question, name: str) -> bool:
    return question.real_a[name].dtype in _NARROW and question.real_b[name].dtype in _NARROW


def widened(laboratory: Laboratory, side: Side) -> tuple[Results, Widened] | None:
    """(what a side gives when it runs whole in float64, what was seen on the way); None where it does not run so."""
    seen = Widened()
    try:
        return laboratory.plain(side, inside=_everywhere(seen, side.function)), seen
    except Exception:  # noqa: BLE001  # a program need not run in another dtype: then there is no first pass
        return None


@contextmanager
def _everywhere(seen: Widened, *roots: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for framework in frameworks():
            if framework.widening and is_imported(framework.module):
                stack.enter_context(resolve(framework.widening)(seen, roots))
        yield


def _doubts(seen: Widened) -> Iterator[str]:
    if seen.draws:
        yield "random numbers are drawn"
    if seen.decides:
        yield "discrete choices or Python numbers are made of floats"
    if seen.lost:
        yield seen.lost


def _distance(question: Question, name: str, a: Results, b: Results) -> tuple[float, float] | None:
    """(share, scaled) of one result; None where it was not widened."""
    if name not in a or name not in b or a[name].dtype not in _WIDE or b[name].dtype not in _WIDE:
        return None
    x, y, real_x, real_y = (numbers(each) for each in (a[name], b[name], question.real_a[name], question.real_b[name]))
    if not x.size == y.size == real_x.size == real_y.size:
        return None
    with np.errstate(all="ignore"):
        gap = float(np.max(np.abs(x.reshape(-1) - y.reshape(-1)), initial=0.0))
        before = float(np.max(np.abs(real_x.reshape(-1) - real_y.reshape(-1)), initial=0.0))
        scale = float(np.max(np.abs(x), initial=0.0)) or 1.0
    return (gap / before, gap / scale) if np.isfinite(gap) and np.isfinite(before) and before else None
