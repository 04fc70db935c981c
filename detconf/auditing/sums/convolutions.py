"""Convolutions: which elements of an input meet which of a filter, told from shapes. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_STRIDES, _DILATIONS = 8, 8
"""Tried up to these; strides up to the length of the filter in any case."""
_COMBINED, _READINGS = 1 << 14, 1 << 11
"""Geometries of all axes together that are looked at, and of these the readings of one operation, at most."""


@dataclass(frozen=True, slots=True)
class Along:
    """One axis of space.

    Attributes:
        stride, padding, dilation: padding before the first element.
    """

    stride: int
    padding: int
    dilation: int


@dataclass(frozen=True, slots=True)
class Convolution:
    """The sum over channels and places of a filter, channels first.

    Attributes:
        along: geometry, by axis of space.
        groups: channels go together within these.
        last: channels of input and result are their last axis.
        transposed: the input is spread out, as gradients of convolutions are.
        bare: there are neither rows nor channels; the filter is turned round or not.
    """

    along: tuple[Along, ...]
    groups: int = 1
    last: bool = False
    transposed: bool = False
    bare: str = ""

    def factors(self, left: Any, right: Any, shape: Sequence[int], places: Any) -> tuple[Any, Any] | None:
        """(terms, elements) of input and filter, of the elements at some places of the flat result."""
        if self.bare:
            left, right, shape = left[None, None], (right[::-1] if self.bare == "turned" else right)[None, None], (1, 1, *shape)
        if self.last:
            left = np.moveaxis(left, -1, 1)
            row, *space, channel = np.unravel_index(places, shape)
        else:
            row, channel, *space = np.unravel_index(places, shape)
        channels, own = shape[-1] if self.last else shape[1], left.shape[1] // self.groups
        group, inside = np.divmod(channel, channels // self.groups)
        entering, *kernel = (each.reshape(-1, 1) for each in np.indices((own, *right.shape[2:])))
        there: Any = True
        at = []
        for place, each, along, size in zip(space, kernel, self.along, left.shape[2:], strict=True):
            found = self._reached(place, each, along)
            whole = found % along.stride == 0 if self.transposed else True
            found = found // along.stride if self.transposed else found
            there = there & whole & (found >= 0) & (found < size)
            at.append(np.clip(found, 0, size - 1))
        source = group * own + entering
        read, filtered = (row, source, *at), (source, inside, *kernel) if self.transposed else (channel, entering, *kernel)
        values = np.where(there, left[read], 0.0)
        return values, np.broadcast_to(right[filtered], values.shape)

    def _reached(self, place: Any, kernel: Any, along: Along) -> Any:
        """Where in the input: place times stride, or what that must be."""
        if self.transposed:
            return place + along.padding - along.dilation * kernel
        return place * along.stride - along.padding + along.dilation * kernel


def convolutions(left: Sequence[int], right: Sequence[int], result: Sequence[int]) -> Iterator[tuple[Convolution, int | None]]:
    """Readings of a result as the convolution of an input with a filter, and the axis of its channels; by their shapes."""
    if len(left) == len(right) == len(result) == 1:
        for along, bare in itertools.product(_along(left[0], right[0], result[0], transposed=False), ("turned", "straight")):
            yield Convolution((along,), bare=bare), 0
    if not len(left) == len(right) == len(result) > 2 or left[0] != result[0]:
        return
    for last, transposed in itertools.product((False, True), repeat=2):
        channels, made = (left[-1], result[-1]) if last else (left[1], result[1])
        space, reached = (left[1:-1], result[1:-1]) if last else (left[2:], result[2:])
        filters, own = (right[1], right[0]) if transposed else (right[0], right[1])
        groups = _groups(channels, made, filters, own, transposed=transposed)
        if groups:
            axes = [_along(*each, transposed=transposed) for each in zip(space, right[2:], reached, strict=True)]
            for each in _together(axes):
                yield Convolution(each, groups, last, transposed), len(result) - 1 if last else 1


def _together(axes: Sequence[Sequence[Along]]) -> list[tuple[Along, ...]]:
    """Geometries of all axes: those that are dilated alike first, then what is common along each axis."""
    most = int(_COMBINED ** (1 / len(axes)))
    ranked = itertools.product(*(list(enumerate(each[:most])) for each in axes))
    found = sorted(ranked, key=lambda each: (len({along.dilation for _, along in each}), sum(rank for rank, _ in each)))
    return [tuple(along for _, along in each) for each in found[:_READINGS]]


def _groups(channels: int, made: int, filters: int, own: int, *, transposed: bool) -> int:
    """How many; 0 where channels do not go together."""
    if transposed:
        groups = made // filters if filters and made % filters == 0 else 0
        return groups if groups and own == channels and channels % groups == 0 else 0
    groups = channels // own if own and channels % own == 0 else 0
    return groups if groups and filters == made and made % groups == 0 else 0


def _along(size: int, kernel: int, made: int, *, transposed: bool) -> list[Along]:
    """Geometries in which so many elements are made of so many, padded before and after by as much, or by one more; common ones first."""
    found: dict[Along, tuple[bool, bool, int, int]] = {}
    for stride, dilation in itertools.product(range(1, max(_STRIDES, kernel) + 1), range(1, (_DILATIONS if kernel > 1 else 1) + 1)):
        reach = dilation * (kernel - 1)
        for padding in range(reach + 1):
            padded = [2 * padding + more for more in (-1, 0, 1) if padding + more >= 0]
            if any(_made(size, reach, stride, each, made, transposed=transposed) for each in padded):
                each = Along(1 if made == 1 and not transposed else stride, padding, dilation)
                found.setdefault(each, (dilation > 1, padding not in {0, reach // 2}, stride, padding))
    return sorted(found, key=found.__getitem__)


def _made(size: int, reach: int, stride: int, padded: int, made: int, *, transposed: bool) -> bool:  # noqa: PLR0913
    if transposed:
        return 0 <= made - ((size - 1) * stride - padded + reach + 1) < max(stride, 1)
    return size + padded > reach and (made == 1 or (size + padded - reach - 1) // stride + 1 == made)
