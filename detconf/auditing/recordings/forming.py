"""How numbers that a program handed to operations were formed on the host, read off their values; and what float32 would have formed.

A recording holds the numbers, not the lines that formed them. Two ways of forming them lose digits in float32 that float64
keeps, and both show in the digits: the complement of a weight, `1 - 0.999`, which cancels; and the powers of one,
`1 - 0.999**t`, from step to step, alone, under a root, as a divisor, or times a constant, as optimizers correct their bias.
A number of float64 that makes an array of float32 one of float64 would have been rounded. What else was done with a number
is not known, and it stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np

from detconf.auditing.attempts.hostfloats import VARIANTS, product
from detconf.shadows.formats import unit
from detconf.shadows.study import Operation

_BASES = 8
_SHORT, _LONG = 8, 15
"""Characters of a decimal that a person writes, at most; and of one that a computation left, at least."""
_STEPS = 8
"""Steps within which a power is recognized by a single number."""
_TIGHT = 1e-11
_ONE = np.float32(1)

Form = tuple[str, Callable[..., Any]]
FORMS: tuple[Form, ...] = (
    ("{0}", lambda one, p: one * p),
    ("1 - {0}", lambda one, p: one - p),
    ("sqrt(1 - {0})", lambda one, p: np.sqrt(one - p)),
    ("1 / (1 - {0})", lambda one, p: one / (one - p)),
    ("1 / sqrt(1 - {0})", lambda one, p: one / np.sqrt(one - p)),
    ("sqrt(1 - {1}) / (1 - {0})", lambda one, p, q: np.sqrt(one - q) / (one - p)),
)
"""Of one power, or of two: in words, and computed in the dtype of `one`."""


@dataclass(slots=True)
class Site:
    """The numbers that come in at one place of a program, in order.

    Attributes:
        source, name, position: line, operation, argument.
        operations: one per number.
        values: the numbers.
    """

    source: str
    name: str
    position: int
    operations: list[Operation] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Formed:
    """A number that float32 would have formed otherwise.

    Attributes:
        operation: that it is an argument of.
        position: which one.
        before, after: as it was, and as float32 would have formed it.
        words: how it is formed.
    """

    operation: Operation
    position: int
    before: float
    after: float
    words: str


_New = dict[int, tuple[float, str]]
"""Place of a number in its site -> (the number as float32 forms it, how it is formed)."""


def sites(operations: Sequence[Operation]) -> list[Site]:
    """Where numbers come in."""
    found: dict[tuple[str, str, int], Site] = {}
    for operation in operations:
        for position, value in operation.options.items():
            if isinstance(position, int) and isinstance(value, float) and np.isfinite(value) and value:
                key = (operation.source, operation.name, position)
                site = found.setdefault(key, Site(*key))
                site.operations.append(operation)
                site.values.append(value)
    return list(found.values())


def formed(found: Sequence[Site], variant: str) -> list[Formed]:
    """The numbers of one side that float32 would have formed otherwise.

    Args:
        found: all sites of it.
        variant: of `hostfloats`: how powers are formed.
    """
    bases = _bases(found)
    result = []
    for site in found:
        new = _strong(site) | _alone(site, bases, variant) | _complements(site, bases) | _powers(site, bases, variant)
        rows = ((site.operations[at], site.values[at], *new[at]) for at in sorted(new))
        result += [Formed(op, site.position, before, after, words) for op, before, after, words in rows if _matters(op, before, after)]
    return result


def _matters(operation: Operation, before: float, after: float) -> bool:
    """An array of float32 takes a number as float32 has it anyway."""
    return before != after if _widens(operation) else bool(np.float32(before) != np.float32(after))


def _single(value: float) -> bool:
    return float(np.float32(value)) == value


def _bases(found: Sequence[Site]) -> list[float]:
    """Weights between a half and one that float32 does not have: numbers of the program, or what they are the complement of.

    Those that a person may have written come first.
    """
    seen = list(dict.fromkeys(value for site in found for value in site.values))
    weights = [value for value in seen if 0.5 < value < 1 and not _single(value)]
    weights += [1 - value for value in seen if 0 < value <= 0.5 and _left_by_complement(value)]
    written = [each for each in weights if len(repr(each)) <= _SHORT]
    kept = [each for each in dict.fromkeys(weights) if not any(_is_power(each, other) for other in written)]
    return sorted(kept, key=lambda each: len(repr(each)) > _SHORT)[:_BASES]


def _is_power(value: float, base: float) -> bool:
    return any(abs(value / base**step - 1) <= _TIGHT for step in range(2, _STEPS + 1))


def _left_by_complement(value: float) -> bool:
    """Are its digits what a subtraction from one left (0.0010000000000000009), where the other number is short (0.999)?"""
    return len(repr(value)) >= _LONG and len(repr(1 - value)) <= _SHORT


def _strong(site: Site) -> _New:
    """Numbers of float64 that make arrays of float32 into ones of float64."""
    return {at: (float(np.float32(site.values[at])), "") for at, each in enumerate(site.operations) if _widens(each)}


def _widens(operation: Operation) -> bool:
    read = {each.value.dtype for each in operation.reads}
    return bool(operation.writes) and operation.writes[0].dtype == "float64" and read == {"float32"}


def _complements(site: Site, bases: Sequence[float]) -> _New:
    """Numbers that are one minus a weight."""
    known = {number: base for base in bases for number in (1 - base, float(np.float32(1 - base)))}
    return {at: (float(_ONE - np.float32(known[value])), f"1 - {known[value]!r}") for at, value in enumerate(site.values) if value in known}


def _powers(site: Site, bases: Sequence[float], variant: str) -> _New:
    """Numbers that change from step to step as powers of a weight do."""
    values = np.array(site.values)
    for order in _orders(site):
        found: _New = {}
        for column in order.T:
            fitted = _fitted(values[column], bases, variant)
            if fitted is not None:
                found |= {int(at): (number, fitted[1]) for at, number in zip(column, fitted[0], strict=True)}
        if found:
            return found
    return {}


def _orders(site: Site) -> Iterator[Any]:
    """Ways in which a site's numbers are so many per step: their places, (steps, numbers of a step)."""
    count = len(site.values)
    rows: Mapping[int, list[int]] = defaultdict(list)
    for at, operation in enumerate(site.operations):
        rows[operation.step].append(at)
    if len(rows) > 1:
        if len({len(each) for each in rows.values()}) == 1:
            yield np.array(list(rows.values()))
        return
    for steps in range(count, 2, -1):
        if count % steps == 0:
            yield np.arange(count).reshape(steps, -1)
            yield np.arange(count).reshape(-1, steps).T


