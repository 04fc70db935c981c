"""Where the reference goes on from a state, the candidate starts from a fresh one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from detconf.auditing.attempts.choices import is_number
from detconf.auditing.attempts.lineage import WAYS, Update, family, is_whole, kind_of, same
from detconf.auditing.attempts.parting import Parting, part
from detconf.auditing.laboratory import Observation
from detconf.auditing.question import Finding, Question, put
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.regions import plain
from detconf.shadows.study import Operation, Value
from detconf.values import Cause


@dataclass(slots=True)
class Restored:
    """What was put back into the candidate, by the operation that reads it.

    Attributes:
        states: name of an operation -> amendments of what it read fresh.
        numbers: name of an operation -> alterations of its options.
        plain: all that was read fresh is zeros or ones.
    """

    states: dict[str, dict[int, Callable[[Any], Any]]] = field(default_factory=dict)
    numbers: dict[str, dict[int, dict[str | int, Any]]] = field(default_factory=dict)
    plain: bool = True

    def with_(self, other: Restored) -> Restored:
        """Both together."""
        return Restored(_joined(self.states, other.states), _joined(self.numbers, other.numbers), self.plain and other.plain)

    def without(self, kind: str, name: str) -> Restored:
        """But for the states, or the numbers, of one operation."""
        kept = {each: {key: value for key, value in getattr(self, each).items() if (each, key) != (kind, name)} for each in _KINDS}
        return Restored(**kept, plain=self.plain)

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
    if not _states(parting):
        return None
    found = _more(parting, Restored())
    if found is None:
        parting.question.tried.append("the reference's state put where the candidate's is fresh: still different")
        return None
    restored, after = found
    fixed = len(_fixed(parting, after))
    names = [parting.output] if _agrees(parting, after, parting.output) else []
    restored, names = _others(parting, restored, after, names)
    if not names and not (restored.plain or parting.restores):  # that an operation gives what it gave, from what it read, shows nothing
        parting.question.tried.append("the reference's state put where the candidate's begins anew: still different")
        return None
    return _finding(parting, _needed(parting, restored, names), names, fixed)


def _more(parting: Parting, restored: Restored) -> tuple[Restored, Observation] | None:
    """Put back what the sources of a parting lack, and their numbers: a schedule, or the count of steps, goes with a state.

    What is lacking after a state was put back is rather a number.
    """
    states, numbers = _states(parting), _numbers(parting)
    best, found = 0, None
    both = [each.with_(numbers) for each in states] if numbers.parts() else []
    for new in (*([numbers] if restored.parts() and numbers.parts() else []), *states, *both):
        trial = restored.with_(new)
        after = trial.tried(parting.question)
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


def _states(parting: Parting) -> list[Restored]:
    """What the sources read fresh, by each way of telling which of the reference's operations is theirs; each once."""
    found: dict[tuple[tuple[int, int], ...], Restored] = {}
    for twins in WAYS:
        restored, taken = Restored(), []
        for operation in parting.theirs.sources:
            slots = next(filter(None, (_slots(operation, twin, parting) for twin in twins(operation, parting))), {})
            for mine, theirs in slots.values():
                restored.states.setdefault(operation.name, {})[mine.index] = put(theirs.shadow.reshape(mine.shape))
                restored.plain = restored.plain and _fresh(mine)
                taken.append((mine.index, theirs.index))
        if taken:
            found.setdefault(tuple(sorted(taken)), restored)
    return list(found.values())


def _numbers(parting: Parting) -> Restored:
    """The numbers that the reference's twins of the sources have as options, where they are others, there and from there on."""
    found = Restored()
    for operation in parting.theirs.sources:
        twins = next(filter(None, (way(operation, parting) for way in WAYS)), [])
        for twin in twins[:1]:
            if _others_than(operation, twin):
                pairs = [(operation, twin), *_later(operation, twin, parting)]
                new = {mine.index: others for mine, theirs in pairs if (others := _others_than(mine, theirs))}
                found.numbers.setdefault(operation.name, {}).update(new)
    return found


def _others_than(operation: Operation, twin: Operation) -> dict[str | int, Any]:
    """The twin's numbers that the operation has not."""
    return {key: value for key, value in twin.options.items() if is_number(value) and operation.options.get(key) != value}


def _later(operation: Operation, twin: Operation, parting: Parting) -> Iterator[tuple[Operation, Operation]]:
    """Those of the same kind behind both, counted from the end: a state that begins anew may be spared its first update."""
    sides = ((operation, parting.b.study), (twin, parting.a.study))
    mine, theirs = ([each for each in study.operations if each.index > at.index and kind_of(each) == kind_of(at)] for at, study in sides)
    yield from zip(reversed(mine), reversed(theirs), strict=False)


def _starts_anew(operation: Operation, place: int, twin: Operation, parting: Parting) -> bool:
    """Is what the candidate reads there fresh, where the reference's goes back to earlier steps?

    Fresh is what is zeros or ones, and what has fewer updates behind it than the reference's (a copy of the weights for an
    average of them, a first gradient for a momentum) in a candidate that had carried it on further before. One that never
    did has another formula, not another state.
    """
    value, other = operation.reads[place].value, twin.reads[place].value
    if _fresh(value):
        return not _fresh(other) and other.maker >= 0
    if parting.restores and _read_before(operation, place, other, parting):
        return True
    update = Update.of(other, parting.a.study)
    if update is None:
        return False
    mine, theirs = parting.b.study, parting.a.study
    count = update.count(value, mine)
    before = (each.reads[place].value for each in family(operation, mine) if each.index < operation.index)
    return count < update.count(other, theirs) and any(update.count(each, mine) > count for each in before)


def _read_before(operation: Operation, place: int, other: Value, parting: Parting) -> bool:
    """After a resume: did the reference read this very value there at an earlier time than the one it reads now?"""
    earlier = (each for each in parting.a.study.operations if each.name == operation.name and len(each.reads) > place)
    value = operation.reads[place].value
    return any(each.reads[place].value.index < other.index and same(each.reads[place].shadow, value.shadow) for each in earlier)


def _fresh(value: Value) -> bool:
    """Nothing but zeros or ones: how states begin."""
    return value.shadow is not None and plain(value.shadow)


_BEHIND = 2
"""Operations behind the one where the sides part, at which a fresh state may have been read: what it gave was there before."""


def _slots(operation: Operation, twin: Operation, parting: Parting, deep: int = _BEHIND) -> dict[int, tuple[Value, Value]]:
    """What the operation, or those that made what it reads, read fresh: its number -> (it, what the twin in the reference reads)."""
    found: dict[int, tuple[Value, Value]] = {}
    for place, (read, other) in enumerate(zip(operation.reads, twin.reads, strict=True)):
        value, theirs = read.value, other.value
        if read.shadow is None or other.shadow is None or same(read.shadow, other.shadow):
            continue
        fits = value.shape == theirs.shape or (is_whole(read) and is_whole(other))
        if fits and read.shadow.shape == other.shadow.shape and _starts_anew(operation, place, twin, parting):
            found[value.index] = value, theirs
        elif deep and value.maker >= 0 and theirs.maker >= 0:
            makers = parting.b.study.operations[value.maker], parting.a.study.operations[theirs.maker]
            found |= _slots(*makers, parting, deep - 1) if kind_of(makers[0]) == kind_of(makers[1]) else {}
    return found
