"""What a framework declares to the rest of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from detconf.knob import Knob
from detconf.values import Cause

PRODUCTS, TERMS = "products", "terms"
"""What an operation adds up: products, as matrix products and convolutions do, or terms, as sums, means and norms do."""


@dataclass(frozen=True, slots=True)
class Stray:
    """A setting that someone asked for in the environment and that the framework did not take.

    Attributes:
        knob: the control's name.
        asked: what the environment says.
        now: what is in force.
        note: what to do.
    """

    knob: str
    asked: str
    now: object
    note: str


@dataclass(slots=True)
class Modes:
    """What was seen of training and evaluation while a target ran.

    Attributes:
        training: names of the layer classes called in training mode.
        trained: backward was called.
        calls: layers called in training mode so far.
        after: how many of those calls came before the last backward.
        since: calls from this one on may be overruled.
    """

    training: set[str] = field(default_factory=set)
    trained: bool = False
    calls: int = 0
    after: int = 0
    since: int = 0

    def called(self, layer: str) -> bool:
        """A layer is called in training mode: may it be overruled?"""
        self.training.add(layer)
        self.calls += 1
        return self.calls > self.since

    def went_backward(self) -> None:
        """Backward was called."""
        self.trained = True
        self.after = self.calls


@dataclass(slots=True)
class Captured:
    """What was seen of graph capture and of saved states while a program ran.

    Attributes:
        names: functions that capture, such as "torch.compile" or "paddle.jit.to_static".
        restored: how often a saved state was loaded.
        resumed: how often of these an optimizer had made a step before, in this run.
    """

    names: set[str] = field(default_factory=set)
    restored: int = 0
    resumed: int = 0

    def loads(self, *, trained: bool) -> None:
        """A saved state is loaded, after a step of an optimizer or before any."""
        self.restored += 1
        self.resumed += trained


@dataclass(slots=True)
class Widened:
    """What was seen while a program ran whole in float64.

    Attributes:
        draws: random operations. They draw in their own dtype, and so the same numbers.
        decides: a discrete choice or a Python number was made of floats, so that the program may have gone another way.
        lost: what stayed in its own dtype; empty for nothing.
        takers: what NumPy does to an array that another framework gives to the program.
    """

    draws: int = 0
    decides: bool = False
    lost: str = ""
    takers: list[Callable[[Any], Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Remedy:
    """A setting that takes one kind of difference away.

    Attributes:
        words: as a fix would say it.
        cause: what is shown when the difference goes.
        inside: makes the context in which a program runs under it.
    """

    words: str
    cause: Cause
    inside: Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Refused:
    """Controls that are deliberately no knobs.

    Attributes:
        names: as their documentation spells them.
        reason: why not, and what to do instead.
    """

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework.

    Attributes:
        name: its folder.
        module: what a user imports; empty where there is nothing to import.
        knobs: its controls, in the order in which they are written and put back.
        devices: the device kinds that the imported build can drive; asked only once the module is imported.
        strays: settings in the environment that the framework ignored.
        refused: name of the module whose REFUSED lists controls that are deliberately no knobs; empty for none.
        writes: variables that importing it sets by itself where they are not set: nobody asked for those.
        tensors: name of the module that turns its arrays into bytes; empty for none.
        on_step: path of `watch(callback)`, which calls `callback()` after every optimizer step until what it returns is
            called; empty where there are no optimizers.
        on_begin: path of `watch(callback)`, which calls `callback()` where a program begins a step, until what it returns
            is called.
        launcher: the options with which Python starts a script as several ranks, but for their number; empty for none.
        admits: patterns of the warnings in which it says itself that an operation is not deterministic; group 1 names it.
        modes: path of `watch(seen: Modes, *, evaluate)`, a context manager over training and evaluation mode.
        seeds: path of `fixed(numbers)`, a context in which seeds that a program sets, or takes from the system, come from an iterator.
        ladder: name of the module that runs a program in every graph mode (a `rungs.Ladder`); empty for none.
        machine: path of a function: fact -> text, of what chooses kernels and the order of sums in this process.
        tracer: name of the module whose `start(recorder)` reports every operation to a `recording.recorder.Recorder` until
            what it returns is called; empty for none.
        shadow: name of the module whose `start(study)` follows every operation with a `shadows.study.Study` and returns an
            `Engine`; empty for none.
        uncaptured: name of the module with the experiments on graph capture: `watch(seen: Captured)`, `without()` and `anew()`
            are contexts, and `disturbed(seed, units)` one with rounding noise on results; `remedies()` are settings; empty for none.
        widening: path of `widening(seen: Widened, roots)`, a context in which programs compute in float64 what they compute in
            less, without bookkeeping; `roots` are functions whose arrays may be widened beforehand. Empty for none.
        sums: name of the module whose SUMS says of its operations, by name, what they add up (`PRODUCTS` or `TERMS`); it needs
            nothing of the framework. Empty for none.
    """

    name: str
    module: str = ""
    knobs: tuple[Knob, ...]
    devices: Callable[[], frozenset[str]] | None = None
    strays: Callable[[], Iterable[Stray]] | None = None
    refused: str = ""
    writes: Mapping[str, str] = field(default_factory=dict)
    tensors: str = ""
    on_step: str = ""
    on_begin: str = ""
    launcher: tuple[str, ...] = ()
    admits: tuple[str, ...] = ()
    modes: str = ""
    seeds: str = ""
    tracer: str = ""
    shadow: str = ""
    ladder: str = ""
    uncaptured: str = ""
    widening: str = ""
    sums: str = ""
    machine: str = ""
