"""The axis `resume`: a training that is stopped and resumed, against one that runs through, step by step.

A difference that is there at the first resumed step, and was not before the stop, is in state that was not saved: that
is the definition of the cause. Which state it was is read off what the optimizer finds before its first step, and off
that step's learning rate, generators and loss, in this order.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from detconf.arrays import Array, Place
from detconf.causes.changes import Change, Setting
from detconf.comparison import Divergence, Kind, differences, diverge
from detconf.digests import BUFFER, ENTRY
from detconf.errors import TargetError
from detconf.execution import InChildren
from detconf.recording.generators import PREFIX
from detconf.stepwise import locate
from detconf.stopping import VARIABLE
from detconf.targets import Target
from detconf.values import Cause
from detconf.verification import Axis

NAME = "resume"
Results = Mapping[Place, Array]
_PARAMETERS, _OPTIMIZER, _RATE, _GENERATOR, _DATA = "parameters", "optimizer state", "learning rate", "generator state", "data order"
_SCALE, _BUFFERS, _OTHER = "scale of a gradient scaler", "buffers of the model", "other state"
_UNTOLD = "a data order that is drawn from a generator is not told apart from its state"
_SAVE = {
    _PARAMETERS: "the parameters are not those of the step before",
    _OPTIMIZER: "what the optimizer keeps was not restored",
    _RATE: "the learning rate is another: the state of its schedule was not restored",
    _GENERATOR: "the generator is not where it was",
    _DATA: "the loss differs while parameters, optimizer, learning rate and generators agree: other data was read",
    _SCALE: "the state of the scaler was not restored",
    _BUFFERS: "what the model keeps beside its parameters, such as running statistics, was not restored",
    _OTHER: "what is known of agrees: gradients that had been summed up, buffers of the model, or options of the optimizer may not",
}


@dataclass(frozen=True, slots=True)
class Resume:
    """What was asked for: the command that resumes, and the steps after which the other one is stopped."""

    command: list[str]
    steps: int


def wanted(target: Target, command: str | Sequence[Any], stop_at: int | None, steps: int | None) -> Resume | None:
    """The arguments of `verify`, checked; None where no resume was asked for.

    Raises:
        TargetError: they cannot be used.
    """
    for name, number in (("stop_at", stop_at), ("steps", steps)):
        if number is not None and not (type(number) is int and number > 0 and isinstance(target, list)):
            msg = f"{name}: {number!r} is not accepted. Accepted: a number of optimizer steps, 1 or more, for a command."
            raise TargetError(msg)
    words = shlex.split(command) if isinstance(command, str) else [os.fspath(word) for word in command]
    if bool(words) != (stop_at is not None):
        msg = "resume_with and stop_at belong together: the command that resumes, and the number of steps after which the first one is stopped."
        raise TargetError(msg)
    return Resume(words, stop_at) if stop_at is not None else None


def judge(resume: Resume, children: InChildren, whole: Results, still: tuple[Change, ...]) -> Axis:
    """Stop the command, resume it, and compare.

    Args:
        resume, children: how, and what runs it; whole, still: what it gave in one go, and what its reruns needed to agree.

    Raises:
        TargetError: a run failed, or the runs cannot be compared.
    """
    stop = Change(words=f"stopped after {resume.steps} steps", cause=Cause.STATE, environment={VARIABLE: str(resume.steps)})
    stopped = _one(children, Setting((*still, stop)), "the run that was to be stopped")
    resumed = _one(replace(children, target=resume.command), Setting(still), "the resumed run")
    axis = judged(whole, stopped, resumed, resume.steps)
    if axis.divergence is None:
        return axis
    begun = _begun(whole, resumed, resume.steps)
    at = begun if axis.divergence.step is None else axis.divergence.step, begun
    return replace(axis, operation=locate(children, resume.command, (Setting(still), Setting((*still, stop))), at))


def _one(children: InChildren, setting: Setting, what: str) -> Results:
    (run,) = children.runs(1, setting)
    if run.ending.reason:
        said = "".join(f"\n  {line}" for line in run.ending.lines)
        msg = f"resume: {what} failed ({run.ending.reason}).{said}"
        raise TargetError(msg)
    return run.results


@dataclass(frozen=True, slots=True)
class _Missing:
    """One kind of state that is not what it was: the first array of it, and how it differs."""

    kind: str
    found: Divergence


def judged(whole: Results, stopped: Results, resumed: Results, steps: int) -> Axis:
    """The axis.

    Args:
        whole: of the run that went through.
        stopped: of the run that was stopped.
        resumed: of the run that went on from there.
        steps: after which it was stopped.

    Raises:
        TargetError: the runs cannot be compared.
    """
    _require(whole, stopped, resumed, steps)
    begun = _begun(whole, resumed, steps)
    shifted = {place._replace(step=(place.step or 0) + begun): array for place, array in _states(resumed).items()}
    compared = max(place.step or 0 for place in shifted) + 1 - begun
    note = f"stopped after {steps} steps, resumed after {begun}, {compared} steps compared"
    first = next(_later(whole, shifted, begun), None) or next(_named(whole, resumed, begun), None)
    if first is None:
        idle = [each.found.name for each in _generators(whole, shifted, begun)]
        return Axis(NAME, True, None, note=note + (f"; {', '.join(idle)} differs, without an effect there" if idle else ""))
    missing = list(_missing(whole, shifted, begun, first))
    evidence = tuple(f"{each.kind}: {_SAVE[each.kind]} ({_shown(each.found)})" for each in missing)
    if _loss(first) and any(each.kind == _GENERATOR for each in missing):
        evidence += (_UNTOLD,)
    kinds = ", ".join(dict.fromkeys(each.kind for each in missing))
    note += f"; not restored: {kinds}"
    return Axis(NAME, False, missing[0].found, note=note, cause=Cause.STATE, evidence=evidence)


def _require(whole: Results, stopped: Results, resumed: Results, steps: int) -> None:
    made = [_count(each) for each in (whole, stopped, resumed)]
    if made[0] <= steps:
        msg = f"stop_at: {steps} is not accepted: the whole run made {made[0]} optimizer steps that were seen. Accepted: fewer than those."
        raise TargetError(msg)
    if made[1] != steps:
        msg = f"resume: the run that was to stop after {steps} optimizer steps made {made[1]}. Does the command go on from a checkpoint of an earlier run?"
        raise TargetError(msg)
    if not made[2]:
        msg = "resume: the resumed run made no optimizer step. Does it find the checkpoint that the stopped run left?"
        raise TargetError(msg)
    for place, array in _states(stopped).items():
        found = _pair(place, whole.get(place), array)
        if found:
            msg = (
                f"resume: the stopped run differs from the whole one before it was stopped, in {_shown(found)}. "
                "The command must begin anew each time; does it go on from a checkpoint of an earlier run?"
            )
            raise TargetError(msg)


def _states(results: Results) -> dict[Place, Array]:
    return {place: array for place, array in results.items() if place.origin == "state" and place.step is not None}


def _count(results: Results) -> int:
    """Steps that were made: a loss alone is none."""
    return max((place.step or 0 for place in _states(results) if place.name.endswith(".lr") and not _entry(place)), default=-1) + 1


def _entry(place: Place) -> bool:
    return place.name.startswith(ENTRY)


def _loss(found: Divergence) -> bool:
    return found.name == "loss"


def _begun(whole: Results, resumed: Results, steps: int) -> int:
    """After which step the resumed run goes on: where the parameters that it begins with were, else as long as it lasts."""
    kinds = _Kinds(whole)
    entry = [(place, array) for place, array in resumed.items() if _entry(place) and not place.step]
    parameters = [(place, array) for place, array in entry if kinds.of(place.name[len(ENTRY) :]) == _PARAMETERS]
    for begun in range(steps, 0, -1):
        if parameters and all(whole.get(_before(place, begun)) == array for place, array in parameters):
            return begun
    gap = _count(whole) - _count(resumed)
    return gap if 0 < gap <= steps else steps


def _before(place: Place, begun: int) -> Place:
    """Where the whole run has what a resumed one begins with."""
    return place._replace(name=place.name[len(ENTRY) :], step=begun - 1)


class _Kinds:
    """Tells by its name what kind of state an array is: "w.grad" and "w.exp_avg" belong to the parameter "w"."""

    def __init__(self, results: Results) -> None:
        self.names = {place.name for place in results if place.origin == "state"}

    def of(self, name: str) -> str:
        owner = name.rpartition(".")[0]
        if name.startswith(PREFIX):
            return _GENERATOR
        if name.endswith(".lr") and owner not in self.names:
            return _RATE
        if name.startswith(BUFFER):
            return _BUFFERS
        if name in ("loss", "scaler.scale"):
            return _DATA if name == "loss" else _SCALE
        return (_OTHER if name.endswith(".grad") else _OPTIMIZER) if owner in self.names else _PARAMETERS


def _later(whole: Results, shifted: Results, begun: int) -> Iterator[Divergence]:
    """What differs after the stop, in the order of the whole run; generators apart, which may differ without effect."""
    last = max(place.step or 0 for place in shifted)
    for place, array in _states(whole).items():
        if begun <= (place.step or 0) <= last and not _entry(place) and not place.name.startswith(PREFIX):
            found = _pair(place, array, shifted.get(place))
            if found:
                yield found


def _generators(whole: Results, shifted: Results, step: int) -> Iterator[_Missing]:
    """Generators that are elsewhere at the end of a step."""
    for place in dict.fromkeys([*whole, *shifted]):
        if place.origin == "state" and place.step == step and place.name.startswith(PREFIX):
            found = _pair(place, whole.get(place), shifted.get(place))
            if found:
                yield _Missing(_GENERATOR, found)


def _pair(place: Place, ours: Array | None, theirs: Array | None) -> Divergence | None:
    return next(differences(*({} if each is None else {place: each} for each in (ours, theirs))), None)


def _begin(whole: Results, shifted: Results) -> Iterator[_Missing]:
    """What the resumed run's optimizers found before their first step, against what the whole run had left by then."""
    kinds = _Kinds(whole)
    left: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for place in _states(whole):
        if kinds.of(place.name) in (_PARAMETERS, _OPTIMIZER) and not _entry(place):
            left[place.name, place.rank].append(place)
    began = {(place.name[len(ENTRY) :], place.rank): place for place in shifted if _entry(place)}
    for (name, rank), places in left.items():
        kind = kinds.of(name)
        owner = began.get((name if kind == _PARAMETERS else name.rpartition(".")[0], rank))
        last = owner and next((place for place in reversed(places) if (place.step or 0) < (owner.step or 0)), None)
        if owner and last:
            found = _pair(last._replace(step=owner.step), whole[last], shifted.get(owner._replace(name=ENTRY + name)))
            yield from [_Missing(kind, found)] if found else ()


