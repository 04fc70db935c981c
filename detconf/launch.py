"""The environment that puts a profile in force in another process, and the start of one.

A child gets the profile's variables, so that nothing is too late, and a folder first on PYTHONPATH whose
sitecustomize applies the rest (`detconf/inject`). Nothing is written to site-packages.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from detconf.access import Env
from detconf.commandline import become, refusal, switched_off
from detconf.errors import TargetError
from detconf.facts import DEVICES, TRIED
from detconf.frameworks import catalogue
from detconf.request import named, planned
from detconf.values import Value

INJECT = str(Path(__file__).with_name("inject"))
"""The folder whose sitecustomize puts DETCONF_PROFILE in force in an unmodified script."""


def child_environment(
    profile: str | None, base: Mapping[str, str], *, overrides: Mapping[str, Value] | None = None, seed: int | None = None
) -> dict[str, str]:
    """`base` with everything that puts `profile` in force in a child; `base` unchanged for None.

    Args:
        profile: a name or path.
        base: the environment to start from.
        overrides: policies with values in place of the profile's.
        seed: in place of the profile's.

    Raises:
        ProfileError: the profile cannot be used.
    """
    from detconf.profile import portable  # as in `planned`

    environment = dict(base)
    if profile is None:
        return environment
    for variable, value in planned(profile, overrides=overrides, seed=seed).variables.items():
        if value is None:
            environment.pop(variable, None)
        else:
            environment[variable] = value
    environment["DETCONF_PROFILE"] = portable(os.fspath(profile))
    if overrides:
        lines = [f"{name}={json.dumps(value)}" for name, value in overrides.items()]
        environment["DETCONF_SET"] = ";".join([*filter(None, [base.get("DETCONF_SET")]), *lines])
    if seed is not None:
        environment["DETCONF_SEED"] = str(seed)
    environment.pop("DETCONF_SEEDED", None)
    others = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", INJECT)]
    environment["PYTHONPATH"] = os.pathsep.join([INJECT, *others])
    return environment


_HANDED_ON = ("PYTHONPATH", "DETCONF_SEED", "DETCONF_SET")


def printable_environment(profile: str | None, hardware: str | None = None) -> tuple[dict[str, str], tuple[str, ...]]:
    """(variables that put a profile in force elsewhere, variables that must not be set there).

    Args:
        profile: a name or path.
        hardware: cpu, cuda or rocm: leave out what governs other accelerators alone. A machine with one has a CPU too.

    Raises:
        ProfileError: the profile cannot be used.
    """
    own = child_environment(named(profile), {name: os.environ[name] for name in _HANDED_ON if os.environ.get(name)})
    others = DEVICES - {"cpu", "x86", hardware} if hardware else frozenset()
    left_out = variables(lambda kinds: kinds <= others)
    absent = (name for name, value in planned(profile).variables.items() if value is None and name not in left_out)
    return {name: value for name, value in own.items() if name not in left_out}, tuple(absent)


def variables(governs: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    """Variables of the catalogue for whose kinds of device `governs` is true."""
    return frozenset(
        knob.access.variable
        for knob in catalogue().values()
        if isinstance(knob.access, Env) and governs(frozenset(knob.governs.split("|")))
    )


def report_to(folder: str | None) -> None:
    """Make the processes that this one starts report into `folder`, on whatever they put in force."""
    if folder:
        os.environ["DETCONF_REPORT"] = os.path.abspath(folder)
        earlier = sum(name.endswith(".json") for name in os.listdir(folder)) if os.path.isdir(folder) else 0
        if earlier:
            sys.stderr.write(f"detconf: {folder} holds {earlier} reports of earlier runs; `detconf inspect` merges all of them\n")


def untried() -> frozenset[str]:
    """Variables that govern only devices on which this project has never tried them."""
    return variables(TRIED.isdisjoint)


def run(profile: str | None, command: Sequence[str]) -> int:
    """Run a command in place of this process, with a profile in force from its first instruction.

    Returns only on Windows, where no process can become another: the command's exit code.

    Raises:
        ProfileError: the profile cannot be used.
        TargetError: the command cannot be started.
    """
    environment = child_environment(named(profile), os.environ)
    notice = switched_off(command)
    if notice:
        sys.stderr.write(f"detconf: {notice}\n")
    try:
        return become(command, environment)
    except (OSError, ValueError) as error:
        raise TargetError(refusal(command[0], error)) from error
