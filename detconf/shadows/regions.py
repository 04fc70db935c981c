"""Between two runs: the operations of one that make its results, and compute what the other never has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detconf.shadows.formats import unit
from detconf.shadows.pool import Pool
from detconf.shadows.study import Known, Operation, Read, Study, Value


@dataclass(slots=True)
class Region:
    """What leads to results without a counterpart in the other run.

    Attributes:
        operations: those whose results the other run has nowhere, in order.
        sources: those among them that read only what the other run has as well.
        leaves: values from outside that the other run has nowhere.
        anchors: what they read that the other run has as well, each value once.
    """

    operations: list[Operation] = field(default_factory=list)
    sources: list[Operation] = field(default_factory=list)
    leaves: list[Value] = field(default_factory=list)
    anchors: list[Read] = field(default_factory=list)


def contents(study: Study, outputs: Iterable[Known]) -> Iterator[tuple[Value, Any]]:
    """Everything that a run computed, read or gave out: (value, shadow of it or of a view of it).

    A leaf that nothing read is nothing that the program has: it only stood in a module.
    """
    outputs = list(outputs)
    used = {read.value.index for operation in study.operations for read in operation.reads} | {each.value.index for each in outputs}
    for value in study.values:
        if value.shadow is not None and (value.maker >= 0 or value.index in used):
            yield value, value.shadow
    for operation in study.operations:
        for read in operation.reads:
            if read.view is not None and read.view.shape != read.value.shape:
                yield read.value, read.view
    for each in outputs:
        yield each.value, each.shadow


def ancestors(study: Study, values: Iterable[Value]) -> tuple[set[int], set[int]]:
    """(numbers of the values, of the operations) that these values were computed from, themselves included."""
    seen: set[int] = set()
    operations: set[int] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value.index in seen:
            continue
        seen.add(value.index)
        if value.maker >= 0:
            operations.add(value.maker)
            waiting.extend(read.value for read in study.operations[value.maker].reads)
    return seen, operations


def coarsest(study: Study, value: Value) -> float:
    """The largest unit roundoff of the floats that a value was computed through; 0 where there are none."""
    _, operations = ancestors(study, [value])
    units = [unit(each.dtype) for index in operations for each in study.operations[index].writes]
    return max([unit(value.dtype), *units])


def region(study: Study, outputs: Iterable[Known], pool: Pool) -> Region:
    """From `outputs` back to what the other run, whose contents are `pool`, has as well."""
    found = Region()
    seen: set[int] = set()
    anchored: set[int] = set()
    chosen: dict[int, bool] = {}
    waiting = [each.value for each in outputs if _tells_nothing(each) or not (_known(each.shadow, pool) or _known(each.value.shadow, pool))]
    while waiting:
        value = waiting.pop()
        if value.index in seen:
            continue
        seen.add(value.index)
        if value.maker < 0:
            found.leaves.append(value)
            continue
        operation = study.operations[value.maker]
        if operation.index in chosen:
            continue
        chosen[operation.index] = True
        for read in operation.reads:
            if _known(read.shadow, pool) or (read.view is not None and _known(read.value.shadow, pool)):
                if read.value.index not in anchored:
                    anchored.add(read.value.index)
                    found.anchors.append(read)
            else:
                chosen[operation.index] = False
                waiting.append(read.value)
    found.operations = [study.operations[index] for index in sorted(chosen)]
    found.sources = [operation for operation in found.operations if chosen[operation.index]]
    found.leaves.sort(key=lambda value: value.index)
    return found


def _tells_nothing(output: Known) -> bool:
    """A result that is found in any run, such as an index or nothing but zeros: that it is there does not say that it is the same."""
    return output.value.maker >= 0 and (
        plain(output.shadow) or (output.shadow.size == 1 and not np.issubdtype(output.shadow.dtype, np.inexact))
    )


def _known(shadow: Any, pool: Pool) -> bool:
    return shadow is None or plain(shadow) or bool(pool.find(shadow))


def plain(shadow: Any) -> bool:
    """Nothing but zeros, or nothing but ones: what any program has."""
    return shadow.size == 0 or bool(np.all(shadow == 0)) or bool(np.all(shadow == 1))
