"""Where the reference goes on from a state, the candidate starts from a fresh one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from detconf.auditing.attempts.parting import Parting, part
from detconf.auditing.laboratory import Observation
from detconf.auditing.question import Finding, Question, put
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.pool import Pool
from detconf.shadows.regions import plain
from detconf.shadows.study import Operation, Study, Value
from detconf.values import Cause


@dataclass(slots=True)
class Restored:
    """What was put back into the candidate, by the operation that reads it.

    Attributes:
        states: name of an operation -> amendments of what it read fresh.
        numbers: name of an operation -> alterations of its options.
    """

    states: dict[str, dict[int, Callable[[Any], Any]]] = field(default_factory=dict)
    numbers: dict[str, dict[int, dict[str | int, Any]]] = field(default_factory=dict)

    def with_(self, other: Restored) -> Restored:
        """Both together."""
        return Restored(_joined(self.states, other.states), _joined(self.numbers, other.numbers))

    def without(self, kind: str, name: str) -> Restored:
        """But for the states, or the numbers, of one operation."""
        kept = {each: {key: value for key, value in getattr(self, each).items() if (each, key) != (kind, name)} for each in _KINDS}
        return Restored(**kept)

    def parts(self) -> list[tuple[str, str]]:
        """("states" or "numbers", name of an operation)."""
        return [(kind, name) for kind in _KINDS for name in getattr(self, kind)]

    def tried(self, question: Question) -> Observation | None:
        """The candidate with all of it."""
        amendments = {index: amend for each in self.states.values() for index, amend in each.items()}
        alterations = {index: options for each in self.numbers.values() for index, options in each.items()}
        return question.laboratory.study(question.b, amendments=amendments, alterations=alterations)


_KINDS = ("states", "numbers")
_ROUNDS, _PARTS = 8, 6
"""How often more is put back, once some is; and up to how many parts each is left out in turn."""


def _joined(a: Mapping[str, Mapping[int, Any]], b: Mapping[str, Mapping[int, Any]]) -> dict[str, dict[int, Any]]:
    return {name: {**a.get(name, {}), **b.get(name, {})} for name in (*a, *(name for name in b if name not in a))}


def carried(parting: Parting) -> Finding | None:
    """Where the reference goes on from a state, the candidate starts from a fresh one."""
    if not _states(parting).states:
        return None
    found = _more(parting, Restored())
    if found is None:
        parting.question.tried.append("the reference's state put where the candidate's is fresh: still different")
        return None
    restored, after = found
    fixed = len(_fixed(parting, after))
    names = [parting.output] if _agrees(parting, after, parting.output) else []
    restored, names = _others(parting, restored, after, names)
    return _finding(parting, _needed(parting, restored, names), names, fixed)


def _more(parting: Parting, restored: Restored) -> tuple[Restored, Observation] | None:
    """Put back what the sources of a parting lack, and their numbers: a schedule, or the count of steps, goes with a state.

    What is lacking after a state was put back is rather a number.
    """
    states, numbers = _states(parting), _numbers(parting)
    best, found = 0, None
    for new in (*([numbers] if restored.parts() else []), states, *([states.with_(numbers)] if numbers.parts() else [])):
        trial = restored.with_(new)
        after = trial.tried(parting.question) if new.parts() else None
        fixed = len(_fixed(parting, after)) if after else 0
        if after and _agrees(parting, after, parting.output):
            return trial, after
        if after and fixed > best:
            best, found = fixed, (trial, after)
    return found


def _others(parting: Parting, restored: Restored, after: Observation, names: list[str]) -> tuple[Restored, list[str]]:
    """What else was forgotten: shown where the sides part next. Returns all that was put back, and the results that agree with it."""
    question, a, tolerance = parting.question, parting.a, parting.pool.tolerance
    for _ in range(_ROUNDS):
        names = [each.name for each in question.complete if _agrees(parting, after, each.name)]
        left = [each.name for each in question.complete if each.name not in names and each.name in after.known and each.name in a.known]
        if not left:
            break
        name = min(left, key=lambda name: after.known[name].value.index)
        found = _more(part(question, a, after, name, tolerance), restored)
        if found is None:
            break
        restored, after = found
    return restored, names


def _needed(parting: Parting, restored: Restored, names: list[str]) -> Restored:
    """Leave out what these results agree without."""
    if not names or not 1 < len(restored.parts()) <= _PARTS:
        return restored
    for each in restored.parts():
        less = restored.without(*each)
        after = less.tried(parting.question) if less.parts() else None
        if after and all(_agrees(parting, after, name) for name in names):
            restored = less
    return restored


def _agrees(parting: Parting, after: Observation, name: str) -> bool:
    return parting.question.same_shadows(parting.a.known, after.known, [name])


def _fixed(parting: Parting, after: Observation) -> list[Operation]:
    """The sources that give the reference's results now."""
    operations = after.study.operations
    if len(operations) <= max(each.index for each in parting.theirs.sources):
        return []
    return [each for each in parting.theirs.sources if all(parting.pool.find(value.shadow) for value in operations[each.index].writes)]


