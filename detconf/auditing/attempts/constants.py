"""Constants that one side holds in single precision, or in less, where the other's are doubles.

A mean of `np.array([0.485, 0.456])` against one of `torch.tensor([0.485, 0.456])`, a scalar of `np.float32` against Python's:
the formula is one, and the rounding of a constant is no noise, for it is the same wherever the constant is used. Paired are
values from outside, and numbers that operations were given. It is tried whether the doubles in the other's place explain
the difference of the real results, not only that of the shadows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detconf.auditing.laboratory import Observation, Side
from detconf.auditing.meaning import SEEN
from detconf.auditing.question import Finding, Question, put
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.formats import ROUNDINGS, round_to, unit
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Operation, Value
from detconf.values import Cause

_ROUNDINGS = 8.0
"""Units of roundoff, at the largest element, within which a constant is a rounded version of another."""
_EXPLAINED, _PARTLY = 8.0, 2.0
"""Times that the difference must shrink: where the constants do not show in the meaning, and where they do."""
_DOUBLE = unit("float64")


@dataclass(slots=True)
class _Constants:
    """The constants of one side that the other has in higher precision.

    Attributes:
        fine: their shadows as the other has them: number of a value -> amendment, number of an operation -> options.
        held: values as they are held, where their shadows are the exact numbers.
        words: for each constant, once: what is held.
        operation: the first that is given one.
    """

    fine: dict[int, Callable[[Any], Any]] = field(default_factory=dict)
    options: dict[int, dict[str | int, Any]] = field(default_factory=dict)
    held: dict[int, Callable[[Any], Any]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    operation: Operation | None = None


def constants(question: Question) -> Finding | None:
    """Does one side hold constants in single precision where the other's are doubles?"""
    a, b = question.exact_a, question.exact_b
    if a is None or b is None or len(question.complete) != len(question.differing):
        return None
    for side, own, other in ((question.b, b, a), (question.a, a, b)):
        found = _constants(question, side, own, other)
        finding = _shown(question, side, found, (own, other)) if found.words else None
        if finding is not None:
            return finding
    return None


def _shown(question: Question, side: Side, found: _Constants, exact: tuple[Observation, Observation]) -> Finding | None:
    """Do they explain the difference?

    Args:
        side: that holds them in less.
        exact: the exact runs of that side, and of the other.
    """
    fine = question.laboratory.study(side, amendments=found.fine, alterations=found.options)
    held = question.laboratory.study(side, amendments=found.held) if found.held else exact[0]
    if fine is None or held is None or not question.same_shadows(exact[1].known, fine.known):
        return None
    apart = any(each.units > SEEN for each in question.complete)
    before, after = _distances(question, side, fine, held)
    who, other = ("candidate", "reference") if side is question.b else ("reference", "candidate")
    what = f"with the {other}'s constants in their place, in higher precision, the sides agree"
    evidence = [Evidence(words) for words in dict.fromkeys(found.words)][:8]
    if before and after * (_PARTLY if apart else _EXPLAINED) <= before:
        evidence.append(Evidence("the difference of the results, less what these roundings do, falls to this share", after / before))
        summary = f"the {who} holds constants in a coarser dtype than the {other}: {found.words[0]}"
        fix = Fix(f"hold these constants in the {who} in the precision of the {other} (tried in the float64 shadow)", verified=True)
        return Finding(Cause.DTYPE, summary, Proof("re-created", what, 1 - after / before), evidence, [fix], operation=found.operation)
    if apart and question.same_results(question.real_a, question.real_b) is not None:
        summary = f"the {who}'s constants are the {other}'s, rounded, which shows in higher precision only: the results round them alike"
        return Finding(Cause.ROUNDING, summary, Proof("bounded", what), evidence, operation=found.operation)
    return None


def _distances(question: Question, side: Side, fine: Observation, held: Observation) -> tuple[float, float]:
    """(difference of the real results, what is left less the effect of the constants), root mean squares relative to the results."""
    before = after = 0.0
    for each in question.complete:
        own, other = (each.b, each.a) if side is question.b else (each.a, each.b)
        shape = own.real.shape
        if each.name not in fine.known or each.name not in held.known:
            return 0.0, 0.0
        effect = held.known[each.name].shadow.reshape(shape) - fine.known[each.name].shadow.reshape(shape)
        gap = own.real - other.real.reshape(shape)
        scale = _size(other.real) or 1.0
        before, after = max(before, _size(gap) / scale), max(after, _size(gap - effect) / scale)
    return (before, after) if np.isfinite(before) and np.isfinite(after) else (0.0, 0.0)


