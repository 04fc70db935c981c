"""An operation that chooses otherwise: among equal elements, or by one option of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from detconf.auditing.attempts.parting import Parting
from detconf.auditing.question import Finding
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.study import Operation, Study
from detconf.values import Cause

_SOURCES = 4
_NUMBERS = 6
_SECONDS = 15.0
"""How many operations and numbers are tried, and for how long."""


def decided(parting: Parting) -> Finding | None:
    """A discrete choice between equal elements, or between elements that rounding may swap."""
    for operation in (each for each in parting.theirs.sources if each.decided and each.reads):
        chosen = next((value.shadow for value in operation.writes if _integers(value.shadow)), None)
        others = [parting.a.known[parting.output].shadow, *(value.shadow for each in parting.ours.operations for value in each.writes)]
        other = next((each for each in others if _integers(each) and chosen is not None and each.shape == chosen.shape), None)
        gap = _gap(operation.reads[0].shadow, chosen, other)
        if gap is None:
            continue
        worst, scale = float(np.max(gap, initial=0.0)), float(np.max(np.abs(operation.reads[0].shadow), initial=0.0))
        if worst == 0:
            count = int(np.count_nonzero(chosen != other))
            words = f"{operation.name} chooses among equal elements in an order that nothing defines: {count} of {gap.size} choices differ"
            proof = Proof("bounded", "the elements that the two sides choose are equal, so that only their order differs", 1.0)
            fix = Fix("use a stable sort, or break ties by index")
            return Finding(Cause.SEMANTICS, words, proof, [Evidence(words, count)], [fix], operation=operation)
        if worst <= _NEAR * scale:
            words = f"{operation.name} chooses between elements that are {worst:.1e} apart, which rounding may swap"
            proof = Proof("bounded", "the elements that the two sides choose differ by no more than rounding")
            return Finding(Cause.ILL_CONDITIONED, words, proof, [Evidence(words, worst)], operation=operation)
    return None


_NEAR = 1e-6


def _integers(shadow: Any) -> bool:
    return shadow is not None and np.issubdtype(shadow.dtype, np.integer)


def _gap(read: Any, chosen: Any, other: Any) -> Any:
    """How far the chosen elements of the two sides are apart; None where indices do not index what was read."""
    if read is None or chosen is None or other is None or chosen.shape != other.shape or not np.isrealobj(read):
        return None
    if chosen.size == 1 and chosen.ndim < read.ndim - 1:  # of the whole array
        read, chosen, other = read.reshape(-1), chosen.reshape(-1), other.reshape(-1)
    for axis in range(read.ndim - 1, -1, -1):
        a, b = (np.expand_dims(each, axis) if each.ndim == read.ndim - 1 else each for each in (chosen, other))
        if _indexes(a, read, axis) and _indexes(b, read, axis):
            return np.abs(np.take_along_axis(read, a, axis) - np.take_along_axis(read, b, axis))
    return None


def _indexes(chosen: Any, read: Any, axis: int) -> bool:
    same = chosen.ndim == read.ndim and all(
        a == b for place, (a, b) in enumerate(zip(chosen.shape, read.shape, strict=True)) if place != axis
    )
    return same and bool(np.all((chosen >= 0) & (chosen < read.shape[axis])))


def unlike(parting: Parting) -> Finding | None:
    """The same operations in the same order with other numbers: a parameter, or what a schedule makes of one."""
    ours, theirs = _by_name(parting.a.study), _by_name(parting.b.study)
    alterations: dict[int, dict[str | int, Any]] = {}
    series: dict[tuple[str, str | int], tuple[list[Any], list[Any]]] = {}
    for name in (name for name in theirs if len(theirs[name]) == len(ours.get(name, ()))):
        for x, y in zip(ours[name], theirs[name], strict=True):
            for key in (key for key in y.options if is_number(y.options[key]) and is_number(x.options.get(key))):
                a, b = series.setdefault((name, key), ([], []))
                a.append(x.options[key])
                b.append(y.options[key])
                if a[-1] != b[-1]:
                    alterations.setdefault(y.index, {})[key] = a[-1]
    if not alterations or not parting.repaired(alterations=alterations):
        return None
    name, key = next(each for each, (a, b) in series.items() if a != b)
    a, b = series[name, key]
    restarted = any(_restarts(a, b, anyway=parting.restores) or (parting.resumes and _falls_back(a, b)) for a, b in series.values())
    first = next(place for place, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    words = f"{name}: {key} is {a[first]!r} in the reference and {b[first]!r} in the candidate"
    proof = Proof("removed", f"with the reference's numbers in {len(alterations)} operations, in higher precision, the sides agree")
    operation = parting.b.study.operations[min(alterations)]
    if restarted:
        summary = f"{words}: the candidate's schedule starts again where the reference's goes on"
        return Finding(
            Cause.STATE, summary, proof, [Evidence(words)], [Fix("save and load the schedule's state with the rest")], operation=operation
        )
    fix = Fix(f"give {key} of {name} the reference's value, {a[first]!r} (tried in the float64 shadow)", verified=True)
    return Finding(Cause.SEMANTICS, words, proof, [Evidence(words, len(alterations))], [fix], operation=operation)


def _by_name(study: Study) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = {}
    for each in study.operations:
        found.setdefault(each.name, []).append(each)
    return found


def is_number(value: Any) -> bool:
    """A number of Python's or NumPy's, but no switch."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _restarts(a: Sequence[Any], b: Sequence[Any], *, anyway: bool) -> bool:
    """Does `b` begin as `a` does, and later begin once more? A constant may only lack the schedule, unless a state was loaded."""
    if a == b or len(set(a)) < 2 or (len(set(b)) < 2 and not anyway):
        return False
    return any(list(b[:at]) == list(a[:at]) and list(b[at:]) == list(a[: len(b) - at]) for at in range(1, len(b)))


