"""The environment that puts a profile in force in another process, and the start of one.

A child gets the profile's variables, so that nothing is too late, and a folder first on PYTHONPATH whose
sitecustomize applies the rest (`detconf/inject`). Nothing is written to site-packages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from detconf.access import Env
from detconf.plan import Plan
from detconf.session import planned
from detconf.values import Value

INJECT = str(Path(__file__).with_name("inject"))
"""The folder whose sitecustomize puts DETCONF_PROFILE in force in an unmodified script."""


def variables(plan: Plan) -> dict[str, Value]:
    """The environment variables of a plan; None for one that must not be set."""
    return {step.knob.access.variable: step.wanted for step in plan.steps if isinstance(step.knob.access, Env)}


def child_environment(profile: str | None, base: Mapping[str, str]) -> dict[str, str]:
    """`base` with everything that puts `profile` in force in a child; `base` unchanged for None.

    Raises:
        ProfileError: the profile cannot be used.
    """
    environment = dict(base)
    if profile is None:
        return environment
    for variable, value in variables(planned(profile)).items():
        if value is None:
            environment.pop(variable, None)
        else:
            environment[variable] = value
    environment["DETCONF_PROFILE"] = os.path.abspath(profile) if os.path.isfile(profile) else profile
    environment.pop("DETCONF_SEEDED", None)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (INJECT, base.get("PYTHONPATH", ""))))
    return environment
