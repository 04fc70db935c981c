"""A recording, read lazily."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from zlib import crc32

from detconf.arrays import Array
from detconf.errors import DetconfError
from detconf.recording.event import SIZE, Event, Flag, Layout, Output
from detconf.recording.file import VERSION, Site, is_recording

if TYPE_CHECKING:
    from typing_extensions import Self

_NUMBER = struct.Struct("<I")
_REMEMBERED = 1 << 15
_SITES = (
    "SELECT sites.id, n.text, flags, inputs, l.text, thread, c.text, s.text FROM sites JOIN strings n ON n.id = name "
    "JOIN strings l ON l.id = layouts JOIN strings c ON c.id = scope JOIN strings s ON s.id = source"
)


class Recording:
    """A recording, read. A context manager; nothing is held in memory but one batch.

    Args:
        path: of the file.

    Raises:
        DetconfError: no such file, not a recording, made by a newer detconf, or damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._sites: dict[int, tuple[Site, tuple[Layout, ...], int]] = {}
        self._check_head()
        # A killed writer may have left a journal; SQLite needs to write in order to undo the half batch.
        mode = "rw" if os.access(self.path, os.W_OK) else "ro"
        self._connection = self._guarded(lambda: sqlite3.connect(f"{Path(self.path).absolute().as_uri()}?mode={mode}", uri=True))
        try:
            self._check_version()
            self.about: dict[str, Any] = {key: json.loads(value) for key, value in self._rows("SELECT key, value FROM about")}
        except (DetconfError, ValueError, TypeError) as error:
            self._connection.close()
            raise (error if isinstance(error, DetconfError) else self._damaged(error)) from error

    def _check_head(self) -> None:
        try:
            known = is_recording(self.path)
        except OSError as error:
            msg = f"{self.path}: {error.strerror}. Accepted: the path of a recording made by detconf.record."
            raise DetconfError(msg) from error
        if not known:
            msg = f"{self.path} is not a recording. Accepted: a file made by detconf.record or `detconf record`."
            raise DetconfError(msg)

    def _check_version(self) -> None:
        self._connection.execute("PRAGMA trusted_schema = OFF")
        versions = self._rows("SELECT version FROM schema")
        if len(versions) != 1 or not isinstance(versions[0][0], int):
            raise self._damaged("it has no version")
        if versions[0][0] > VERSION:
            msg = f"{self.path} has schema {versions[0][0]}; this detconf reads up to {VERSION}. Install a newer detconf."
            raise DetconfError(msg)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _damaged(self, why: object) -> DetconfError:
        return DetconfError(f"{self.path} is damaged: {why}. Record again, or use another copy.")

    def _guarded(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._guarded(lambda: self._connection.execute(query, values).fetchall())
        return rows

    def summary(self) -> dict[str, Any]:
        """`schema`, `events`, `steps`, `complete`, `ended`, and what was noted of the process, such as `facts`."""
        last = self._rows("SELECT first + events, last_step FROM batches ORDER BY first DESC LIMIT 1")
        events, steps = last[0] if last else (0, 0)
        kept = self._rows("SELECT count(DISTINCT event) FROM arrays")[0][0]
        head = {"schema": f"detconf.recording/{VERSION}", "events": events, "steps": steps, "complete": False, "ended": None}
        return head | {"kept": kept, "probed": self.probed(), "failed": self.failed(), "facts": {}} | self.about

    def probed(self) -> list[str]:
        """The operations of which the gradient may have other bits than without the recorder."""
        query = "SELECT DISTINCT text FROM sites JOIN strings ON strings.id = name WHERE flags & ? ORDER BY text"
        return [str(name) for (name,) in self._rows(query, int(Flag.PROBED))]

    def failed(self) -> list[str]:
        """Where comparisons of a test fail: "test_x.py:12"."""
        query = "SELECT DISTINCT text FROM sites JOIN strings ON strings.id = source WHERE flags & ? AND inputs > 0 ORDER BY sites.id"
        return [str(place) for (place,) in self._rows(query, int(Flag.COMPARED))]

    def events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        """The events from index `start` up to, not including, `stop`, one batch in memory at a time.

        Raises:
            DetconfError: the file is damaged; events before the damage have been given.
        """
        for first, step, data in self.batches(start):
            if stop is not None and first >= stop:
                return
            inside = self._unpack(first, step, data)
            skip = max(0, start - first)
            yield from islice(inside, skip, None if stop is None else max(skip, stop - first))

    def batches(self, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
        """(index of the first event, steps that had ended, packed events), from the batch that holds event `start` on.

        Raises:
            DetconfError: the file is damaged; batches before the damage have been given.
        """
        last = self._rows("SELECT max(first) FROM batches WHERE first <= ?", start)[0][0] or 0
        while True:
            rows = self._rows("SELECT first, events, step, crc, data FROM batches WHERE first >= ? ORDER BY first LIMIT 1", last)
            if not rows:
                return
            first, count, step, crc, data = rows[0]
            if not isinstance(data, bytes) or crc32(data) != crc:
                msg = f"the batch of event {first} has other bytes than were written"
                raise self._damaged(msg)
            yield first, step, data
            last = first + max(count, 1)

    def sites(self, start: int = 1) -> Iterator[tuple[int, Site]]:
        """The number and description of every site from number `start` on."""
        while rows := self._rows(f"{_SITES} WHERE sites.id >= ? ORDER BY sites.id LIMIT 1024", start):
            yield from ((row[0], Site(*row[1:])) for row in rows)
            start = rows[-1][0] + 1

    def event(self, index: int) -> Event:
        """The event of that index.

        Raises:
            DetconfError: there is none.
        """
        for event in self.events(index, index + 1):
            return event
        msg = f"{self.path} has no event {index}. Accepted: 0 to {self.summary()['events'] - 1}."
        raise DetconfError(msg)

    def _unpack(self, index: int, step: int, data: bytes) -> Iterator[Event]:
        place = 0
        while place < len(data):
            (number,) = _NUMBER.unpack_from(data, place)
            place += _NUMBER.size
            if number == 0:
                step += 1
                continue
            site, layouts, size = self._site(number)
            if place + size > len(data):
                msg = f"event {index} is cut off"
                raise self._damaged(msg)
            parts = [data[at : at + SIZE] for at in range(place, place + size, SIZE)]
            place += size
            yield _event(index, step, site, layouts, parts)
            index += 1

    def _site(self, number: int) -> tuple[Site, tuple[Layout, ...], int]:
        """A site, its layouts, and the length of its events' digests."""
        found = self._sites.get(number)
        if found is None:
            if len(self._sites) >= _REMEMBERED:
                self._sites.clear()
            found = self._sites[number] = self._read_site(number)
        return found

    def _read_site(self, number: int) -> tuple[Site, tuple[Layout, ...], int]:
        rows = self._rows(f"{_SITES} WHERE sites.id = ?", number)
        try:
            site = Site(*rows[0][1:])
            layouts = tuple((str(dtype), tuple(map(int, shape))) for dtype, shape in json.loads(site.layouts))
            size = SIZE * (bool(site.flags & Flag.RANDOM) + site.inputs + len(layouts))
        except (IndexError, TypeError, ValueError) as error:
            msg = f"operation {number} is not described"
            raise self._damaged(msg) from error
        return site, layouts, size

    def values(self, index: int) -> dict[tuple[str, int], Array]:
        """The arrays kept of an event: ("input", 0), ("output", 0), ...; empty where none were asked for.

        ("scalar", 1): the second argument, where that is a number.
        """
        rows = self._rows("SELECT role, place, layout, digest FROM arrays WHERE event = ? ORDER BY role, place", index)
        return {(role, place): self._array(layout, digest) for role, place, layout, digest in rows}

    def _array(self, layout: str, digest: bytes) -> Array:
        parts = self._rows("SELECT data FROM bytes WHERE digest = ? ORDER BY part", digest)
        try:
            dtype, shape = json.loads(layout)
            array = Array(str(dtype), tuple(map(int, shape)), b"".join(part for (part,) in parts))
        except (TypeError, ValueError) as error:
            raise self._damaged(error) from error
        if bytes.fromhex(array.digest) != digest:
            raise self._damaged("an array has other bytes than were written")
        return array


def _event(index: int, step: int, site: Site, layouts: tuple[Layout, ...], parts: list[bytes]) -> Event:
    random = parts.pop(0) if site.flags & Flag.RANDOM else b""
    outputs = tuple(Output(part, *layout) for part, layout in zip(parts[site.inputs :], layouts, strict=True))
    inputs = tuple(parts[: site.inputs])
    return Event(index, step, site.name, site.thread, inputs, outputs, random, Flag(site.flags), site.scope, site.source)
