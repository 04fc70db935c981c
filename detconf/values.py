"""Words and values that every layer shares: outcomes, causes, readings, and what "the same value" means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any

Value = Any
"""A knob's value: None (an environment variable that is not set), bool, int, float, str, or a tuple of these."""


class Outcome(str, Enum):
    """What became of one wanted setting. The value is the word used in reports and JSON."""

    SET = "set"
    """Written, and read back as wanted."""
    ALREADY = "already"
    """Was in force before."""
    OPEN = "open"
    """Not in force; `apply` would set it now."""
    PENDING = "pending"
    """Its framework is not imported yet; will be set when it is."""
    TOO_LATE = "too-late"
    """Read by its library at a moment that has passed."""
    UNSUPPORTED = "unsupported"
    """Cannot be written in this build, version or device."""
    REJECTED = "rejected"
    """Read back something else, or the framework raised."""
    INVALID = "invalid"
    """The value present cannot work anywhere."""
    OVERRIDDEN = "overridden"
    """Another knob or variable outranks it."""
    DRIFTED = "drifted"
    """Was in force, no longer is."""

    def __str__(self) -> str:
        return self.value


IN_FORCE = frozenset({Outcome.SET, Outcome.ALREADY, Outcome.PENDING})
"""Outcomes that leave an attestation ok."""


class Cause(str, Enum):
    """Why two results differ (design, "Causes and their proofs")."""

    EQUAL = "equal"
    ROUNDING = "rounding"
    ILL_CONDITIONED = "ill-conditioned"
    DTYPE = "dtype"
    SEMANTICS = "semantics"
    LAYOUT = "layout"
    RNG = "rng"
    MODE = "mode"
    STATE = "state"
    RACE = "race"
    OVERFLOW = "overflow"
    CONFIG = "config"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Reading:
    """What a control says, or why it says nothing.

    Attributes:
        value: the value, in the control's own words.
        problem: why there is no value; empty when there is one.
        missing: the control does not exist in this build.
    """

    value: Value = None
    problem: str = ""
    missing: bool = False

    def __str__(self) -> str:
        return f"({self.problem})" if self.problem else show(self.value)


class Printable:
    """A result that prints itself through the report layer.

    The report layer stands above the results, so it is looked up by name at print time: the import graph stays
    acyclic and `print(session.attestation)` still works.
    """

    def __str__(self) -> str:
        return str(import_module("detconf.report").text(self))


def same(first: Value, second: Value) -> bool:
    """Equality that keeps True and 1, 1 and 1.0 apart, and takes lists for tuples (JSON and YAML have no tuples)."""
    if isinstance(first, (tuple, list)) and isinstance(second, (tuple, list)):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and bool(first == second)


def show(value: Value) -> str:
    """`value` for people: "unset" for None, lower-case booleans, strings bare."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def plain(value: Value) -> Value:
    """`value` as JSON can carry it."""
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def suggest(word: str, known: Iterable[str]) -> str:
    """A did-you-mean clause for an unknown word, or a list of what is known; starts with a space, ends with a stop."""
    names = sorted(known)
    tails = {name.rpartition(".")[2]: name for name in names}
    close = difflib.get_close_matches(word, names, 1, 0.6) or [
        tails[tail] for tail in difflib.get_close_matches(word.rpartition(".")[2], tails, 1, 0.8)
    ]
    if close:
        return f" Did you mean {close[0]!r}?"
    if not names or len(names) > 12:
        return ""
    return f" Accepted: {', '.join(names)}."