def _falls_back(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Does `b` go with `a`, which a schedule changes, until some time, and then its own way?"""
    return a != b and a[0] == b[0] and len(set(a)) > 1


def optional(parting: Parting) -> Finding | None:
    """One option of the operation at which they part has another value."""
    others = _numbers_of(parting.ours.operations)
    end = time.process_time() + _SECONDS
    operations = {each.index: each for each in (*parting.theirs.sources[:_SOURCES], *parting.theirs.operations[:_SOURCES])}
    for operation, key, value, other in _trials(list(operations.values()), others):
        if time.process_time() > end:
            parting.question.tried.append("other options of the operations where the sides part: not all of them, for lack of time")
            break
        if parting.repaired(alterations={operation.index: {key: other}}):
            words = f"{operation.name}: {key}={value!r} on one side; with {other!r} the sides agree"
            proof = Proof("removed", f"with {key}={other!r} in place of {value!r}, in higher precision, the sides agree")
            fix = Fix(f"set {key} of {operation.name} to {other!r} (tried in the float64 shadow)", verified=True)
            cause = Cause.MODE if key in _MODES else Cause.SEMANTICS
            return Finding(cause, words, proof, [Evidence(words)], [fix], operation=operation)
    return None


_MODES = ("train", "training", "is_training", "is_test", "use_global_stats", "use_input_stats")
"""Options by which operations are told whether they run in training."""


def _trials(operations: Sequence[Operation], others: Sequence[float]) -> Iterator[tuple[Operation, str | int, Any, Any]]:
    """(operation, option, its value, another)."""
    for operation in operations:
        for key, value in operation.options.items():
            # A switch of an operation that writes its arguments may ask for another argument: some builds crash without it.
            if not (isinstance(value, bool) and operation.name.endswith("_")):
                yield from ((operation, key, value, other) for other in _alternatives(value, others) if harmless(key, value, other))


def _numbers_of(operations: Sequence[Operation]) -> list[float]:
    """Numbers that the reference's operations there have as options, or read as single elements."""
    found = [float(value) for each in operations[:50] for value in each.options.values() if type(value) in (int, float)]
    reads = (read for each in operations[:50] for read in each.reads if read.value.maker < 0 and read.value.shape == ())
    found += [float(read.shadow) for read in reads if read.shadow is not None and not np.iscomplexobj(read.shadow)]
    return list(dict.fromkeys(found))[:_NUMBERS]


def _alternatives(value: Any, others: Sequence[float]) -> Iterator[Any]:
    """Other values of an option: the opposite of a switch, the complement of a share, the numbers of the other side."""
    if isinstance(value, bool):
        yield not value
    elif value is None:
        yield from (0, 1)
    elif isinstance(value, int):
        yield from (each for each in (0, 1, value - 1, value + 1) if each != value)
    elif isinstance(value, float):
        yield from (each for each in (*others, 1 - value, 0.0, 1.0) if each != value)
    elif isinstance(value, str):
        yield from words_like(value)


_VOCABULARIES = (
    ("none", "tanh"),
    ("none", "mean", "sum"),
    ("reflect", "replicate", "circular", "constant"),
    ("upscale_in_train", "downscale_in_infer"),
    ("backward", "ortho", "forward"),
)
_COUNTS = frozenset(("groups", "num_groups", "group", "upscale_factor", "downscale_factor", "num_classes", "num_samples", "k"))


def words_like(value: str) -> list[str]:
    """Words that an option may have in place of one; a word of no known vocabulary may be an equation, a path, or data."""
    return [each for each in dict.fromkeys(each for words in _VOCABULARIES if value in words for each in words) if each != value]


def harmless(key: str | int, value: Any, other: Any) -> bool:
    """May another value be tried here? Not every kernel checks: none of a count (of groups) divides by zero and ends the process."""
    counts = isinstance(key, int) or key in _COUNTS
    return not (counts and type(value) is int and value > 0 and isinstance(other, int) and other < 1)
