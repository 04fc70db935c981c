"""Operations that can be computed again from what they read, by the name that frameworks share: data only.

A recording does not say an operation's options: each formula gives, one by one, the readings of them that fit the shapes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])

Readings = Callable[..., Iterator[Any]]


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


def _joined(function: Callable[..., Any]) -> Readings:
    def along(inputs: tuple[Any, ...], axis: int) -> Any:
        try:
            return function(inputs, axis=axis)
        except ValueError:  # not along this one
            return None

    def readings(shape: tuple[int, ...], *inputs: Any) -> Iterator[Any]:
        yield from (along(inputs, axis) for axis in range(len(shape)))

    return readings


def _clamp(_: tuple[int, ...], x: Any, *bounds: Any) -> Iterator[Any]:
    """Both bounds; or one, which is the lower or the upper one."""
    if len(bounds) > 1:
        yield np.minimum(np.maximum(x, bounds[0]), bounds[1])
    else:
        yield from (np.maximum(x, bounds[0]), np.minimum(x, bounds[0]))


def _gelu(_: tuple[int, ...], x: Any) -> Iterator[Any]:
    yield 0.5 * x * (1 + _erf(x / math.sqrt(2)))
    yield 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _spread(shape: tuple[int, ...], x: Any) -> Iterator[Any]:
    """Variance with and without Bessel's correction."""
    for ddof in (0, 1):
        yield from _reduced(lambda array, axis: np.var(array, axis=axis, ddof=ddof))(shape, x)  # noqa: B023  # read at once


def _deviation(shape: tuple[int, ...], x: Any) -> Iterator[Any]:
    yield from (None if each is None else np.sqrt(each) for each in _spread(shape, x))


def _layer_norm(_: tuple[int, ...], x: Any, *rest: Any) -> Iterator[Any]:
    """Over the last dimensions; weight and bias are arrays, epsilon the smallest number."""
    numbers, arrays = [float(each) for each in rest if each.ndim == 0], [each for each in rest if each.ndim]
    epsilon = min((each for each in numbers if each >= 0), default=1e-5)
    for count in range(1, x.ndim + 1):
        axes = tuple(range(x.ndim - count, x.ndim))
        found = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)
        for place, array in enumerate(arrays[:2]):
            wide = array.reshape(x.shape[x.ndim - count :]) if array.size == np.prod(x.shape[x.ndim - count :]) else array
            found = found + wide if place else found * wide
        yield found


def _losses(function: Callable[..., Any]) -> Readings:
    """Of a difference, by itself, its mean and its sum."""

    def readings(_: tuple[int, ...], x: Any, y: Any, *numbers: Any) -> Iterator[Any]:
        each = function(x - y, *numbers[-1:])
        yield from (np.mean(each), np.sum(each), each)

    return readings


def _huber(x: Any, delta: Any = 1.0) -> Any:
    size = np.abs(x)
    return np.where(size < delta, 0.5 * size * size, delta * (size - 0.5 * delta))


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


def _log_softmax(x: Any, axis: int) -> Any:
    return x - _logsumexp(x, axis=axis, keepdims=True)


def _logsumexp(x: Any, *, axis: Any, keepdims: bool = False) -> Any:
    top = x.max(axis=axis, keepdims=True)
    found = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return found if keepdims else np.squeeze(found, axis=axis)


ALIASES: Mapping[str, str] = {
    "mm": "matmul", "bmm": "matmul", "dot": "matmul", "mv": "matmul", "multiply": "mul", "subtract": "sub", "divide": "div",
    "true_divide": "div", "negative": "neg", "absolute": "abs", "elementwise_add": "add", "elementwise_mul": "mul", "_softmax": "softmax",
    "amax": "max", "amin": "min", "power": "pow", "elementwise_pow": "pow", "cat": "concat", "concatenate": "concat", "clone": "same", "assign": "same", "copy": "same", "_to_copy": "same",
    "cast": "same", "astype": "same", "_log_softmax": "log_softmax", "clip": "clamp", "clamp_min": "clamp", "clamp_max": "clamp", "swish": "silu",
    "native_layer_norm": "layer_norm", "fmax": "maximum", "fmin": "minimum",
}  # fmt: skip
_OF_NUMPY = "exp expm1 log log1p log2 log10 sin cos sinh cosh tanh sqrt abs square reciprocal"
KNOWN: Mapping[str, Readings] = {
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
    "gelu": _gelu,
    "leaky_relu": _elementwise(lambda x, slope=0.01: np.where(x > 0, x, slope * x)),
    "elu": _elementwise(lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))),
    "silu": _elementwise(lambda x: x / (1 + np.exp(-x))),
    "softplus": _elementwise(lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
    "clamp": _clamp,
    "maximum": _elementwise(np.maximum),
    "minimum": _elementwise(np.minimum),
    "where": _elementwise(lambda chosen, x, y: np.where(chosen != 0, x, y)),
    "outer": _elementwise(np.outer),
    "concat": _joined(np.concatenate),
    "stack": _joined(np.stack),
    "embedding": _elementwise(lambda x, index: x[index.astype(np.int64)] if x.ndim > 1 else index[x.astype(np.int64)]),
    "prod": _reduced(np.prod),
    "logsumexp": _reduced(_logsumexp),
    "cumsum": _by_axis(np.cumsum),
    "log_softmax": _by_axis(_log_softmax),
    "layer_norm": _layer_norm,
    "var": _spread,
    "std": _deviation,
    "mse_loss": _losses(lambda x: x * x),
    "l1_loss": _losses(np.abs),
    "huber_loss": _losses(_huber),
    "smooth_l1_loss": _losses(lambda x, beta=1.0: _huber(x, beta) / beta),
    "tanh_backward": _elementwise(lambda gradient, y: gradient * (1 - y * y)),
    "sigmoid_backward": _elementwise(lambda gradient, y: gradient * y * (1 - y)),
    "threshold_backward": _elementwise(lambda gradient, x: np.where(x > 0, gradient, 0)),
    "rsqrt": _elementwise(lambda x: 1 / np.sqrt(x)),
    "neg": _elementwise(lambda x: -x),
    **{name: _elementwise(getattr(np, name)) for name in _OF_NUMPY.split()},
    "erf": _elementwise(_erf),
}
_NUMBERS = "add sub mul div pow rsub addcmul addcdiv lerp scale maximum minimum where clamp leaky_relu elu layer_norm huber_loss"
ARITHMETIC = frozenset(_NUMBERS.split())
"""Numbers among their arguments are what they compute with."""
MOVING = frozenset(
    ("same", "concat", "stack", "where", "maximum", "minimum", "max", "min", "relu", "clamp", "embedding", "threshold_backward")
)
"""They choose among the elements that they read."""
PAIRED = frozenset(("add", "sub", "mul", "div", "matmul", "maximum", "minimum", "outer"))
"""Of two operands, which may be one and the same array."""
