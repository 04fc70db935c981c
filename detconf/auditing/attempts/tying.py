"""The reference's draws put in place of the candidate's: the numbers that were drawn, and which elements a drawn mask drops.

A mask may be drawn by hand, of numbers of another kind, and scaled before the elements are dropped, after it, or not at all.
So only the pattern is taken from the reference: each side keeps its own scale, and what else differs shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from detconf.auditing.laboratory import Observation
from detconf.auditing.question import put
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Operation, Read, Value

Amendments = dict[int, Callable[[Any], Any]]


@dataclass(slots=True)
class Dropping:
    """An operation that sets elements to zero by a drawn mask.

    Attributes:
        operation: which one.
        made: what it wrote.
        read: the elements before.
        mask: the float mask that it multiplies by, where there is one.
        kept: of the shape of `made`: which elements are kept.
        scale: what these are multiplied by.
    """

    operation: Operation
    made: Value
    read: Read
    mask: Value | None
    kept: Any
    scale: float


@dataclass(slots=True)
class Tied:
    """See the module.

    Attributes:
        amendments: of the candidate's shadows.
        whole: is every draw that the results depend on paired?
    """

    amendments: Amendments = field(default_factory=dict)
    whole: bool = False


def tied(a: Observation, b: Observation, names: list[str]) -> Tied:
    """The candidate with the reference's draws: those of one size are paired, in order.

    Args:
        a, b: exact runs of both sides.
        names: of the results that differ.
    """
    ours, theirs = list(dropped(a, names)), list(dropped(b, names))
    numbers = _besides(a, names, ours), _besides(b, names, theirs)
    found = Tied(transplants(*numbers), sorted(map(_size, numbers[0])) == sorted(map(_size, numbers[1])) and len(ours) == len(theirs))
    waiting: dict[int, list[Dropping]] = {}
    for each in ours:
        waiting.setdefault(each.kept.size, []).append(each)
    for each in theirs:
        twin = waiting[each.kept.size].pop(0) if waiting.get(each.kept.size) else None
        found.whole &= twin is not None and _tie(each, twin.kept.reshape(each.kept.shape), found.amendments)
    return found


def _besides(observation: Observation, names: list[str], droppings: list[Dropping]) -> list[Operation]:
    """The draws that the results depend on by more than which elements are dropped."""
    before = {each.operation.index: each.read.value for each in droppings}
    operations = observation.study.operations
    seen: set[int] = set()
    waiting = [observation.known[name].value.maker for name in names if name in observation.known]
    while waiting:
        index = waiting.pop()
        if index >= 0 and index not in seen:
            seen.add(index)
            waiting += [before[index].maker] if index in before else [read.value.maker for read in operations[index].reads]
    return [operations[index] for index in sorted(seen) if operations[index].random and index not in before]


def _tie(dropping: Dropping, kept: Any, amendments: Amendments) -> bool:
    """Let it drop what is not `kept`: by its mask, so that the way back drops the same, or by what it makes."""
    mask, read = dropping.mask, dropping.read
    if mask is not None:
        pattern = _narrowed(kept, mask.shape)
        if pattern is not None:
            amendments[mask.index] = put(np.where(pattern, mask.shadow[mask.shadow != 0][0], 0.0))
        return pattern is not None
    last: list[Any] = [read.shadow]
    if read.view is None and read.value.index not in amendments:  # it may be amended upstream: as it is then
        amendments[read.value.index] = partial(_noted, last)
    amendments[dropping.made.index] = lambda made: (last[0].reshape(kept.shape) * kept * dropping.scale).reshape(made.shape)
    return True


def _noted(last: list[Any], shadow: Any) -> Any:
    last[0] = np.array(shadow)
    return shadow


def _narrowed(kept: Any, shape: tuple[int, ...]) -> Any:
    """A pattern in the smaller shape that it was broadcast from; None where it was not."""
    if kept.size == int(np.prod(shape, dtype=np.int64)):
        return kept.reshape(shape)
    lead = kept.ndim - len(shape)
    found = kept[(0,) * lead][tuple(slice(0, 1) if size == 1 else slice(None) for size in shape)]
    return found if found.shape == shape and np.array_equal(np.broadcast_to(found, kept.shape), kept) else None


def transplants(ours: Iterable[Operation], theirs: Iterable[Operation]) -> Amendments:
    """Number of a value that the candidate drew -> the reference's, draws of one size in order: for generators of another kind."""
    waiting: dict[tuple[int, int], list[Operation]] = {}
    for each in ours:
        waiting.setdefault(_size(each), []).append(each)
    found: Amendments = {}
    for each in theirs:
        if not waiting.get(_size(each)):
            continue
        for one, other in zip(waiting[_size(each)].pop(0).writes, each.writes, strict=False):
            if one.shadow is not None and other.shadow is not None and one.shadow.size == other.shadow.size:
                found[other.index] = put(one.shadow.reshape(other.shape))
    return found


