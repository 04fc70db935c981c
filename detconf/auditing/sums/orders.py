"""How both sides of a question added up: in less than single precision, or in which order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

import numpy as np

from detconf.auditing.laboratory import Observation, Side
from detconf.auditing.meaning import COARSE, Split, numbers
from detconf.auditing.question import Question
from detconf.auditing.result import Evidence, Proof
from detconf.auditing.sums.accumulating import Terms
from detconf.auditing.sums.summing import FORMATS, Told, order, reduced, representable, rms
from detconf.auditing.sums.terms import Recipe, last_sum, recipe
from detconf.lookup import first_line
from detconf.shadows.formats import UNIT, unit
from detconf.shadows.study import Operation, Study

_T = TypeVar("_T")
_RESULTS = 4
"""Of so many results terms are looked at."""
_DISTINCT = 4
"""Different elements that all end in thirteen zero bits or more: one chance in 2^52."""
_SINGLE_STEPS = 2.0
"""Roundoffs of a typical element by which two sides differ at most that both round to a format a few times."""
_TELLING = 1e-3
"""A chance that is worth a word."""
NEAR = 1e-2
"""Recorded results are this near to their inputs' product, relative to the sums of absolute products: the worst format is nearer."""


class Sums:
    """The sums of one question. What one side reads is what both are held against: the other may be a loop, or arrays.

    Args:
        question: whose sides mean the same.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self._kept = cache(self._study)
        self.terms = cache(lambda name: self._tried(lambda: self._terms(name)))
        self.told = cache(lambda name, who: self._tried(lambda: self._reduced(name, who)))
        self._found = 0

    def _tried(self, action: Callable[[], _T]) -> _T | None:
        """What only adds to a verdict must not cost it."""
        try:
            return action()
        except Exception as error:  # noqa: BLE001  # a program whose second run is another, or whatever we did not think of
            self.question.tried.append(f"adding up again failed: {type(error).__name__}: {first_line(error)}")
            return None

    def _study(self, who: str) -> Observation | None:
        return self.question.laboratory.study(self._side(who), keep_real=True)

    def _side(self, who: str) -> Side:
        return self.question.a if who == "reference" else self.question.b

    def _terms(self, name: str) -> tuple[Terms, Any, bool] | None:
        """(the terms of sampled elements of a result, their places, they are a loop's), where one side's result is a sum."""
        for who, observation in (("reference", self.question.exact_a), ("candidate", self.question.exact_b)):
            if self._found >= _RESULTS:
                return None
            known = observation.known.get(name) if observation else None
            found = last_sum(observation.study, known) if observation and known else None
            kept = self._kept(who) if found else None
            terms = found.real(kept.study) if found and kept else None
            if found and terms:
                self._found += 1
                return terms, found.places, found.loop
        return None

    def _reduced(self, name: str, who: str) -> Told | None:
        found, values = self.terms(name), self._values(name, who)
        return None if found is None or values is None or np.max(found[1]) >= values.size else reduced(found[0], values[found[1]])

    def reduced(self, name: str, who: str) -> tuple[str, Proof] | None:
        """(what a side does that adds up a result in less than single precision, the proof); None where that is not shown."""
        found, told = self.terms(name), self.told(name, who)
        return _shown(told, found[0], who) if found and told else None

    def alone(self, name: str, who: str) -> tuple[str, Proof] | None:
        """The same, where the other side has more digits, or rounds once to the format to which this one rounds at every step."""
        other = "reference" if who == "candidate" else "candidate"
        found, told, ours, theirs = self.terms(name), self.told(name, who), self._values(name, who), self._values(name, other)
        if found is None or told is None or theirs is None or ours.shape != theirs.shape:
            return None
        if representable(theirs, told.way.form):
            against = self.told(name, other)
            once = against is not None and against.way.inner and against.way.length >= found[0].length
            if told.way.inner or not once or rms(ours - theirs) < _SINGLE_STEPS * unit(told.way.form) * rms(theirs):
                return None
        return _shown(told, found[0], who)

    def inside(self, operation: Operation, who: str) -> tuple[str, Proof] | None:
        """The same of one operation inside a side's run, of that number."""
        return self._tried(lambda: self._inside(operation, who))

    def _inside(self, operation: Operation, who: str) -> tuple[str, Proof] | None:
        kept = self._kept(who)
        if kept is None or len(kept.study.operations) <= operation.index:
            return None
        same = kept.study.operations[operation.index]
        found = recipe(same, same.writes[0].shadow) if same.writes else None
        return _of(same, found, kept.study, who)

    def narrow(self, each: Split, who: str) -> tuple[str, Proof] | None:
        """Whatever was added up: every element is a number of a narrower format, as near as that format's rounding explains.

        An element that is hardly more than noise has few digits in any format: what was added up cancelled. It tells nothing.
        """
        values, part = self._values(each.name, who), each.a if who == "reference" else each.b
        if values is None or part.unit <= 0 or part.noise.size != values.size:
            return None
        form = next((form for form in FORMATS if unit(form) > part.unit and representable(values, form)), "")
        telling = np.abs(values) * unit(form or "float64") > np.asarray(part.noise, np.float64).reshape(-1)
        count = len(np.unique(values[telling]))
        if not form or count < _DISTINCT or float(np.max(part.rough, initial=0.0)) > COARSE * unit(form) / part.unit:
            return None
        digits = round(math.log2(unit(form) / part.unit))
        words = f"every element of the {who}'s result is a number of {form}, though its dtype is a finer one"
        what = f"a finer arithmetic gives such a number once in 2**{digits}, and these are {count}; {form} explains the error"
        return words, Proof("bounded", what, 1.0)

    def _values(self, name: str, who: str) -> Any:
        """A side's result, flat, in float64; None for what has no real numbers."""
        found = numbers((self.question.real_a if who == "reference" else self.question.real_b)[name])
        return None if found is None or not np.isrealobj(found) else found.astype(np.float64).reshape(-1)

    def lines(self, names: list[str]) -> list[Evidence]:
        """In which order each side adds up, where that is shown bit for bit; of the first result of which it is."""
        for name in names:
            terms, places, loop = self.terms(name) or (None, None, False)
            lines = self._tried(lambda: list(self._orders(name, terms, places))) if terms else None  # noqa: B023  # called at once
            if lines and len(lines) > loop:  # in which order a loop adds can be read
                return lines
        return []

    def _orders(self, name: str, terms: Any, places: Any) -> Iterator[Evidence]:
        for who, results in (("reference", self.question.real_a), ("candidate", self.question.real_b)):
            values, form = self._values(name, who), results[name].dtype
            if values is not None and form in UNIT and np.max(places) < values.size:
                told = order(terms, values[places], form)
                if told is not None:
                    yield Evidence(f"{name}: the {who} agrees bit for bit with adding {_way(told, terms)}{_sample(told)}", told.share)


def recorded(operation: Operation, study: Study, who: str) -> tuple[str, Proof] | None:
    """The same of a recorded operation, whose shadows are its real arrays."""
    return _of(operation, recipe(operation, operation.writes[0].shadow, NEAR) if operation.writes else None, study, who)


def _of(operation: Operation, found: Recipe | None, study: Study, who: str) -> tuple[str, Proof] | None:
    terms = found.real(study) if found else None
    if found is None or terms is None or operation.writes[0].real is None:
        return None
    told = reduced(terms, np.asarray(operation.writes[0].real).astype(np.float64).reshape(-1)[found.places])
    return None if told is None else _shown(told, terms, who)


def _shown(told: Told, terms: Terms, who: str) -> tuple[str, Proof]:
    way = told.way
    rounded = f" of factors rounded to {way.inputs}" if way.inputs else ""
    if told.way.inner and told.way.length >= terms.length:
        words = f"the {who} rounds its sums{rounded} to {way.form}"
    else:
        words = f"the {who} accumulates in {way.form}{rounded}: it adds {_way(told, terms)}"
    again = f"adding the same {terms.length} terms again{rounded}, {way.words(terms.length)},"
    if told.share == 1.0:
        return words, Proof("re-created", f"{again} gives every one of {told.elements} elements looked at bit for bit", 1.0)
    what = f"{again} leaves {told.left:.3g} units of accumulation in float32; the next best arithmetic leaves {told.next:.3g}"
    return words, Proof("re-created", what, told.share)


def _way(told: Told, terms: Terms) -> str:
    way, count = told.way, terms.length
    words = way.words(count) if way.inner else f"{way.words(count)} in {way.form}"
    grows = not way.inner and way.order == "blocks" and way.simple(count)
    return f"{words}: {count} terms, error grows with their number" if grows else words


def _sample(told: Told) -> str:
    accident = f"; by accident once in {1 / told.chance:.0f}" if told.chance > _TELLING else ""
    return f" (looked at: {told.elements} elements{accident})" if told.elements > 1 else f" (the one element{accident})"
