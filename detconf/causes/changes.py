"""Changes to how a target is run, each of which takes one source of variation away. Data, and their combination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from detconf.values import Cause, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One source of variation taken away.

    Attributes:
        words: what was done, as a fix would say it.
        cause: what is shown when the runs agree with it and not without it.
        policies: lines of a profile.
        environment: variables of a child process.
        entry: every generator starts each run where it started the first.
        seed: every generator is seeded when a process starts.
        reseed: seeds that the program sets itself, or takes from the system, are fixed ones.
        apart: each run has a process of its own.
        addresses: a child process is laid out at the same addresses.
        evaluate: layers run in evaluation mode.
    """

    words: str
    cause: Cause
    policies: Mapping[str, Value] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    entry: bool = False
    seed: bool = False
    reseed: bool = False
    apart: bool = False
    addresses: bool = False
    evaluate: bool = False


THREADS = Change(words="one thread in every pool (policy threads: 1)", cause=Cause.RACE, policies={"threads": 1})
DETERMINISTIC = Change(
    words="deterministic algorithms and graph order (policies deterministic and graph.order, as in strict)",
    cause=Cause.RACE,
    policies={"deterministic": "warn", "uninitialised": "leave", "graph.order": "program"},
)
FILL = Change(
    words="new memory filled with a fixed value (policy uninitialised: fill)",
    cause=Cause.STATE,
    policies={"deterministic": "warn", "uninitialised": "fill"},
)
ENTRY = Change(words="every generator starts each run from the same state: seed inside what is repeated", cause=Cause.RNG, entry=True)
SEED = Change(words="every generator seeded before the program starts (profile line seed)", cause=Cause.RNG, seed=True)
RESEED = Change(
    words="every seed that the program sets itself, or takes from the system or the clock, fixed: seed each generator with a constant",
    cause=Cause.RNG,
    reseed=True,
)
APART = Change(
    words="each run in a process of its own: let a run leave nothing behind that the next one reads (a model, a counter, a setting)",
    cause=Cause.STATE,
    seed=True,
    apart=True,
)
HASH_SEED = Change(
    words="PYTHONHASHSEED=0 in the environment before the interpreter starts, or sort the set",
    cause=Cause.CONFIG,
    environment={"PYTHONHASHSEED": "0"},
)
ADDRESSES = Change(
    words="the process laid out at fixed addresses; in the program: do not take the order of a set of objects",
    cause=Cause.CONFIG,
    addresses=True,
)
EVALUATE = Change(words="layers in evaluation mode: call eval() before inference", cause=Cause.MODE, evaluate=True)

IN_PROCESS = (APART, THREADS, FILL, DETERMINISTIC, RESEED, ENTRY)
"""What can be changed between runs in one process, in the order in which doing without is tried."""
IN_CHILDREN = (THREADS, ADDRESSES, HASH_SEED, FILL, DETERMINISTIC, RESEED, SEED)
"""The same for runs in processes of their own."""
OF_LAYERS = (ENTRY, SEED, RESEED, APART)
"""What also takes away what layers in training mode do: they draw, and move running statistics from call to call."""
PRECEDENCE = (Cause.RACE, Cause.CONFIG, Cause.RNG, Cause.STATE)
"""Which cause is named where several changes are needed: a side that disagrees with itself is not explained further."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Several changes at once: what a run is started with."""

    changes: tuple[Change, ...] = ()

    @property
    def overrides(self) -> dict[str, Value]:
        """Policies of all changes; filling new memory beats leaving it."""
        ordered = sorted(self.changes, key=lambda change: change is FILL)
        return {name: value for change in ordered for name, value in change.policies.items()}

    @property
    def environment(self) -> dict[str, str]:
        """Variables of all changes."""
        return {key: value for change in self.changes for key, value in change.environment.items()}

    def has(self, what: str) -> bool:
        """Does any change have this attribute set?"""
        return any(getattr(change, what) for change in self.changes)


def without(changes: Sequence[Change], dropped: Change) -> tuple[Change, ...]:
    """All but one."""
    return tuple(change for change in changes if change is not dropped)