def _size(operation: Operation) -> tuple[int, int]:
    """(elements of what was drawn, inputs)."""
    return (operation.writes[0].shadow.size if operation.writes and operation.writes[0].shadow is not None else 0), len(operation.reads)


def draws(observation: Observation) -> dict[int, Operation]:
    """Number of a draw -> its operation."""
    return dict(enumerate(each for each in observation.study.operations if each.random))


def reaching(observation: Observation, names: list[str]) -> dict[int, Operation]:
    """The draws that the results depend on."""
    operations = _towards(observation, names)
    return {number: each for number, each in draws(observation).items() if each.index in operations}


def _towards(observation: Observation, names: Iterable[str]) -> set[int]:
    return ancestors(observation.study, [observation.known[name].value for name in names if name in observation.known])[1]


def dropped(observation: Observation, names: list[str]) -> Iterator[Dropping]:
    """Operations towards results that drop some of what they read by a drawn mask."""
    towards = _towards(observation, names)
    drawn: set[int] = set()
    for operation in observation.study.operations:
        masks = [each for each in operation.reads if each.value.index in drawn and _is_mask(each.shadow)]
        if operation.random or any(each.value.index in drawn for each in operation.reads):
            drawn.update(value.index for value in operation.writes)
        if (operation.random or masks) and operation.index in towards:
            found = next(
                (each for read in operation.reads for value in operation.writes if (each := _dropping(operation, value, read))), None
            )
            if found is not None:
                _masked(found, masks)
                yield found


def _masked(found: Dropping, masks: list[Read]) -> None:
    """What of the elements that were zeros before is kept, by the mask; and the mask itself, where it is one of floats."""
    zeros = found.read.shadow.reshape(found.kept.shape) == 0
    for mask in masks:
        there = _spread(mask.shadow, found.kept.shape)
        if there is None:
            continue
        multiplies, fills = (np.array_equal(kept[~zeros], found.kept[~zeros]) for kept in (there != 0, there == 0))
        if multiplies or fills:
            found.kept = there != 0 if multiplies else there == 0
            found.mask = mask.value if multiplies and mask.view is None and mask.shadow.dtype.kind == "f" else None
            return


def _spread(mask: Any, shape: tuple[int, ...]) -> Any:
    """A mask as it is broadcast to a shape; None where it is not."""
    if mask.size == int(np.prod(shape, dtype=np.int64)):
        return mask.reshape(shape)
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        return None


def _is_mask(shadow: Any) -> bool:
    """Zeros, and one other number."""
    return shadow is not None and np.unique(shadow[shadow != 0]).size == 1


def _dropping(operation: Operation, made: Value, read: Read) -> Dropping | None:
    """Some elements zero, the others all scaled alike?"""
    shadow, of = made.shadow, read.shadow
    if shadow is None or of is None or shadow.size != of.size or not np.issubdtype(of.dtype, np.inexact):
        return None
    there = of.reshape(-1) != 0
    ratio = (shadow.reshape(-1)[there] / of.reshape(-1)[there]).astype(np.float64)
    seen = np.unique(np.round(ratio, 9))
    if seen.size != 2 or seen.min() != 0 or seen.max() <= 0:
        return None
    kept = (shadow != 0) | (of.reshape(shadow.shape) == 0)
    return Dropping(operation, made, read, None, kept, float(np.mean(ratio[ratio != 0])))
