"""Many runs of one command at the cost of one start: it is stopped before its first operation, and forked for each run.

The command connects to a socket of ours when its study is about to note its first value. It then forks for each line that
it is sent; the copy takes the options that the line names and goes on as the program would. Where anything goes wrong (no
fork on this system, a copy that hangs), runs are started from the beginning instead.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from detconf.supervise import supervise

if TYPE_CHECKING:
    from detconf.auditing.elsewhere.requests import Request

VARIABLE = "DETCONF_AUDIT_SOCKET"
SERVED = frozenset(("amendments", "alterations", "states", "draws"))
"""Options that a study takes up while it runs."""
_PATIENCE = 240.0
"""Seconds for one run, twice."""
_LOOK, _STARTS = 0.002, 0.5


def serve(take: Callable[[str, str], None]) -> None:
    """In the command: fork for each request, until the other side is gone. Returns in the copies, and where nobody listens.

    Args:
        take: called in a copy with the paths of the request and the answer.
    """
    path = os.environ.get(VARIABLE, "")
    connection = _connected(path)
    if connection is None:
        return
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            request, _, answer = line.rstrip("\n").partition("\t")
            child = os.fork()
            if child == 0:
                os.environ.pop(VARIABLE, None)
                take(request, answer)
                return
            lines.write(f"{_ended(child)}\n")
            lines.flush()
    os._exit(0)


def _ended(child: int) -> int:
    """Wait for a copy, and end one that hangs. Returns its exit status."""
    end = time.monotonic() + _PATIENCE / 2
    while True:
        done, status = os.waitpid(child, os.WNOHANG if time.monotonic() < end else 0)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_LOOK)
        if time.monotonic() >= end:
            os.kill(child, signal.SIGKILL)


def _connected(path: str) -> socket.socket | None:
    if not path or not hasattr(os, "fork") or not hasattr(socket, "AF_UNIX"):
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


class Forks:
    """The other side: a command that is forked for each run.

    Args:
        command: its words.
        environment: all of its environment; the request that it starts with is one for a study without options.
        folder: for its output and the socket.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        self._lines: Any = None
        self._connection: socket.socket | None = None
        self._thread: threading.Thread | None = None
        path = os.path.join(folder, "socket")
        try:
            self._begin(command, {**environment, VARIABLE: path}, folder, path)
        except (OSError, AttributeError):  # no such sockets here; too long a path; the command never computed anything
            self.end()

    def _begin(self, command: Sequence[str], environment: Mapping[str, str], folder: str, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen(1)
            listening.settimeout(_STARTS)
            self._thread = threading.Thread(target=supervise, args=(list(command), dict(environment), folder, 1e6), daemon=True)
            self._thread.start()
            self._connection = self._accepted(listening)
        self._connection.settimeout(_PATIENCE)
        self._lines = self._connection.makefile("rw", encoding="utf-8")

    def _accepted(self, listening: socket.socket) -> socket.socket:
        """The command's connection.

        Raises:
            OSError: it has ended without one.
        """
        while self._thread is not None and self._thread.is_alive():
            with suppress(TimeoutError):
                return listening.accept()[0]
        msg = "the command never came to where it would be copied"
        raise OSError(msg)

    @property
    def alive(self) -> bool:
        """Can it be copied?"""
        return self._lines is not None

    def run(self, request: Request, path: str, answer: str) -> bool:
        """Have a request run. False where it could not be; then this is over."""
        if self._lines is None:
            return False
        request.write(path)
        with suppress(OSError, ValueError):
            self._lines.write(f"{path}\t{answer}\n")
            self._lines.flush()
            if self._lines.readline():
                return True
        self.end()
        return False

    def end(self) -> None:
        """End the command."""
        self._lines = None
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            self._connection.close()
        self._connection = None
        if self._thread is not None:
            self._thread.join(5)
