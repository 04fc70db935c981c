"""What a ladder of graph modes gives back: the words between `frameworks/*/ladder.py` and the analysis of them.

A *rung* is one way to run one program (eager, traced, compiled). Every rung runs the same *subject* from the same state of
parameters and generators on the same inputs; what it computed is compared bit for bit with the ladder's first rung.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from detconf.arrays import Array

Settings = Mapping[str, Any]
"""What is changed for one run of a rung, by name: options of a compiler, or the words of the ladder that takes them."""


class Missing(Exception):
    """This build cannot do that."""


class Refused(Exception):
    """A program of this kind has nothing for this rung."""


class Status(str, Enum):
    """What became of one run of a rung."""

    RAN = "ran"
    EAGER = "ran eagerly"
    """It ran, and no graph was made of it."""
    MISSING = "not in this build"
    REFUSED = "not applicable"
    """The rung cannot take such a program: no inputs to capture, for example."""
    RAISED = "raised"
    CRASHED = "crashed"
    HUNG = "timed out"

    def __str__(self) -> str:
        return self.value


@dataclass(slots=True)
class Outcome:
    """One run of a rung.

    Attributes:
        values: name -> whatever `results.flatten` takes: one entry per input and call.
        why: what was raised, or what is missing; empty where it ran.
        notes: what the framework said that matters to a reader.
        graphs: how many graphs ran; None where that cannot be told.
        distinct: how many different results several runs from the same state gave.
        warned: a place of the program of which the tracer said that it became a constant, as "model.py:12".
    """

    status: Status
    values: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    notes: tuple[str, ...] = ()
    graphs: int | None = None
    warned: str = ""
    distinct: int = 1

    @property
    def ran(self) -> bool:
        return self.status in (Status.RAN, Status.EAGER)


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration that may make a rung agree with the first one.

    Attributes:
        text: what a user writes.
        settings: what the ladder is to change.
        shows: the cause that is shown where this alone removes the difference; empty where it says nothing of the cause;
            "scalar" where that depends on the dtype: constants of a lower one, or another kernel for the same.
        against: what its results are compared with: empty for the ladder's first rung, "rung" for the one that differs: the
            first rung is then to give the other's bits; "both" for the first one under the same settings.
        rung: the rung that it changes; empty for the one that differs.
        ablation: its place in a table of what can be switched off, such as "no decompositions".
    """

    text: str
    settings: Settings
    shows: str = ""
    rung: str = ""
    ablation: str = ""
    against: str = ""


@dataclass(slots=True)
class Operation:
    """One operation of a graph that gave other bits than the eager one, on equal inputs.

    Attributes:
        name: as the framework spells it.
        stage: "decomposition", "lowering", "folding", or another word of the ladder: what made it differ.
        word: class of the cause, such as "vector math library" or "reduction order".
        source: line of the program.
        sides: the result of eager and of the graph; None where they are not kept.
        scaled: max abs difference / (eps(dtype) · rms): in roundings of a typical element.
        share: of elements that differ.
        backward: it belongs to the backward graph.
        faithful: both results are as far from the operation in float64 as rounding allows; None where that is not known.
    """

    name: str
    stage: str
    word: str
    source: str = ""
    sides: tuple[Array, Array] | None = None
    scaled: float = 0.0
    share: float = 0.0
    backward: bool = False
    faithful: bool | None = None


@dataclass(slots=True)
class Survey:
    """What was seen inside a rung.

    Attributes:
        operations: that differ on equal inputs, in the order in which they ran.
        examined: how many were compared.
        random: random operations of the program, as the framework spells them, with their source line.
        low: dtypes below float32 that occur.
        roundings: operations that read a wider dtype than such a one, or compute in it, and write it, with their source line.
        constants: operations that read a constant of the program, with their source line.
        writes: operations that write in place, with their source line.
        shown: what experiments of the look itself showed, in words.
        invasive: looking inside changed the results; None where it was not looked inside.
        unexamined: what could not be compared, and why.
    """

    operations: list[Operation] = field(default_factory=list)
    examined: int = 0
    random: dict[str, str] = field(default_factory=dict)
    low: set[str] = field(default_factory=set)
    roundings: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    writes: dict[str, str] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)
    invasive: bool | None = None
    unexamined: list[str] = field(default_factory=list)


class Subject(Protocol):
    """A program that can be run on every rung."""

    apart: bool
    """Every run is a process of its own."""
    cases: int
    """How many inputs there are to try; the first is what a graph is captured with."""
    advice: Mapping[str, str]
    """rung -> what a user writes for it, where that is a remedy for another rung."""
    stages: Mapping[str, str]
    """rung -> the stage of `Operation` at which it is the first to differ."""

    def run(self, rung: str, settings: Settings) -> Outcome:
        """Run a rung from the entry state. Never raises for what the program or the framework does.

        Settings of every ladder: `capture` (index of the inputs to capture with; -1 for the probed ones), `probe` (all float
        inputs times this, for calls), `double` (all in float64).
        """
        ...

    def survey(self, rung: str, settings: Settings) -> Survey:
        """Look inside: which operations of the rung give other bits than eager ones on equal inputs.

        Settings: `deep` False only names what occurs, and does not compile again.
        """
        ...

    def remedies(self, rung: str, survey: Survey, outcome: Outcome) -> Sequence[Trial]:
        """What to try, cheapest first."""
        ...

    def cost(self, rung: str, settings: Settings, plain: str) -> float | None:
        """How many times as long as the rung `plain` does it take under these settings? Median of paired runs."""
        ...


class Ladder(Protocol):
    """The module that a framework names as its `ladder`."""

    RUNGS: Sequence[str]
    """In order; the first is what the others are compared with."""
    BY_NAME: Sequence[str]
    """Those that come after them where they are asked for, and are no part of the whole ladder."""
    FAMILIES: Sequence[Sequence[str]]
    """Rungs whose differences have one cause, each family in order."""
    FOCUS: Sequence[str]
    """Which rung of a family to look into and to repair, where several differ: the first of these."""
    ISOLATED: bool
    """A rung may take the process with it: each runs in one of its own."""
    FLAT: bool
    """Looking inside costs the same whatever its settings: it is done once."""

    def claims(self, value: Any) -> bool:
        """Is this a model, a tensor, or a result of this framework?"""
        ...

    def subject(self, target: Any, inputs: Any) -> Subject:
        """The program."""
        ...

    def remedies(self, rung: str, survey: Survey, outcome: Outcome) -> Sequence[Trial]:
        """`Subject.remedies`, for a subject that lives in another process."""
        ...
