"""What a knob is: one process-wide control, declared once as data.

Validation, plan, apply, read-back, restore, documentation and tests are derived from the declaration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

from detconf.access import Access, Env
from detconf.late import Late
from detconf.lookup import Missing, NotLoaded, first_line
from detconf.values import Reading, Value, same, show


class Timing(IntEnum):
    """The latest moment at which writing a knob still works; also the order in which knobs are written."""

    INTERPRETER_START = 0
    BEFORE_IMPORT = 1
    BEFORE_FIRST_USE = 2
    ANY_TIME = 3
    AT_COMPILE = 4

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Accepted text: a regular expression for the whole of it, and the words an error uses."""

    regex: str
    words: str

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, slots=True)
class Span:
    """Accepted integers, both ends included; None leaves an end open. `word`: accepted too, unless empty."""

    low: int | None = None
    high: int | None = None
    word: str = ""

    def __contains__(self, value: int) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        integers = f"an integer of {self.low} or more" if self.high is None else f"an integer from {self.low} to {self.high}"
        return integers + (f", or {self.word}" if self.word else "")


@dataclass(frozen=True, slots=True)
class Outranks:
    """A control that beats another while it holds one of `values` (all but None where `values` is empty).

    Attributes:
        path: an environment variable.
        values: the values that beat; compared as text.
    """

    variable: str
    values: tuple[str, ...] = ()

    def beats(self) -> str:
        """The assignment that wins at present, or empty."""
        value = os.environ.get(self.variable)
        if value is None or (self.values and value.upper() not in self.values):
            return ""
        return f"{self.variable}={value}"


UNKNOWN = object()
"""For `Knob.absent`: nobody knows, or it differs between versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One process-wide control that can change bits or their repeatability.

    Attributes:
        name: as its own documentation spells it; `env.NAME` for an environment variable.
        framework: the folder that declares it: process, native, numpy, torch or paddle.
        access: how it is read and written.
        accepts: the values that can work.
        serves: policy name -> how this knob spells the policy's values: a mapping (an absent value leaves the knob
            alone) or a function of the policy's value, which answers NotImplemented to leave the knob alone.
        timing: the latest moment at which writing works.
        late: how that moment is detected; None for any time.
        governs: devices whose bits it governs, joined by `|`: cpu, x86, cuda, rocm.
        summary: one sentence.
        docs: address of its public documentation or source.
        cost: what it costs, with its source; empty where nothing is known.
        undo: why restoring it is not exact; empty where it is.
        outranked_by: variables that beat it.
        touches: other knobs that change when this one is written, so that they are put back too.
        scope: "thread" where a thread that was there before keeps its own value, so that `check()` must be asked there.
        absent: how a build without the control behaves: where that is what is wanted, its absence is no shortcoming.
        instead: knobs that do the same in builds that lack this one.
        watched: whether `check()` reports its drift (generators advance, that is no drift).
        note: what several sources set differently, or what surprises.
    """

    name: str
    framework: str
    access: Access
    accepts: Any
    summary: str
    docs: str
    serves: Mapping[str, Mapping[Value, Value] | Callable[[Any], Value]] = field(default_factory=dict)
    timing: Timing = Timing.ANY_TIME
    late: Late | None = None
    governs: str = "cpu"
    cost: str = ""
    undo: str = ""
    outranked_by: tuple[Outranks, ...] = ()
    touches: tuple[str, ...] = ()
    scope: Literal["process", "thread"] = "process"
    absent: Value = UNKNOWN
    instead: tuple[str, ...] = ()
    watched: bool = True
    note: str = ""

    def objection(self, value: Value) -> str:
        """Why `value` cannot work, or empty."""
        if value is None and isinstance(self.access, Env):
            return ""
        if self.accepts is bool:
            fits = isinstance(value, bool)
        elif isinstance(self.accepts, Pattern):
            fits = isinstance(value, str) and re.fullmatch(self.accepts.regex, value) is not None
        elif isinstance(self.accepts, Span):
            fits = value in self.accepts if type(value) is int else bool(self.accepts.word) and value == self.accepts.word
        else:
            fits = any(same(value, accepted) for accepted in self.accepts)
        return "" if fits else f"{value!r} is not accepted; accepted: {self.accepted}"

    @property
    def accepted(self) -> str:
        """The accepted values in words."""
        if self.accepts is bool:
            return "true, false"
        words = ", ".join(map(show, self.accepts)) if isinstance(self.accepts, tuple) else str(self.accepts)
        return words + (", or null to unset" if isinstance(self.access, Env) else "")

    def spell(self, policy: str, value: Value) -> tuple[bool, Value]:
        """(does this knob serve `policy` at `value`, its own value for it)."""
        rule = self.serves.get(policy)
        if rule is None:
            return False, None
        if callable(rule):
            own = rule(value)
            return own is not NotImplemented, own
        for wanted, own in rule.items():
            if same(wanted, value):
                return True, own
        return False, None

    def read(self) -> Reading:
        """What the control says now; never raises.

        A legacy getter of torch raises when the newer API was used (`torch.backends.cudnn.allow_tf32` after
        `fp32_precision = "ieee"`): that is a reading with a problem, not an error of the caller's.
        """
        try:
            return Reading(self.access.read())
        except NotLoaded as error:
            return Reading(problem=f"{error} is not imported")
        except (Missing, AttributeError) as error:
            return Reading(problem=str(error), missing=True)
        except Exception as error:  # noqa: BLE001  # any framework, any build: a reader must not crash the attestation
            return Reading(problem=f"cannot be read: {first_line(error)}")


def count(value: Value) -> Value:
    """For `serves`: an integer as it is; a word such as "fixed" leaves the knob alone."""
    return value if type(value) is int else NotImplemented


def count_text(value: Value) -> Value:
    """For `serves` of a variable: an integer as text."""
    return str(value) if type(value) is int else NotImplemented
