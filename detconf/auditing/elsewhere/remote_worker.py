"""`python -m detconf.auditing.elsewhere.remote_worker FILE FUNCTION [INPUTS]`: runs one side of an audit, as often as it is asked.

Each line of its input is JSON: the path of a request and that of the answer. For each it prints one line of JSON: `error`,
or `done` with what was seen. What the side prints goes to stderr. Started by `remote`, perhaps by another interpreter.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

NEEDED = ("numpy", "ml_dtypes", "xxhash", "wrapt")
"""What the interpreter must have."""


def main(file: str, function: str, inputs: str = "") -> None:
    """Serve until the input ends."""
    asks, answers = _own_streams()
    try:
        from detconf.auditing.elsewhere.serving import Server  # needs what the interpreter may not have

        server = Server(f"{file}:{function}", inputs)
    except ModuleNotFoundError as error:
        known = str(error.name).partition(".")[0] in NEEDED
        _say(answers, {"error": str(error), "missing": str(error.name) if known else ""})
        return
    except Exception as error:  # noqa: BLE001  # whatever it is, the other side must hear of it
        _say(answers, {"error": str(error)})
        return
    _say(answers, {"done": {}})
    for line in asks:
        _say(answers, server.answer(*json.loads(line)))


def _own_streams() -> tuple[TextIO, TextIO]:
    """(Lines asked, where to answer), which the side does not get: it reads nothing, and prints to stderr."""
    asks, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # for as long as the process lives
    return asks, answers


def _say(answers: TextIO, what: Mapping[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
