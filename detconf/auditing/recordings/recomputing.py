"""Known operations computed again in float64 from recorded inputs: an operation's own error, and the arithmetic that explains it.

A recording does not say an operation's options. So every reading of them that fits the shapes is tried (axes, transposed
operands), and the one that comes closest is taken; where none comes close, the operation counts as not known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.auditing.recordings.formulas import ALIASES, ARITHMETIC, KNOWN, MOVING, PAIRED, Readings
from detconf.shadows.formats import ROUNDINGS, round_to, unit
from detconf.shadows.study import Operation

_NEAR = 0.05
"""Relative distance within which a reading of the options fits."""
_INPUT, _OUTPUT = 0.6, 0.4


@dataclass(frozen=True, slots=True)
class Again:
    """An operation computed again.

    Attributes:
        ratio: root mean square of its error, in units of what rounding noise does to it.
        form: the format to which its inputs must be rounded to explain that error; empty for none.
        distance: relative to the result.
        left: the ratio that is left with inputs rounded to that format, where it is known already.
    """

    ratio: float
    form: str
    distance: float
    left: float | None = None


def again(operation: Operation) -> Again | None:
    """Compute an operation again; None where it is not known, or its arrays are not there."""
    place, distance = _fitting(operation)
    if place < 0:
        return None
    readings, write = KNOWN[kind(operation.name)], operation.writes[0]
    real = np.asarray(write.shadow, dtype=np.float64)
    scale, inputs = _rms(real), operands(operation, [each.shadow for each in operation.reads])
    noise = _noise(readings, operation, inputs, place, unit(write.dtype))
    ratio = distance / noise if noise else 0.0
    return Again(ratio, _format(operation, inputs, place, real) if ratio > 1 else "", distance / scale if scale else 0.0)


def _fitting(operation: Operation) -> tuple[int, float]:
    """(the reading of the options that gives the recorded result, how far from it that is); -1 for none."""
    readings = KNOWN.get(kind(operation.name))
    write = operation.writes[0] if operation.writes else None
    inputs = [each.shadow for each in operation.reads]
    if readings is None or write is None or write.shadow is None or any(each is None or each.dtype.kind == "c" for each in inputs):
        return -1, math.inf
    if write.shadow.dtype.kind != "f":
        return -1, math.inf
    real = np.asarray(write.shadow, dtype=np.float64)
    scale = _rms(_finite(real, real))
    place, distance = _closest(readings, operands(operation, inputs), real)
    return (place, distance) if distance <= max(_NEAR * scale, _least(write.dtype)) else (-1, distance)


def _least(dtype: str) -> float:
    """The least normal number of a dtype that `ROUNDINGS` knows, else 0."""
    return 2.0 ** ROUNDINGS[dtype][1] if dtype in ROUNDINGS else 0.0


def reading(operation: Operation) -> int:
    """The number of the reading of an operation's options that gives its recorded result; -1 where it cannot be computed again."""
    return _fitting(operation)[0]


def result(operation: Operation, place: int, arrays: Sequence[Any], scalars: Mapping[str | int, Any] | None = None, dtype: str = "") -> Any:
    """What an operation gives, in float64, of other arrays and numbers than it had; None where these do not fit.

    Args:
        place: of `reading`.
        arrays: float64, in the order of its reads.
        scalars: numbers by position; None for its own.
        dtype: of the result; empty for its own.
    """
    shape = operation.writes[0].shape
    return _at(KNOWN[kind(operation.name)], operands(operation, arrays, scalars, dtype), shape, place)


def overflows(operation: Operation) -> bool:
    """Is its result infinite or NaN where its finite inputs give something finite in float64, and right elsewhere?"""
    readings, inputs = KNOWN.get(kind(operation.name)), [each.shadow for each in operation.reads]
    real = operation.writes[0].shadow if operation.writes else None
    if readings is None or real is None or real.dtype.kind != "f" or any(each is None or not np.all(np.isfinite(each)) for each in inputs):
        return False
    real = np.asarray(real, dtype=np.float64)
    right = np.isfinite(real)
    fitting = (each for each in _safely(readings, operands(operation, inputs, dtype="float64"), real.shape) if np.shape(each) == real.shape)
    return not np.all(right) and any(
        bool(np.all(np.isfinite(each))) and _rms(each[right] - real[right]) <= _NEAR * _rms(real[right])
        for each in itertools.islice(fitting, None if np.any(right) else 1)  # by what is finite, else the usual reading
    )


def vanishes(operation: Operation) -> bool:
    """Is its result zero where in float64 it is not, but smaller than the least normal number of its dtype?"""
    place = reading(operation)
    if place < 0:
        return False
    real = operation.writes[0].shadow
    exact = result(operation, place, [each.shadow for each in operation.reads])
    return bool(np.any((real == 0) & (exact != 0) & (np.abs(exact) < _least(operation.writes[0].dtype))))


