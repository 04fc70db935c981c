"""Comparing while recording: each event with the one in its place in an earlier recording; the first that differs is said.

Threads are followed apart. Nothing is aligned: behind the first difference there is nothing more to say, and
`detconf compare` says it better.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from threading import get_ident
from typing import Any

from detconf.errors import DetconfError
from detconf.lookup import first_line
from detconf.recording.event import NOTHING, Event, Layout, Output
from detconf.recording.names import own_path, siblings
from detconf.recording.reading import Recording
from detconf.recording.recorder import Recorder

VARIABLE, STOP = "DETCONF_RECORD_AGAINST", "DETCONF_RECORD_STOP"
_THREADS = 8
"""Most threads that are followed: each reads the earlier recording for itself."""
_DIFFERS = 1


def check(against: str, level: str) -> str:
    """The absolute path of an earlier recording.

    Raises:
        DetconfError: there is none, or it is of another level.
    """
    for path in siblings(against) or [against]:
        with Recording(path) as earlier:
            found = earlier.about.get("level")
        if found != level:
            msg = f"{path} was recorded with level {found!r}, this one is to be of {level!r}. Accepted: --level {found}."
            raise DetconfError(msg)
    return os.path.abspath(against)


def follow_from_environment(recorder: Recorder) -> None:
    """Compare what `recorder` is told with an earlier recording, where a variable names one."""
    against = os.environ.get(VARIABLE)
    if against:
        follow(recorder, own_path(against), stop=bool(os.environ.get(STOP)))


def follow(recorder: Recorder, against: str, *, stop: bool) -> None:
    """Compare every event from now on; with `stop`, end the process behind the first that differs."""
    follower = _Follower(recorder, against, stop=stop)
    operation, close = recorder.operation, recorder.close

    def compared(
        name: str, inputs: Sequence[bytes], outputs: Sequence[bytes], layouts: tuple[Layout, ...], *rest: Any, **more: Any
    ) -> None:
        index, step = recorder.index, recorder.steps
        operation(name, inputs, outputs, layouts, *rest, **more)
        if follower.on:
            follower.see(
                index, step, name, [Output(data, str(dtype), tuple(shape)) for data, (dtype, shape) in zip(outputs, layouts, strict=False)]
            )

    def closed(ended: str = "") -> None:
        close(ended)
        follower.end()

    recorder.operation, recorder.close = compared, closed  # type: ignore[method-assign]  # of this one recorder


class _Follower:
    """Where the earlier recording is, thread by thread.

    Attributes:
        on: nothing differs so far, and this is not a forked child.
    """

    def __init__(self, recorder: Recorder, against: str, *, stop: bool) -> None:
        self._recorder, self._against, self._stop = recorder, against, stop
        self._process, self._differs, self._equal = os.getpid(), False, 0
        self._threads: dict[int, Iterator[Event]] = {}

    @property
    def on(self) -> bool:
        return not self._differs and os.getpid() == self._process

    def see(self, index: int, step: int, name: str, outputs: list[Output]) -> None:
        """Compare one event."""
        try:
            there = next(self._thread(), None)
        except (DetconfError, ValueError) as error:  # the second: a finalizer recorded while this thread was reading
            self._say(f"comparing ends: {first_line(error)}")
            return
        difference = _difference(there, name, outputs) if self.on else ""
        if not difference:
            self._equal += 1
            return
        self._say(f"differs from {self._against}, first at event {index}, step {step}, {name}: {difference}")
        if self._stop:
            self._leave()

    def _thread(self) -> Iterator[Event]:
        """The events of the calling thread in the earlier recording; opened by that thread, as SQLite wants it."""
        ident = get_ident()
        if ident not in self._threads:
            number = len(self._threads)
            if number >= _THREADS:
                self._differs = True
                return iter(())
            self._threads[ident] = _events(self._against, number)
        return self._threads[ident]

    def _say(self, words: str) -> None:
        self._differs = True
        sys.stderr.write(f"detconf: {words}\n")

    def _leave(self) -> None:
        try:
            self._recorder.close("difference")
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(_DIFFERS)  # an exception could be caught on its way through a framework

    def end(self) -> None:
        """Say at the end that nothing differed, or that events are missing."""
        if not self.on:
            return
        rest = next((event for ident, events in self._threads.items() if ident == get_ident() for event in events), None)
        more = f", which goes on with {rest.name} (event {rest.index}, step {rest.step})" if rest else ""
        self._say(f"{self._equal:,} events are equal in {self._against}{more}")


def _events(path: str, thread: int) -> Iterator[Event]:
    with Recording(path) as earlier:
        yield from (event for event in earlier.events() if event.thread == thread)


def _difference(there: Event | None, name: str, outputs: list[Output]) -> str:
    """In what an event differs from the earlier one, in words; empty where it does not."""
    if there is None:
        return "there is no such event there"
    if there.name != name:
        return f"there {there.name} (event {there.index})"
    if len(there.outputs) != len(outputs):
        return f"{len(there.outputs)} outputs there, {len(outputs)} here"
    for earlier, own in zip(there.outputs, outputs, strict=True):
        if (earlier.dtype, earlier.shape) != (own.dtype, own.shape):
            return f"{earlier.dtype}{list(earlier.shape)} there, {own.dtype}{list(own.shape)} here"
        if earlier.digest != own.digest and NOTHING not in (earlier.digest, own.digest):
            return f"{own.dtype}{list(own.shape)}, digest {earlier.digest.hex()} there, {own.digest.hex()} here"
    return ""
