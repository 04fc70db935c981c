"""The file of a recording: SQLite with a rollback journal, written in batches, read lazily.

    schema    version                                              1 row
    about     key, value (JSON)                                    facts, attestation, level, ended, ...
    strings   id, text                                             every name, layout, scope and source, once
    sites     id, name, flags, inputs, layouts, thread, scope, source      what an event is beside its bytes
    batches   first, events, step, last_step, crc, data            packed events
    arrays    event, role, place, layout, digest                   kept arrays of an event
    bytes     digest, part, data                                   their bytes, once

Packed: the number of a site (4 bytes, little-endian), then 16 bytes each for the generator's state where the site draws,
the inputs, and the outputs. Site 0 alone is the end of a step. A commit is not synced to the disk: a killed process
loses at most its last batch, a power failure may lose more.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from detconf.arrays import Array
from detconf.errors import DetconfError
from detconf.recording.event import Layout, prefix

VERSION = 1
APPLICATION = 0x64657463  # "detc", at offset 68 of the file
STEP = bytes(4)
"""End of a step in a batch."""
_NUMBER = struct.Struct("<I")
_MAGIC = b"SQLite format 3\0"
_REMEMBERED = 1 << 15
_PART = 1 << 28
_TABLES = f"""
CREATE TABLE schema (version INTEGER NOT NULL);
INSERT INTO schema VALUES ({VERSION});
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE strings (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE sites (id INTEGER PRIMARY KEY, name INTEGER, flags INTEGER, inputs INTEGER, layouts INTEGER, thread INTEGER,
                    scope INTEGER, source INTEGER);
CREATE TABLE batches (first INTEGER PRIMARY KEY, events INTEGER, step INTEGER, last_step INTEGER, crc INTEGER, data BLOB);
CREATE TABLE arrays (event INTEGER, role TEXT, place INTEGER, layout TEXT, digest BLOB, PRIMARY KEY (event, role, place))
    WITHOUT ROWID;
CREATE TABLE bytes (digest BLOB, part INTEGER, data BLOB, PRIMARY KEY (digest, part));
"""  # noqa: S608  # the version is ours

Held = Sequence[tuple[int, tuple[Sequence[Array | None], ...]]]
"""Per event its index, and arrays: of its inputs, of its outputs, and numbers that are arguments, where they stand among those."""
_ROLES = ("input", "output", "scalar")


class Site(NamedTuple):
    """What an event is beside its bytes. Events of one site differ in their digests only."""

    name: str
    flags: int
    inputs: int
    layouts: str
    thread: int
    scope: str
    source: str


def layouts_text(layouts: Sequence[Layout]) -> str:
    """Layouts as `sites` keeps them: a JSON list of [dtype, shape]."""
    return "[" + ",".join(prefix(str(dtype), tuple(shape)).decode() for dtype, shape in layouts) + "]"


def is_recording(path: str) -> bool:
    """Does `path` bear the mark of a recording? An empty file counts: a recording that was killed at once."""
    with open(path, "rb") as file:
        head = file.read(100)
    return not head or (head.startswith(_MAGIC) and head[68:72] == APPLICATION.to_bytes(4, "big"))


_left_to_parent: list[sqlite3.Connection] = []


class Writer:
    """Writes the file of one process. Not thread-safe: the recorder holds a lock.

    Args:
        path: of the file.
        about: what stands in `about`, asked when the file is made and when it is closed.
        replace: take the place of a recording that is there; else write beside it, with the process in the name.
    """

    def __init__(self, path: str, about: Callable[[], dict[str, Any]], *, replace: bool = True) -> None:
        self.path = path
        self._about = about
        self._replace = replace
        self._connection: sqlite3.Connection | None = None
        self._strings: dict[str, int] = {}
        self._new_strings: list[tuple[int, str]] = []
        self._new_sites: list[tuple[int, ...]] = []
        self._last_string = self._last_site = 0

    def begin(self) -> None:
        """Make the file, if it is not made yet.

        Raises:
            DetconfError: something else is there, or it cannot be made.
        """
        try:
            self._open()
        except (OSError, sqlite3.Error) as error:
            msg = f"{self.path} cannot be written: {error}. Accepted: a path in a folder that can be written to."
            raise DetconfError(msg) from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._clear_the_place()
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=60)
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.executescript("BEGIN;" + _TABLES + "COMMIT;")
            self._connection = connection
            self._tell()
        return self._connection

    def _clear_the_place(self) -> None:
        if os.path.exists(self.path) and not self._replace:
            stem, suffix = os.path.splitext(self.path)
            self.path = f"{stem}.pid{os.getpid()}{suffix}"
        if os.path.exists(self.path) and not is_recording(self.path):
            msg = f"{self.path} is not a recording and is not overwritten. Accepted: a new name, or that of a recording."
            raise DetconfError(msg)
        for suffix in ("", "-journal"):
            if os.path.exists(self.path + suffix):
                os.unlink(self.path + suffix)
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    def site(self, site: Site) -> bytes:
        """The packed number of a new site; it is written with the next batch."""
        self._last_site += 1
        name, layouts, scope, source = map(self._string, (site.name, site.layouts, site.scope, site.source))
        self._new_sites.append((self._last_site, name, site.flags, site.inputs, layouts, site.thread, scope, source))
        return _NUMBER.pack(self._last_site)

    def _string(self, text: str) -> int:
        number = self._strings.get(text)
        if number is None:
            if len(self._strings) >= _REMEMBERED:
                self._strings.clear()
            self._last_string += 1
            number = self._strings[text] = self._last_string
            self._new_strings.append((number, text))
        return number

    def batch(self, begun: tuple[int, int], end: tuple[int, int], data: bytes, held: Held) -> None:
        """Write events in one transaction.

        Args:
            begun: index of the first event, and the steps that had ended before it.
            end: the same after the last one.
            data: packed events.
            held: kept arrays.

        Raises:
            sqlite3.Error, OSError: disk full, file taken away; nothing of the batch is in the file.
        """
        connection = self._open()
        row = (begun[0], end[0] - begun[0], begun[1], end[1], crc32(data), data)
        self._within(connection, lambda: self._insert(connection, row, held))
        self._new_strings, self._new_sites = [], []

    def _insert(self, connection: sqlite3.Connection, row: tuple[Any, ...], held: Held) -> None:
        # Replace: after a Ctrl-C between commit and return, a batch comes a second time.
        connection.executemany("INSERT OR REPLACE INTO strings VALUES (?, ?)", self._new_strings)
        connection.executemany("INSERT OR REPLACE INTO sites VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._new_sites)
        connection.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?, ?, ?)", row)
        for event, sides in held:
            for role, arrays in zip(_ROLES, sides, strict=False):
                for place, array in enumerate(arrays):
                    if array is not None:
                        self._array(connection, (event, role, place), array)

    def _array(self, connection: sqlite3.Connection, key: tuple[Any, ...], array: Array) -> None:
        digest, data = bytes.fromhex(array.digest), memoryview(array.data)
        row = (*key, prefix(array.dtype, array.shape).decode(), digest)
        connection.execute("INSERT OR REPLACE INTO arrays VALUES (?, ?, ?, ?, ?)", row)
        for part in range(0, len(data), _PART):
            chunk = data[part : part + _PART]
            connection.execute("INSERT OR IGNORE INTO bytes VALUES (?, ?, ?)", (digest, part, chunk))

    def _within(self, connection: sqlite3.Connection, action: Callable[[], Any]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            action()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _tell(self, **more: Any) -> None:
        connection = self._connection
        assert connection is not None  # noqa: S101  # called once it is open
        rows = [(key, json.dumps(value, default=str)) for key, value in (self._about() | more).items()]
        self._within(connection, lambda: connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", rows))

    def close(self, ended: str) -> None:
        """Set the end mark: complete where `ended` is empty. Does nothing where no file was made.

        Raises:
            sqlite3.Error: it could not be written.
        """
        if self._connection is None:
            return
        try:
            self._tell(ended=ended, complete=not ended)
        finally:
            self._connection.close()
            self._connection = None

    @property
    def made(self) -> bool:
        """Is there a file?"""
        return self._connection is not None

    def for_child(self, path: str) -> Writer:
        """The writer of a forked child. The parent's connection is neither used nor closed there."""
        if self._connection is not None:
            _left_to_parent.append(self._connection)
        return Writer(path, self._about)
