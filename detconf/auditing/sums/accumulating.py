"""Terms added up again, in other orders and formats, element by element. Pure.

float32 and narrower formats are emulated exactly. A product of two float32 is exact in float64; a fused multiply-add is its
sum in float64, rounded to odd, then to the format: this way two roundings give what one would (Boldo and Melquiond,
"Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008). Sums of float64 are only
tried with each product rounded by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from detconf.auditing.sums.native_sums import cascade, pairwise, running
from detconf.shadows.formats import ROUNDINGS, round_to

WIDE = "float64"
_NATIVE = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


@dataclass(frozen=True, slots=True)
class Terms:
    """What is added up in each of some elements of a result.

    Attributes:
        left: (terms, elements), float64: the terms, or their left factors.
        right: their right factors; None where nothing is multiplied.
        added: (elements), added to the sum at its end; None for nothing.
        count: what the sum is divided by.
        places: of a filter: terms come channel by channel, so many of each.
    """

    left: Any
    right: Any = None
    added: Any = None
    count: int = 1
    places: int = 1

    @property
    def length(self) -> int:
        """Terms per element."""
        return int(self.left.shape[0])

    @property
    def products(self) -> Any:
        """The terms: exact where the factors are float32 or narrower."""
        return self.left if self.right is None else self.left * self.right

    @property
    def exact(self) -> Any:
        """The results in float64."""
        return self.ended(np.sum(self.products, axis=0), WIDE)

    def some(self, places: Any) -> Terms:
        """Of some elements."""
        right, added = (None if each is None else each[..., places] for each in (self.right, self.added))
        return replace(self, left=self.left[:, places], right=right, added=added)

    def arranged(self, channels: int) -> Terms:
        """So many channels at a time, all of them at each place of the filter; none for 0."""
        if not channels or self.places == 1:
            return self
        every = np.arange(self.length).reshape(-1, self.places)
        order = np.concatenate([every[at : at + channels].T.reshape(-1) for at in range(0, len(every), channels)])
        return replace(self, left=self.left[order], right=None if self.right is None else self.right[order], places=1)

    def rounded(self, form: str) -> Terms:
        """With terms, or factors, rounded to a format; none for an empty one."""
        if not form:
            return self
        return replace(self, left=round_to(self.left, form), right=None if self.right is None else round_to(self.right, form))

    def ended(self, sums: Any, form: str) -> Any:
        """Sums as they are given out: divided, and with what is added to them, each step rounded."""
        sums = sums if self.count == 1 else nearest(sums / self.count, form)
        return sums if self.added is None else nearest(sums + self.added, form)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to add up.

    Attributes:
        form: format of the running sum.
        order: "blocks": sums of `length` terms each are added one after the other; "lanes": `length` sums side by side, each of
            every `length`-th term, are put together at the end; "pairs": halves, each added up so by itself, down to
            `length` terms; "cascade": see `native_sums.cascade`, of vectors of `length`.
        length: see there.
        inner: of blocks: the format in which one is added up; `WIDE` hardly rounds.
        fused: a product is added without being rounded.
        inputs: format to which the factors are rounded first; empty for none.
        fold: of lanes: how they are put together: "halves", "neighbours", "in turn".
        late: of lanes: terms that do not fill all of them are added at the end.
        share: of blocks: once less than two of them are left, and more than one, that is halved, to a multiple of this; 0 for
            no such thing. So OpenBLAS does (interface/gemm.c, driver/level3/level3.c).
        channels: of convolutions: so many channels are taken at a time, all of them at each place of the filter; 0: a channel by
            itself, with all places. So many as a vector has does oneDNN (src/cpu/x64/jit_avx512_common_conv_kernel.cpp).
    """

    form: str
    order: str = "blocks"
    length: int = 1
    inner: str = ""
    fused: bool = False
    inputs: str = ""
    fold: str = ""
    late: bool = False
    share: int = 0
    channels: int = 0

    def simple(self, length: int) -> bool:
        """Is nothing in it fitted? `length` terms are added up."""
        plain = self.order == "blocks" and (self.length >= length or (self.length == 1 and self.inner != WIDE))
        return not self.channels and (plain or (self.order == "pairs" and self.length == 128))

    def words(self, length: int) -> str:
        """What is done with `length` terms, as a sentence goes on after "adding"."""
        by = " by fused multiply-add" if self.fused else ""
        if self.channels:
            return f"{replace(self, channels=0).words(length)}, {self.channels} channels at each place of the filter"
        if self.order == "lanes" and self.length >= length:
            return "in a tree of " + ("halves" if self.fold == "halves" else "neighbours")
        if self.order == "lanes":
            folded = {"halves": "halved", "neighbours": "added in pairs", "in turn": "added in turn"}[self.fold]
            return f"up {self.length} sums side by side{by}, in the end {folded}"
        if self.order == "cascade":
            return f"in a cascade of short sums{f', {4 * self.length} of them side by side' if self.length else ''}"
        if self.order == "pairs":
            return f"pairwise, down to blocks of {self.length} terms"
        if self.inner:
            inside = f"more than {self.form}" if self.inner == WIDE else self.inner
            return f"in {inside}, rounding to {self.form} " + ("once" if self.length >= length else f"after every {self.length} terms")
        if self.length >= length or self.length == 1:
            return f"one after the other{by}"
        return f"up blocks of {self._sizes(length)} terms{by}"

    def _sizes(self, length: int) -> str:
        ends: Any = np.flatnonzero(blocks(length, self.length, self.share)) + 1
        sizes = list(dict.fromkeys(map(int, np.diff(ends, prepend=0))))
        return " and ".join(map(str, sizes))


