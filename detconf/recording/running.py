"""`record`: starts the tracers of the frameworks, now or when they are imported, and ends them.

Framework-neutral: `Framework.tracer` names the tracers. A forked child goes on recording, in a file of its own that is
made at its first batch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Literal

from detconf import facts, publishing
from detconf.arrays import Array
from detconf.errors import DetconfError
from detconf.frameworks import frameworks
from detconf.frameworks.base import Framework
from detconf.lookup import finished, first_line, is_imported, resolve
from detconf.recording.event import Flag
from detconf.recording.file import Writer
from detconf.recording.generators import Generators
from detconf.recording.names import own_path, with_part
from detconf.recording.recorder import LEVELS, Recorder
from detconf.session import current

_running: Run | None = None
"""One recording per process."""


@contextmanager
def record(
    path: str | os.PathLike[str],
    values: bool | range = False,
    level: Literal["operations", "state"] = "operations",
    sources: bool = False,
) -> Iterator[Recorder]:
    """Record what this process computes inside the block, in one file. The results of the program stay what they were.

    Frameworks that are imported inside the block are recorded from their import on.

    Args:
        path: of the file, such as "run.det"; a recording that is there is replaced. A rank of a distributed job writes
            "run.rank1.det"; the path in use is `path` of what the block gets.
        values: keep the arrays that operations read and wrote: all, or those of a range of event indexes.
        level: "operations", or "state" for parameters, gradients and optimizer state at the end of each step.
        sources: note the module and the line of each operation (about twice the cost).

    Raises:
        DetconfError: an argument cannot be used, the file cannot be made, or a recording is running; at the end of the
            block: not everything could be written.
    """
    run = Run(writer(own_path(os.fspath(path)), level), values, level, sources=sources)
    run.recorder.begin()
    run.start()
    try:
        yield run.recorder
    except BaseException as error:
        run.stop(ended=type(error).__name__, quiet=True)
        raise
    run.stop()


class Run:
    """A recording in progress: a recorder, what it listens to, and what ends that."""

    def __init__(self, writer: Writer, values: bool | range, level: str, *, sources: bool) -> None:
        if level not in LEVELS:
            msg = f"level: {level!r} is not accepted. Accepted: {', '.join(map(repr, LEVELS))}."
            raise DetconfError(msg)
        if not isinstance(values, (bool, range)):
            msg = f"values: {values!r} is not accepted. Accepted: True, False, or a range of event indexes."
            raise DetconfError(msg)
        if _running is not None:
            msg = f"a recording into {_running.recorder.path} is running. Accepted: one at a time; end that one first."
            raise DetconfError(msg)
        self.recorder: Recorder = Recorder(writer, values=values, level=level, sources=sources)
        self._generators = Generators(self.recorder)
        self._ends: list[Callable[[], None]] = []
        self.on = False

    def step(self) -> None:
        self.recorder.step(explicit=True)

    def published(self, name: str, array: Array) -> None:
        self.recorder.state(name, array, flags=Flag.PUBLISHED)

    def start(self) -> None:
        global _running
        _running, self.on = self, True
        publishing.listeners.append(self)
        self._generators.find()
        try:
            for each in frameworks():
                if each.module and is_imported(each.module):
                    self._trace(each)
                elif each.tracer or each.on_step:
                    from wrapt import register_post_import_hook  # only where something is awaited

                    register_post_import_hook(partial(self._arrived, each), each.module)
        except BaseException as error:
            self.stop(ended=type(error).__name__, quiet=True)
            raise

    def _arrived(self, framework: Framework, module: Any) -> None:
        finished(module.__name__)
        if self.on:
            self._trace(framework)

    def _trace(self, framework: Framework) -> None:
        self._generators.find()
        # The tracer first: at the end of a step it records the state, before the step is counted.
        if framework.tracer:
            self._ends.append(import_module(framework.tracer).start(self.recorder))
        if framework.on_step:
            self._ends.append(resolve(framework.on_step)(self._stepped))

    def _stepped(self) -> None:
        if self.recorder.level == "state":
            self._generators.report()
        self.recorder.step()

    def stop(self, ended: str = "", *, quiet: bool = False) -> None:
        """End tracing and close the file.

        Raises:
            DetconfError: not everything could be written, unless `quiet`.
        """
        global _running
        _running, self.on = None, False
        if self in publishing.listeners:
            publishing.listeners.remove(self)
        while self._ends:
            self._ends.pop()()
        try:
            self.recorder.close(ended)
        except DetconfError:
            if not quiet:
                raise


def in_progress() -> Run | None:
    """The recording of this process."""
    return _running


def writer(path: str, level: str, *, replace: bool = True) -> Writer:
    """The writer of a recording that is to describe this process."""
    return Writer(path, partial(_about, level), replace=replace)


def _about(level: str) -> dict[str, Any]:
    session = current()
    return {
        "level": level,
        "rank": facts.rank(),
        "facts": facts.gather().to_dict(),
        "attestation": session and session.attestation.to_dict(),
    }


def _forked() -> None:
    """In a forked child: go on in a file of its own."""
    if _running is None:
        return
    recorder = _running.recorder
    recorder.forked(with_part(recorder.path, f"pid{os.getpid()}"))
    util = sys.modules.get("multiprocessing.util")
    if util:  # its children leave by os._exit, after its own finalizers
        util.register_after_fork(recorder, partial(_close_at_end, _running, util))


def _close_at_end(run: Run, util: Any, _recorder: Recorder) -> None:
    util.Finalize(None, _close_child, (run,), exitpriority=-100)


def _close_child(run: Run) -> None:
    try:
        if run.on:
            run.stop()
    except DetconfError as error:
        sys.stderr.write(f"detconf: {first_line(error)}\n")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
