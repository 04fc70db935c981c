"""A recording with values, as an observation: what another machine computed, with real arrays in place of shadows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from detconf.arrays import Array
from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import numbers
from detconf.auditing.recordings.recomputing import arithmetic, fills
from detconf.auditing.recordings.slicing import joined
from detconf.errors import TargetError
from detconf.frameworks import adds
from detconf.recording.event import Event, Flag
from detconf.recording.reading import Recording
from detconf.shadows.study import Known, Read, Study, Value

_STEP = re.compile(r"@[0-9]+$")


def observed(path: str) -> Observation:
    """The observation of a recording: shadows are the real arrays in float64; results are what was published, else the state.

    Raises:
        DetconfError: it cannot be read.
        TargetError: it holds no values, or no results.
    """
    with Recording(path) as recording:
        reader = Reader(path, recording)
        for event in recording.events():
            reader.event(event)
    return reader.observation()


def last(observation: Observation) -> Observation:
    """The same with results by their bare names, each as it was at its last step."""
    names = {_STEP.sub("", name): name for name in observation.arrays}
    arrays = {bare: observation.arrays[name] for bare, name in names.items()}
    return Observation(
        arrays, {bare: observation.known[name] for bare, name in names.items() if name in observation.known}, observation.study
    )


class Reader:
    """Builds a study from events.

    Args:
        path: for messages.
        recording: an open one.
    """

    def __init__(self, path: str, recording: Recording) -> None:
        self.path, self._recording = path, recording
        self.study = Study(keep_real=True)
        self._published: dict[str, tuple[Array, Known]] = {}
        self._state: dict[str, tuple[Array, Known]] = {}
        self._by_bytes: dict[str, Value] = {}
        self._by_elements: dict[tuple[str, bytes], Value] = {}
        self._bare = 0

    def event(self, event: Event) -> None:
        """Take up one event."""
        kept = self._recording.values(event.index)
        inputs = [kept[key] for key in sorted(kept) if key[0] == "input"]
        outputs = [kept[key] for key in sorted(kept) if key[0] == "output"]
        if event.flags & Flag.COMPARED:
            return
        if event.flags & (Flag.PUBLISHED | Flag.STATE):
            self._result(event, outputs)
        elif event.flags & Flag.LEAF:
            for array in outputs:
                self._leaf(array, event.name)
        else:
            self._bare += not kept
            scalars: dict[str | int, Any] = {
                place: _number(array) for (role, place), array in kept.items() if role == "scalar" and arithmetic(event.name)
            }
            self._operation(event, inputs, outputs, scalars)

    def _result(self, event: Event, outputs: list[Array]) -> None:
        for array in outputs:
            known = self.known(array, event.name)
            if known is not None:
                name = f"{event.name}@{event.step}" if event.step else event.name
                (self._published if event.flags & Flag.PUBLISHED else self._state)[name] = array, known

    def known(self, array: Array, name: str) -> Known | None:
        """Where an array that the program gave out comes from; None for one without numbers."""
        value, shadow = self._find(array) or self._leaf(array, name), _wide(array)
        return None if shadow is None else Known(shadow, value)

    def _operation(self, event: Event, inputs: list[Array], outputs: list[Array], scalars: dict[str | int, Any]) -> None:
        reads = [] if fills(event.name) else [self._read(array) for array in inputs]
        writes = [(_wide(array), array.dtype, _real(array)) for array in outputs]
        self.study.step = event.step
        random = bool(event.flags & Flag.RANDOM)
        made = self.study.operation(event.name, reads, writes, random=random, options=scalars, source=event.source, adds=adds(event.name))
        for array, (value, _) in zip(outputs, made, strict=True):
            self._note(array, value)

    def _read(self, array: Array) -> Read:
        value = self._find(array)
        if value is None:
            return Read(self._leaf(array, "an input"))
        shadow = _wide(array)
        same = (
            value.shadow is not None and shadow is not None and value.shadow.shape == shadow.shape and np.array_equal(value.shadow, shadow)
        )
        return Read(value, None if same else shadow)

    def _find(self, array: Array) -> Value | None:
        """The value that an array is, or is a view of: by its bytes, by its elements in any order, or one number spread out."""
        found = self._by_bytes.get(array.digest) if array.dtype != "none" else None
        if found is not None or array.nbytes == 0:
            return found
        found = self._by_elements.get((array.dtype, _elements(array)))
        return found or next(filter(None, (self._by_bytes.get(each.digest) for each in _narrower(array))), None)

    def _leaf(self, array: Array, origin: str) -> Value:
        value, _ = self.study.leaf(_wide(array), array.dtype, origin, real=_real(array))
        self._note(array, value)
        return value

    def _note(self, array: Array, value: Value) -> None:
        self._by_bytes[array.digest] = value
        self._by_elements[array.dtype, _elements(array)] = value

    def require_values(self) -> None:
        """Those of all operations that were read.

        Raises:
            TargetError: some are missing.
        """
        if self._bare:
            msg = f"{self.path} holds no values of {self._bare} of its operations. Record again with --values."
            raise TargetError(msg)

    def observation(self) -> Observation:
        """What was read; results are what was published, else the state.

        Raises:
            TargetError: there are no values, or no results.
        """
        self.require_values()
        results = self._published or self._state
        if not results:
            msg = f"nothing was compared: {self.path} holds no results. Name them in the program by detconf.publish(name, value)."
            raise TargetError(msg)
        arrays = {name: array for name, (array, _) in results.items()}
        return joined(Observation(arrays, {name: known for name, (_, known) in results.items()}, self.study))


def _wide(array: Array) -> Any:
    found = numbers(array)
    return found if found is None or array.dtype not in ("bool", *_WHOLE) else _real(array)


_WHOLE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


def _real(array: Array) -> Any:
    """The array as it was; None for dtypes that NumPy does not have."""
    try:
        return np.frombuffer(array.data, np.dtype(array.dtype)).reshape(array.shape)
    except (TypeError, ValueError):
        return None


def _number(array: Array) -> Any:
    """The real number that an argument was; None for any other."""
    found = _real(array)
    return None if found is None or found.dtype.kind == "c" else found.item()


def _narrower(array: Array) -> Iterator[Array]:
    """What a Python number may have been before it was taken out of an array (`loss.item()`)."""
    if (array.dtype, array.shape) == ("float64", ()):
        number = np.frombuffer(array.data)
        for dtype in ("float32", "float16"):
            with np.errstate(over="ignore"):
                narrow = number.astype(dtype)
            if narrow == number:
                yield Array(dtype, (), narrow.tobytes())


def _elements(array: Array) -> bytes:
    """Equal for arrays of the same elements in any order and shape; for one number, however often it stands there."""
    from xxhash import xxh3_128_digest  # loaded where recordings are read

    size = int(np.prod(array.shape, dtype=np.int64)) or 1
    width = len(array.data) // size
    if not width:
        return b""
    found = np.sort(np.frombuffer(array.data, f"u{width}" if width in (1, 2, 4, 8) else f"S{width}"))
    spread = found[0] == found[-1]
    return xxh3_128_digest(found[:1].tobytes() if spread else found.tobytes())
