"""One framework, looked at in a process of its own: importing it may crash, and asking it may fix what it has read.

`python -m detconf.examination NAME FILE` imports the framework called NAME and writes what it finds to FILE as JSON.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from detconf.access import Env
from detconf.attestation import Entry
from detconf.frameworks import catalogue, framework
from detconf.lookup import first_line
from detconf.session import inspect

PROFILES = ("strict", "ci")
_OF_A_POOL = ("user_api", "internal_api", "prefix", "version", "num_threads", "architecture", "threading_layer")


def examine(name: str) -> dict[str, Any]:
    """Import the framework called `name` and say what it is and what profiles would meet. Changes this process."""
    owner = framework(name)
    module = import_module(owner.module)
    met = {profile: [_row(entry) for entry in inspect(profile, frameworks=(name,)).entries] for profile in PROFILES}
    return {
        "version": str(getattr(module, "__version__", "")),
        "devices": sorted(owner.devices()) if owner.devices else ["cpu"],
        "pools": _pools(),
        "answers": _answers(name),
        "profiles": met,
    }


def _row(entry: Entry) -> dict[str, Any]:
    note = entry.note.partition("restore: ")[0].rstrip("; ")
    return {"knob": entry.knob, "applies": entry.applies, "outcome": str(entry.outcome), "note": note}


def _pools() -> list[dict[str, Any]]:
    from threadpoolctl import threadpool_info

    return [{key: pool[key] for key in _OF_A_POOL if pool.get(key) is not None} for pool in threadpool_info()]


def _answers(name: str) -> dict[str, Any]:
    """What the libraries in this process answer of themselves: threads, dispatch levels, branches."""
    answers = {}
    for knob in catalogue().values():
        if isinstance(knob.access, Env) and knob.access.effective and knob.framework in ("process", "native", name):
            try:
                answer = knob.access.ask()
            except Exception as error:  # noqa: BLE001  # any library, any build: one that fails is a finding too
                answer = f"({first_line(error)})"
            if answer is not None:
                answers[knob.access.variable] = answer
    return answers


if __name__ == "__main__":
    found = examine(sys.argv[1])
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(found, file)
