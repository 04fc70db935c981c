"""A profile resolved against the catalogue: ordered steps, each with its reason. Pure: printing it is the dry run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detconf.access import Env
from detconf.frameworks import NAMES, catalogue
from detconf.knob import Knob
from detconf.values import Printable, Value, plain

if TYPE_CHECKING:
    from detconf.profile import Line, Profile

ALWAYS = ("process", "native")
"""Kept whatever `frameworks` says: their variables configure the libraries that every framework computes with."""


@dataclass(frozen=True, slots=True)
class Step:
    """One wanted setting.

    Attributes:
        knob: what to set.
        wanted: its value, in the knob's own words.
        because: the line that asks for it and where that line stands.
    """

    knob: Knob
    wanted: Value
    because: str


@dataclass(frozen=True)
class Plan(Printable):
    """What a profile asks for.

    Attributes:
        profile: its name.
        steps: in the order in which they are written.
    """

    profile: str
    steps: tuple[Step, ...]

    @property
    def variables(self) -> dict[str, Value]:
        """The environment variables that it asks for; None for one that must not be set."""
        return {step.knob.access.variable: step.wanted for step in self.steps if isinstance(step.knob.access, Env)}

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "detconf.plan/1",
            "profile": self.profile,
            "steps": [
                {"knob": step.knob.name, "wanted": plain(step.wanted), "because": step.because, "timing": str(step.knob.timing)}
                for step in self.steps
            ],
        }


def make(profile: Profile, frameworks: Collection[str] = NAMES) -> Plan:
    """The plan of `profile` for the named frameworks. Exact knob lines override what the policies gave."""
    steps = []
    for knob in catalogue().values():
        if knob.framework not in (*ALWAYS, *frameworks):
            continue
        step = _from_line(knob, profile.knobs) or _from_policies(knob, profile.policies)
        if step:
            steps.append(step)
    return Plan(profile.name, tuple(sorted(steps, key=lambda step: step.knob.timing)))


def _from_line(knob: Knob, lines: Mapping[str, Line]) -> Step | None:
    line = lines.get(knob.name)
    return Step(knob, line.value, f"knob line ({line.source})") if line else None


def _from_policies(knob: Knob, policies: Mapping[str, Line]) -> Step | None:
    # The first policy that a knob serves decides; `tests/test_catalogue.py` shows that no built-in profile makes two disagree.
    for policy, line in policies.items():
        serves, wanted = knob.spell(policy, line.value)
        if serves:
            return Step(
                knob, wanted, f"policy {policy}: {plain(line.value)} ({line.source})".replace("True", "true").replace("False", "false")
            )
    return None