def _size(array: Any) -> float:
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.mean(np.abs(array) ** 2))) if array.size else 0.0


def _constants(question: Question, side: Side, own: Observation, other: Observation) -> _Constants:
    found = _Constants()
    values, operations = _reaching(question, own)
    theirs, their_operations = _reaching(question, other)
    doubles = [each for each in theirs if unit(each.dtype) <= _DOUBLE and _real(each)]
    numbers = np.array(sorted(_numbers(doubles, their_operations)))
    reals: list[Value] | None = None
    for leaf in (each for each in values if each.maker < 0 and unit(each.dtype) > _DOUBLE and each.dtype in ROUNDINGS and _real(each)):
        fine = _finer(leaf, doubles, numbers)
        if fine is None:
            continue
        if reals is None:
            reals = _single(question, side, other)
        held = round_to(leaf.shadow, leaf.dtype)
        if any(each.shape == leaf.shape and np.array_equal(each.real, held) for each in reals):
            continue  # the other side rounds its own as well
        found.fine[leaf.index] = put(fine)
        if not np.array_equal(held, leaf.shadow):
            found.held[leaf.index] = put(held)
        found.words.append(f"{leaf.origin or 'an input'} of shape {list(leaf.shape)} is {leaf.dtype}")
        _first(found, [each for each in operations if any(read.value is leaf for read in each.reads)])
    for operation in operations:
        for key, value in operation.options.items():
            exact = _finer_number(value, numbers)
            if exact is not None:
                found.options.setdefault(operation.index, {})[key] = exact
                found.words.append(f"{operation.name} is given {float(value)!r}, which is {exact!r} in float32")
                _first(found, [operation])
    return found


def _first(found: _Constants, operations: list[Operation]) -> None:
    known = [found.operation] if found.operation else []
    found.operation = min([*known, *operations], key=lambda each: each.index, default=None)


def _reaching(question: Question, observation: Observation) -> tuple[list[Value], list[Operation]]:
    """The values that the differing results were computed from, and the operations, in order."""
    roots = [observation.known[name].value for name in question.differing if name in observation.known]
    values, operations = ancestors(observation.study, roots)
    study = observation.study
    return [study.values[index] for index in sorted(values)], [study.operations[index] for index in sorted(operations)]


def _real(value: Value) -> bool:
    return value.shadow is not None and value.shadow.size > 0 and bool(np.issubdtype(value.shadow.dtype, np.floating))


def _single(question: Question, side: Side, other: Observation) -> list[Value]:
    """What the other side has in less than doubles, with its real elements."""
    kept = question.laboratory.study(question.a if side is question.b else question.b, keep_real=True)
    used = {read.value.index for each in other.study.operations for read in each.reads}
    values = kept.study.values if kept else ()
    return [each for each in values if each.real is not None and unit(each.dtype) > _DOUBLE and (each.index in used or each.maker >= 0)]


def _numbers(doubles: Iterable[Value], operations: Iterable[Operation]) -> Iterator[float]:
    """Numbers that a side holds as doubles."""
    for value in doubles:
        if value.shadow.size == 1:
            yield float(value.shadow.reshape(()))
    for operation in operations:
        yield from (float(each) for each in operation.options.values() if isinstance(each, float))


def _finer(leaf: Value, doubles: Iterable[Value], numbers: Any) -> Any:
    """The other side's double of which a constant is a rounded version, and not the same; None where there is none."""
    held = round_to(leaf.shadow, leaf.dtype)
    if leaf.shadow.size == 1:
        exact = _nearest(float(held.reshape(())), numbers, _ROUNDINGS * unit(leaf.dtype))
        return None if exact is None else np.full(leaf.shape, exact)
    bound = _ROUNDINGS * unit(leaf.dtype) * float(np.max(np.abs(held)))
    for each in (each for each in doubles if each.shape == leaf.shape):
        gap = np.abs(each.shadow - held)
        if np.all(gap <= bound) and np.any(gap > 0):
            return each.shadow
    return None


def _finer_number(value: Any, numbers: Any) -> float | None:
    """The double of which a number of float32 is the rounded version; None where it is no such number."""
    if not isinstance(value, (float, np.floating)) or not np.isfinite(value) or float(np.float32(value)) != float(value):
        return None
    return _nearest(float(value), numbers, unit("float32"))


def _nearest(value: float, numbers: Any, relative: float) -> float | None:
    """The number that is nearest, and not the same, within so much; None too where the very same is among them."""
    gaps = np.abs(numbers - value)
    if not gaps.size or np.any(gaps == 0) or gaps.min() > relative * abs(value):
        return None
    return float(numbers[int(gaps.argmin())])
