"""Is the difference made by scalars that one side forms in Python's float64, where the other computes in float32?"""

from __future__ import annotations

import json
import linecache
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from detconf.auditing.attempts.hosteffect import Effect, effect, last_places, shrinks
from detconf.auditing.attempts.hostfloats import VARIANTS, rounding, transformed
from detconf.auditing.elsewhere.conditions import HOST_FLOATS, Condition, under
from detconf.auditing.laboratory import Observation, Side
from detconf.auditing.meaning import SEEN, numbers
from detconf.auditing.question import Finding, Question, Results
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.errors import TargetError
from detconf.shadows.study import Operation
from detconf.values import Cause

_BETTER, _SMALLER = 4.0, 2.0
"""Times that the difference must shrink: its root mean square, and its largest, which is one unit in the last place at least."""
_FEW = 8
"""Elements below which only equal bits count."""
_NO_WORSE = 1.5
_NARROWING = 60
"""Runs spent on finding the lines."""
_Piece = TypeVar("_Piece")


@dataclass(slots=True)
class Experiment:
    """One side run with its floats in float32, against the other as it is.

    Attributes:
        side: the one that is rerun.
        own, other: what they gave.
        file: whose lines are rounded.
        variant: of `hostfloats`.
        effect: what was seen inside, where the results by themselves show too little.
    """

    question: Question
    side: Side
    own: Results
    other: Results
    file: str
    variant: str
    best: dict[str, Any] = field(default_factory=dict)
    effect: Effect | None = None

    def explains(self, lines: Sequence[int] | None = None) -> dict[str, Any] | None:
        """Figures of the rerun, where it matches the other side that much better."""
        try:
            found = self.question.laboratory.plain(self.side, inside=self._inside(lines))
        except TargetError:
            return None
        seen = figures(self.own, found, self.other, self.question.differing, places=self.effect is not None)
        return seen if seen is None or self._within(found) else None

    def shows(self) -> bool:
        """Are single elements of the results much closer in the rerun, and values in between that were off by one scalar equal?"""
        try:
            found = self.question.laboratory.plain(self.side, inside=self._inside(None))
        except TargetError:
            return False
        if figures(self.own, found, self.other, self.question.differing, places=True):
            self.effect = effect(self.question, reference=self.side is self.question.a, inside=self._inside(None))
        return self.effect is not None

    def _within(self, found: Results) -> bool:
        """Within rounding noise, where that is known."""
        for name, each in self.question.splits.items():
            x, y = numbers(found[name]) if name in found else None, numbers(self.other[name])
            if each.complete and x is not None and y is not None and x.size == y.size:
                noise = np.asarray(each.noise).reshape(-1)
                if np.any(np.abs(x.reshape(-1) - y.reshape(-1)) > SEEN * np.where(noise > 0, noise, np.inf)):
                    return False
        return True

    def _inside(self, lines: Sequence[int] | None) -> AbstractContextManager[Any]:
        if hasattr(self.side.function, "elsewhere"):
            return under(Condition(HOST_FLOATS, json.dumps([self.file, self.variant, None if lines is None else list(lines)])))
        return rounding(self.file, self.variant, lines)


