"""Known operations computed again in float64 from recorded inputs: an operation's own error, and the arithmetic that explains it.

A recording does not say an operation's options. So every reading of them that fits the shapes is tried (axes, transposed
operands), and the one that comes closest is taken; where none comes close, the operation counts as not known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.shadows.formats import ROUNDINGS, round_to, unit
from detconf.shadows.study import Operation

_NEAR = 0.05
"""Relative distance within which a reading of the options fits."""
_INPUT, _OUTPUT = 0.6, 0.4
_erf = np.vectorize(math.erf, otypes=[np.float64])

Readings = Callable[..., Iterator[Any]]


@dataclass(frozen=True, slots=True)
class Again:
    """An operation computed again.

    Attributes:
        ratio: root mean square of its error, in units of what rounding noise does to it.
        form: the format to which its inputs must be rounded to explain that error; empty for none.
        distance: relative to the result.
    """

    ratio: float
    form: str
    distance: float


def again(operation: Operation) -> Again | None:
    """Compute an operation again; None where it is not known, or its arrays are not there."""
    readings = _KNOWN.get(kind(operation.name))
    write = operation.writes[0] if operation.writes else None
    inputs = [each.shadow for each in operation.reads]
    if readings is None or write is None or write.shadow is None or any(each is None or each.dtype.kind != "f" for each in inputs):
        return None
    real = np.asarray(write.shadow, dtype=np.float64)
    scale = _rms(real)
    inputs = [np.asarray(each, dtype=np.float64) for each in inputs]
    place, distance = _closest(readings, inputs, real)
    if place < 0 or not scale or distance > _NEAR * scale:
        return None
    noise = _noise(readings, operation, inputs, place, unit(write.dtype))
    ratio = distance / noise if noise else 0.0
    return Again(ratio, _format(operation, inputs, place, real) if ratio > 1 else "", distance / scale)


def kind(name: str) -> str:
    """The operation that a framework's name stands for: "aten.sum.dim_IntList" -> "sum"."""
    words = name.split(".")
    word = words[1] if len(words) > 1 else words[0]
    return _ALIASES.get(word.rstrip("_"), word.rstrip("_"))


def contracts(name: str) -> bool:
    """Is it a product of matrices?"""
    return kind(name) in ("matmul", "addmm", "linear")


def _closest(readings: Readings, inputs: Sequence[Any], real: Any) -> tuple[int, float]:
    """(number of the reading that comes closest, its distance); -1 where none fits the shape."""
    best, least = -1, math.inf
    for place, found in enumerate(_safely(readings, inputs, real.shape)):
        if found is not None and found.shape == real.shape:
            distance = _rms(found - real)
            if distance < least:
                best, least = place, distance
    return best, least


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
    moved = [each * (1 + _INPUT * size * generator.standard_normal(each.shape)) for each, size in zip(inputs, units, strict=True)]
    found = _at(readings, moved, write.shape, place)
    found = found * (1 + _OUTPUT * own * generator.standard_normal(found.shape))
    return max(_rms(found - exact), 0.25 * own * _rms(exact))


def _format(operation: Operation, inputs: Sequence[Any], place: int, real: Any) -> str:
    """The format of the inputs that explains the result best."""
    found = {form: _left(operation, inputs, place, real, form) for form in ROUNDINGS if form != "float32"}
    return min(found, key=found.__getitem__)


def _left(operation: Operation, inputs: Sequence[Any], place: int, real: Any, form: str) -> float:
    """The distance that is left once the factors of a product (what is added to it is not one) are rounded to a format."""
    word = kind(operation.name)
    added = {"addmm": 0, "linear": 2}.get(word, -1)
    rounded = [each if number == added else round_to(each, form) for number, each in enumerate(inputs)]
    return _rms(_at(_KNOWN[word], rounded, real.shape, place) - real)


