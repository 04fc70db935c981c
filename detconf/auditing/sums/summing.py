"""In which order, and in which format, were the terms of a result added up? Told by adding them up again. Pure.

A way is named where it gives every sampled element bit for bit, and no other does that means something else; a format also
where what it leaves is eight times smaller than what any other leaves, the result in float64 among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from detconf.auditing.sums.accumulating import FOLDS, WIDE, Terms, Way, added, blocks
from detconf.shadows.formats import UNIT, round_to

FORMATS = ("bfloat16", "float16")
"""Of sums in less than single precision; a number of the first is mostly one of the second as well."""
_FEW = 4
"""Elements by which lengths are fitted, before all are looked at."""
_STEPS, _MOST = 1 << 13, 1 << 18
"""Terms up to which lengths are fitted term by term, and at all."""
_FIRST = 1 << 15
"""Terms up to which ways that go term by term are tried."""
_NUMPY = 128
"""Terms that NumPy's pairwise sum does not halve any more."""
_PAIRS = tuple(1 << power for power in range(4, 11))
_VECTORS = (0, 1, 4, 8, 16)
_LANES = tuple(1 << power for power in range(1, 8))
_SHARES = (8, 16)
_CHANNELS = (8, 16)
"""In a vector of float32, by oneDNN."""
_BETTER = 8.0
_RARE, _SELDOM = 1e-3, 0.1
"""Chance at which a fitted way, and one without anything to fit, may be right by accident."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A way that was tried.

    Attributes:
        way: the way.
        share: of the elements that it gives bit for bit.
        left: what it does not explain, root mean square, in units of accumulation, u sqrt(sum p^2).
        near: the chance that such a way, of any length, gives an element: 1 / (1 + twice how many ULP it is off), in the mean.
    """

    way: Way
    share: float
    left: float
    near: float


@dataclass(frozen=True, slots=True)
class Told:
    """How the terms were added up.

    Attributes:
        way: the way.
        share: of the sampled elements that it gives bit for bit.
        elements: how many were sampled.
        chance: that a wrong way gives them all.
        left, next: what it leaves, and what the next best does, in units of accumulation in float32.
    """

    way: Way
    share: float
    elements: int
    chance: float
    left: float
    next: float


def order(terms: Terms, real: Any, form: str) -> Told | None:
    """The order, in the format of the result, that gives it bit for bit; None where none does, or several do.

    Args:
        real: (elements), float64.
        form: dtype of the result, float64, float32 or narrower.
    """
    if not np.all(np.isfinite(real)) or terms.length < 3:
        return None
    found = _tried(_orders(terms, form), terms, real)
    return _told(found, terms, real)


def reduced(terms: Terms, real: Any) -> Told | None:
    """The format with less than single precision, and the order, in which the terms were added up; None where that is not shown."""
    form = next((each for each in FORMATS if representable(real, each)), "")
    if not form or not np.all(np.isfinite(real)):
        return None
    inputs = [""] if np.array_equal(terms.rounded(form).exact, terms.exact) else ["", form]
    ways = [each for rounded in inputs for each in _reduced(terms, form, rounded)]
    found = _tried(ways, terms, real)
    return _told(found, terms, real) or _closest(found, terms, real)


def _tried(ways: Iterable[tuple[Way, Sequence[int]]], terms: Terms, real: Any) -> list[Fit]:
    """The ways that people and NumPy write in any case; those of kernels, which cost more, where none of these is right."""
    found: list[Fit] = []
    for way, lengths in ways:
        if (way.share or way.channels or way.order == "lanes") and any(each.share == 1.0 for each in found):
            continue
        found += _fitted(terms, real, way, lengths)
    return found


def representable(real: Any, form: str) -> bool:
    """Are all elements numbers of a format, and some of them not zero?"""
    return bool(np.any(real != 0)) and bool(np.array_equal(round_to(real, form), real))


