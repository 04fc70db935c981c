"""Are a program's discrete choices so near that rounding makes them? Shown by results that are off by roundings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from typing import Any

import numpy as np

from detconf.auditing.laboratory import Side
from detconf.auditing.meaning import numbers
from detconf.auditing.question import Finding, Question, everywhere, experiments
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.errors import TargetError
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Operation
from detconf.values import Cause

_UNITS = (1.0, 4.0, 16.0)
"""By how many roundings results are off, in turn. No two kernels of one function are as far apart as the last."""
_RUNS, _ENOUGH, _SECONDS = 90, 12, 20.0
"""Runs at most; after how many of them half of the elements must have been met; for how long."""
_SINGLE = 2.0**-24


def tipped(question: Question) -> Finding | None:
    """Of a program that means the same on both sides: do its choices fall as on the other side when its results are a little off?

    Every element must lie where the disturbed runs go: between what they give, or at it.
    """
    operation = _choice(question)
    side = question.a if not question.captured[0].names else question.b
    if operation is None or not all(hasattr(each, "disturbed") for each in experiments()):
        return None
    clouds = {name: [numbers(array[name]) for array in (question.real_a, question.real_b)] for name in question.differing}
    if any(x is None or y is None or x.shape != y.shape for x, y in clouds.values()):
        return None
    reached = {name: _Reach(*pair) for name, pair in clouds.items()}
    for runs, given in enumerate(_disturbed(question, side), 1):
        if given.keys() < reached.keys() or not all(each.add(numbers(given[name])) for name, each in reached.items()):
            return None
        left = sum(each.left() for each in reached.values())
        if not left:
            return _finding(reached, operation, runs)
        if runs == _ENOUGH and 2 * left > sum(each.differing for each in reached.values()):
            break
    question.tried.append(
        f"{operation.name} chooses: with results off by up to {_UNITS[-1]:.0f} roundings it does not choose as the other side does"
    )
    return None


def _choice(question: Question) -> Operation | None:
    """The first operation towards a differing result that chooses by floats of single precision or better."""
    for observation in (question.exact_a, question.exact_b):
        if observation is None or any(max(each.a.floor, each.b.floor) > _SINGLE for each in question.complete):
            return None
        _, found = ancestors(observation.study, [observation.known[name].value for name in question.differing if name in observation.known])
        chosen = next((observation.study.operations[index] for index in sorted(found) if observation.study.operations[index].decided), None)
        if chosen is not None:
            return chosen
    return None


class _Reach:
    """Where an array's elements go in disturbed runs, and whether that is where both sides have them."""

    def __init__(self, x: Any, y: Any) -> None:
        self._x, self._y = x, y
        self._low, self._high, self.differing = x, x, int(np.count_nonzero(x != y))
        self._whole = all(np.array_equal(each, np.rint(each)) for each in (x, y))
        self._met = x == y

    def add(self, found: Any) -> bool:
        """One more run. False where it gives something else altogether."""
        if found is None or found.shape != self._x.shape or np.iscomplexobj(found):
            return False
        self._low, self._high = np.minimum(self._low, found), np.maximum(self._high, found)
        self._met |= found == self._y
        return True

    def left(self) -> int:
        """Elements that lie elsewhere. Whole numbers must have been met; others lie within what was met, and half as much to either side."""
        if self._whole:
            return int(np.count_nonzero(~self._met))
        margin = 0.5 * (self._high - self._low)
        return int(np.count_nonzero(~(self._met | ((self._y >= self._low - margin) & (self._y <= self._high + margin)))))


def _disturbed(question: Question, side: Side) -> Iterator[Any]:
    end = time.process_time() + _SECONDS
    for seed, units in enumerate(islice(cycle(_UNITS), _RUNS)):
        if time.process_time() > end:
            return
        try:
            yield question.laboratory.plain(side, inside=_off_by(seed, units))
        except TargetError:
            return


@contextmanager
def _off_by(seed: int, units: float) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(everywhere("without"))
        for module in experiments():
            stack.enter_context(module.disturbed(seed, units))
        yield


def _finding(reached: dict[str, _Reach], operation: Operation, runs: int) -> Finding:
    count = sum(each.differing for each in reached.values())
    words = f"{operation.name} chooses between values that are equal but for rounding"
    what = f"all {count} elements that differ lie where {runs} runs of the program go whose results are off by up to {_UNITS[-1]:.0f} roundings"
    fix = Fix("do not let a choice depend on digits that rounding decides: leave a margin, or choose in a higher precision")
    return Finding(Cause.ILL_CONDITIONED, words, Proof("bounded", what), [Evidence(what, count)], [fix], operation=operation)