def explained(operation: Operation, form: str) -> float:
    """The error of an operation, in units of noise, once its inputs are rounded to a format."""
    readings = _KNOWN[kind(operation.name)]
    inputs = [np.asarray(each.shadow, dtype=np.float64) for each in operation.reads]
    real = np.asarray(operation.writes[0].shadow, dtype=np.float64)
    place, _ = _closest(readings, inputs, real)
    noise = _noise(readings, operation, inputs, place, unit(operation.writes[0].dtype))
    return _left(operation, inputs, place, real, form) / noise


def _rms(array: Any) -> float:
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.mean(np.abs(array) ** 2))) if np.size(array) else 0.0


def _products(_: tuple[int, ...], a: Any, b: Any) -> Iterator[Any]:
    for x, y in itertools.product((a, np.swapaxes(a, -1, -2) if a.ndim > 1 else a), (b, np.swapaxes(b, -1, -2) if b.ndim > 1 else b)):
        fits = y.shape[-2 if y.ndim > 1 else 0] == x.shape[-1]
        yield np.matmul(x, y) if fits else None


def _linear(shape: tuple[int, ...], x: Any, w: Any, b: Any = None) -> Iterator[Any]:
    for found in _products(shape, x, w):
        yield found if found is None or b is None else found + b


def _addmm(shape: tuple[int, ...], c: Any, a: Any, b: Any) -> Iterator[Any]:
    yield from _linear(shape, a, b, c)


def _reduced(function: Callable[..., Any]) -> Readings:
    def readings(shape: tuple[int, ...], x: Any) -> Iterator[Any]:
        for count in range(1, x.ndim + 1):
            for axes in itertools.combinations(range(x.ndim), count):
                found = function(x, axis=axes)
                yield found.reshape(shape) if found.size == math.prod(shape) else None

    return readings


def _by_axis(function: Callable[[Any, int], Any]) -> Readings:
    def readings(_: tuple[int, ...], x: Any) -> Iterator[Any]:
        yield from (function(x, axis) for axis in range(x.ndim))

    return readings


def _elementwise(function: Callable[..., Any]) -> Readings:
    def readings(_: tuple[int, ...], *inputs: Any) -> Iterator[Any]:
        yield function(*inputs)

    return readings


def _softmax(x: Any, axis: int) -> Any:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


_ALIASES: Mapping[str, str] = {
    "mm": "matmul", "bmm": "matmul", "dot": "matmul", "mv": "matmul", "multiply": "mul", "subtract": "sub", "divide": "div",
    "true_divide": "div", "negative": "neg", "absolute": "abs", "elementwise_add": "add", "elementwise_mul": "mul", "_softmax": "softmax",
    "amax": "max", "amin": "min", "power": "pow", "concat": "same", "clone": "same", "assign": "same", "copy": "same", "_to_copy": "same",
    "cast": "same", "astype": "same",
}  # fmt: skip
_KNOWN: Mapping[str, Readings] = {
    "matmul": _products,
    "linear": _linear,
    "addmm": _addmm,
    "sum": _reduced(np.sum),
    "mean": _reduced(np.mean),
    "max": _reduced(np.max),
    "min": _reduced(np.min),
    "softmax": _by_axis(_softmax),
    "same": _elementwise(lambda x: x),
    "add": _elementwise(lambda x, y: x + y),
    "sub": _elementwise(lambda x, y: x - y),
    "mul": _elementwise(lambda x, y: x * y),
    "div": _elementwise(lambda x, y: x / y),
    "pow": _elementwise(np.power),
    "sigmoid": _elementwise(lambda x: 1 / (1 + np.exp(-x))),
    "relu": _elementwise(lambda x: np.maximum(x, 0)),
    "gelu": _elementwise(lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2)))),
    "rsqrt": _elementwise(lambda x: 1 / np.sqrt(x)),
    "neg": _elementwise(lambda x: -x),
    **{
        name: _elementwise(getattr(np, name))
        for name in ("exp", "expm1", "log", "log1p", "tanh", "sin", "cos", "sqrt", "abs", "square", "reciprocal")
    },
}
