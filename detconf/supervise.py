"""One run of a command in a process of its own, which may crash, hang or print anything."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from detconf.errors import TargetError

_SHOWN_LINES = 10
_SHOWN_BYTES = 4000
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended.

    Attributes:
        reason: "exit status 3", "signal SIGSEGV", "timeout after 5 s"; empty for exit status 0.
        lines: the last lines that it wrote to stderr, or to stdout where it wrote none; printable.
    """

    reason: str = ""
    lines: tuple[str, ...] = ()


def supervise(argv: Sequence[str], environment: Mapping[str, str], folder: str, timeout: float) -> Ending:
    """Run `argv` and wait for it. When it has ended, nothing that it started is left running in its session.

    Args:
        argv: the command's words.
        environment: all of its environment.
        folder: where its stdout and stderr are kept: in files, because a pipe that nobody reads would stop it.
        timeout: seconds.

    Raises:
        TargetError: it cannot be started.
    """
    out, err = (os.path.join(folder, name) for name in ("stdout", "stderr"))
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        try:
            process = subprocess.Popen(  # noqa: S603  # running the user's command is what was asked
                argv, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
            )
        except (OSError, ValueError) as error:
            msg = f"{argv[0]} cannot be started: {error}. Accepted: a program on PATH, or its path."
            raise TargetError(msg) from error
        try:
            reason = _reason(process.wait(timeout))
        except subprocess.TimeoutExpired:
            reason = f"timeout after {timeout:g} s"
        finally:  # also when the verifier is interrupted: the run has a session of its own and hears no Ctrl-C
            _end(process)
    return Ending(reason, (_tail(err) or _tail(out)) if reason else ())


def _end(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _reason(status: int) -> str:
    if status >= 0:
        return f"exit status {status}" if status else ""
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def _tail(path: str) -> tuple[str, ...]:
    """The last lines of a file of any size and content, as a terminal can show them."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - _SHOWN_BYTES))
        text = file.read().decode("utf-8", "replace")
    lines = ["".join(filter(str.isprintable, line.expandtabs())).rstrip() for line in _COLOUR.sub("", text).splitlines()]
    return tuple(filter(None, lines))[-_SHOWN_LINES:]
