"""`Recorder`: what the tracers of the frameworks call. Framework-neutral.

A tracer is a module with one function:

    def start(recorder: Recorder) -> Callable[[], None]     # starts tracing; the result stops it

named by `Framework.tracer`. It is called when a recording starts and the framework is imported, or when it is imported
later. The tracer looks at `recorder.level`: for "operations" it calls `operation` for every operation, for "state"
`state` for every array of the state at the end of a step. Both levels end steps with `step`.

    if recorder.keeping:                                  # arrays are wanted for the event that comes next
        before = [Array(...).owned() for each input]
    ... run the operation ...
    recorder.operation("aten.mm", [witness, witness], [digest(...)], (("float32", (8, 8)),), values=(before, after))

Nothing here raises into the user's program: when the file can no longer be written, recording stops, stderr says so,
and closing raises.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from threading import get_ident
from time import monotonic
from typing import Any

from detconf.arrays import Array
from detconf.errors import DetconfError
from detconf.lookup import first_line
from detconf.recording.event import Flag, Layout
from detconf.recording.file import STEP, Site, Writer, layouts_text

LEVELS = ("operations", "state")
_BATCH = 1 << 18
"""Bytes of packed events after which a batch is written."""
_SECONDS = 1.0
"""After which a batch is written at the next step, or within 64 events."""
_SITES = 1 << 15
"""Most sites remembered: a program whose shapes never repeat must not fill the memory."""
_THREADS = 1 << 12
_HELD = 1 << 26
"""Bytes of kept arrays that may wait for a batch."""

Kept = tuple[Sequence[Array], Sequence[Array]] | tuple[Sequence[Array], Sequence[Array], Sequence[Array | None]]
"""Arrays of the inputs before an operation, and of its outputs; then, by position, arguments that are numbers."""


class Recorder:
    """Takes events from tracers, of any thread, and writes them to a file in batches.

    Attributes:
        level: "operations" or "state".
        sources: tracers pass scope and source.
        keeping: arrays are wanted for the next event: the tracer passes `values`.
        active: false once closed or failed; tracers may stop calling then.
        index: number of the next event.
        steps: steps that have ended.
        failure: why recording stopped early; empty if it did not.
        followers: what NumPy's tracer does to an array that another framework gave out, while there is one.
    """

    def __init__(self, writer: Writer, *, values: bool | range = False, level: str = "operations", sources: bool = False) -> None:
        self.level = level
        self.sources = sources
        self._kept_range = values if isinstance(values, range) else None
        self._keeps = bool(values)
        self._writer = writer
        self.followers: list[Callable[[Any], Any]] = []
        self._lock = threading.RLock()  # a finalizer may record while this thread does
        self._reset()

    def _reset(self) -> None:
        self.active, self.failure = True, ""
        self.index = self.steps = 0
        self._explicit = False
        self._buffer = bytearray()
        self._sites: dict[Any, bytes] = {}
        self._threads: dict[int, int] = {}
        self._next_thread = 0
        self._held: list[tuple[int, Kept]] = []
        self._held_bytes = 0
        self._begun = (0, 0)
        self._written = monotonic()
        self._look()

    @property
    def path(self) -> str:
        """The file of this process."""
        return self._writer.path

    def begin(self) -> None:
        """Make the file now, not at the first batch.

        Raises:
            DetconfError: it cannot be made, or something else is there.
        """
        self._writer.begin()

    def operation(  # noqa: PLR0913, PLR0917  # what an event holds
        self,
        name: str,
        inputs: Sequence[bytes],
        outputs: Sequence[bytes],
        layouts: tuple[Layout, ...],
        random: bytes = b"",
        flags: int = 0,
        scope: str = "",
        source: str = "",
        values: Kept | None = None,
    ) -> None:
        """Record one operation, after it ran.

        Args:
            name: as the framework spells it.
            inputs: a 16-byte witness per array read.
            outputs: a 16-byte digest per array written, `NOTHING` for one that was not hashed.
            layouts: (dtype, shape) per output. Anything hashable that `str` and `tuple` understand, such as a torch.Size.
            random: 16-byte digest of the generator's state before, for an operation that draws.
            flags: of `Flag`; RANDOM is set here.
            scope: path of the calling module.
            source: line of the program.
            values: where `keeping` was true before the operation.
        """
        if random:
            flags |= 1  # Flag.RANDOM, without the enumeration's microsecond
        key = (name, flags, len(inputs), layouts, scope, source, get_ident())
        with self._lock:
            if not self.active:
                return
            site = self._sites.get(key) or self._site(key)
            self._buffer += b"".join((site, random, *inputs, *outputs))  # one step: Ctrl-C leaves whole events
            if values is not None:
                self._keep(values)
            self.index += 1
            if self._kept_range is not None:
                self._look()
            if len(self._buffer) > _BATCH or self._held_bytes > _HELD or (not self.index & 63 and monotonic() - self._written > _SECONDS):
                self.flush()

    def state(self, name: str, array: Array, *, flags: int = Flag.STATE) -> None:
        """Record one named array of the state at the end of a step."""
        kept: Kept | None = ((), (array.owned(),)) if self.keeping else None
        self.operation(name, (), (bytes.fromhex(array.digest),), ((array.dtype, array.shape),), flags=flags, values=kept)

    def leaf(self, name: str, array: Array, *, source: str = "") -> None:
        """Record data that entered from outside: a file that was read, a constant that was made."""
        kept: Kept | None = ((), (array.owned(),)) if self.keeping else None
        layouts = ((array.dtype, array.shape),)
        self.operation(name, (), (bytes.fromhex(array.digest),), layouts, flags=Flag.LEAF, source=source, values=kept)

    def step(self, *, explicit: bool = False) -> None:
        """End a step.

        Args:
            explicit: by `detconf.step()`. From the first of these on, optimizers end no steps; that first one ends
                none either where an optimizer has.
        """
        with self._lock:
            if not self.active:
                return
            first, self._explicit = explicit and not self._explicit, self._explicit or explicit
            if (first and self.steps) or (self._explicit and not explicit):
                return
            self._buffer += STEP
            self.steps += 1
            if monotonic() - self._written > _SECONDS:
                self.flush()

    def flush(self) -> None:
        """Write what is waiting as one batch. A failure stops the recording."""
        with self._lock:
            if not (self.active and (self._buffer or self._held)):
                return
            try:
                self._writer.batch(self._begun, (self.index, self.steps), bytes(self._buffer), self._held)
            except (sqlite3.Error, OSError, DetconfError) as error:
                self._fail(error)
            self._buffer = bytearray()
            self._held, self._held_bytes = [], 0
            self._begun = (self.index, self.steps)
            self._written = monotonic()

    def close(self, ended: str = "") -> None:
        """Write the rest and the end mark. A second call does nothing.

        Args:
            ended: the exception that ended the program or block; empty if none did, and the recording is complete.

        Raises:
            DetconfError: not everything could be written.
        """
        with self._lock:
            if not self.active and not self.failure:
                return
            self.flush()
            self.active = self.keeping = False
            try:
                self._writer.close(ended or self.failure)
            except (sqlite3.Error, OSError) as error:
                self.failure = self.failure or first_line(error)
            failure, self.failure = self.failure, ""
        if failure:
            msg = f"{self.path}: recording stopped: {failure}. The file holds the events up to then. Make room, or record elsewhere."
            raise DetconfError(msg)

    def forked(self, path: str) -> None:
        """Go on in a forked child, in a file of its own that is made at its first batch."""
        self._lock = threading.RLock()
        was_active = self.active
        self._writer = self._writer.for_child(path)
        self._reset()
        self.active = was_active

    def _look(self) -> None:
        self.keeping = self._keeps and (self._kept_range is None or self.index in self._kept_range)

    def _keep(self, values: Kept) -> None:
        self._held.append((self.index, values))
        self._held_bytes += sum(len(array.data) for side in values for array in side if array is not None)

    def _site(self, key: tuple[Any, ...]) -> bytes:
        """The packed number of a site: everything about an operation but its bytes."""
        if len(self._sites) >= _SITES:
            self._sites.clear()
        name, flags, inputs, layouts, scope, source, ident = key
        site = self._writer.site(Site(name, int(flags), inputs, layouts_text(layouts), self._thread(ident), scope, source))
        self._sites[key] = site
        return site

    def _thread(self, ident: int) -> int:
        if ident not in self._threads:
            if len(self._threads) >= _THREADS:
                self._threads.clear()
            self._threads[ident] = self._next_thread
            self._next_thread += 1
        return self._threads[ident]

    def _fail(self, error: BaseException) -> None:
        self.active = self.keeping = False
        self.failure = first_line(error)
        sys.stderr.write(f"detconf: {os.path.basename(self.path)}: recording stopped, the program goes on: {self.failure}\n")
