"""A decision that falls otherwise because what it reads is rounded otherwise: a comparison, a rounding to whole numbers, an index.

Both sides ask the same of the same numbers, as their shadows show, and get different answers, which rounding alone can do:
no formula is at fault. What follows from the answers must be shown to be the same as well, or a fault behind them would hide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.auditing.attempts.parting import Parting, part
from detconf.auditing.meaning import agrees
from detconf.auditing.question import Finding, put
from detconf.auditing.result import Evidence, Proof
from detconf.shadows.formats import UNIT
from detconf.shadows.regions import coarsest
from detconf.shadows.study import Operation, Study
from detconf.values import Cause

_SAME = {
    **dict.fromkeys(("greater", "gt", "greater_than"), "gt"),
    **dict.fromkeys(("greater_equal", "ge"), "ge"),
    **dict.fromkeys(("less", "lt", "less_than"), "lt"),
    **dict.fromkeys(("less_equal", "le"), "le"),
    **dict.fromkeys(("equal", "eq"), "eq"),
    **dict.fromkeys(("not_equal", "ne"), "ne"),
    **dict.fromkeys(("round", "rint", "around"), "round"),
    **dict.fromkeys(("trunc", "fix", "astype", "_to_copy", "cast"), "trunc"),
    **dict.fromkeys(("floor", "ceil", "sign", "signbit", "argmax", "argmin", "argsort", "searchsorted", "floor_divide"), ""),
}
"""Names of decisions that frameworks spell differently; "" for those they spell alike."""
_MIRRORED = {"lt": "gt", "le": "ge"}
"""The same question with its two sides exchanged."""
_ALIKE = 1e-9
"""By how much shadows of the same numbers differ, relative to the largest."""
_CLOSE = 1e-6
"""The same for single numbers, which are what was left of others."""
_ROUNDS = 3
"""How many decisions may hang on each other."""


@dataclass(frozen=True, slots=True)
class Flip:
    """One decision of both sides.

    Attributes:
        theirs, ours: the candidate's operation, the reference's.
        mask: where they decide differently, of the decision's shape.
    """

    theirs: Operation
    ours: Operation
    mask: Any


def flips(parting: Parting) -> list[Flip]:
    """The decisions where the sides part that fall otherwise for the same inputs."""
    return [found for each in parting.theirs.sources if (found := _flip(parting, each)) is not None]


def settled(parting: Parting) -> tuple[Finding | None, Parting]:
    """(the cause, if nothing differs but decisions within rounding; what is left to be explained once those fall alike)."""
    whole, first = parting, flips(parting)
    found, put_right = first, set[int]()
    for _ in range(_ROUNDS):
        changes = {
            value.index: put(other.shadow) for each in found for value, other in _pairs(each) if value.shadow.shape == other.shadow.shape
        }
        if changes.keys() <= put_right:
            break
        put_right |= changes.keys()
        question, a, output = parting.question.amended(changes), parting.a, parting.output
        b = question.exact_b
        if b is None or output not in b.known:
            break
        if whole.question.same_shadows(a.known, b.known, [output]):
            return _finding(first, Proof("removed", "with the reference's decisions there, in higher precision, the sides agree")), whole
        parting = part(question, a, b, output, parting.pool.tolerance)
        found = flips(parting)
    if first and len(first) == len(whole.theirs.sources) and not whole.theirs.leaves and _follows(whole, first):
        what = "the inputs of the decision agree in higher precision, and so does all that does not depend on it"
        return _finding(first, Proof("bounded", what)), whole
    return branched(parting), parting


def branched(parting: Parting) -> Finding | None:
    """The program goes another way, by numbers that agree in higher precision: a loop ends one round later."""
    pair = _branch(parting)
    if pair is None:
        return None
    theirs, ours = pair
    later = [each.index > theirs.index for each in parting.theirs.sources] + [each.index > ours.index for each in parting.ours.sources]
    if not all(later) or parting.theirs.leaves or not _repeats(parting):
        return None
    words = f"{theirs.name} compares the same numbers up to rounding and answers otherwise: the program goes another way from there"
    proof = Proof("bounded", "up to there both sides agree in higher precision, and what comes after only repeats what was done before")
    return Finding(Cause.ILL_CONDITIONED, words, proof, [Evidence(words, len(parting.theirs.operations))], operation=theirs)


def branches(parting: Parting) -> bool:
    """Does, or may, the program go another way by numbers that agree in higher precision? What it does then may well be the same."""
    unseen = parting.a.study.escaped + parting.b.study.escaped
    return _branch(parting) is not None or (unseen > 0 and _repeats(parting))


def _branch(parting: Parting) -> tuple[Operation, Operation] | None:
    """(the candidate's comparison, the reference's): the first by which the programs go other ways, if rounding alone can do that."""
    for b, a in zip(_answers(parting.b.study), _answers(parting.a.study), strict=False):
        (name, reads), (other, ours) = _asked(b), _asked(a)
        alike = name == other and len(reads) == len(ours) and sorted(_numbers(a)) == sorted(_numbers(b))
        if not alike or not all(agrees(x.shadow, y.shadow, tolerance=_CLOSE) for x, y in zip(ours, reads, strict=True)):
            return None
        if bool(a.writes[0].shadow.item()) != bool(b.writes[0].shadow.item()):
            return (b, a) if reads and _precision(parting.b, reads) == _precision(parting.a, ours) else None
    return None


def _answers(study: Study) -> Iterator[Operation]:
    single = (each for each in study.operations if len(each.writes) == 1 and each.writes[0].dtype == "bool")
    return (each for each in single if each.writes[0].shadow is not None and each.writes[0].shadow.size == 1)


def _repeats(parting: Parting) -> bool:
    """Does neither region hold anything but what its own side has done before, where the sides agreed?"""
    for region, study in ((parting.theirs, parting.b.study), (parting.ours, parting.a.study)):
        apart = {each.index for each in region.operations}
        before = {_told(each) for each in study.operations if each.index not in apart}
        if not before.issuperset(map(_told, region.operations)):
            return False
    return True


def _finding(found: Sequence[Flip], proof: Proof) -> Finding:
    operation = found[0].theirs
    count, total = sum(int(np.sum(each.mask)) for each in found), sum(each.mask.size for each in found)
    words = f"{operation.name} reads the same up to rounding and decides otherwise for {count:,} of {total:,} elements"
    return Finding(Cause.ILL_CONDITIONED, words, proof, [Evidence(words, count)], operation=operation)


def _flip(parting: Parting, operation: Operation) -> Flip | None:
    name, reads = _asked(operation)
    if not any(read.value.dtype in UNIT for read in reads):  # integers are not rounded
        return None
    for other in parting.a.study.operations:  # not of its region alone: an answer that is yes throughout is found in any run
        theirs, ours = _asked(other)
        if theirs != name or len(ours) != len(reads) or not ours or not _alike_options(operation, other):
            continue
        same = all(agrees(a.shadow, b.shadow, tolerance=_ALIKE) for a, b in zip(ours, reads, strict=True) if a.shadow is not None)
        pairs = _pairs(Flip(operation, other, None))
        if not same or not pairs or _precision(parting.b, reads) != _precision(parting.a, ours):
            continue
        mask = next((value.shadow.reshape(-1) != each.shadow.reshape(-1) for value, each in pairs), None)
        if mask is not None and mask.any():
            return Flip(operation, other, mask.reshape(pairs[0][0].shadow.shape))
    return None


def _asked(operation: Operation) -> tuple[str, list[Any]]:
    """(what is asked, of what): names of one framework as they are, those of several in one spelling."""
    base = operation.name.split(".")[1] if "." in operation.name else operation.name
    name = (_SAME.get(base) or base) if base in _SAME else operation.name
    reads = [read for read in operation.reads if read.shadow is not None]
    return (_MIRRORED[name], reads[::-1]) if name in _MIRRORED and len(reads) > 1 else (name, reads)


def _pairs(flip: Flip) -> list[tuple[Any, Any]]:
    """What both decisions gave, where that is something discrete: not a result that moves with its inputs."""
    every = zip(flip.theirs.writes, flip.ours.writes, strict=False)
    return [
        (a, b)
        for a, b in every
        if a.shadow is not None and b.shadow is not None and a.shadow.size == b.shadow.size and _whole(a) and _whole(b)
    ]


def _whole(value: Any) -> bool:
    if not np.isrealobj(value.shadow):
        return False
    return bool(np.all(~np.isfinite(value.shadow) | (value.shadow == np.rint(value.shadow)))) if value.shadow.dtype.kind == "f" else True


def _alike_options(a: Operation, b: Operation) -> bool:
    return _told(a) == _told(b) if a.name == b.name else sorted(_numbers(a)) == sorted(_numbers(b))


def _told(operation: Operation) -> str:
    return f"{operation.name} {dict(operation.options)}"  # as text: arrays among them have no one answer to ==


def _numbers(operation: Operation) -> Iterator[float]:
    """What else it is told; what says nothing, such as rounding to 0 digits, may stand on one side only."""
    values = operation.options.values()
    return (float(each) for each in values if isinstance(each, (int, float, np.number)) and not isinstance(each, bool) and each)


def _precision(observation: Any, reads: Sequence[Any]) -> float:
    return max((coarsest(observation.study, read.value) for read in reads), default=0.0)


def _follows(parting: Parting, found: Sequence[Flip]) -> bool:
    """Is what follows the same: by the same operations, or with the same elements wherever the decision fell alike?"""
    decisions = {each.theirs.index for each in found}, {each.ours.index for each in found}
    regions = zip((parting.theirs, parting.ours), decisions, strict=True)
    theirs, ours = ([_told(each) for each in side.operations if each.index not in own] for side, own in regions)
    if theirs == ours:
        return True
    a, b = parting.a.known[parting.output].shadow, parting.b.known[parting.output].shadow
    if a.size != b.size:
        return False
    spared = np.ones(a.shape, bool)
    for each in found:
        mask = _spread(each.mask, a.shape)
        if mask is None:
            return False
        spared &= ~mask
    noise = parting.question.splits[parting.output].noise
    return agrees(a[spared], b.reshape(a.shape)[spared], noise=np.broadcast_to(noise, a.shape)[spared])


def _spread(mask: Any, shape: tuple[int, ...]) -> Any:
    """The mask over a result: of its own elements, or of its rows; None where it is neither."""
    if mask.size == int(np.prod(shape)):
        return mask.reshape(shape)
    if mask.shape == shape[: mask.ndim]:
        return np.broadcast_to(mask.reshape(*mask.shape, *[1] * (len(shape) - mask.ndim)), shape)
    return None