def narrowed(pieces: list[_Piece], whole: float, explains: Callable[[list[_Piece]], dict[str, Any] | None]) -> list[_Piece]:
    """As few of the pieces as explain the difference: they are left out as long as it stays explained.

    Args:
        pieces: such as the numbers of lines.
        whole: the difference that is left with all of them; with fewer it may be half as large again.
        explains: the figures of a rerun with some.
    """
    size, runs = max(1, len(pieces) // 2), 0
    while runs < _NARROWING:
        for start in range(0, len(pieces), size):
            rest = pieces[:start] + pieces[start + size :]
            runs += bool(rest)
            found = explains(rest) if rest and runs <= _NARROWING else None
            if found and found["after"] <= _NO_WORSE * whole:
                pieces = rest
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return pieces


def figures(own: Results, found: Results, other: Results, names: Sequence[str], *, places: bool) -> dict[str, Any] | None:
    """Before, after, and the share of equal elements, where a rerun matches the other side that much better.

    Args:
        own, found: a side's results, and those of its rerun.
        other: the other side's.
        names: of the results that differ.
        places: count the largest difference in units in the last place.
    """
    before, after = _distances(own, other, names), _distances(found, other, names)
    if before is None or after is None:
        return None
    if places:
        units = last_places(own, other, names), last_places(found, other, names)
        return {"before": units[0], "after": units[1], "share": after[2]} if shrinks(*units) else None
    return {"before": before[0], "after": after[0], "share": after[2]} if _shrinks(before, after) else None


def _shrinks(before: tuple[float, float, float, int], after: tuple[float, float, float, int]) -> bool:
    if before[3] < _FEW and after[2] < 1:
        return False
    return before[0] > 0 and after[0] * _SMALLER <= before[0] and after[1] * _BETTER <= before[1]


def hosted(question: Question) -> Finding | None:
    """Rerun one side with Python's floats in float32: does it then match the other?"""
    if not question.differing or not all(_floats(question, name) for name in question.differing):
        return None
    for experiment in _experiments(question):
        seen = experiment.explains()
        if seen is None and experiment.shows():
            seen = experiment.explains()
        if seen is None:
            continue
        lines = narrowed(sorted(transformed(experiment.file)[1]), seen["after"], experiment.explains)
        return _finding(question, experiment, lines, experiment.explains(lines) or seen)
    return None


def _experiments(question: Question) -> Iterator[Experiment]:
    for side, own, other in ((question.a, question.real_a, question.real_b), (question.b, question.real_b, question.real_a)):
        file = _file(side)
        if file and transformed(file)[1]:
            yield from (Experiment(question, side, own, other, file, variant) for variant in VARIANTS)


def _file(side: Side) -> str:
    """The file that a side is written in; empty where there is none to be read."""
    function: Any = side.function
    found = getattr(function, "elsewhere", "") or getattr(function, "file", "")
    found = found or getattr(getattr(function, "__code__", None), "co_filename", "")
    return found if os.path.isfile(found) else ""


def _floats(question: Question, name: str) -> bool:
    return question.real_a[name].dtype in ("float32", "float64") and question.real_b[name].dtype in ("float32", "float64")


def _distances(a: Results, b: Results, names: Sequence[str]) -> tuple[float, float, float, int] | None:
    """(largest difference, root mean square, share of equal elements, elements) of some results, each by its own scale."""
    gaps: list[Any] = []
    for name in names:
        x, y = numbers(a[name]) if name in a else None, numbers(b[name]) if name in b else None
        if x is None or y is None or x.size != y.size:
            return None
        coarse = np.float32 if "float32" in (a[name].dtype, b[name].dtype) else np.float64
        x, y = x.reshape(-1).astype(coarse).astype(np.float64), y.reshape(-1).astype(coarse).astype(np.float64)
        scale = float(np.max(np.abs(y), initial=0.0)) or 1.0
        with np.errstate(all="ignore"):
            gaps.append(np.abs(x - y) / scale)
    whole = np.concatenate(gaps)
    if not whole.size or not np.all(np.isfinite(whole)):
        return None
    return float(whole.max()), float(np.sqrt(np.mean(whole**2))), float(np.mean(whole == 0)), int(whole.size)


def _finding(question: Question, experiment: Experiment, lines: list[int], seen: dict[str, Any]) -> Finding:
    reference = experiment.side is question.a
    who, other = ("reference", "candidate") if reference else ("candidate", "reference")
    places = [f"{os.path.basename(experiment.file)}:{line}" for line in lines]
    shown = [f"{place}: {linecache.getline(experiment.file, line).strip()}" for place, line in zip(places, lines, strict=True)]
    unit = "in units in the last place" if experiment.effect else "relative to the results"
    falls = f"the largest difference, {unit}, falls from {seen['before']:.3g} to {seen['after']:.3g}"
    how = "powers as repeated products" if experiment.variant == "products" else "powers rounded once"
    what = f"rerun with the scalars of {', '.join(places)} rounded to float32 at each step ({how}), the {who} gives the {other}'s results: {falls}"
    evidence = [Evidence(f"scalars that Python forms in float64: {each}") for each in shown[:8]]
    evidence += experiment.effect.evidence if experiment.effect else []
    evidence.append(Evidence(falls, seen["after"]))
    fix = Fix(f"form the scalars of {', '.join(places)} in float32 in the {who}, as the {other} does", verified=True)
    summary = f"the {who} forms scalars in Python's float64 ({', '.join(places[:3])}) where the {other} computes them in float32"
    observation = question.exact_a if reference else question.exact_b
    operation = experiment.effect.operation if experiment.effect else _operation(observation, places)
    return Finding(Cause.DTYPE, summary, Proof("re-created", what, seen["share"]), evidence, [fix], operation=operation)


def _operation(observation: Observation | None, places: list[str]) -> Operation | None:
    found = observation.study.operations if observation else []
    return next((each for place in reversed(places) for each in found if each.source == place), None)
