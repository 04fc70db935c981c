"""Where parts of arrays come from: what only moves elements is not recorded, so that a slice arrives as an array of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from detconf.auditing.laboratory import Observation
from detconf.auditing.recordings.viewing import elements
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Operation, Read, Study, Value

_ROUNDS, _DISTINCT = 16, 4
"""A few numbers may stand in an array by chance."""


def joined(observation: Observation) -> Observation:
    """The same, with each part of an earlier array that leads to a result as a view of that array."""
    study, known = observation.study, dict(observation.known)
    searched: set[int] = set()
    for _ in range(_ROUNDS):
        there, _operations = ancestors(study, [each.value for each in known.values()])
        parts = [study.values[index] for index in there - searched if study.values[index].maker < 0]
        if not parts:
            break
        searched |= {part.index for part in parts}
        found = {part.index: whole for part in parts if (whole := _whole(study, part)) is not None}
        _join(study.operations, found)
        known = {name: replace(each, value=found.get(each.value.index, each.value)) for name, each in known.items()}
    return replace(observation, known=known)


def _whole(study: Study, part: Value) -> Value | None:
    """The last array before a part that holds all its elements."""
    if part.shadow is None or part.shadow.dtype.kind != "f" or len(np.unique(part.shadow)) < _DISTINCT:
        return None
    for value in reversed(study.values[: part.index]):
        if (
            value.dtype == part.dtype
            and value.shadow is not None
            and value.shadow.size > part.shadow.size
            and elements(value.shadow, part.shadow) is not None
        ):
            return value
    return None


def _join(operations: Iterable[Operation], wholes: Mapping[int, Value]) -> None:
    for operation in operations:
        operation.reads = [_read(each, wholes.get(each.value.index)) for each in operation.reads]


def _read(read: Read, whole: Value | None) -> Read:
    return read if whole is None else Read(whole, read.value.shadow if read.view is None else read.view)