def _missing(whole: Results, shifted: Results, begun: int, first: Divergence) -> Iterator[_Missing]:
    """The first of each kind of state that differs, at least one.

    Before its first step an optimizer has no effect on the loss: where that differs and the parameters do not, generators
    or data do. Where it does not differ, generators had no effect either.
    """
    step = first.step if first.origin == "state" and first.step is not None else begun
    found = [*_begin(whole, shifted), *_rates(whole, shifted, step)]
    generators = list(_generators(whole, shifted, step))
    if _loss(first):
        explained = any(each.kind in (_PARAMETERS, _SCALE) for each in found)
        found += generators or ([] if explained else [_Missing(_DATA, first)])
    firsts: dict[str, _Missing] = {}
    for each in sorted(
        found or generators or [_Missing(_BUFFERS if first.name.startswith(BUFFER) else _OTHER, first)],
        key=lambda each: each.kind != _PARAMETERS,
    ):
        firsts.setdefault(each.kind, each)
    yield from firsts.values()


def _rates(whole: Results, shifted: Results, step: int) -> Iterator[_Missing]:
    """Learning rates, and scales of the loss, that differ in a step."""
    kinds = _Kinds(whole)
    for place, array in _states(whole).items():
        kind = kinds.of(place.name)
        if place.step == step and kind in (_RATE, _SCALE) and not _entry(place):
            found = _pair(place, array, shifted.get(place))
            yield from [_Missing(kind, found)] if found else ()


def _named(whole: Results, resumed: Results, begun: int) -> Iterator[Divergence]:
    """Published values and files that differ: a name published once a step is taken on by as many steps."""
    ours, theirs = (Counter((place.name, place.rank, place.origin) for place in each) for each in (whole, resumed))
    for place, array in whole.items():
        if place.origin == "state":
            continue
        key = (place.name, place.rank, place.origin)
        gap = ours[key] - theirs[key]
        other = resumed.get(place._replace(step=(place.step or 0) - begun) if gap == begun and place.step is not None else place)
        if other is not None and (gap == begun or ours[key] == theirs[key] == 1):
            yield from filter(None, [diverge(place, array, other)])


def _shown(found: Divergence) -> str:
    how = {Kind.MISSING: "is missing", Kind.EXTRA: "is there in addition"}.get(found.kind, "differs")
    rank = f", rank {found.rank}" if found.rank else ""
    return f"{found.name}, step {found.step}{rank}, {how}"
