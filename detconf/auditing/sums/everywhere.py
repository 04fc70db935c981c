"""A whole program again, with its products added up in less than single precision: does it give a side that is there as arrays?

Which intermediate results it had nobody knows, so that only the end of it is held against the side. In the wrong order, or
format, sums err by as much, but otherwise; where one way leaves far less than the error in many elements, it is the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detconf.auditing.laboratory import Side
from detconf.auditing.meaning import COARSE, SEEN, Part
from detconf.auditing.question import Finding, Question
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.auditing.sums.accumulating import WIDE, Way, added
from detconf.auditing.sums.summing import FORMATS, rms
from detconf.auditing.sums.terms import recipe
from detconf.frameworks.base import PRODUCTS
from detconf.shadows.formats import ROUNDINGS, round_to
from detconf.shadows.study import Operation
from detconf.values import Cause

_LENGTHS = {"float16": (4, 8, 16, 32), "bfloat16": ()}
"""Of blocks that matrix units add up at once, by the format of their sums; those of bfloat16 keep float32."""
_ALL = 1 << 30
_MOST, _SINGLE = 1 << 22, 4
"""Terms in all products of a program, up to which it is run so; and products, up to which each is tried alone."""
_CHUNK = 1 << 22
"""Terms at once."""
_BETTER, _RARE, _DISTINCT = 8.0, 1e-6, 4
"""So many times less must be left; the chance that elements come that near by accident, over all ways; elements for that."""
_ALIKE = 30.0
"""Errors of two ways in one format are hardly further apart."""


@dataclass(slots=True)
class Adding:
    """What `Study.adding` asks for: products added up in one way.

    Attributes:
        way: the way; None only counts.
        only: number of the operation that is added up so; -1 for all.
        terms: of products, by number of the operation.
        names: of these operations.
    """

    way: Way | None = None
    only: int = -1
    terms: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def __call__(self, operation: Operation, shadow: Any) -> Any:
        """The result of an operation, of factors that are rounded to their dtypes first."""
        if operation.adds != PRODUCTS or self.only not in {-1, operation.index}:
            return shadow
        found = recipe(operation, shadow)
        if found is None:
            return shadow
        arrays = [_rounded(each.shadow, each.value.dtype) for each in operation.reads]
        length, size = found.of(arrays).length, int(np.size(shadow))
        self.terms[operation.index], self.names[operation.index] = length * size, operation.name
        if self.way is None:
            return shadow
        parts = np.array_split(np.arange(size), -(-length * size // _CHUNK))
        made = np.concatenate([added(found.at(arrays, each), self.way) for each in parts])
        return made.reshape(np.shape(shadow)).astype(shadow.dtype)


def _rounded(shadow: Any, dtype: str) -> Any:
    return round_to(np.asarray(shadow, np.float64), dtype) if dtype in ROUNDINGS else np.asarray(shadow, np.float64)


def _ways(form: str) -> Iterator[Way]:
    """One after the other first."""
    for inputs in ("", form):
        yield Way(form, inputs=inputs)
        yield from (Way(form, length=length, inner=WIDE, inputs=inputs) for length in (_ALL, *_LENGTHS[form]))


def added_in_less(question: Question) -> Finding | None:
    """A side adds up its products in less than single precision, somewhere inside."""
    parts = question.complete
    if len(parts) != len(question.differing) or any(each.units > SEEN for each in parts):
        return None
    for each in parts:
        for who, own, other in (("candidate", each.b, question.a), ("reference", each.a, question.b)):
            if float(np.max(own.rough, initial=0.0)) > COARSE:
                told = everywhere(question, each.name, own, other, who)
                if told:
                    fix = Fix("add up in float32 on both sides")
                    return Finding(Cause.DTYPE, told[0], told[1], [Evidence(told[1].what)], [fix], each.name)
    return None


def everywhere(question: Question, name: str, own: Part, other: Side, who: str) -> tuple[str, Proof] | None:
    """(what a side does in its products, the proof), where the other side's program, with them added up so, gives it."""
    if other.function is None or not np.isrealobj(own.real) or len(np.unique(own.real)) < _DISTINCT:
        return None
    counting = Adding()
    if question.laboratory.study(other, adding=counting) is None or not 0 < sum(counting.terms.values()) <= _MOST:
        return None
    alone = list(counting.terms) if 1 < len(counting.terms) <= _SINGLE else []
    found = (_shown(question, name, own, other, only) for only in (-1, *alone))
    for only, shown in zip((-1, *alone), found, strict=True):
        if shown:
            way, what = shown
            where = "its products" if only < 0 else f"one of its products, the other side's {counting.names[only]}"
            rounded = f", of factors rounded to {way.inputs}," if way.inputs else ""
            does = (
                f"rounds the sums of {where}{rounded} to {way.form}"
                if way.length == _ALL
                else f"accumulates {where}{rounded} in {way.form}"
            )
            return f"the {who} {does}", Proof("re-created", what)
    return None


def _shown(question: Question, name: str, own: Part, other: Side, only: int) -> tuple[Way, str] | None:
    """The way that leaves far less of the error than another format does, in words."""
    error = rms(own.real - own.shadow)
    tried: list[tuple[float, Way]] = []
    for form in FORMATS:
        for way in _ways(form):
            left, effect = _left(question, name, own, other, Adding(way, only))
            tried.append((left, way))
            if not way.inner and not way.inputs and not effect / _ALIKE <= error <= effect * _ALIKE:
                break
    left, way = min(tried, key=lambda each: each[0])
    least = min([error, *(each for each, some in tried if some.form != way.form)])
    distinct = len(np.unique(own.real))
    if not left * _BETTER <= least or len(tried) * _SINGLE * (left / least) ** distinct > _RARE:
        return None
    rounded = f" of factors rounded to {way.inputs}" if way.inputs else ""
    how = way.words(_ALL) if way.inner else f"{way.words(_ALL)} in {way.form}"
    what = f"the other side's program, with its sums{rounded} added up {how}, leaves {left / error:.2g} of the error"
    return way, f"{what}; the next best format leaves {least / error:.2g}"


def _left(question: Question, name: str, own: Part, other: Side, adding: Adding) -> tuple[float, float]:
    """(what a way does not explain, what it does), root mean square."""
    observation = question.laboratory.study(other, adding=adding)
    known = observation.known.get(name) if observation else None
    if known is None or known.shadow.size != own.real.size:
        return float("inf"), 0.0
    shadow = known.shadow.reshape(own.real.shape)
    return rms(own.real - shadow), rms(shadow - own.shadow)
