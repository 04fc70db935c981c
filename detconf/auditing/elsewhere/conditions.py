"""Under what a side runs in another process: experiments of the frameworks there, asked for from here.

The attempts of an audit enter contexts of `frameworks/*/uncaptured.py` and `modes.py` around a run. Where the run takes
place in another process, those contexts must be entered there: so the analysis enters a stand-in here, which puts a
condition on `active`; the laboratory sends the conditions with the request, and the other process enters them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from detconf.auditing import question
from detconf.frameworks import frameworks
from detconf.frameworks.base import Captured, Framework, Modes, Remedy
from detconf.lookup import is_imported, resolve
from detconf.values import Cause

WATCH, EVALUATE, REMEDY, HOST_FLOATS = "watch", "evaluate", "remedy", "hostfloats"


@dataclass(slots=True)
class Condition:
    """One condition.

    Attributes:
        kind: "watch", "evaluate", "remedy", or a context of `uncaptured`: "without", "anew".
        argument: of a remedy: its words.
        seen: what a run under it reports into.
    """

    kind: str
    argument: str = ""
    seen: Any = None


active: list[Condition] = []
"""In the order in which they were entered."""


class Abroad:
    """Stands for the experiments of frameworks in other processes. Used as a module `uncaptured` is.

    Args:
        known: gives the remedies of those frameworks: (words, cause).
    """

    def __init__(self, known: Callable[[], list[tuple[str, Cause]]]) -> None:
        self._known = known

    def watch(self, seen: Captured) -> Any:
        """See `frameworks.torch.uncaptured`; the others too."""
        return under(Condition(WATCH, seen=seen))

    def without(self) -> Any:
        return under(Condition("without"))

    def anew(self) -> Any:
        return under(Condition("anew"))

    def evaluating(self, seen: Modes) -> Any:
        """Layers in evaluation mode, as `Framework.modes`."""
        return under(Condition(EVALUATE, str(seen.since), seen))

    def remedies(self) -> tuple[Remedy, ...]:
        return tuple(Remedy(words, cause, _remedy(words)) for words, cause in self._known())


def _remedy(words: str) -> Callable[[], Any]:
    return lambda: under(Condition(REMEDY, words))


@contextmanager
def elsewhere(laboratory: Any) -> Iterator[None]:
    """The experiments of a laboratory's processes belong to those that an audit can make; they end with the block."""
    abroad = Abroad(laboratory.remedies)
    question.abroad.append(abroad)
    try:
        yield
    finally:
        question.abroad.remove(abroad)
        laboratory.close()


@contextmanager
def under(condition: Condition) -> Iterator[None]:
    """Runs inside the block are under that condition."""
    active.append(condition)
    try:
        yield
    finally:
        active.remove(condition)


@dataclass(slots=True)
class Sight:
    """What was seen in the process that ran a side."""

    captured: Captured = field(default_factory=Captured)
    modes: Modes = field(default_factory=Modes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "captured": sorted(self.captured.names),
            "restored": self.captured.restored,
            "resumed": self.captured.resumed,
            "training": sorted(self.modes.training),
            "trained": self.modes.trained,
            "calls": self.modes.calls,
            "after": self.modes.after,
        }


def offered() -> list[tuple[str, str, str]]:
    """In the process that runs a side: (module of a framework, words, cause) of each remedy for what has been captured here."""
    known = [each for each in frameworks() if each.uncaptured and is_imported(each.module)]
    return [(each.module, remedy.words, str(remedy.cause)) for each in known for remedy in import_module(each.uncaptured).remedies()]


def told(report: Mapping[str, Any]) -> None:
    """Hand what a run saw to the conditions that it ran under."""
    for each in active:
        if each.kind == WATCH:
            each.seen.names |= set(map(str, report.get("captured", ())))
            each.seen.restored += int(report.get("restored", 0))
            each.seen.resumed += int(report.get("resumed", 0))
        elif each.kind == EVALUATE:
            each.seen.training |= set(map(str, report.get("training", ())))
            each.seen.trained |= bool(report.get("trained"))
            each.seen.calls += int(report.get("calls", 0))
            each.seen.after += int(report.get("after", 0))


@contextmanager
def recompiled(conditions: list[tuple[str, str]]) -> Iterator[None]:
    """In the process that runs a side: the functions of a file under `hostfloats`, where that is among the conditions."""
    with ExitStack() as stack:
        for kind, argument in conditions:
            if kind == HOST_FLOATS:
                from detconf.auditing.attempts.hostfloats import rounding  # only where asked for

                file, variant, lines = json.loads(argument)
                stack.enter_context(rounding(str(file), str(variant), lines))
        yield


def enter(framework: Framework, conditions: list[tuple[str, str]], sight: Sight, stack: ExitStack) -> None:
    """In the process that runs a side: enter the conditions, as far as an imported framework has them."""
    for kind, argument in conditions:
        if kind == EVALUATE:
            if framework.modes:
                sight.modes.since = int(argument)
                stack.enter_context(resolve(framework.modes)(sight.modes, evaluate=True))
            continue
        if not framework.uncaptured:
            continue
        module = import_module(framework.uncaptured)
        if kind == WATCH:
            stack.enter_context(module.watch(sight.captured))
        elif kind == REMEDY:
            for each in module.REMEDIES:  # also before the compiler that they are about is imported
                if each.words == argument:
                    stack.enter_context(each.inside())
        elif kind in ("without", "anew"):
            stack.enter_context(getattr(module, kind)())
