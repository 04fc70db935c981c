"""Files that a run is declared to write, as results: their bytes, where this run wrote them."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Sequence

from detconf.arrays import Array, Place
from detconf.errors import TargetError

_TICK = 0.02
"""Seconds: above the grain of a file's time stamp on Linux, a tick of the kernel (10 ms at most)."""

Stamp = tuple[int, int, int]


class Outputs:
    """The files that match `patterns`, looked at before and after each run.

    A file that a run left as it was is no result of that run, whatever an earlier run wrote there.

    Args:
        patterns: globs relative to the working folder; `**` goes into folders.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        if isinstance(patterns, (str, bytes)):
            msg = f"outputs: {patterns!r} is one text. Accepted: a list of globs, such as ['out.npy']."
            raise TargetError(msg)
        self.unwritten = dict.fromkeys(patterns)
        self.patterns = tuple(patterns)
        self._before: dict[str, Stamp] = {}

    def begin(self) -> None:
        """Remember the files as they are."""
        self._before = {path: _stamp(path) for path in self._files()}
        newest = max((changed for changed, _, _ in self._before.values()), default=0)
        if time.time_ns() - newest < _TICK * 1e9:
            time.sleep(_TICK)  # else what is written next could bear the same time stamp

    def written(self) -> dict[Place, Array]:
        """The bytes of what has been written since, by path."""
        results = {}
        for path, patterns in self._files().items():
            if self._before.get(path) != _stamp(path):
                with open(path, "rb") as file:
                    data = file.read()
                results[Place(path.replace(os.sep, "/"), origin="file")] = Array("uint8", (len(data),), data)
                for pattern in patterns:
                    self.unwritten.pop(pattern, None)
        return results

    def _files(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for pattern in self.patterns:
            for path in glob.glob(pattern, recursive=True):
                if os.path.isfile(path):
                    found.setdefault(path, []).append(pattern)
        return dict(sorted(found.items()))


def _stamp(path: str) -> Stamp:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_ino, status.st_size
