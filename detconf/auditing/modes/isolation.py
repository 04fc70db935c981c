"""A rung in a process of its own, which may crash or hang.

Where the target and its inputs are functions at the top level of a file, a fresh interpreter runs them: it starts from
seed 0 in every generator, with paddle's and torch's threads unstarted. Anything else is run by a fork of this process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import detconf
from detconf.auditing.modes.parcels import pack, unpack
from detconf.errors import TargetError
from detconf.frameworks.rungs import Ladder, Operation, Outcome, Settings, Status, Survey, Trial
from detconf.lookup import first_line
from detconf.results import flatten
from detconf.supervise import Ending, supervise
from detconf.targets import label, locate

_TIMEOUT = 600.0
_TICK = 0.02
_START = "import sys, json; job = json.load(open(sys.argv[1])); sys.path[:0] = job['path']; from detconf.auditing.modes.worker import main; main(job)"


class Isolated:
    """A `Subject` whose every run is a process.

    Args:
        ladder: of its framework.
        target, inputs: as `ladder.subject` takes them, or "file.py:function".
        timeout: seconds for one run.
    """

    apart = True

    def __init__(self, ladder: Ladder, target: Any, inputs: Any, timeout: float | None) -> None:
        self._ladder, self._target, self._inputs, self._timeout = ladder, target, inputs, timeout or _TIMEOUT
        self._apart = _paths(target, inputs)
        if self._apart is None and not hasattr(os, "fork"):
            msg = (
                f"{label(target)}: its rungs run in processes of their own, which must find it: pass a function at the top level "
                "of a file, or 'file.py:function', that returns the layer; the inputs likewise."
            )
            raise TargetError(msg)
        self._seen: dict[str, Survey] = {}
        about = self._do("about", {})
        found: Mapping[str, Any] = about if isinstance(about, dict) else {}
        self.cases: int = found.get("cases", 1)
        self.advice: Mapping[str, str] = found.get("advice", {})
        self.stages: Mapping[str, str] = found.get("stages", {})
        if isinstance(about, Ending):
            msg = f"{label(target)}: it cannot be run in a process of its own: {about.reason}{''.join(f'{os.linesep}  {line}' for line in about.lines)}"
            raise TargetError(msg)
        if "error" in found:
            raise TargetError(str(found["error"]))

    def run(self, rung: str, settings: Settings) -> Outcome:
        found = self._do("run", {"rung": rung, "settings": dict(settings)})
        if isinstance(found, Ending):
            hung = found.reason.startswith("timeout")
            telling = [line.strip() for line in found.lines if "Error" in line]
            last = f" ({telling[-1]})" if telling else ""
            status = Status.HUNG if hung else Status.CRASHED
            return Outcome(status, why=f"{found.reason}{last}")
        return Outcome(**{**found, "status": Status(found["status"]), "notes": tuple(found["notes"])})

    def survey(self, rung: str, settings: Settings) -> Survey:
        key = rung if self._ladder.FLAT else f"{rung} {sorted(settings.items())}"
        if key not in self._seen:
            self._seen[key] = self._survey(rung, settings)
        return self._seen[key]

    def _survey(self, rung: str, settings: Settings) -> Survey:
        found = self._do("survey", {"rung": rung, "settings": dict(settings)})
        if isinstance(found, Ending):
            return Survey(unexamined=[f"inside {rung}: {found.reason}"])
        operations = [Operation(**{**each, "sides": each["sides"] and tuple(each["sides"])}) for each in found["operations"]]
        return Survey(**{**found, "operations": operations, "low": set(found["low"])})

    def remedies(self, rung: str, survey: Survey, outcome: Outcome) -> Sequence[Trial]:
        return self._ladder.remedies(rung, survey, outcome)

    def cost(self, rung: str, settings: Settings, plain: str) -> float | None:
        found = self._do("cost", {"rung": rung, "settings": dict(settings), "plain": plain})
        return found if isinstance(found, float) else None

    def _do(self, method: str, arguments: Mapping[str, Any]) -> Any:
        """What a child answers; an `Ending` where it does not."""
        with tempfile.TemporaryDirectory(prefix="detconf-") as folder:
            ending = self._spawn(folder, method, arguments) if self._apart else self._fork(folder, method, arguments)
            answer = os.path.join(folder, "answer")
            if ending.reason or not os.path.exists(answer):
                return Ending(ending.reason or "it ended without an answer", ending.lines)
            return unpack(answer)

    def _spawn(self, folder: str, method: str, arguments: Mapping[str, Any]) -> Ending:
        job = os.path.join(folder, "job")
        target, inputs = self._apart or ("", "")
        path = [os.path.dirname(detconf.__path__[0]), *filter(None, sys.path)]
        about = {"path": path, "ladder": getattr(self._ladder, "__name__", ""), "target": target, "inputs": inputs, "folder": folder}
        with open(job, "w", encoding="utf-8") as file:
            json.dump({**about, "method": method, "arguments": arguments}, file)
        return supervise([sys.executable, "-c", _START, job], os.environ, folder, self._timeout)

    def _fork(self, folder: str, method: str, arguments: Mapping[str, Any]) -> Ending:
        return forked(lambda: perform(self._ladder, (self._target, self._inputs), method, arguments, folder), folder, self._timeout)


def perform(ladder: Ladder, program: tuple[Any, Any], method: str, arguments: Mapping[str, Any], folder: str) -> None:
    """In the child: do what was asked for and leave the answer in `folder`. `program`: target and inputs."""
    target, inputs = program
    try:
        subject = ladder.subject(target, inputs)
    except TargetError as error:
        pack({"error": str(error)}, os.path.join(folder, "answer"))
        return
    except Exception as error:  # noqa: BLE001  # the target's own
        pack({"error": f"{label(target)} raised {first_line(error)}"}, os.path.join(folder, "answer"))
        return
    if method == "about":
        answer: Any = {"cases": subject.cases, "advice": dict(subject.advice), "stages": dict(subject.stages)}
    else:
        answer = getattr(subject, method)(**arguments)
    if isinstance(answer, Outcome):
        try:
            answer.values = {path: array for name, value in answer.values.items() for path, array in flatten(value, name).items()}
        except TargetError as error:
            answer = Outcome(Status.RAISED, why=str(error))
    pack(answer, os.path.join(folder, "answer"))


def forked(function: Callable[[], None], folder: str, timeout: float) -> Ending:
    """Call a function in a fork of this process, its output kept in `folder`."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setsid()
            faulthandler.disable()  # it would write where the parent does
            for number, name in ((1, "stdout"), (2, "stderr")):
                os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT), number)
            function()
            status = 0
        except BaseException as error:  # noqa: BLE001  # nothing of the parent's may run on in its copy
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    ended = _waited(child, time.monotonic() + timeout)
    if ended is None:
        return Ending(f"timeout after {timeout:g} s", _said(folder))
    if os.WIFSIGNALED(ended):
        return Ending(f"signal {signal.Signals(os.WTERMSIG(ended)).name}", _said(folder))
    code = os.WEXITSTATUS(ended)
    return Ending(f"exit status {code}", _said(folder)) if code else Ending()


def _waited(child: int, end: float) -> int | None:
    """The status with which a child ended; None where it had to be ended."""
    ended = status = 0
    try:
        while not ended and time.monotonic() < end:
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended:
                time.sleep(_TICK)
    finally:  # also when we are interrupted: it has a session of its own and hears no Ctrl-C
        if not ended:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return status if ended else None


def _said(folder: str) -> tuple[str, ...]:
    with open(os.path.join(folder, "stderr"), encoding="utf-8", errors="replace") as file:
        return tuple(line.rstrip() for line in file.read().splitlines() if line.strip())[-10:]


def _paths(target: Any, inputs: Any) -> tuple[str, str] | None:
    """The "file.py:function" of both; None where one has none."""
    try:
        return _path(target), "" if inputs is None else _path(inputs)
    except TargetError:
        return None


def _path(value: Any) -> str:
    if isinstance(value, str):
        path, _, name = value.rpartition(":")
        return f"{os.path.abspath(path)}:{name}"
    return locate(value)
