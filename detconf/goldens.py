"""Golden values: kept as text beside the tests, exact on the machines they were recorded on, bounded elsewhere.

A file holds the goldens of one test module:

    schema    "detconf.goldens/1"
    machines  short digest -> the class of machine (`detconf.machine`)
    goldens   test -> name of the golden -> machine, profile, rtol and atol where stated, and
              arrays: name -> digest, dtype, shape, sample (flat index -> decimal text)

Keys are sorted, indices by number, so that a file changes only where a value does.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from detconf.arrays import Array
from detconf.errors import TargetError
from detconf.samples import sample

try:
    import fcntl
except ImportError:  # Windows: writes are whole there, but two processes may overwrite each other
    fcntl = None  # type: ignore[assignment]

SCHEMA = "detconf.goldens/1"
_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Bound:
    """How far a value may be from its golden on another class of machine: |a - g| <= atol + rtol * |g|."""

    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Record:
    """One golden as it was recorded.

    Attributes:
        machine: the class of machine.
        profile: what was in force; None for nothing of ours.
        bound: None where none was stated.
        arrays: name -> (dtype, shape, digest, sample).
    """

    machine: Mapping[str, str]
    profile: str | None
    bound: Bound | None
    arrays: Mapping[str, Kept]


@dataclass(frozen=True, slots=True)
class Kept:
    """One array of a golden."""

    dtype: str
    shape: tuple[int, ...]
    digest: str
    sample: Mapping[int, str]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def bound(rtol: float | None, atol: float | None) -> Bound | None:
    """The bound that a caller states; None for none. One alone leaves the other at zero.

    Raises:
        TargetError: not a finite number of 0 or more.
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not _usable(value):
            msg = f"{name}: {value!r} is not accepted. Accepted: a finite number of 0 or more."
            raise TargetError(msg)
    return None if rtol is None and atol is None else Bound(float(rtol or 0), float(atol or 0))


def _usable(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def keep(arrays: Mapping[str, Array]) -> dict[str, Kept]:
    """What is recorded of `arrays`."""
    return {name: Kept(array.dtype, array.shape, array.digest, sample(array)) for name, array in arrays.items()}


class File:
    """The goldens of one test module."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)

    def find(self, test: str, name: str) -> Record | None:
        """One golden, or None.

        Raises:
            TargetError: the file cannot be read, or is none of ours.
        """
        content = self._read()
        try:
            entry = content["goldens"].get(test, {}).get(name)
            return None if entry is None else _record(entry, content["machines"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            msg = f"golden {name!r} of {test}: {type(error).__name__}: {error}"
            raise self._damaged(msg) from error

    def put(self, test: str, name: str, record: Record) -> bool:
        """Record one golden and leave all others as they are. False where the file says so already.

        Raises:
            TargetError: the present file cannot be read; it is left as it is.
            OSError: the file cannot be written.
        """
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with _locked(self.path + ".lock"):
            content = self._read()
            key = _key(record.machine)
            content["machines"][key] = dict(sorted(record.machine.items()))
            content["goldens"].setdefault(test, {})[name] = _entry(record, key)
            text = _text(content)
            if os.path.exists(self.path) and _read_text(self.path) == text:
                return False
            _replace(self.path, text)
        return True

    def _read(self) -> Any:
        """The content of the file; an empty one where there is none."""
        try:
            if os.path.getsize(self.path) > _LARGEST:
                msg = f"larger than {_LARGEST} bytes"
                raise self._damaged(msg)
            content = json.loads(_read_text(self.path))
        except FileNotFoundError:
            return {"schema": SCHEMA, "machines": {}, "goldens": {}}
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(str(error) or type(error).__name__) from error
        parts = isinstance(content, dict) and (content.get("machines"), content.get("goldens"))
        if not parts or content.get("schema") != SCHEMA or not all(isinstance(part, dict) for part in parts):
            msg = f"not a file of schema {SCHEMA}"
            raise self._damaged(msg)
        return content

    def _damaged(self, why: str) -> TargetError:
        return TargetError(f"{self.path}: these goldens cannot be read: {why}. Restore the file from version control, or delete it.")


def _record(entry: Any, machines: Any) -> Record:
    arrays = {
        name: Kept(
            str(one["dtype"]), tuple(map(int, one["shape"])), str(one["digest"]), {int(key): str(text) for key, text in one["sample"].items()}
        )
        for name, one in entry["arrays"].items()
    }  # fmt: skip
    machine = {str(name): str(text) for name, text in machines[entry["machine"]].items()}
    profile = entry.get("profile")
    return Record(machine, None if profile is None else str(profile), bound(entry.get("rtol"), entry.get("atol")), arrays)


def _entry(record: Record, machine: str) -> dict[str, Any]:
    bounds = {"rtol": record.bound.rtol, "atol": record.bound.atol} if record.bound else {}
    arrays = {
        name: {
            "digest": one.digest,
            "dtype": one.dtype,
            "sample": {str(place): text for place, text in sorted(one.sample.items())},
            "shape": list(one.shape),
        }
        for name, one in sorted(record.arrays.items())
    }
    return {"arrays": arrays, **dict(sorted(bounds.items())), "machine": machine, "profile": record.profile}


def _key(machine: Mapping[str, str]) -> str:
    return blake2b(json.dumps(sorted(machine.items())).encode(), digest_size=4).hexdigest()


def _text(content: Any) -> str:
    """The file in its one form: sorted, without machines that no golden names."""
    goldens = {test: dict(sorted(names.items())) for test, names in sorted(content["goldens"].items())}
    used = {entry.get("machine") for names in goldens.values() for entry in names.values()}
    machines = {key: facts for key, facts in sorted(content["machines"].items()) if key in used}
    return json.dumps({"schema": SCHEMA, "machines": machines, "goldens": goldens}, indent=1, ensure_ascii=False) + "\n"


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _replace(path: str, text: str) -> None:
    """Write as a whole or not at all: a reader never sees half a file."""
    draft = f"{path}.{os.getpid()}.tmp"
    try:
        with open(draft, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """One process at a time; the lock file is gone afterwards, and a process that dies holds nothing."""
    while True:
        with open(path, "w", encoding="utf-8") as lock:
            if fcntl is None:
                yield
                return
            fcntl.flock(lock, fcntl.LOCK_EX)
            # The holder before us removes the file it holds: what we waited for may no longer be the one that others open.
            if not _is(lock.fileno(), path):
                continue
            try:
                yield
            finally:
                os.unlink(path)
            return


def _is(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