def _candidates(bases: Sequence[float]) -> Iterator[tuple[Form, tuple[float, ...]]]:
    for form in FORMS:
        for given in permutations(bases, 2 if "{1}" in form[0] else 1):
            yield form, given


def _spelt(form: Form, given: Sequence[float], exponent: str) -> str:
    return form[0].format(*(f"{base!r}**{exponent}" for base in given))


def _fitted(numbers: Any, bases: Sequence[float], variant: str) -> tuple[list[float], str] | None:
    """The numbers of steps as float32 would form them, where they are a constant times a form of the steps; and in words."""
    if np.all(numbers == numbers[0]):
        return None
    steps = range(1, len(numbers) + 1)
    tight = _tight(numbers)
    for form, given in _candidates(bases):
        for plain in _plain(form, given, steps):
            ratios = numbers / plain
            constant = float(np.median(ratios))
            if constant and np.all(np.abs(ratios / constant - 1) <= tight):
                return [float(np.float32(constant * _float32(form, given, step, variant))) for step in steps], _spelt(form, given, "t")
    return None


def _tight(numbers: Any) -> float:
    """How far numbers may be from a form of them, relative."""
    return 4 * unit("float32") if np.all(numbers.astype(np.float32) == numbers) else _TIGHT


def _plain(form: Form, given: Sequence[float], steps: Sequence[int]) -> Iterator[Any]:
    """The form in float64; and with each power rounded to float32 first."""
    powers = [np.array([base**step for step in steps]) for base in given]
    with np.errstate(all="ignore"):
        yield form[1](1.0, *powers)
        yield form[1](1.0, *(each.astype(np.float32).astype(np.float64) for each in powers))


def _float32(form: Form, given: Sequence[float], step: int, variant: str) -> float:
    powers = [product(base, step) if variant == VARIANTS[0] else float(np.float32(base)) ** step for base in given]
    return float(form[1](_ONE, *map(np.float32, powers)))


def _alone(site: Site, bases: Sequence[float], variant: str) -> _New:
    """Numbers that are, by themselves, one of the first powers of a weight."""
    found = {}
    for value in dict.fromkeys(value for value in site.values if _single(value) or len(repr(value)) > _SHORT):
        for form, given in _candidates(bases):
            plain = np.array(list(_plain(form, given, range(1, _STEPS + 1))))
            fits = np.flatnonzero(np.any(np.abs(abs(value) / plain - 1) <= _tight(np.array([value])), axis=0))
            if fits.size:
                step = int(fits[0]) + 1
                found[value] = float(np.copysign(_float32(form, given, step, variant), value)), _spelt(form, given, str(step))
                break
    return {at: found[value] for at, value in enumerate(site.values) if value in found}
