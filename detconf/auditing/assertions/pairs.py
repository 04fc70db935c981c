"""The two operands of a comparison, with their shadows, as one observation; and that observation as two sides.

The operands come out of one program. Each side is what its operand was computed from: values and operations of the one
run, numbered anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from detconf.arrays import Array, raw
from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import numbers
from detconf.errors import TargetError
from detconf.results import leaves
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Known, Operation, Read, Study, Value

ROLES = ("desired", "actual")
"""The reference and the candidate."""


@dataclass(slots=True)
class Pair:
    """Results of both sides by name, and their shadows.

    Attributes:
        arrays, known: by role.
    """

    arrays: dict[str, dict[str, Array]] = field(default_factory=dict)
    known: dict[str, dict[str, Known]] = field(default_factory=dict)

    @classmethod
    def of(cls, actual: Any, desired: Any, name: str, study: Study | None) -> Pair:
        """The operands of a comparison, each in its own shape.

        Raises:
            TargetError: one holds no arrays.
        """
        pair = cls()
        for role, value in (("actual", actual), ("desired", desired)):
            pair._take(role, value, name, study)
        if not set(pair.arrays["actual"]) & set(pair.arrays["desired"]):  # a list of numbers against an array
            pair._take("actual", np.asarray(actual), name, study)
            pair._take("desired", np.asarray(desired), name, study)
        return pair

    def _take(self, role: str, value: Any, name: str, study: Study | None) -> None:
        before = dict(_known(value, study)) if study is not None else {}
        found = leaves(value, name)
        self.arrays[role] = {path: array.owned() for path, (array, _) in found.items()}
        self.known[role] = {}
        for path, (_, leaf) in found.items():
            known = before.get(id(leaf))
            if known is not None:
                self.known[role][path] = Known(np.array(known.shadow), known.value)

    def broadcast(self) -> None:
        """Spread both as comparisons do: a number against an array."""
        for name, actual in list(self.arrays["actual"].items()):
            desired = self.arrays["desired"].get(name)
            if desired is None or desired.shape == actual.shape:
                continue
            try:
                shape = np.broadcast_shapes(actual.shape, desired.shape)
            except ValueError:
                continue
            for role in ROLES:
                self._stretch(role, name, shape)

    def _stretch(self, role: str, name: str, shape: tuple[int, ...]) -> None:
        array, known = self.arrays[role][name], self.known[role].get(name)
        wide = numbers(array)
        if wide is None or array.shape == shape:
            return
        places = np.broadcast_to(np.arange(wide.size).reshape(wide.shape), shape)
        size = len(array.data) // max(wide.size, 1)
        elements = np.frombuffer(array.data, np.uint8).reshape(wide.size, size)
        self.arrays[role][name] = Array(array.dtype, shape, bytes(raw(elements[places.reshape(-1)])))
        if known is not None:
            self.known[role][name] = Known(np.broadcast_to(known.shadow.reshape(wide.shape), shape).copy(), known.value)

    @property
    def dtype(self) -> str:
        """Of the candidate's first array."""
        return next((each.dtype for each in self.arrays["actual"].values()), "")

    def observation(self, study: Study | None) -> Observation:
        """Both sides in one, to be written."""
        arrays = {f"{role}/{name}": each for role in ROLES for name, each in self.arrays[role].items()}
        known = {f"{role}/{name}": each for role in ROLES for name, each in self.known[role].items()}
        return Observation(arrays, known, study or Study())


def _known(value: Any, study: Study) -> Iterator[tuple[int, Known]]:
    """Shadows of the arrays in nested containers, by identity: taken before their bytes are, which is another use of them."""
    known = study.known(value)
    if known is not None:
        yield id(value), known
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _known(each, study)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _known(each, study)


@dataclass(slots=True)
class Numbering:
    """How the values and operations of one side are numbered in the whole run.

    Attributes:
        values, operations: their numbers there, in order.
        draws: numbers of the random operations, among the random ones there.
    """

    values: list[int]
    operations: list[int]
    draws: list[int]

    def outward(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a study that speak of one side, for the whole run."""
        found = dict(options)
        for key, numbering in (("amendments", self.values), ("alterations", self.operations), ("states", self.draws)):
            if options.get(key):
                found[key] = {numbering[index]: each for index, each in options[key].items() if 0 <= index < len(numbering)}
        return found


def one_side(whole: Observation, role: str, numbering: Numbering | None = None) -> tuple[Observation, Numbering]:
    """The side of one operand.

    Args:
        whole: what `Pair.observation` gave.
        role: one of `ROLES`.
        numbering: of the exact run, by which another run of the same program is numbered; None for this run's own.
    """
    start = f"{role}/"
    arrays = {name[len(start) :]: each for name, each in whole.arrays.items() if name.startswith(start)}
    known = {name[len(start) :]: each for name, each in whole.known.items() if name.startswith(start)}
    if not _fits(numbering, whole, known.values()):
        numbering = _numbering(whole.study, [each.value for each in known.values()])
    assert numbering is not None  # noqa: S101  # made where there was none
    study, values = _part(whole.study, numbering)
    return Observation(arrays, {name: Known(each.shadow, values[each.value.index]) for name, each in known.items()}, study), numbering


def _fits(numbering: Numbering | None, whole: Observation, known: Iterable[Known]) -> bool:
    if numbering is None:
        return False
    _, operations = ancestors(whole.study, [each.value for each in known])
    there = set(numbering.operations)
    return operations <= there and max(there, default=-1) < len(whole.study.operations)


def _numbering(study: Study, values: list[Value]) -> Numbering:
    indexes, operations = ancestors(study, values)
    for index in operations:
        indexes |= {value.index for value in study.operations[index].writes}
    drawing = [each.index for each in study.operations if each.random]
    draws = [number for number, index in enumerate(drawing) if index in operations]
    return Numbering(sorted(indexes), sorted(operations), draws)


def _part(whole: Study, numbering: Numbering) -> tuple[Study, dict[int, Value]]:
    """A study of the numbered values and operations alone. The second: values by their numbers in the whole."""
    places = {index: place for place, index in enumerate(numbering.operations)}
    values: dict[int, Value] = {}
    study = Study()
    for index in numbering.values:
        value = whole.values[index]
        values[index] = replace(value, index=len(study.values), maker=places.get(value.maker, -1))
        study.values.append(values[index])
    for index in numbering.operations:
        study.operations.append(_operation(whole.operations[index], len(study.operations), values))
    study.losses.extend(whole.losses)
    study.step, study.drawn = whole.step, len(numbering.draws)
    return study, values


def _operation(operation: Operation, index: int, values: Mapping[int, Value]) -> Operation:
    reads = [Read(values[each.value.index], each.view) for each in operation.reads if each.value.index in values]
    writes = [values[each.index] for each in operation.writes if each.index in values]
    return replace(operation, index=index, reads=reads, writes=writes)


def require(pair: Observation) -> None:
    """Both operands hold arrays.

    Raises:
        TargetError: one does not.
    """
    for role in ROLES:
        if not any(name.startswith(f"{role}/") for name in pair.arrays):
            msg = f"nothing was compared: the comparison's {role} operand holds no array"
            raise TargetError(msg)