def _orders(terms: Terms, form: str) -> Iterator[tuple[Way, Sequence[int]]]:
    """(way, lengths to try)."""
    count, lengths = terms.length, _lengths(terms.length)
    fused = terms.right is not None and form != WIDE and count <= _FIRST
    by_term = lengths if count <= _STEPS else [count]
    yield Way(form), lengths
    if fused:
        yield Way(form, fused=True), by_term
    if form != WIDE:
        yield Way(form, inner=WIDE), by_term
    for channels in sorted({min(each, count // terms.places) for each in (*_CHANNELS, count)}) if terms.places > 1 else ():
        if channels > 1:
            yield Way(form, channels=channels), lengths
            if fused:
                yield Way(form, fused=True, channels=channels), by_term
    if form == "bfloat16" or count > _MOST:
        return
    yield Way(form, "pairs"), [each for each in _PAIRS if each <= max(count, _NUMPY)]
    yield Way(form, "cascade"), [each for each in _VECTORS if 8 * each <= count]
    if fused and count <= _STEPS:
        yield from ((Way(form, fused=True, share=share), lengths) for share in _SHARES)
    widths = [each for each in _LANES if 2 * each <= count <= _FIRST]
    yield from ((Way(form, "lanes", fold=fold), [1 << (count - 1).bit_length()]) for fold in ("halves", "neighbours"))
    for each, fold, late in itertools.product((False, True) if fused else (False,), FOLDS, (False, True)):
        if widths and (not each or count <= _STEPS):
            yield Way(form, "lanes", fused=each, fold=fold, late=late), widths


def _reduced(terms: Terms, form: str, inputs: str) -> Iterator[tuple[Way, Sequence[int]]]:
    for way, lengths in _orders(terms, form):
        if not way.share and not (way.order == "lanes" and way.fused):
            yield replace(way, inputs=inputs), lengths
    if terms.length <= _STEPS:
        yield Way(form, inner="float32", inputs=inputs), _lengths(terms.length)


def _lengths(count: int) -> list[int]:
    """Lengths of blocks that programs and kernels use."""
    powers = [factor << power for power in range(22) for factor in (1, 3)] + [
        factor * 10**power for power in range(1, 6) for factor in (1, 5)
    ]
    parts = [-(-count // (number * multiple)) * multiple for number in range(1, 33) for multiple in (1, 4, 16)]
    dense = [*range(1, 33), *range(40, 1025, 8)] if count <= _STEPS else []
    found = sorted({min(each, count) for each in (*powers, *parts, *dense)})
    return found if count <= _MOST else [1, count]


def _fitted(terms: Terms, real: Any, way: Way, lengths: Sequence[int]) -> Iterator[Fit]:
    """The lengths that are right for a few elements, else the best one, held against all of them."""
    lengths = _different(way, lengths, terms.length)
    if not lengths:
        return
    few = np.unique(np.linspace(0, real.size - 1, _FEW).astype(np.int64))
    part, wanted, size = terms.some(few), real[few], _size(terms)
    found = added(part, way, lengths)
    right = np.flatnonzero(np.all(found == wanted, axis=1))
    if not right.size:
        right = np.argsort(np.mean(np.abs(found - wanted) / size[few], axis=1), kind="stable")[:1]
    near = float(np.mean(1 / (1 + 2 * np.abs(found - wanted) / _ulp(wanted, way.form))))
    for place in right[:_FEW]:
        each = replace(way, length=int(lengths[place]))
        values = added(terms, each) if few.size < real.size else found[place]
        yield Fit(each, float(np.mean(values == real)), rms((values - real) / size), near)


def _ulp(real: Any, form: str) -> Any:
    return 2 * UNIT[form] * np.exp2(np.floor(np.log2(np.maximum(np.abs(real), 1e-300))))


def _different(way: Way, lengths: Sequence[int], count: int) -> list[int]:
    """One length of each way to cut the terms into blocks, and none that another way stands for."""
    if way.order != "blocks":
        return list(lengths)
    alone = 1 if way.fused or way.inner else count  # terms that are rounded one by one, or a single block: so does the plain way
    seen = {blocks(count, each).tobytes() for each in lengths} if way.share else set()
    found = {blocks(count, each, way.share).tobytes(): each for each in reversed(lengths) if each != alone}
    return sorted((each for pattern, each in found.items() if pattern not in seen), key=lambda each: (1 < each < count, each))


def _told(found: Sequence[Fit], terms: Terms, real: Any) -> Told | None:
    """The way that gives every element, unless it may do so by accident."""
    right = sorted((each for each in found if each.share == 1.0), key=lambda each: not each.way.simple(terms.length))
    if not right:
        return None
    best, simple = right[0], right[0].way.simple(terms.length)
    single = float(np.mean([each.near for each in found if each.way != best.way] or [1.0])) ** len(np.unique(real))
    chance = single if simple else single * len(found)
    several = sum(each.way.simple(terms.length) for each in right) > 1
    if chance > (_SELDOM if simple and not several else _RARE):
        return None
    return Told(
        best.way, 1.0, int(real.size), chance, best.left, min([_null(terms, real), *(each.left for each in found if each.share < 1)])
    )


def _closest(found: Sequence[Fit], terms: Terms, real: Any) -> Told | None:
    """The way that leaves least, if all others leave far more. How a block is added up inside, more exactly, is all one."""
    if len(np.unique(real)) < _FEW or not found:
        return None

    def family(way: Way) -> Way:
        return replace(way, length=0, inner=WIDE if way.inner else "")

    best = min(found, key=lambda each: each.left)
    others = [each.left for each in found if family(each.way) != family(best.way)]
    least = min([_null(terms, real), *others])
    return Told(best.way, best.share, int(real.size), 0.0, best.left, least) if best.left * _BETTER <= least else None


def _null(terms: Terms, real: Any) -> float:
    return rms((real - terms.exact) / _size(terms))


def _size(terms: Terms) -> Any:
    with np.errstate(all="ignore"):
        return np.maximum(UNIT["float32"] * np.sqrt(np.sum(np.square(terms.products), axis=0)) / terms.count, 1e-300)


def rms(array: Any) -> float:
    """Root mean square; infinite where something is not finite."""
    with np.errstate(all="ignore"):
        found = float(np.sqrt(np.mean(np.square(array))))
    return found if np.isfinite(found) else float("inf")
