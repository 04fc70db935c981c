"""A file as memory, and the members of a zip: stored ones in place, compressed ones up to a limit."""

from __future__ import annotations

import mmap
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping

from detconf.errors import DetconfError

_LOCAL = struct.Struct("<4s22xHH")
"""Header of a member: its mark, and the lengths of its name and of what follows it."""
_EXPANDED = 1 << 28
"""Bytes that any compressed member may expand to,"""
_RATIO = 200
"""and how many times its size a larger one may: what compresses better than this is a bomb, or nothing but zeros."""

Member = Callable[[], memoryview]


def damaged(source: str, why: object) -> DetconfError:
    """The error for a file that does not hold what its kind holds."""
    return DetconfError(f"{source} is damaged or not what it seems: {why}. Use another copy, or save it again.")


def mapped(path: str) -> memoryview:
    """The bytes of a file, read as they are touched.

    Raises:
        DetconfError: it is not there, or cannot be read.
    """
    try:
        with open(path, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}. Accepted: a file of arrays, a recording, or a folder of them."
        raise DetconfError(msg) from error


def members(path: str, data: memoryview) -> Mapping[str, Member]:
    """The members of a zip, by name; each is read when it is called for.

    Raises:
        DetconfError: damaged, encrypted, or one name twice.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise damaged(path, error) from error
    found: dict[str, Member] = {}
    for info in infos:
        if info.filename in found:
            raise damaged(path, f"two members are named {info.filename!r}")
        found[info.filename] = _Reader(path, data, info)
    return found


class _Reader:
    """Reads one member."""

    def __init__(self, path: str, data: memoryview, info: zipfile.ZipInfo) -> None:
        self.source = f"{path}:{info.filename}"
        self._data, self._info = data, info

    def __call__(self) -> memoryview:
        info = self._info
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise damaged(self.source, "it is encrypted, or compressed in another way than deflate")
        packed = self._packed()
        if info.compress_type == zipfile.ZIP_STORED:
            if info.file_size != info.compress_size:
                raise damaged(self.source, "its sizes contradict each other")
            return packed
        return self._expanded(packed)

    def _packed(self) -> memoryview:
        """Its bytes in the file."""
        at = self._info.header_offset
        head = self._data[at : at + _LOCAL.size]
        mark, name, extra = _LOCAL.unpack(head) if len(head) == _LOCAL.size else (b"", 0, 0)
        start = at + _LOCAL.size + name + extra
        packed = self._data[start : start + self._info.compress_size]
        if mark != b"PK\3\4" or len(packed) != self._info.compress_size:
            raise damaged(self.source, "it is cut off")
        return packed

    def _expanded(self, packed: memoryview) -> memoryview:
        size = self._info.file_size
        if size > max(_EXPANDED, _RATIO * len(packed)):
            msg = (
                f"{self.source} would expand from {len(packed):,} to {size:,} bytes. Accepted: up to {_RATIO} times; save it uncompressed."
            )
            raise DetconfError(msg)
        machine = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            plain = machine.decompress(packed, size + 1)
        except zlib.error as error:
            raise damaged(self.source, error) from error
        if len(plain) != size or zlib.crc32(plain) != self._info.CRC:
            raise damaged(self.source, "it expands to something else than was written")
        return memoryview(plain)
