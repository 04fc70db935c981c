"""Two sets of arrays, or of files of them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping

from detconf.arrayfiles.opened import SUFFIXES, open_arrays
from detconf.arrays import Array
from detconf.comparing.result import Comparison, Counts, Finding, Verdict
from detconf.comparison import Divergence, Kind, diverge
from detconf.errors import DetconfError
from detconf.facts import shareable


class Folder(Mapping[str, Array]):
    """The arrays of every file of arrays below a folder, as "path:name"; one file is open at a time.

    Raises:
        DetconfError: there is none.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._open: tuple[str, Mapping[str, Array]] = ("", {})
        self._names = [(path, name) for path in _files(folder) for name in self._file(path)]
        if not self._names:
            msg = (
                f"{folder} holds neither recordings nor files of arrays. Accepted: *.det, {', '.join('*' + suffix for suffix in SUFFIXES)}."
            )
            raise DetconfError(msg)
        self._known = {f"{path}:{name}": (path, name) for path, name in self._names}

    def _file(self, path: str) -> Mapping[str, Array]:
        if self._open[0] != path:
            self._open = (path, open_arrays(os.path.join(self.folder, path)))
        return self._open[1]

    def __getitem__(self, key: str) -> Array:
        path, name = self._known[key]
        return self._file(path)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: object) -> bool:
        return key in self._known  # without reading it


def _files(folder: str) -> list[str]:
    found = (os.path.join(root, name) for root, _, names in os.walk(folder) for name in names if name.endswith(SUFFIXES))
    return sorted(os.path.relpath(path, folder).replace(os.sep, "/") for path in found)


def compare_arrays(a: Mapping[str, Array], b: Mapping[str, Array], names: tuple[str, str]) -> Comparison:
    """Compare two sets of arrays, two of them in memory at a time where they come from files.

    Raises:
        DetconfError: both are empty.
    """
    if not a and not b:
        msg = f"{names[0]} and {names[1]}: nothing to compare: no arrays on either side."
        raise DetconfError(msg)
    differing = tuple(found for name in a if name in b if (found := _finding(name, a[name], b[name])))
    missing = tuple(_alone(name, a[name], Verdict.MISSING) for name in a if name not in b)
    extra = tuple(_alone(name, b[name], Verdict.EXTRA) for name in b if name not in a)
    compared = len(a) - len(missing)
    order = {name: place for place, name in enumerate(a)}
    return Comparison(
        kind="arrays",
        a=shareable(names[0]),
        b=shareable(names[1]),
        equal=not (differing or missing or extra),
        first=min((*differing, *missing, *extra), key=lambda found: order.get(found.divergence.name, len(order)), default=None),
        introduced=differing,
        missing=missing,
        extra=extra,
        counts=Counts(
            compared=compared, equal=compared - len(differing), introduced=len(differing), missing=len(missing), extra=len(extra)
        ),
    )


def _finding(name: str, x: Array, y: Array) -> Finding | None:
    found = diverge(name, x, y)
    return Finding(divergence=found, verdict=Verdict.INTRODUCED, digests=(x.digest, y.digest)) if found else None


def _alone(name: str, array: Array, verdict: Verdict) -> Finding:
    kind = Kind.MISSING if verdict is Verdict.MISSING else Kind.EXTRA
    return Finding(
        divergence=Divergence(name=name, kind=kind, shape=array.shape, dtype=array.dtype, elements=math.prod(array.shape)), verdict=verdict
    )
