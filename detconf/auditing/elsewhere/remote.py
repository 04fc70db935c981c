"""A laboratory whose sides run in processes of their own, each perhaps under another interpreter.

What a side needs must be there alone: this process needs NumPy, and the other one NumPy, ml_dtypes, xxhash and wrapt. It
gets this very detconf by its PYTHONPATH, and nothing else of this environment.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from detconf.arrays import Array
from detconf.auditing.elsewhere import conditions, kept
from detconf.auditing.elsewhere.packing import Unpacked, unpack_value
from detconf.auditing.elsewhere.process import Process
from detconf.auditing.elsewhere.requests import CHANGES, Request, evaluated
from detconf.auditing.inputs import pack
from detconf.auditing.laboratory import Laboratory, Observation, Side
from detconf.errors import TargetError
from detconf.targets import locate
from detconf.values import Cause

_PACKAGE = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
_FOREIGN = ("PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV")
"""Variables that would make another interpreter look into this one's folders."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What made a side repeat itself."""

    restored_by: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What a side's own process says of its repeating itself; as much of a `rerun.Verification` as an audit asks for."""

    distinct: int
    cause: Cause
    axes: tuple[Axis, ...]


class Remote:
    """The function of a side that runs elsewhere. Called here, it gives the side's plain results.

    Args:
        target: "file.py:function".
        python: its interpreter; empty for this one.
    """

    def __init__(self, target: str, python: str = "") -> None:
        self.target, self.python = target, python or sys.executable
        self.elsewhere = os.path.abspath(self.target.rpartition(":")[0])
        self.__qualname__ = target
        self.run: Callable[[], Mapping[str, Array]] = dict
        self.verify: Callable[[], Mapping[str, Any]] = dict

    def verified(self) -> Verified:
        """Runs against each other, there."""
        found = self.verify()
        return Verified(int(found["distinct"]), Cause(found["cause"]), tuple(Axis(str(each)) for each in found["remedies"]))

    def __call__(self) -> Mapping[str, Array]:
        return self.run()


def remote_side(target: Any, python: str | None) -> Side:
    """A side that runs in a process of its own.

    Raises:
        TargetError: no other process could find the function.
    """
    text = target if isinstance(target, str) else locate(target)
    if not os.path.isfile(text.rpartition(":")[0]):
        msg = f"{text.rpartition(':')[0] or text}: no such file (working folder {os.getcwd()}). Accepted: 'file.py:function'."
        raise TargetError(msg)
    return Side(text, Remote(text, python or ""))


@dataclass(slots=True)
class RemoteLaboratory(Laboratory):
    """See the module. Sides whose function is no `Remote` run here.

    Attributes:
        folder: for requests and answers.
        inputs: path of the file of arguments; empty for none.
    """

    folder: str = ""
    inputs: str = ""
    _processes: dict[int, Process] = field(default_factory=dict)
    _exact: dict[int, Observation] = field(default_factory=dict)
    _shared: dict[str, Any] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def plain(self, side: Side, *, put_back: bool = True, inside: AbstractContextManager[Any] | None = None) -> dict[str, Array]:
        if not isinstance(side.function, Remote):
            return Laboratory.plain(self, side, put_back=put_back, inside=inside)
        if inside is None:
            return self._ask(side, Request(put_back=put_back)).arrays
        with inside:
            return self._ask(side, Request(put_back=put_back)).arrays

    def study(self, side: Side, **options: Any) -> Observation | None:
        if not isinstance(side.function, Remote):
            return Laboratory.study(self, side, **options)
        try:
            found = self._ask(side, Request(kind="study", options=evaluated(options, lambda index: self._shadow(side, index))))
        except TargetError as error:
            if not CHANGES & set(options):  # a change that cannot be carried out is no loss
                self.problems[side.label] = str(error)
            return None
        if not options:
            self._exact[id(side.function)] = found
        return found

    def _shadow(self, side: Side, index: int) -> Any:
        """The shadow of a value in the exact run."""
        if id(side.function) not in self._exact:
            self.study(side)
        exact = self._exact.get(id(side.function))
        value = exact.study.values[index] if exact and 0 <= index < len(exact.study.values) else None
        return None if value is None or value.shadow is None else value.shadow.copy()

    def _ask(self, side: Side, request: Request) -> Observation:
        """Have a side run.

        Raises:
            TargetError: it raises, dies or hangs.
        """
        request.conditions = [(each.kind, each.argument) for each in conditions.active]
        process = self._process(side)
        request.entry = dict(self._shared) if request.put_back else {}
        path = os.path.join(self.folder, f"{next(self._numbers)}")
        request.write(f"{path}.request")
        told = process.ask(f"{path}.request", f"{path}.answer")
        conditions.told(told)
        self._enter(told)
        return kept.read(f"{path}.answer")

    def _enter(self, told: Mapping[str, Any]) -> None:
        """All sides are entered with the states that the first one entered with."""
        file = Unpacked(str(told["entry"]))
        states = file.guarded(lambda: {str(name): unpack_value(file, state) for name, state in file.document.items()})
        self._shared = states | self._shared

    def _process(self, side: Side) -> Process:
        function = side.function
        assert isinstance(function, Remote)  # noqa: S101  # the callers looked
        if id(function) not in self._processes:
            file, _, name = function.target.rpartition(":")
            words = [
                function.python,
                "-m",
                "detconf.auditing.elsewhere.remote_worker",
                os.path.abspath(file),
                name,
                *filter(None, [self.inputs]),
            ]
            self._processes[id(function)] = Process(function.target, words, environment(self.folder, function.python))
            function.run = lambda: self.plain(side)
            function.verify = lambda: self._command(self._processes[id(function)], "verify")
        return self._processes[id(function)]

    def remedies(self) -> list[tuple[str, Cause]]:
        """Those of the frameworks in the processes."""
        found: dict[str, Cause] = {}
        for process in self._processes.values():
            found |= {str(words): Cause(cause) for words, cause in self._command(process, "remedies")["remedies"]}
        return list(found.items())

    def _command(self, process: Process, kind: str) -> Mapping[str, Any]:
        path = os.path.join(self.folder, f"{next(self._numbers)}.request")
        Request(kind=kind).write(path)
        return process.ask(path, "")

    def close(self) -> None:
        """End the processes."""
        for each in self._processes.values():
            each.end()


@contextmanager
def laboratory(inputs: Mapping[str, Any] | None = None) -> Iterator[RemoteLaboratory]:
    """A laboratory for sides elsewhere; the experiments of their frameworks are asked for there.

    Args:
        inputs: arguments of the functions, NumPy arrays by name.
    """
    with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
        path = os.path.join(folder, "inputs") if inputs else ""
        if inputs:
            pack(path, inputs)
        found = RemoteLaboratory(folder=folder, inputs=path)
        with conditions.elsewhere(found):
            yield found


def environment(folder: str, python: str) -> dict[str, str]:
    """The environment of a process under `python`: this one's, and detconf alone on its PYTHONPATH where it is another one."""
    own = {name: value for name, value in os.environ.items() if python == sys.executable or name not in _FOREIGN}
    package = os.path.join(folder, "package")
    if not os.path.isdir(package):
        os.mkdir(package)
        try:
            os.symlink(_PACKAGE, os.path.join(package, "detconf"), target_is_directory=True)
        except OSError:  # not everybody may, on Windows
            shutil.copytree(_PACKAGE, os.path.join(package, "detconf"))
    own["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [own.get("PYTHONPATH")])])
    return own