def operands(operation: Operation, arrays: Sequence[Any], scalars: Mapping[str | int, Any] | None = None, dtype: str = "") -> list[Any]:
    """The arguments of an operation in their order, in float64: arrays, and numbers as its result's dtype has them."""
    form = dtype or (operation.writes[0].dtype if operation.writes else "")
    found = [np.asarray(each, dtype=np.float64) for each in arrays]
    numbers = operation.options if scalars is None else scalars
    for place in sorted(each for each in numbers if isinstance(each, int)):
        number = np.asarray(numbers[place], dtype=np.float64)
        found.insert(place, round_to(number, form) if form in ROUNDINGS else number)
    return found * 2 if _squares(operation, len(found)) else found


def _squares(operation: Operation, count: int) -> bool:
    """Is it of two operands that are one array, which is read once?"""
    return count == 1 and kind(operation.name) in PAIRED


def kind(name: str) -> str:
    """The operation that a framework's name stands for: "aten.sum.dim_IntList" -> "sum"."""
    words = name.split(".")
    word = words[1] if len(words) > 1 else words[0]
    return ALIASES.get(word.rstrip("_"), word.rstrip("_"))


def arithmetic(name: str) -> bool:
    """Are numbers among its arguments what it computes with, and no options?"""
    return kind(name) in ARITHMETIC


def moves(name: str) -> bool:
    """Does it choose among the elements that it reads, so that nothing is rounded?"""
    return kind(name) in MOVING


def fills(name: str) -> bool:
    """Is its result a constant, of which the arguments give the shape?"""
    return kind(name) in ("zeros_like", "ones_like", "full_like", "empty_like")


def _closest(readings: Readings, inputs: Sequence[Any], real: Any) -> tuple[int, float]:
    """(number of the reading that comes closest, its distance); -1 where none fits the shape."""
    best, least = -1, math.inf
    for place, found in enumerate(_safely(readings, inputs, real.shape)):
        if found is not None and found.shape == real.shape:
            distance = _rms(_finite(found - real, real))
            if distance < least:
                best, least = place, distance
    return best, least


def _finite(array: Any, real: Any) -> Any:
    """The elements where the recorded ones are finite: what overflowed is no sign of another operation."""
    right = np.isfinite(real)
    return array if np.all(right) else array[right]


def _safely(readings: Readings, inputs: Sequence[Any], shape: tuple[int, ...]) -> Iterator[Any]:
    with np.errstate(all="ignore"):
        try:
            yield from readings(shape, *inputs)
        except (TypeError, ValueError, IndexError):  # another number of inputs, or shapes that do not go together
            return


def _at(readings: Readings, inputs: Sequence[Any], shape: tuple[int, ...], place: int) -> Any:
    return next(itertools.islice(_safely(readings, inputs, shape), place, None), None)


def _noise(readings: Readings, operation: Operation, inputs: Sequence[Any], place: int, own: float) -> float:
    """What rounding every input and the output at random does, root mean square."""
    generator = np.random.Generator(np.random.PCG64(0))
    write = operation.writes[0].shadow
    exact = _at(readings, inputs, write.shape, place)
    units = [unit(each.value.dtype) for each in operation.reads]
    for position in sorted(each for each in operation.options if isinstance(each, int)):
        units.insert(position, own)
    units = units * 2 if _squares(operation, len(units)) else units
    moved = [each * (1 + _INPUT * size * generator.standard_normal(each.shape)) for each, size in zip(inputs, units, strict=True)]
    found = _at(readings, moved, write.shape, place)
    found = found * (1 + _OUTPUT * own * generator.standard_normal(found.shape))
    with np.errstate(invalid="ignore"):
        return max(_rms(_finite(found - exact, exact)), 0.25 * own * _rms(_finite(exact, exact)))


def _format(operation: Operation, inputs: Sequence[Any], place: int, real: Any) -> str:
    """The format of the inputs that explains the result best."""
    found = {form: _left(operation, inputs, place, real, form) for form in ROUNDINGS if form != "float32"}
    return min(found, key=found.__getitem__)


def _left(operation: Operation, inputs: Sequence[Any], place: int, real: Any, form: str) -> float:
    """The distance that is left once the factors of a product (what is added to it is not one) are rounded to a format."""
    word = kind(operation.name)
    added = {"addmm": 0, "linear": 2}.get(word, -1)
    rounded = [each if number == added else round_to(each, form) for number, each in enumerate(inputs)]
    return _rms(_at(KNOWN[word], rounded, real.shape, place) - real)


def explained(operation: Operation, form: str) -> float:
    """The error of an operation, in units of noise, once its inputs are rounded to a format."""
    readings = KNOWN[kind(operation.name)]
    inputs = [np.asarray(each.shadow, dtype=np.float64) for each in operation.reads]
    real = np.asarray(operation.writes[0].shadow, dtype=np.float64)
    place, _ = _closest(readings, inputs, real)
    noise = _noise(readings, operation, inputs, place, unit(operation.writes[0].dtype))
    return _left(operation, inputs, place, real, form) / noise


def _rms(array: Any) -> float:
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.mean(np.abs(array) ** 2))) if np.size(array) else 0.0
