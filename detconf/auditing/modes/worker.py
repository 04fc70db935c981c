"""Runs one rung in a fresh interpreter, for `auditing.modes.isolation`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from detconf.access import Rng
from detconf.auditing.modes.isolation import perform
from detconf.frameworks import catalogue
from detconf.lookup import is_imported
from detconf.targets import load_function

_SEED = 0


def main(job: Mapping[str, Any]) -> None:
    """Do a job: names of the ladder's module, of the target and its inputs, what to do with which arguments, and where."""
    ladder: Any = import_module(job["ladder"])
    _seed()
    target = load_function(job["target"])
    inputs = load_function(job["inputs"]) if job["inputs"] else None
    _seed()  # what the file drew while it was loaded is not part of the program
    perform(ladder, (target, inputs), job["method"], job["arguments"], job["folder"])


def _seed() -> None:
    for knob in catalogue().values():
        if isinstance(knob.access, Rng) and (not knob.access.module or is_imported(knob.access.module)):
            knob.access.write(_SEED)
