"""The operations of a recording, carried out again one on the other's results: with other numbers, or with rounding noise.

An operation that cannot be computed again (`recomputing`) ends what follows from it: its results stay as they were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from detconf.arrays import Array, raw
from detconf.auditing.laboratory import Observation
from detconf.auditing.recordings.recomputing import kind, moves, reading, result
from detconf.auditing.recordings.viewing import viewed
from detconf.shadows.formats import ROUNDINGS, round_to, unit
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Known, Operation, Read, Study, Value

_INPUT, _OUTPUT = 0.6, 0.4
"""Parts of a unit of roundoff: see `shadows.study`."""
Numbers = Mapping[int, Mapping[str | int, float]]
"""Number of an operation -> position of an argument -> what it is instead."""


@dataclass(slots=True)
class _Made:
    """A value as a replay has it: elements in float64, and the dtype that they are rounded to."""

    elements: Any
    dtype: str


class Replay:
    """What led to some results of a recorded run.

    Args:
        observation: of the recording.
        names: of the results.

    Attributes:
        operations: that they were computed by, in order.
    """

    def __init__(self, observation: Observation, names: Sequence[str]) -> None:
        self.observation = observation
        _, found = ancestors(observation.study, [observation.known[name].value for name in names if name in observation.known])
        self.operations = [observation.study.operations[index] for index in sorted(found)]
        self._readings: dict[int, int] = {}

    def reading(self, operation: Operation) -> int:
        """As in `recomputing`, remembered."""
        if operation.index not in self._readings:
            self._readings[operation.index] = reading(operation)
        return self._readings[operation.index]

    def altered(self, numbers: Numbers) -> Observation:
        """The run as it would have been with these numbers as arguments; rounded to dtypes as NumPy's rules give them."""
        made: dict[int, _Made] = {}
        changed: dict[int, Mapping[str | int, Any]] = {}
        for operation in self.operations:
            own = numbers.get(operation.index)
            if own:
                changed[operation.index] = {**operation.options, **own}
            if own or any(each.value.index in made for each in operation.reads):
                found = self._again(operation, made, changed.get(operation.index, operation.options))
                if found is not None:
                    made[operation.writes[0].index] = found
        return self._observed(made, changed)

    def carried(self, taken: Callable[[Value], Any], seed: int | None = None) -> dict[str, Any]:
        """The results as float64 carries them from what the operations read first; no entry where they are lost on the way.

        Args:
            taken: by how much the elements of a value may be off whose operation cannot be computed again; None where that
                is not known, and what follows from it is lost. A result of such an operation is.
            seed: of rounding noise on what operations read and write, as in a study's noise runs; None for none.
        """
        noise = _Noise(seed)
        made: dict[int, Any] = {}
        for operation in self.operations:
            if operation.reads:
                made.update(self._carried(operation, made, taken, noise))
        found: dict[str, Any] = {}
        for name, each in self.observation.known.items():
            elements = made.get(each.value.index)
            if elements is not None and each.value.maker in self._readings and self._readings[each.value.maker] >= 0:
                seen = viewed(each.value.shadow, each.shadow, elements)
                found |= {} if seen is None else {name: seen}
        return found

    def _carried(self, operation: Operation, made: Mapping[int, Any], taken: Callable[[Value], Any], noise: _Noise) -> dict[int, Any]:
        place = self.reading(operation)
        inputs = [_elements(each, made) for each in operation.reads]
        written = operation.writes[0] if operation.writes else None
        if written is not None and all(_decided(each) for each in operation.writes):  # as the real run went
            return {each.index: each.shadow for each in operation.writes}
        if place < 0 or written is None or any(each is None for each in inputs):
            off = {each.index: taken(each) for each in operation.writes if each.shadow is not None} if place < 0 else {}
            lost = dict.fromkeys((each.index for each in operation.writes), None)
            values = {each.index: each for each in operation.writes}
            return lost | {index: noise.off(values[index].shadow, each) for index, each in off.items() if each is not None}
        if kind(operation.name) == "same":
            exact = any(each.value.dtype == written.dtype for each in operation.reads)
            return {written.index: noise.relative(inputs[0].reshape(written.shape), 0.0 if exact else _OUTPUT * unit(written.dtype))}
        whole = moves(operation.name) and all(each.value.dtype == written.dtype for each in operation.reads if not _decided(each.value))
        own, other = (0.0, 0.0) if whole else (_INPUT, _OUTPUT)
        inputs = [noise.relative(each, own * unit(read.value.dtype)) for each, read in zip(inputs, operation.reads, strict=True)]
        found = result(operation, place, inputs)
        rest = dict.fromkeys((each.index for each in operation.writes[1:]), None)
        return rest | {written.index: None if found is None else noise.relative(found, other * unit(written.dtype))}

    def _again(self, operation: Operation, made: Mapping[int, _Made], scalars: Mapping[str | int, Any]) -> _Made | None:
        place = self.reading(operation)
        inputs = [_read(each, made.get(each.value.index)) for each in operation.reads]
        if place < 0 or any(each is None for each in inputs):
            return None
        dtype = _dtype(operation, [each.dtype for each in inputs if each], scalars)
        elements = result(operation, place, [each.elements for each in inputs if each], scalars, dtype)
        return None if elements is None else _Made(_rounded(elements, dtype), dtype)

    def _observed(self, made: Mapping[int, _Made], changed: Mapping[int, Mapping[str | int, Any]]) -> Observation:
        study = Study(keep_real=True)
        study.values = [_replaced(each, made.get(each.index)) for each in self.observation.study.values]
        study.operations = [
            replace(
                each,
                reads=[_follow(read, study.values) for read in each.reads],
                writes=[study.values[value.index] for value in each.writes],
                options=changed.get(each.index, each.options),
            )
            for each in self.observation.study.operations
        ]
        known, arrays = dict[str, Known](), dict[str, Array]()
        for name, each in self.observation.known.items():
            found = _read(Read(each.value, each.shadow), made.get(each.value.index))
            arrays[name], known[name] = self.observation.arrays[name], each
            if found is not None and each.value.index in made:
                arrays[name] = Array(found.dtype, found.elements.shape, bytes(raw(found.elements.astype(found.dtype))))
                known[name] = Known(found.elements, study.values[each.value.index])
        return Observation(arrays, known, study)


