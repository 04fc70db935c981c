"""Which plan arguments and variables ask for."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from detconf.errors import ProfileError
from detconf.frameworks import NAMES
from detconf.plan import Plan, make
from detconf.values import Value, suggest


def named(profile: str | None) -> str:
    """The profile that is meant: the argument, else DETCONF_PROFILE, else strict."""
    return os.environ.get("DETCONF_PROFILE") or "strict" if profile is None else profile


def planned(
    profile: str | None = None,
    *,
    seed: int | None = None,
    overrides: Mapping[str, Value] | None = None,
    frameworks: Collection[str] | None = None,
) -> Plan:
    """The steps that `apply` would take with the same arguments and variables.

    Raises:
        ProfileError: the profile, a value or an argument cannot be used.
    """
    from detconf import profile as profiles  # loaded only when a profile is needed

    for name in frameworks or ():
        if name not in NAMES:
            msg = f"frameworks: unknown framework {name!r}.{suggest(str(name), NAMES)}"
            raise ProfileError(msg)
    wanted = profiles.load(named(profile))
    variable = os.environ.get("DETCONF_SEED")
    if seed is not None:
        wanted = wanted.with_seed(seed, "seed argument")
    elif variable:
        wanted = wanted.with_seed(int(variable) if variable.isdecimal() else variable, "DETCONF_SEED")  # type: ignore[arg-type]  # refused there, in words
    if os.environ.get("DETCONF_SET"):
        wanted = wanted.with_lines(profiles.parse_assignments(os.environ["DETCONF_SET"], "DETCONF_SET"), "DETCONF_SET")
    if overrides:
        wanted = wanted.with_lines(dict(overrides), "overrides argument")
    return make(wanted, NAMES if frameworks is None else frameworks)