def nearest(array: Any, form: str) -> Any:
    """float64 rounded to a format, in float64."""
    if form == WIDE:
        return array
    if form in _NATIVE:
        return array.astype(_NATIVE[form]).astype(np.float64)
    cut = 53 - ROUNDINGS[form][0]  # of a number of normal size, by its bits: six times faster than `round_to`
    bits = np.asarray(array, np.float64).view(np.int64)
    return ((bits + ((1 << (cut - 1)) - 1) + ((bits >> cut) & 1)) & ~((1 << cut) - 1)).view(np.float64)


def added(terms: Terms, way: Way, lengths: Sequence[int] = ()) -> Any:
    """The results: (elements), or (lengths, elements) where `lengths` are given in place of the way's own."""
    terms = terms.arranged(way.channels).rounded(way.inputs)
    with np.errstate(all="ignore"):
        sums = _ORDERS[way.order](terms, way, lengths or (way.length,))
        found = terms.ended(np.asarray(sums, np.float64), way.form)
    return found if lengths else found[0]


def _blocks(terms: Terms, way: Way, lengths: Sequence[int]) -> Any:
    inner = way.inner or way.form
    if inner == WIDE and min(lengths) >= terms.length:
        return nearest(np.sum(terms.products, axis=0), way.form)[None]
    if way.fused or inner != way.form or way.form not in _NATIVE:
        ends: Any = np.stack([blocks(terms.length, length, way.share) for length in lengths], axis=1)
        return _stepped(terms, way, inner, ends)
    products = _rounded(terms.products, way.form).astype(_NATIVE[way.form])
    return np.stack([_in_blocks(products, length) for length in lengths])


def _rounded(products: Any, form: str) -> Any:
    """Products in a format: that of factors in float32 is a float32 before it is any less."""
    return nearest(products if form in {WIDE, "float32"} else nearest(products, "float32"), form)


def _in_blocks(products: Any, length: int) -> Any:
    whole = len(products) // length * length
    parts = [running(products[:whole].reshape(-1, length, *products.shape[1:]), 1)] if whole else []
    if whole < len(products):
        parts.append(running(products[whole:], 0)[None])
    return running(np.concatenate(parts), 0)


def blocks(count: int, length: int, share: int = 0) -> Any:
    """(count) of booleans: does a block of `Way`'s end with this term?"""
    found: Any = np.zeros(count, bool)
    place = 0
    while place < count:
        left = count - place
        halved = share and length < left < 2 * length
        place += min(left, -(-(left // 2) // share) * share if halved else length)
        found[place - 1] = True
    return found


def _stepped(terms: Terms, way: Way, inner: str, ends: Any) -> Any:
    """All lengths at once, term by term. `ends`: (terms, lengths)."""
    products = terms.products
    if not way.fused and inner != WIDE:
        products = _rounded(products, inner)
    total = np.zeros((ends.shape[1], products.shape[1]))
    part = np.zeros_like(total)
    for each, now in zip(products, ends, strict=True):
        part = _step(part, each, inner, fused=way.fused)
        ended = np.flatnonzero(now)
        if ended.size:
            total[ended] = nearest(total[ended] + part[ended], way.form)
            part[ended] = 0.0
    return total


def _step(total: Any, term: Any, form: str, *, fused: bool) -> Any:
    return nearest(_to_odd(total, term) if fused else total + term, form)


def _to_odd(a: Any, b: Any) -> Any:
    """a + b in float64, rounded to the neighbour with an odd last bit where it is not exact."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    bits = total.view(np.int64)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where((error != 0) & (bits & 1 == 0), bits + step, bits).view(np.float64)


def _lanes(terms: Terms, way: Way, lengths: Sequence[int]) -> Any:
    return np.stack([_side_by_side(terms, replace(way, length=length)) for length in lengths])


def _side_by_side(terms: Terms, way: Way) -> Any:
    """Only in formats that NumPy has; terms beyond the last full row of lanes are zeros, or are added at the end."""
    products, width = terms.products, way.length
    whole = len(products) // width * width if way.late else len(products)
    filled = np.concatenate([products[:whole], np.zeros((-whole % width, products.shape[1]))])
    rows = filled.reshape(-1, width, products.shape[1])
    if way.fused:
        sums = np.zeros(rows.shape[1:])
        for row in rows:
            sums = _step(sums, row, way.form, fused=True)
    else:
        kind = _NATIVE[way.form]
        sums = running(_rounded(rows, way.form).astype(kind), 0).astype(np.float64) if len(rows) else np.zeros(rows.shape[1:])
    total = FOLDS[way.fold](sums, way.form)
    for each in products[whole:]:
        total = _step(total, each if way.fused else _rounded(each, way.form), way.form, fused=way.fused)
    return total


def _halves(sums: Any, form: str) -> Any:
    while len(sums) > 1:
        sums = nearest(sums[: len(sums) // 2] + sums[len(sums) // 2 :], form)
    return sums[0]


def _neighbours(sums: Any, form: str) -> Any:
    while len(sums) > 1:
        sums = nearest(sums[::2] + sums[1::2], form)
    return sums[0]


def _in_turn(sums: Any, form: str) -> Any:
    return running(sums.astype(_NATIVE[form]), 0).astype(np.float64)


def _of_libraries(terms: Terms, way: Way, lengths: Sequence[int]) -> Any:
    products = _rounded(terms.products, way.form).astype(_NATIVE[way.form])
    return np.stack([(pairwise if way.order == "pairs" else cascade)(products, length) for length in lengths])


FOLDS: dict[str, Callable[[Any, str], Any]] = {"halves": _halves, "neighbours": _neighbours, "in turn": _in_turn}
_ORDERS: dict[str, Callable[[Terms, Way, Sequence[int]], Any]] = {
    "blocks": _blocks,
    "lanes": _lanes,
    "pairs": _of_libraries,
    "cascade": _of_libraries,
}