def _finding(parting: Parting, restored: Restored, names: list[str], fixed: int) -> Finding:
    first = parting.theirs.sources[0]
    count = sum(map(len, restored.states.values()))
    summary = f"the reference goes on from the state that earlier steps left; the candidate starts from a fresh one at {first.name}"
    what = (
        f"with the reference's state there, the sides agree in {', '.join(names)}"
        if names
        else f"with the reference's state there, {fixed} of {len(parting.theirs.sources)} operations give its results"
    )
    reading = ", ".join(sorted(restored.states))
    evidence = [Evidence(f"fresh states where the reference's are carried on: {count}, read by {reading}", count)]
    for name, each in restored.numbers.items():
        words = f"{name} has other numbers too, of a schedule or a count of steps that starts again: the reference's were put back with the state"
        evidence.append(Evidence(words, len(each)))
    schedule = ", and the schedule's state" if restored.numbers else ""
    fix = Fix(f"save and load the optimizer's state, and every buffer, with the weights{schedule}")
    return Finding(Cause.STATE, summary, Proof("removed", what), evidence, [fix], operation=first)


def _states(parting: Parting) -> Restored:
    """What the sources read fresh."""
    found = Restored()
    for operation in parting.theirs.sources:
        anew = next(filter(None, (_slots(operation, twin, parting) for twin in _twins(operation, parting))), {})
        if anew:
            found.states.setdefault(operation.name, {}).update(anew)
    return found


def _numbers(parting: Parting) -> Restored:
    """The numbers that the reference's twins of the sources have as options, where they are others."""
    found = Restored()
    for operation in parting.theirs.sources:
        for twin in _twins(operation, parting)[:1]:
            others = {key: value for key, value in twin.options.items() if isinstance(value, float) and operation.options.get(key) != value}
            if others:
                found.numbers.setdefault(operation.name, {})[operation.index] = others
    return found


def _starts_anew(operation: Operation, place: int, other: Value, parting: Parting) -> bool:
    """Is what the candidate reads there fresh, where the reference's goes back to earlier steps?

    A buffer that an optimizer makes at its first step is computed, of the gradient: fresh is then what does not go back,
    in a candidate that does carry the like on at other steps (one that never does has another formula, not another state).
    """
    value, study = operation.reads[place].value, parting.b.study
    if _fresh(value):
        return not _fresh(other) and other.maker >= 0
    if parting.restores and _read_before(operation, place, other, parting):
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
    """The reference's operations of that name with the most equal inputs, but some; the likeliest first.

    Of two, the one that writes into the same is likelier, and then the one that has more options alike: the step of a parameter
    and the update of its momentum may be one kind of operation, and read one gradient.
    """
    found: list[tuple[tuple[int, bool, int], Operation]] = []
    for other in parting.ours.operations:
        if other.name == operation.name and len(other.reads) == len(operation.reads):
            equal = [_same(x.shadow, y.shadow) for x, y in zip(operation.reads, other.reads, strict=True)]
            alike = sum(operation.options.get(key) == value for key, value in other.options.items())
            found += [((sum(equal), equal[0], alike), other)] if any(equal) else []
    found.sort(key=lambda pair: pair[0], reverse=True)
    return [other for (equal, _, _), other in found if equal == found[0][0][0]]


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None or a.shape != b.shape:
        return False
    return bool(Pool([(0, a)], 1e-9).find(b))
