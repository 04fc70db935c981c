"""What a comparison found: data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from detconf.comparison import Divergence
from detconf.values import Printable, Value, plain, same


class Verdict(str, Enum):
    """What became of one event or array."""

    EQUAL = "equal"
    INTRODUCED = "introduced"
    """What is read is equal, what is written is not. Among arrays: it differs."""
    PROPAGATED = "propagated"
    """What is read could not be shown to be equal, and what is written differs: it may have come from before."""
    MISSING = "missing"
    """Only the first side has it."""
    EXTRA = "extra"
    """Only the other side has it."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One event or array that is not equal.

    Attributes:
        divergence: where, and by how much; numbers only where the values stand in both files.
        verdict: what became of it.
        events: its index in both recordings.
        output: which of the arrays it wrote.
        digests: of that array on both sides.
        hint: what else is known, such as that the generator's state differs.
    """

    divergence: Divergence
    verdict: Verdict
    events: tuple[int | None, int | None] = (None, None)
    output: int | None = None
    digests: tuple[str, str] | None = None
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.divergence.to_dict(),
            "verdict": str(self.verdict),
            "events": list(self.events),
            "output": self.output,
            "digests": self.digests and list(self.digests),
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class FactRow:
    """A fact that differs between the two files."""

    fact: str
    a: Value
    b: Value
    can_change_bits: bool

    def to_dict(self) -> dict[str, Any]:
        return {"fact": self.fact, "a": plain(self.a), "b": plain(self.b), "can_change_bits": self.can_change_bits}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many events, or arrays.

    Attributes:
        compared: pairs that were looked at.
        equal: pairs that write the same,
        absorbed: of which so many read something else: a difference ended there.
        introduced, propagated, missing, extra: see `Verdict`.
        uncompared: outputs that were not compared: not initialised, or without bytes that can be hashed.
    """

    compared: int = 0
    equal: int = 0
    absorbed: int = 0
    introduced: int = 0
    propagated: int = 0
    missing: int = 0
    extra: int = 0
    uncompared: int = 0

    def __add__(self, other: Counts) -> Counts:
        mine, theirs = asdict(self), asdict(other)
        return Counts(**{name: mine[name] + theirs[name] for name in mine})


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """How far differences reach.

    Attributes:
        steps: how many steps hold an event that differs, and the first and the last of them.
        state: names of state and published values that differ, each with the first step, in that order; at most 100.
        state_total: how many there are.
    """

    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    state: tuple[tuple[str, int], ...] = ()
    state_total: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "state": [{"name": name, "step": step} for name, step in self.state]}


@dataclass(frozen=True, kw_only=True)
class Comparison(Printable):
    """How two recordings, or two sets of arrays, differ.

    Attributes:
        kind: "recordings" or "arrays".
        a, b: what was compared, in words.
        equal: nothing differs, nothing is missing or extra.
        first: where they first part; None where they are equal.
        introduced: events whose inputs are equal and whose outputs are not; arrays that differ. At most 1,000.
        missing, extra: what one side alone has; at most 100.
        counts: of everything.
        affected: how far differences reach; None for arrays.
        environment: facts that differ between the two.
        ranks: processes compared.
        notes: what the verdict does not cover, and why.
        tolerance: always None here: digests bound no error, and two arrays do not say what made them.
    """

    kind: str
    a: str
    b: str
    equal: bool
    first: Finding | None
    introduced: tuple[Finding, ...]
    missing: tuple[Finding, ...] = ()
    extra: tuple[Finding, ...] = ()
    counts: Counts
    affected: Affected | None = None
    environment: tuple[FactRow, ...] = ()
    ranks: int = 1
    notes: tuple[str, ...] = ()
    tolerance: None = None

    @property
    def divergence(self) -> Divergence | None:
        """Where they first part."""
        return self.first.divergence if self.first else None

    @property
    def propagated(self) -> int:
        """Events that differ and may owe it to one before."""
        return self.counts.propagated

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "detconf.comparison/1",
            "kind": self.kind,
            "a": self.a,
            "b": self.b,
            "equal": self.equal,
            "environment": [row.to_dict() for row in self.environment],
            "divergence": self.first and self.first.to_dict(),
            "introduced": [finding.to_dict() for finding in self.introduced],
            "propagated": self.propagated,
            "missing": [finding.to_dict() for finding in self.missing],
            "extra": [finding.to_dict() for finding in self.extra],
            "counts": asdict(self.counts),
            "affected": self.affected and self.affected.to_dict(),
            "ranks": self.ranks,
            "notes": list(self.notes),
            "tolerance": self.tolerance,
        }


def environment(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[FactRow, ...]:
    """What differs between the facts and attestations in two recordings.

    Args:
        a, b: `Recording.about` of each.
    """
    ours, theirs = dict(_facts(a)), dict(_facts(b))
    names = dict.fromkeys((*ours, *theirs))
    rows = ((name, ours.get(name), theirs.get(name)) for name in names)
    return tuple(FactRow(name, x, y, name not in _HARMLESS) for name, x, y in rows if not same(x, y))


_HARMLESS = frozenset({"profile"})
"""A profile's name alone changes nothing: its settings are facts of their own."""


def _facts(about: Mapping[str, Any]) -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    for name, value in _mapping(about.get("facts")).items():
        inside = [(f"{name}.{key}", item) for key, item in value.items()] if isinstance(value, dict) else [(name, value)]
        found += inside
    attestation = _mapping(about.get("attestation"))
    entries = attestation.get("entries")
    knobs = [(entry.get("knob"), entry.get("now")) for entry in (entries if isinstance(entries, list) else []) if isinstance(entry, dict)]
    return [*found, ("profile", attestation.get("profile")), *((str(name), now) for name, now in knobs)]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
