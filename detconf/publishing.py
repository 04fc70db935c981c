"""`publish` and `step`: how a program names its results, and how they reach the verifier.

Outside a verification both do nothing. Under one, the variable DETCONF_PUBLISH names a folder, and every process
appends to a file of its own there: a process that is killed leaves everything that it had published. A file is

    "detconf1"  then records of   length of header (4 bytes)  length of data (8)  CRC-32 of both (4)  header  data

in little-endian order; the header is JSON: name, origin, rank, step, dtype, shape. Nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol
from zlib import crc32

from detconf.arrays import Array, Place
from detconf.errors import TargetError
from detconf.facts import RANKS

FOLDER = "DETCONF_PUBLISH"

_MAGIC = b"detconf1"
_LENGTHS = struct.Struct("<IQI")
_LONGEST_HEADER = 1 << 20
_sink: _Sink | None = None


class Listener(Protocol):
    """Something beside the verifier that wants to know: a recording."""

    def step(self) -> None:
        """The program ended a step."""
        ...

    def published(self, name: str, array: Array) -> None:
        """The program named a result."""
        ...


listeners: list[Listener] = []


def publish(name: str, value: Any) -> None:
    """Name a result, so that `detconf verify` compares it. Does nothing outside a verification.

    Args:
        name: publishing a name again makes another result: they are told apart by step, or counted.
        value: an array or tensor, a number, or any nesting of them; it is copied at once.

    Raises:
        TargetError: `name` is not text, or, under a verification, `value` cannot be compared.
    """
    if not (name and isinstance(name, str)):
        msg = f"publish: {name!r} is not a name. Accepted: text, such as publish('loss', loss)."
        raise TargetError(msg)
    record(value, "published", name)


def step() -> None:
    """End a step, where no optimizer does: what is published next belongs to the next one."""
    sink = _current()
    if sink:
        sink.step += 1
    for listener in listeners:
        listener.step()


def record(value: Any, origin: str, name: str = "") -> None:
    """Hand `value` to the verifier and to a recording, if there is one."""
    sink = _current()
    if isinstance(sink, _Objects):
        sink.take(name, value)
    elif sink or listeners:
        from detconf.results import flatten  # loads the table of frameworks: only where someone listens

        for path, array in flatten(value, name).items():
            if sink:
                sink.add(path, origin, array)
            for listener in listeners:
                listener.published(path, array)


class _Sink:
    """Where results go. One per process and verification."""

    def __init__(self) -> None:
        self.step = 0
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.rank = next((os.environ[name] for name in RANKS if os.environ.get(name)), "")

    def add(self, name: str, origin: str, array: Array) -> None:
        header = {"name": name, "origin": origin, "rank": self.rank, "step": self.step, "dtype": array.dtype, "shape": array.shape}
        with self.lock:
            self.write(header, array)

    def write(self, header: dict[str, Any], array: Array) -> None:
        raise NotImplementedError


class _Folder(_Sink):
    """Appends to this process's file."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        # Names sort by the time at which processes first published; the clock is one for all of them.
        self.path = os.path.join(folder, f"{time.monotonic_ns():020d}-{self.process}")

    def write(self, header: dict[str, Any], array: Array) -> None:
        text = json.dumps(header).encode()
        checksum = crc32(array.data, crc32(text))
        with open(self.path, "ab") as file:  # opened anew each time: nothing is left unwritten, or shared after a fork
            file.write((b"" if file.tell() else _MAGIC) + _LENGTHS.pack(len(text), len(array.data), checksum) + text)
            file.write(array.data)


class _Memory(_Sink):
    """Keeps copies, for a function that is verified in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[dict[str, Any], Array]] = []

    def write(self, header: dict[str, Any], array: Array) -> None:
        self.records.append((header, array.owned()))


class _Objects(_Sink):
    """Hands on the values themselves, for an audit, which asks for more than their bytes."""

    def __init__(self, take: Callable[[str, Any], None]) -> None:
        super().__init__()
        self.take = take


def _current() -> _Sink | None:
    """This process's sink. A forked child starts a file of its own."""
    global _sink  # noqa: PLW0603  # one verification per process, as its variable is
    if isinstance(_sink, (_Memory, _Objects)):
        return _sink
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    if not isinstance(_sink, _Folder) or _sink.folder != folder or _sink.process != os.getpid():
        _sink = _Folder(folder)
    return _sink


@contextmanager
def collecting() -> Iterator[dict[Place, Array]]:
    """Everything published and recorded in this process inside the block; the mapping is filled when it ends."""
    global _sink  # noqa: PLW0603  # as above
    before, _sink = _sink, (memory := _Memory())
    results: dict[Place, Array] = {}
    try:
        yield results
    finally:
        _sink = before
        results.update(_placed(memory.records))


@contextmanager
def handing(take: Callable[[str, Any], None]) -> Iterator[None]:
    """Inside the block, everything published and recorded in this process is given to `take`, by name, as it is."""
    global _sink  # noqa: PLW0603  # as above
    before, _sink = _sink, _Objects(take)
    try:
        yield
    finally:
        _sink = before


def read_published(folder: str) -> dict[Place, Array]:
    """What the processes of one run published into `folder`, in order of rank, process and publication.

    Processes without a rank are taken in the order in which they first published; a name that several of them publish
    is counted on. A file is read up to its first damaged record, which is where its process was killed.
    """
    records: list[tuple[dict[str, Any], Array]] = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            records += _records(file)
    return _placed(sorted(records, key=lambda item: _rank_order(item[0]["rank"])))


def _rank_order(rank: str) -> tuple[int, str]:
    return (int(rank) if rank.isdecimal() else -1, rank)


def _records(file: BinaryIO) -> Iterator[tuple[dict[str, Any], Array]]:
    if file.read(len(_MAGIC)) != _MAGIC:
        return
    while len(lengths := file.read(_LENGTHS.size)) == _LENGTHS.size:
        header_length, data_length, checksum = _LENGTHS.unpack(lengths)
        if header_length > _LONGEST_HEADER or data_length > os.fstat(file.fileno()).st_size:
            return
        text, data = file.read(header_length), file.read(data_length)
        if len(data) < data_length or crc32(data, crc32(text)) != checksum:
            return
        header = json.loads(text)
        yield header, Array(header["dtype"], tuple(header["shape"]), data)


def _placed(records: list[tuple[dict[str, Any], Array]]) -> dict[Place, Array]:
    """Give every record its place: what `step` ended, or where it ended nothing, how often the name came before."""
    stepped = {header["rank"] for header, _ in records if header["step"]}
    seen: Counter[Place] = Counter()
    results = {}
    for header, array in records:
        published = header["origin"] == "published"
        place = Place(header["name"], header["step"] if published else None, 0, header["rank"], header["origin"])
        count = seen[place]
        seen[place] += 1
        counts_as_step = published and header["rank"] not in stepped
        results[place._replace(step=count) if counts_as_step else place._replace(occurrence=count)] = array
    return results
