"""A test command as a laboratory: each run is the unmodified command, stopped at the comparison in question.

The comparison's operands are the two sides. Both come out of one run, so a run serves both.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from detconf.arrays import Array
from detconf.auditing.assertions.attending import ANSWER, AT, SEED, VARIABLE
from detconf.auditing.assertions.comparisons import Comparison
from detconf.auditing.assertions.forking import SERVED, Forks
from detconf.auditing.assertions.pairs import Numbering, one_side
from detconf.auditing.elsewhere import conditions, kept
from detconf.auditing.elsewhere.packing import Unpacked
from detconf.auditing.elsewhere.remote import Verified
from detconf.auditing.elsewhere.requests import CHANGES, Request, evaluated
from detconf.auditing.laboratory import Laboratory, Observation, Side
from detconf.errors import TargetError
from detconf.launch import INJECT
from detconf.supervise import Ending, supervise
from detconf.values import Cause

_TIMEOUT = 1800.0
_SEEDS = 1 << 32
_AGAIN = 4


def _seed() -> int:
    """The seed that the user gives, else any."""
    text = os.environ.get("DETCONF_SEED", "")
    return int(text) if text.isdecimal() and int(text) < _SEEDS else secrets.randbelow(_SEEDS)


class Operand:
    """The function of a side: called, it gives the operand of another plain run.

    Args:
        role: "actual" or "desired".
    """

    def __init__(self, role: str, laboratory: CommandLaboratory) -> None:
        self.role, self._laboratory = role, laboratory
        self.elsewhere = laboratory.comparison.file if laboratory.comparison else ""
        self.__qualname__ = f"the {role} operand"

    def __call__(self) -> Mapping[str, Array]:
        return self._laboratory.plain(Side(self.__qualname__, self))

    def verified(self) -> Verified:
        """It did not repeat itself in processes that start from the same seeds; the command is not taken apart for that."""
        results = [self() for _ in range(_AGAIN)]
        return Verified(len({tuple(sorted((name, each.digest) for name, each in found.items())) for found in results}), Cause.UNKNOWN, ())


@dataclass(slots=True)
class Run:
    """What one run of the command gave.

    Attributes:
        whole: both operands; None where it was not stopped at a comparison.
        comparison: where it was stopped.
        number: of that comparison among those reached.
        reached: comparisons made in all.
        seen: under conditions.
        ending: how the command ended.
        served: roles that have had their results of this run.
    """

    whole: Observation | None
    comparison: Comparison | None
    number: int
    reached: int
    seen: dict[str, Any]
    ending: Ending
    served: set[str] = field(default_factory=set)


@dataclass(slots=True)
class CommandLaboratory(Laboratory):
    """See the module.

    Attributes:
        command: its words.
        folder: for requests and answers.
        seed: that all generators start from, in each run.
        at: number of the comparison in question; None until the first run has met one that fails.
        comparison: that comparison.
        environment: more variables of the command.
        exact: the exact run of each role.
    """

    command: Sequence[str] = ()
    folder: str = ""
    seed: int = field(default_factory=_seed)
    at: int | None = None
    comparison: Comparison | None = None
    environment: dict[str, str] = field(default_factory=dict)
    _runs: dict[str, Run] = field(default_factory=dict)
    _numbering: dict[str, Numbering] = field(default_factory=dict)
    exact: dict[str, Observation] = field(default_factory=dict)
    _forks: dict[str, Forks] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)
    _capturing: set[str] = field(default_factory=set)
    _offered: dict[str, tuple[str, Cause]] = field(default_factory=dict)

    def plain(self, side: Side, *, put_back: bool = True, inside: AbstractContextManager[Any] | None = None) -> dict[str, Array]:
        del put_back  # each run is a process of its own, which starts from the same seeds
        with inside or nullcontext():
            run = self._shared(Request(), _role(side))
        whole = self._whole(run)
        return one_side(whole, _role(side))[0].arrays

    def study(self, side: Side, **options: Any) -> Observation | None:
        role = _role(side)
        try:
            whole = self._whole(self._studied(role, options))
        except TargetError as error:
            if not CHANGES & set(options):  # a change that cannot be carried out is no loss
                self.problems[side.label] = str(error)
            return None
        found, numbering = one_side(whole, role, self._numbering.get(role))
        if not options:
            self._numbering[role], self.exact[role] = numbering, found
        return found

    def _studied(self, role: str, options: Mapping[str, Any]) -> Run:
        own = evaluated(options, lambda index: self._shadow(role, index))
        if not any(own.get(name) for name in CHANGES) or role not in self._numbering:
            return self._shared(Request(kind="study", options=own), role)
        return self._forked(Request(kind="study", options=self._numbering[role].outward(own)))

    def _forked(self, request: Request) -> Run:
        """The run of a request of which many are made."""
        request.conditions = _active()
        if request.kind == "study" and (request.conditions or not set(request.options) <= SERVED):
            return self.run(request)
        folder, asked, answer = self._place()
        return _met(folder, answer, Ending()) if self._copies(request.kind).run(request, asked, answer) else self.run(request)

    def _copies(self, kind: str) -> Forks:
        """The command, stopped where it can be copied for requests of a kind."""
        if kind not in self._forks:
            folder, asked, answer = self._place()
            Request(kind=kind).write(asked)
            self._forks[kind] = Forks(self.command, self._variables(asked, answer), folder)
        return self._forks[kind]

    def trips(self, count: int) -> tuple[int, int, int]:
        """(runs from other seeds, those in which a comparison fails, different operands among those)."""
        if not self._copies("plain").alive:
            return 0, 0, 0
        runs = [self._forked(Request(seed=(self.seed + 1 + each) % _SEEDS, options={"first": True})) for each in range(count)]
        failing = [run.whole for run in runs if run.whole is not None]
        different = {tuple(sorted((name, each.digest) for name, each in whole.arrays.items())) for whole in failing}
        return len(runs), len(failing), len(different)

    def _place(self) -> tuple[str, str, str]:
        """(a new folder, paths of a request and of an answer in it)."""
        folder = os.path.join(self.folder, f"{next(self._numbers)}")
        os.mkdir(folder)
        return folder, os.path.join(folder, "request"), os.path.join(folder, "answer")

    def close(self) -> None:
        """End what still runs."""
        for each in self._forks.values():
            each.end()

    def _shadow(self, role: str, index: int) -> Any:
        exact = self.exact.get(role)
        value = exact.study.values[index] if exact and 0 <= index < len(exact.study.values) else None
        return None if value is None or value.shadow is None else value.shadow.copy()

    def _shared(self, request: Request, role: str) -> Run:
        """The run of a request; one that has served this role is made again."""
        key = repr((request.kind, sorted(request.options.items()), _active()))
        run = self._runs.get(key)
        if run is None or role in run.served:
            often = [each.kind for each in conditions.active] == [conditions.HOST_FLOATS]
            run = self._runs[key] = self._forked(request) if often else self.run(request)
        run.served.add(role)
        conditions.told(run.seen)
        self._capturing |= {str(name).partition(".")[0] for name in run.seen.get("captured", ())}
        self._offered |= {str(words): (str(module), Cause(cause)) for module, words, cause in run.seen.get("remedies", ())}
        return run

    def _whole(self, run: Run) -> Observation:
        """Both operands.

        Raises:
            TargetError: the run did not get to the comparison in question.
        """
        met = run.comparison
        if run.whole is None or met is None:
            msg = f"the command did not get to {self.comparison.place if self.comparison else 'a comparison'} ({run.ending.reason or 'it ended'}: {' | '.join(run.ending.lines[-2:])})"
            raise TargetError(msg)
        if self.comparison and met.place != self.comparison.place:
            msg = f"the command took another way: comparison {run.number + 1} is at {met.place}, not at {self.comparison.place}"
            raise TargetError(msg)
        return run.whole

    def run(self, request: Request) -> Run:
        """Run the command.

        Raises:
            TargetError: it cannot be started, or what it wrote is damaged.
        """
        request.conditions = _active()
        folder, asked, answer = self._place()
        request.write(asked)
        ending = supervise(self.command, self._variables(asked, answer), folder, _TIMEOUT)
        return _met(folder, answer, ending)

    def _variables(self, asked: str, answer: str) -> dict[str, str]:
        others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", INJECT)]
        own = {VARIABLE: asked, ANSWER: answer, SEED: str(self.seed), AT: "" if self.at is None else str(self.at)}
        fixed = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "PYTHONPATH": os.pathsep.join([INJECT, *others])}
        return {**os.environ, **fixed, **own, **self.environment}

    def remedies(self) -> list[tuple[str, Cause]]:
        """Those of the frameworks by which the command captures graphs, as its processes say."""
        return [(words, cause) for words, (module, cause) in self._offered.items() if module in self._capturing]


def _active() -> list[tuple[str, str]]:
    return [(each.kind, each.argument) for each in conditions.active]


def _role(side: Side) -> str:
    assert isinstance(side.function, Operand)  # noqa: S101  # this laboratory has no others
    return side.function.role


def _met(folder: str, answer: str, ending: Ending) -> Run:
    reached = 0
    for name in sorted(os.listdir(folder)):
        if name.startswith("answer.") and name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                reached += int(json.load(file)["reached"])
    if not os.path.exists(answer):
        return Run(None, None, 0, reached, {}, ending)
    packed = Unpacked(answer)
    about = packed.guarded(lambda: dict(kept.document(packed)["about"]))
    comparison = packed.guarded(lambda: Comparison(**about["comparison"]))
    return Run(kept.read(answer), comparison, int(about["number"]), reached, dict(about["seen"]), ending)
