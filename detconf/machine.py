"""The class of machine that a number belongs to: what chooses the kernels and the order of sums in this process.

Two processes are of one class when every fact that both know agrees. A library that only one of them has loaded is no
difference: a value that it computed is known to both.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import suppress

from detconf import facts as facts_of
from detconf.frameworks import frameworks
from detconf.lookup import resolve


def machine_class() -> dict[str, str]:
    """Architecture, versions, and what the loaded libraries say of their kernels and threads; by name of the fact."""
    facts = facts_of.gather()
    found = {
        "architecture": platform.machine(),
        "system": platform.system(),
        "processor vendor": facts.vendor,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }
    found |= {f"{name} version": version for name, version in facts.versions.items()}
    for each in frameworks():
        with suppress(OSError):  # no /proc on this system: the libraries cannot be found
            found |= resolve(each.machine)() if each.machine else {}
    return {name: text for name, text in sorted(found.items()) if text}


def unlike(recorded: Mapping[str, str], here: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The facts in which two classes differ: (recorded, here)."""
    return {name: (recorded[name], here[name]) for name in recorded if name in here and recorded[name] != here[name]}
