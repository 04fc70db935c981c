"""`compare`: what was given, told by its content."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from detconf.arrayfiles.opened import KINDS, open_arrays
from detconf.arrays import Array
from detconf.comparing.arrays import Folder, compare_arrays
from detconf.comparing.recordings import compare_recordings, recordings_in
from detconf.comparing.result import Comparison
from detconf.errors import DetconfError
from detconf.recording.file import is_recording
from detconf.recording.reading import Recording
from detconf.results import flatten


@dataclass(frozen=True, slots=True)
class _Side:
    """What was given: paths of recordings, or arrays; and what it is called."""

    name: str
    recordings: tuple[str, ...] = ()
    arrays: Mapping[str, Array] | None = None


def compare(a: Any, b: Any) -> Comparison:
    """Where two recordings, or two sets of arrays, first part, and what follows from that.

    Args:
        a, b: each a path (a recording, a file of arrays, a folder of either), or arrays: a mapping name -> array, a
            tensor, or any nesting of them. Files of arrays are .npy, .npz, .safetensors, torch.save and paddle.save;
            nothing in them is run.

    Raises:
        DetconfError: one of them cannot be read, there is nothing to compare, or a recording meets arrays.
    """
    ours, theirs = _side(a, "a"), _side(b, "b")
    names = (ours.name, theirs.name)
    if ours.arrays is not None and theirs.arrays is not None:
        return compare_arrays(ours.arrays, theirs.arrays, names)
    if ours.arrays is None and theirs.arrays is None:
        return compare_recordings(ours.recordings, theirs.recordings, names)
    kinds = ["a recording" if side.arrays is None else "arrays" for side in (ours, theirs)]
    msg = f"{ours.name} is {kinds[0]}, {theirs.name} is {kinds[1]}. Accepted: two recordings, or two sets of arrays ({KINDS})."
    raise DetconfError(msg)


def _side(given: Any, name: str) -> _Side:
    if isinstance(given, Recording):
        return _Side(given.path, recordings=(given.path,))
    if not isinstance(given, (str, os.PathLike)):
        return _Side(name, arrays=flatten(given))
    path = os.fspath(given)
    if not isinstance(path, str):
        msg = f"{name}: a path is text, not {type(path).__name__}."
        raise DetconfError(msg)
    if os.path.isdir(path):
        found = recordings_in(path)
        return _Side(path, recordings=tuple(found)) if found else _Side(path, arrays=Folder(path))
    return _Side(path, recordings=(path,)) if _is_recording(path) else _Side(path, arrays=open_arrays(path))


def _is_recording(path: str) -> bool:
    try:
        return is_recording(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"{path} cannot be read: {reason}. Accepted: a recording, a file of arrays ({KINDS}), or a folder of them."
        raise DetconfError(msg) from error
