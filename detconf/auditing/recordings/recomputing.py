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
    place, distance = _fitting(operation)
    if place < 0:
        return None
    readings, write = _KNOWN[kind(operation.name)], operation.writes[0]
    real = np.asarray(write.shadow, dtype=np.float64)
    scale, inputs = _rms(real), operands(operation, [each.shadow for each in operation.reads])
    noise = _noise(readings, operation, inputs, place, unit(write.dtype))
    ratio = distance / noise if noise else 0.0
    return Again(ratio, _format(operation, inputs, place, real) if ratio > 1 else "", distance / scale if scale else 0.0)


def _fitting(operation: Operation) -> tuple[int, float]:
    """(the reading of the options that gives the recorded result, how far from it that is); -1 for none."""
    readings = _KNOWN.get(kind(operation.name))
    write = operation.writes[0] if operation.writes else None
    inputs = [each.shadow for each in operation.reads]
    if readings is None or write is None or write.shadow is None or any(each is None or each.dtype.kind != "f" for each in inputs):
        return -1, math.inf
    real = np.asarray(write.shadow, dtype=np.float64)
    scale = _rms(real)
    place, distance = _closest(readings, operands(operation, inputs), real)
    return (place, distance) if distance <= _NEAR * scale else (-1, distance)


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
    return _at(_KNOWN[kind(operation.name)], operands(operation, arrays, scalars, dtype), shape, place)


def overflows(operation: Operation) -> bool:
    """Is its result infinite or NaN where its finite inputs give something finite in float64, and right elsewhere?"""
    readings, inputs = _KNOWN.get(kind(operation.name)), [each.shadow for each in operation.reads]
    real = operation.writes[0].shadow if operation.writes else None
    if readings is None or real is None or real.dtype.kind != "f" or any(each is None or not np.all(np.isfinite(each)) for each in inputs):
        return False
    real = np.asarray(real, dtype=np.float64)
    right = np.isfinite(real)
    fitting = (each for each in _safely(readings, operands(operation, inputs, dtype="float64"), real.shape) if np.shape(each) == real.shape)
    return not np.all(right) and any(
        bool(np.all(np.isfinite(each))) and _rms(each[right] - real[right]) <= _NEAR * _rms(real[right]) for each in fitting
    )


def operands(operation: Operation, arrays: Sequence[Any], scalars: Mapping[str | int, Any] | None = None, dtype: str = "") -> list[Any]:
    """The arguments of an operation in their order, in float64: arrays, and numbers as its result's dtype has them."""
    form = dtype or (operation.writes[0].dtype if operation.writes else "")
    found = [np.asarray(each, dtype=np.float64) for each in arrays]
    numbers = operation.options if scalars is None else scalars
    for place in sorted(each for each in numbers if isinstance(each, int)):
        number = np.asarray(numbers[place], dtype=np.float64)
        found.insert(place, round_to(number, form) if form in ROUNDINGS else number)
    return found


def kind(name: str) -> str:
    """The operation that a framework's name stands for: "aten.sum.dim_IntList" -> "sum"."""
    words = name.split(".")
    word = words[1] if len(words) > 1 else words[0]
    return _ALIASES.get(word.rstrip("_"), word.rstrip("_"))


def arithmetic(name: str) -> bool:
    """Are numbers among its arguments what it computes with, and no options?"""
    return kind(name) in ("add", "sub", "mul", "div", "pow", "rsub", "addcmul", "addcdiv", "lerp", "scale")


def fills(name: str) -> bool:
    """Is its result a constant, of which the arguments give the shape?"""
    return kind(name) in ("zeros_like", "ones_like", "full_like", "empty_like")


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
    for position in sorted(each for each in operation.options if isinstance(each, int)):
        units.insert(position, own)
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


def _either(function: Callable[..., Any]) -> Readings:
    """Of two arguments; or of these in the other order, as Paddle's reflected operators pass them."""

    def readings(_: tuple[int, ...], x: Any, y: Any, *rest: Any) -> Iterator[Any]:
        yield function(x, y, *rest)
        yield function(y, x, *rest)

    return readings


def _softmax(x: Any, axis: int) -> Any:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


_ALIASES: Mapping[str, str] = {
    "mm": "matmul", "bmm": "matmul", "dot": "matmul", "mv": "matmul", "multiply": "mul", "subtract": "sub", "divide": "div",
    "true_divide": "div", "negative": "neg", "absolute": "abs", "elementwise_add": "add", "elementwise_mul": "mul", "_softmax": "softmax",
    "amax": "max", "amin": "min", "power": "pow", "elementwise_pow": "pow", "concat": "same", "clone": "same", "assign": "same", "copy": "same", "_to_copy": "same",
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
    "add": _elementwise(lambda x, y, alpha=1.0: x + alpha * y),
    "sub": _either(lambda x, y, alpha=1.0: x - alpha * y),
    "addcmul": _elementwise(lambda x, y, z, value=1.0: x + value * y * z),
    "addcdiv": _elementwise(lambda x, y, z, value=1.0: x + value * y / z),
    "lerp": _elementwise(lambda x, y, weight: x + weight * (y - x)),
    "scale": _elementwise(lambda x, factor, bias=0.0: factor * x + bias),
    "rsub": _elementwise(lambda x, y: y - x),
    "mul": _elementwise(lambda x, y: x * y),
    "div": _either(lambda x, y: x / y),
    "pow": _either(np.power),
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
