"""What the marker `bitwise` varies beside the run: settings that take hold in a process that is running. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from detconf.errors import DetconfWarning

if TYPE_CHECKING:
    from detconf.axes import Variant
    from detconf.session import Session

AXES = ("rerun", "threads", "workers")
"""What can be varied in one process. Instruction sets and hash seeds are settled when libraries or Python start."""
_PROBLEM = pytest.StashKey[str]()


def variants(axes: Collection[str] = AXES) -> list[Variant]:
    """The other ways to run a test."""
    if set(axes) <= {"rerun"}:
        return []
    from detconf.axes import VARIABLES
    from detconf.facts import gather

    return [variant for variable in VARIABLES if variable.name in axes for variant in variable.variants(gather())]


@contextmanager
def varied(label: str, item: pytest.Item) -> Iterator[None]:
    """What a run varies, in force around all of it; nothing for an empty label. `problem_of` says where it is not."""
    item.stash[_PROBLEM] = ""
    if not label:
        yield
        return
    (setting,) = (variant.setting for variant in variants() if variant.label == label)
    with _trial(setting.overrides) as session:
        bad = [f"{entry.knob}: {entry.outcome}" for entry in session.attestation.entries if not entry.ok]
        item.stash[_PROBLEM] = f"bitwise: {label} cannot be had in this process: {', '.join(bad)}" if bad else ""
        yield


def problem_of(item: pytest.Item) -> str:
    """Why this run is not what it should be, or empty."""
    return item.stash.get(_PROBLEM, "")


def _trial(overrides: dict[str, object]) -> Session:
    """A session of these settings alone, above whatever is in force. It seeds nothing."""
    from detconf.session import apply

    with tempfile.TemporaryDirectory(prefix="detconf-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DetconfWarning)
        path = os.path.join(folder, "trial.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("name: trial\n")
        return apply(path, overrides=overrides)
