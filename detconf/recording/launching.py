"""Recording of an unmodified program: variables that detconf's sitecustomize acts on in each of its processes."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from typing import Any

from detconf.commandline import become, refusal, switched_off
from detconf.errors import DetconfError, TargetError
from detconf.launch import INJECT, child_environment
from detconf.recording.against import STOP, check, follow_from_environment
from detconf.recording.against import VARIABLE as AGAINST
from detconf.recording.file import is_recording
from detconf.recording.names import own_path, own_rank, siblings, with_part
from detconf.recording.recorder import LEVELS
from detconf.recording.running import Run, writer

VARIABLE = "DETCONF_RECORD"
"""Path of the file; with it, a process under detconf's sitecustomize records itself."""
LEVEL, VALUES, SOURCES, COMPARISONS, _OWNER = (f"{VARIABLE}_{name}" for name in ("LEVEL", "VALUES", "SOURCES", "COMPARISONS", "OWNER"))


def run(  # noqa: PLR0913  # the options of a command
    path: str,
    command: Sequence[str],
    *,
    profile: str | None = None,
    level: str = "",
    values: str = "",
    sources: bool = False,
    against: str | None = None,
    stop: bool = False,
) -> int:
    """Run a command in place of this process, recording each of its Python processes.

    Recordings that an earlier command left under that name are removed. Returns only on Windows: the command's exit code.

    Args:
        path: of the file.
        command: its words.
        profile: put in force there; None for none.
        level: as in `record`; empty for "operations".
        values: "" for none, "all", or FIRST:LAST.
        sources: as in `record`.
        against: an earlier recording; the first event that differs is said on stderr while the command runs.
        stop: the process in which it does ends there, with exit status 1.

    Raises:
        DetconfError: an argument cannot be used, something else is there, or nothing can be written there.
        TargetError: the command cannot be started.
    """
    parse_values(values)
    path = os.path.abspath(path)
    earlier = _earlier(path, against, level or LEVELS[0], stop=stop)
    _clear(path)
    own = child_environment(profile, os.environ)
    own.pop(_OWNER, None)
    others = [entry for entry in own.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", INJECT)]
    own["PYTHONPATH"] = os.pathsep.join([INJECT, *others])
    own |= {VARIABLE: path, LEVEL: level or LEVELS[0], VALUES: values, SOURCES: "1" if sources else ""} | earlier
    own[COMPARISONS] = "1" if own[LEVEL] == LEVELS[0] else ""
    if switched_off(command):
        sys.stderr.write("detconf: -S, -E or -I in the command keeps detconf out of that Python: it is not recorded\n")
    try:
        return become(command, own)
    except (OSError, ValueError) as error:
        raise TargetError(refusal(command[0], error)) from error


def _earlier(path: str, against: str | None, level: str, *, stop: bool) -> dict[str, str]:
    """The variables by which a process compares itself with an earlier recording."""
    if against is None and not stop:
        return {AGAINST: "", STOP: ""}
    if against is None or os.path.abspath(against) == path:
        msg = f"{'--stop' if against is None else against}: nothing to compare with. Accepted: --against an earlier recording of another name."
        raise DetconfError(msg)
    return {AGAINST: check(against, level), STOP: "1" if stop else ""}


def _clear(path: str) -> None:
    try:
        for name in siblings(path):
            if not is_recording(name):
                msg = f"{name} is not a recording and is not overwritten. Accepted: a new name, or that of a recording."
                raise DetconfError(msg)
        for name in siblings(path):
            os.unlink(name)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # better now than when the program runs
        os.unlink(path)
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}. Accepted: a path in a folder that can be written to."
        raise DetconfError(msg) from error


def parse_values(text: str) -> bool | range:
    """ "" -> False, "all" -> True, "100:120" -> range(100, 120).

    Raises:
        DetconfError: something else.
    """
    if text in ("", "all"):
        return bool(text)
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal()):
        msg = f"values: {text!r} is not accepted. Accepted: all, or FIRST:LAST, two event indexes."
        raise DetconfError(msg)
    return range(int(first), int(last))


def start_from_environment() -> None:
    """Record this process for as long as it lives; called by detconf's sitecustomize.

    Raises:
        DetconfError: a variable has a value that cannot be used.
    """
    path, first = _claim(os.environ[VARIABLE])
    level, options = os.environ.get(LEVEL) or LEVELS[0], {"sources": bool(os.environ.get(SOURCES))}
    run = Run(writer(path, level, replace=False), parse_values(os.environ.get(VALUES, "")), level, **options)
    if first:
        follow_from_environment(run.recorder)
    atexit.register(_finish, run, first=first)
    run.start()


def _claim(path: str) -> tuple[str, bool]:
    """(path of this process, is it the first of its rank)."""
    rank = str(own_rank())
    owner, _, process = os.environ.get(_OWNER, "").partition(":")
    first = owner != rank or process == str(os.getpid())
    if first:
        os.environ[_OWNER] = f"{rank}:{os.getpid()}"
    return (own_path(path) if first else with_part(own_path(path), f"pid{os.getpid()}")), first


def _finish(run: Run, *, first: bool) -> None:
    raised: Any = getattr(sys, "last_type", None)
    try:
        if first and run.on and not siblings(os.environ.get(VARIABLE, run.recorder.path)):
            run.recorder.begin()  # a program that computed nothing leaves an empty recording, not none
        if run.on:
            run.stop(ended=raised.__name__ if raised else "")
    except DetconfError as error:
        sys.stderr.write(f"detconf: {error}\n")
