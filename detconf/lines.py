"""A profile as it is written, before its parents are merged in: plain data, whichever file it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from detconf.access import Env
from detconf.builtin import POLICIES
from detconf.errors import ProfileError
from detconf.frameworks import catalogue
from detconf.values import Value, suggest


@dataclass(frozen=True, slots=True)
class Written:
    """One profile of one file, validated.

    Attributes:
        name: its name.
        summary: one sentence.
        extends: the parent, by name or path.
        policies: policy (nested ones joined by a dot; `seed` among them) -> value.
        knobs: knob -> value.
    """

    name: str
    summary: str = ""
    extends: str | None = None
    policies: Mapping[str, Value] = field(default_factory=dict)
    knobs: Mapping[str, Value] = field(default_factory=dict)


def checked(name: Any, value: Any, place: str) -> Value:
    """`value` as the knob `name` takes it. `place` names it in errors.

    Raises:
        ProfileError: no such knob, or a value that it does not accept.
    """
    knob = catalogue().get(name)
    if knob is None:
        msg = f"{place}: unknown knob {name!r}.{suggest(str(name), [*catalogue(), *POLICIES])} `detconf knobs` lists them."
        raise ProfileError(msg)
    value = tuple(value) if isinstance(value, list) else value
    objection = knob.objection(value)
    if objection:
        hint = " Quote it: environment variables are text." if isinstance(knob.access, Env) and not isinstance(value, str) else ""
        msg = f"{place}: {name}: {objection}.{hint}"
        raise ProfileError(msg)
    return value
