"""Where the reference goes on from a state, the candidate starts from a fresh one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detconf.auditing.parting import Parting
from detconf.auditing.question import Finding, put
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.pool import Pool
from detconf.shadows.regions import plain
from detconf.shadows.study import Operation, Study, Value
from detconf.values import Cause


def carried(parting: Parting) -> Finding | None:
    """Where the reference goes on from a state, the candidate starts from a fresh one."""
    amendments: dict[int, Callable[[Any], Any]] = {}
    named: list[str] = []
    for operation in parting.theirs.sources:
        anew = next(filter(None, (_slots(operation, twin, parting) for twin in _twins(operation, parting))), {})
        amendments |= anew
        named += [operation.name] * len(anew)
    if not amendments:
        return None
    whole, fixed = _tried(parting, amendments, {})
    if not whole and not fixed:  # a schedule may have been forgotten with it
        whole, fixed = _tried(parting, amendments, _numbers(parting))
    if not whole and not fixed:
        parting.question.tried.append("the reference's state put where the candidate's is fresh: still different")
        return None
    first = parting.theirs.sources[0]
    summary = f"the reference goes on from the state that earlier steps left; the candidate starts from a fresh one at {first.name}"
    what = (
        "with the reference's state there, the sides agree"
        if whole
        else f"with the reference's state there, {len(fixed)} of {len(parting.theirs.sources)} operations give its results"
    )
    evidence = [
        Evidence(
            f"fresh states where the reference's are carried on: {len(amendments)}, read by {', '.join(sorted(set(named)))}",
            len(amendments),
        )
    ]
    return Finding(
        Cause.STATE,
        summary,
        Proof("removed", what),
        evidence,
        [Fix("save and load the optimizer's state, and every buffer, with the weights")],
        operation=first,
    )


def _tried(
    parting: Parting, amendments: dict[int, Callable[[Any], Any]], alterations: dict[int, dict[str | int, Any]]
) -> tuple[bool, list[Operation]]:
    """With these repairs: do the sides agree, and which of the sources give the reference's results?"""
    found = parting.question.laboratory.study(parting.question.b, amendments=amendments, alterations=alterations)
    if found is None or len(found.study.operations) <= max(each.index for each in parting.theirs.sources):
        return False, []
    whole = parting.question.same_shadows(parting.a.known, found.known, [parting.output])
    after = found.study.operations
    fixed = [each for each in parting.theirs.sources if all(parting.pool.find(value.shadow) for value in after[each.index].writes)]
    return whole, fixed


def _numbers(parting: Parting) -> dict[int, dict[str | int, Any]]:
    """The numbers that the reference's twins of the sources have as options, where they are others."""
    found: dict[int, dict[str | int, Any]] = {}
    for operation in parting.theirs.sources:
        for twin in _twins(operation, parting)[-1:]:
            others = {key: value for key, value in twin.options.items() if isinstance(value, float) and operation.options.get(key) != value}
            if others:
                found[operation.index] = others
    return found


def _starts_anew(operation: Operation, place: int, other: Value, parting: Parting) -> bool:
    """Is what the candidate reads there fresh, where the reference's goes back to earlier steps?

    A buffer that an optimizer makes at its first step is computed, of the gradient: fresh is then what does not go back,
    in a candidate that does carry the like on at other steps (one that never does has another formula, not another state).
    """
    value, study = operation.reads[place].value, parting.b.study
    if _fresh(value):
        return not _fresh(other) and other.maker >= 0
    seen = parting.question.captured
    if seen[1].restored > seen[0].restored and _read_before(operation, place, other, parting):
        return True
    if _goes_back(value, study) or not _goes_back(other, parting.a.study):
        return False
    alike = (each for each in study.operations if each.name == operation.name and len(each.reads) > place)
    return any(_goes_back(each.reads[place].value, study) for each in alike)


def _read_before(operation: Operation, place: int, other: Value, parting: Parting) -> bool:
    """After a resume: did the reference read this very value there at an earlier time than the one it reads now?"""
    earlier = (each for each in parting.a.study.operations if each.name == operation.name and len(each.reads) > place)
    value = operation.reads[place].value
    return any(each.reads[place].value.index < other.index and _same(each.reads[place].shadow, value.shadow) for each in earlier)


def _goes_back(value: Value, study: Study) -> bool:
    """Was it updated in place, step after step?"""
    step = study.operations[value.maker].step if value.maker >= 0 else 0
    while value.maker >= 0:
        maker = study.operations[value.maker]
        if maker.step < step:
            return True
        if not maker.name.partition(".")[2].partition(".")[0].endswith("_") or not maker.reads:
            return False
        value = maker.reads[0].value
    return False


def _fresh(value: Value) -> bool:
    """Nothing but zeros or ones: how states begin."""
    return value.shadow is not None and plain(value.shadow)


def _slots(operation: Operation, twin: Operation, parting: Parting) -> dict[int, Callable[[Any], Any]]:
    """What the operation reads fresh, to be amended by what its twin in the reference reads."""
    found = {}
    for place, (read, other) in enumerate(zip(operation.reads, twin.reads, strict=True)):
        fits = read.shadow is not None and other.shadow is not None and read.shadow.shape == other.shadow.shape == read.value.shape
        if fits and not _same(read.shadow, other.shadow) and _starts_anew(operation, place, other.value, parting):
            found[read.value.index] = put(other.shadow)
    return found


def _twins(operation: Operation, parting: Parting) -> list[Operation]:
    """The reference's operations of that name with the most equal inputs, some but not all."""
    found: list[tuple[int, Operation]] = []
    for other in parting.ours.operations:
        if other.name == operation.name and len(other.reads) == len(operation.reads):
            equal = sum(_same(x.shadow, y.shadow) for x, y in zip(operation.reads, other.reads, strict=True))
            found += [(equal, other)] if 0 < equal < len(operation.reads) else []
    most = max((equal for equal, _ in found), default=0)
    return [other for equal, other in found if equal == most]


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None or a.shape != b.shape:
        return False
    return bool(Pool([(0, a)], 1e-9).find(b))
