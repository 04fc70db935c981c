"""A process that runs one side: asked by lines of JSON, ended when it hangs, started again when it dies."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from detconf.auditing.elsewhere.remote_worker import NEEDED
from detconf.errors import TargetError

_PATIENCE = 1800.0


class Process:
    """See the module.

    Args:
        label: of the side, for messages.
        words: of the command.
        environment: all of it.
        patience: seconds for one answer.
    """

    def __init__(self, label: str, words: Sequence[str], environment: Mapping[str, str], patience: float = _PATIENCE) -> None:
        self.label, self._words, self._environment, self._patience = label, list(words), dict(environment), patience
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: str, answer: str) -> dict[str, Any]:
        """Have a request answered. Returns what was seen.

        Raises:
            TargetError: the process cannot be started, dies, hangs, or says that the side failed.
        """
        if self._process is None:
            self._start()
        return self._exchange(json.dumps([request, answer]))

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603  # running the user's side is what was asked
                self._words, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        except (OSError, ValueError) as error:
            msg = f"{self._words[0]} cannot be started: {error}. Accepted: a Python interpreter, or its path."
            raise TargetError(msg) from error
        self._exchange("")

    def _exchange(self, line: str) -> dict[str, Any]:
        assert self._process is not None  # noqa: S101  # started
        timer = threading.Timer(self._patience, self._process.kill)
        timer.start()
        try:
            said = self._told(line)
        finally:
            timer.cancel()
        if said is None:
            raise TargetError(self._death())
        if "done" not in said:
            raise TargetError(self._refusal(said))
        done: dict[str, Any] = said["done"]
        return done

    def _told(self, line: str) -> dict[str, Any] | None:
        assert self._process is not None and self._process.stdin and self._process.stdout  # noqa: PT018, S101  # pipes were asked for
        with suppress(OSError, ValueError):
            if line:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
            text = self._process.stdout.readline()
            found = json.loads(text) if text else None
            return found if isinstance(found, dict) else None
        return None

    def _death(self) -> str:
        assert self._process is not None  # noqa: S101  # it died
        self._process.kill()
        status = self._process.wait()
        self._process = None
        reason = f"exit status {status}" if status >= 0 else _signal(-status)
        if reason == "SIGKILL":
            reason += f" (after {self._patience:g} s without an answer it is ended)"
        return f"{self.label}: the process that ran it died: {reason}"

    def _refusal(self, said: Mapping[str, Any]) -> str:
        missing = said.get("missing")
        if not missing:
            return str(said.get("error", "it gave no answer"))
        self.end()
        return f"{self._words[0]} has no {missing}. A side's interpreter needs {', '.join(NEEDED)}: install them there."

    def end(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                if stream:
                    stream.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
