"""What became of every wanted setting: data only. Built by the session, formatted by the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from detconf.values import IN_FORCE, Outcome, Printable, Reading, Value, plain


@dataclass(frozen=True, slots=True)
class Entry:
    """One row.

    Attributes:
        knob: name of the control.
        framework: its folder.
        applies: what it governs is present in this process.
        wanted: the value asked for.
        before: what the control said before `apply`, or says now in an inspection.
        now: what it says now.
        outcome: see `Outcome`.
        because: the line that asked for it, and a contradicting variable where there is one.
        note: what to do, or what to know.
    """

    knob: str
    framework: str
    applies: bool
    wanted: Value
    before: Reading
    now: Reading
    outcome: Outcome
    because: str
    note: str = ""

    @property
    def ok(self) -> bool:
        """In force, will be, or of no concern here; a drift always concerns, since someone changed what was set."""
        return self.outcome is not Outcome.DRIFTED and (not self.applies or self.outcome in IN_FORCE)

    def to_dict(self) -> dict[str, Any]:
        return {
            "knob": self.knob,
            "framework": self.framework,
            "applies": self.applies,
            "wanted": plain(self.wanted),
            "before": _json(self.before),
            "now": _json(self.now),
            "outcome": str(self.outcome),
            "because": self.because,
            "note": self.note,
        }


def _json(reading: Reading) -> Value:
    return f"({reading.problem})" if reading.problem else plain(reading.value)


@dataclass(frozen=True)
class Attestation(Printable):
    """Per knob: wanted, in force, why not.

    Attributes:
        profile: name of the profile.
        entries: one per knob, in the order of writing.
        absent: devices and frameworks that are not here, for the first line.
        about: what a list of rows is about ("drifted", "could not be put back"), where it is not the whole profile.
        facts: the process and machine it speaks of.
    """

    profile: str
    entries: tuple[Entry, ...]
    absent: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    about: str = ""

    @property
    def ok(self) -> bool:
        """Every entry that applies is in force or will be when its framework is imported."""
        return all(entry.ok for entry in self.entries)

    @property
    def headline(self) -> str:
        """One line: how many of those that apply are in force, how many do not apply here and why."""
        if self.about:
            return f"{self.profile}: {len(self.entries) or 'nothing'} {self.about}"
        applying = [entry for entry in self.entries if entry.applies]
        pending = sum(entry.outcome is Outcome.PENDING for entry in applying)
        in_force = sum(entry.ok for entry in applying) - pending
        waiting = f", {pending} pending until their framework is imported" if pending else ""
        rest = len(self.entries) - len(applying)
        why = f" ({', '.join(f'no {name}' for name in self.absent)})" if self.absent else ""
        verb = "is" if in_force == 1 else "are"
        return f"{self.profile}: {in_force} of {len(applying)} that apply {verb} in force{waiting}; {rest} do not apply here{why}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "detconf.attestation/1",
            "profile": self.profile,
            "ok": self.ok,
            "headline": self.headline,
            "entries": [entry.to_dict() for entry in self.entries],
            "facts": self.facts,
        }