def _decided(value: Value) -> bool:
    """Are its elements truths or integers, which rounding does not change but by chance?"""
    return value.shadow is not None and value.shadow.dtype.kind in "biu"


class _Noise:
    """Rounding noise of one seed; none at all without."""

    def __init__(self, seed: int | None) -> None:
        self._normal = None if seed is None else np.random.Generator(np.random.PCG64(seed)).standard_normal

    def relative(self, array: Any, size: float) -> Any:
        """Each element times one plus so much noise."""
        return array if self._normal is None or not size else array * (1 + size * self._normal(array.shape))

    def off(self, array: Any, by: Any) -> Any:
        """Each element plus noise of its size."""
        array = np.asarray(array, dtype=np.float64)
        return array if self._normal is None else array + by * self._normal(array.shape)


def _elements(read: Read, made: Mapping[int, Any]) -> Any:
    """What an operation reads of what was carried; None where that is lost."""
    if read.value.index not in made:
        return None if read.shadow is None else np.asarray(read.shadow, dtype=np.float64)
    elements = made[read.value.index]
    return elements if elements is None or read.view is None else viewed(read.value.shadow, read.view, elements)


def _read(read: Read, made: _Made | None) -> _Made | None:
    """What an operation reads in the replay; None where it reads a value in a way that is not known."""
    if made is None:
        return None if read.shadow is None else _Made(np.asarray(read.shadow), read.value.dtype)
    elements = made.elements if read.view is None else viewed(read.value.shadow, read.view, made.elements)
    return None if elements is None else _Made(elements, made.dtype)


def _dtype(operation: Operation, inputs: Sequence[str], scalars: Mapping[str | int, Any]) -> str:
    """The result's dtype: narrower than recorded where that was float64 for the sake of inputs, or of a number, that no longer are."""
    own, read = operation.writes[0].dtype, [each.value.dtype for each in operation.reads]
    if own != "float64" or kind(operation.name) == "same" or "float64" in inputs or not inputs:
        return own
    scalar = scalars != operation.options
    return max(inputs, key=lambda each: np.dtype(each).itemsize) if "float64" in read or scalar else own


def _rounded(elements: Any, dtype: str) -> Any:
    return round_to(elements, dtype) if dtype in ROUNDINGS else np.asarray(elements, dtype=np.float64)


def _replaced(value: Value, made: _Made | None) -> Value:
    if made is None:
        return value
    return replace(value, shadow=made.elements, real=made.elements.astype(made.dtype), dtype=made.dtype)


def _follow(read: Read, values: Sequence[Value]) -> Read:
    value = values[read.value.index]
    return Read(
        value, read.view if value is read.value else viewed(read.value.shadow, read.view, value.shadow) if read.view is not None else None
    )
