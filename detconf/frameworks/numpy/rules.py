"""How the shadow of one call is computed: by the same function on shadows, but for those that choose.

What is discrete (the order of a sort, the integer that is rounded to, an index) follows the real computation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from detconf.frameworks.numpy import arguments, exact, linear
from detconf.frameworks.numpy.precision import LONG, LONG_COMPLEX, LONGS, floats, lowered, raised, shadow_dtype, up
from detconf.shadows.formats import unit

_MOVES_NAMES = (
    "full full_like array asarray asanyarray ascontiguousarray asfortranarray asarray_chkfinite require copy getitem setitem reshape ravel flatten "
    "ndarray.flatten ndarray.copy ndarray.reshape ndarray.ravel ndarray.fill ndarray.sort ndarray.partition ndarray.put "
    "ndarray.byteswap astype ndarray.astype concatenate concat stack vstack hstack dstack column_stack row_stack block pad take "
    "take_along_axis repeat tile roll rot90 flip fliplr flipud where select choose compress extract delete insert append resize "
    "broadcast_to broadcast_arrays sort partition copyto put place putmask fill_diagonal put_along_axis diag diagflat diagonal tril "
    "triu transpose moveaxis split array_split hsplit vsplit dsplit squeeze expand_dims atleast_1d atleast_2d atleast_3d meshgrid ix_ "
    "unique trim_zeros maximum minimum fmax fmin max min amax amin nanmax nanmin maximum.reduce minimum.reduce maximum.accumulate "
    "minimum.accumulate clip absolute fabs negative positive sign conjugate conj real imag copysign nan_to_num rint floor ceil trunc "
    "fix round around isfinite random.shuffle random.permutation random.permuted random.choice fft.fftshift fft.ifftshift "
    "lib.stride_tricks.as_strided lib.stride_tricks.sliding_window_view ndarray.view"
)
MOVES = frozenset(f"numpy.{name}" for name in _MOVES_NAMES.split())
"""Operations that round nothing: noise runs leave their inputs and outputs alone."""
CASTS = frozenset(("numpy.astype", "numpy.ndarray.astype"))
MANY = 1 << 26
"""Multiplications above which products of long doubles are made of products of doubles."""
_WHOLE_NAMES = "rint floor ceil trunc fix round around sign heaviside floor_divide"
_WHOLE = frozenset(f"numpy.{name}" for name in _WHOLE_NAMES.split())
DECIDING = _WHOLE | {"numpy.remainder", "numpy.fmod", "numpy.sort", "numpy.partition", "numpy.unique"}
"""Operations that take discrete choices from the real side, besides those whose results are integers."""
_NEST_NAMES = "array asarray asanyarray ascontiguousarray asfortranarray asarray_chkfinite require fromiter"
_NEST = frozenset(f"numpy.{name}" for name in _NEST_NAMES.split())


@dataclass(slots=True)
class Call:
    """One call that has been made.

    Attributes:
        name: "numpy.var".
        function: what was called.
        template: the function whose parameters it has; None if not known.
        plain, plain_named: its arguments, as the real computation got them.
        lifted, named: the same in shadows.
        result: of the real computation.
        altered: other options for the shadow.
        outs: shadows of what `out` held before, where not every element was written.
    """

    name: str
    function: Callable[..., Any]
    template: Any
    plain: list[Any]
    plain_named: dict[str, Any]
    lifted: list[Any]
    named: dict[str, Any]
    result: Any
    altered: Mapping[str | int, Any]
    outs: tuple[Any, ...] | None = None


def compute(call: Call) -> Any:
    """The shadow of a call's result, in the same structure."""
    args, kwargs = list(call.lifted), dict(call.named)
    arguments.in_shadows(call.template, args, kwargs)
    if call.altered:
        arguments.altered(call.template, args, kwargs, call.altered)
    rule = RULES.get(call.name)
    if rule is not None:
        return rule(call, args, kwargs)
    return widely(call, args, kwargs)


def widely(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The function on shadows; in long double where the result is float64, as far as it takes them."""
    if any(shadow_dtype(each.dtype) in LONGS for each in arrays(call.result)):
        integers = not arguments.any_floats([args, list(kwargs.values())])
        try:
            return _run(
                call,
                [arguments.widened(each, integers=integers) for each in args],
                {key: each if key == "where" else arguments.widened(each, integers=integers) for key, each in kwargs.items()},
            )
        except (TypeError, IndexError):
            pass
    try:
        return _run(call, args, kwargs)
    except TypeError:
        return _run(call, arguments.narrowed(args), {key: arguments.narrowed(each) for key, each in kwargs.items()})


def arrays(result: Any) -> list[Any]:
    """The arrays and scalars of NumPy in a result or a tuple or list of such."""
    items = result if isinstance(result, (list, tuple)) else (result,)
    return [each for each in items if isinstance(each, (np.ndarray, np.generic))]


def _run(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if call.outs is not None:  # some elements stay what they were
        return call.function(*args, **{**kwargs, "out": tuple(np.array(each) for each in call.outs), "casting": "unsafe"})
    if call.altered and call.template is not None:
        return call.template(*args, **kwargs)
    return call.function(*args, **kwargs)


def _product(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A product of matrices, of long doubles by exact products of doubles where that pays."""
    a, b = args[:2]
    wide = shadow_dtype(call.result.dtype) == LONG and len(args) == 2 and not kwargs and not call.altered
    matrices = all(isinstance(each, np.ndarray) and each.ndim >= 2 and each.dtype.kind == "f" for each in (a, b))
    if not wide or not matrices or (call.name == "numpy.dot" and a.ndim + b.ndim > 4) or call.result.size * a.shape[-1] <= MANY:
        return widely(call, args, kwargs)
    return exact.product(a.astype(LONG), b.astype(LONG))


def _astype(call: Call, args: list[Any], _kwargs: dict[str, Any]) -> Any:
    return args[0].astype(shadow_dtype(call.result.dtype)) if floats(call.result.dtype) else call.result


def _nest(call: Call, args: list[Any], _kwargs: dict[str, Any]) -> Any:
    return np.array(args[0], dtype=shadow_dtype(call.result.dtype)).reshape(call.result.shape)


def _sort(call: Call, args: list[Any], _kwargs: dict[str, Any]) -> Any:
    at = 2 if call.name.endswith("partition") else 1
    axis = call.plain_named.get("axis", call.plain[at] if len(call.plain) > at else -1)
    if axis is None:
        return reordered(call.plain[0].reshape(-1), call.result, args[0].reshape(-1), 0)
    return reordered(call.plain[0], call.result, args[0], axis)


def reordered(before: Any, after: Any, shadow: Any, axis: int) -> Any:
    """The shadow of an array whose elements were moved along an axis, by where they went."""
    order, back = np.argsort(before, axis=axis, kind="stable"), np.argsort(after, axis=axis, kind="stable")
    result = np.empty_like(shadow)
    np.put_along_axis(result, back, np.take_along_axis(shadow, order, axis), axis)
    return result


def _whole(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    found = widely(call, args, kwargs)
    decimals = args[1] if len(args) > 1 and isinstance(args[1], int) else kwargs.get("decimals", 0)
    near = np.abs(found - call.result) <= 0.25 * 10.0**-decimals
    return np.where(near, found, up(call.result))


def _remainder(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    found, divisor = widely(call, args, kwargs), np.abs(args[1])
    off = np.rint((call.result - found) / divisor)
    return np.where(np.isfinite(off), found + off * divisor, found)


def _unique(call: Call, args: list[Any], _kwargs: dict[str, Any]) -> Any:
    first = call.result[0] if isinstance(call.result, tuple) else call.result
    places = np.unique(call.plain[0], return_index=True, axis=call.plain_named.get("axis"))[1]
    axis = call.plain_named.get("axis")
    found = np.ravel(args[0])[places] if axis is None else np.take(args[0], places, axis=axis)
    return (found.reshape(first.shape), *call.result[1:]) if isinstance(call.result, tuple) else found


def _bincount(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    weights = args[1] if len(args) > 1 else kwargs.get("weights")
    found = np.zeros(call.result.shape, shadow_dtype(call.result.dtype))
    np.add.at(found, call.plain[0], weights)
    return found


def _interp(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Between the points that the real side finds."""
    if len(args) != 3 or kwargs or call.altered or np.iscomplexobj(args[2]):
        return widely(call, args, kwargs)
    x, points, values = (np.asarray(each) for each in args)
    left = np.clip(np.searchsorted(call.plain[1], call.plain[0], "right") - 1, 0, len(points) - 2)
    share = raised(np.clip((x - points[left]) / (points[left + 1] - points[left]), 0, 1))
    return values[left] + share * (values[left + 1] - values[left])


def _lapack(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """In long double where the result is float64 and there is a way; otherwise as LAPACK does it."""
    matrix = args[0] if isinstance(args[0], np.ndarray) else np.asarray(args[0])
    wide = any(shadow_dtype(each.dtype) in LONGS for each in arrays(call.result))
    vector = call.name == "numpy.linalg.solve" and np.ndim(args[1]) == 1
    plain = not kwargs and not call.altered and (vector or len(args) == 1 or np.ndim(args[1]) == matrix.ndim)
    if not wide or not plain or matrix.shape[-1] > linear.LARGEST:
        return widely(call, args, kwargs)
    matrix = matrix.astype(LONG_COMPLEX if matrix.dtype.kind == "c" else LONG)
    if call.name == "numpy.linalg.solve":
        right = np.asarray(args[1]).astype(np.result_type(matrix.dtype, np.asarray(args[1]).dtype))
        matrix = matrix.astype(right.dtype)
        return linear.solve(matrix, right[:, None])[..., 0] if vector else linear.solve(matrix, right)
    return _LONG[call.name](matrix)


_LONG: Mapping[str, Callable[[Any], Any]] = {
    "numpy.linalg.inv": linear.inverse,
    "numpy.linalg.det": linear.determinant,
    "numpy.linalg.slogdet": linear.logarithm,
    "numpy.linalg.cholesky": linear.cholesky,
}


def _eigen(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Of symmetric matrices."""
    only = call.name.endswith("eigvalsh")
    matrix = np.asarray(args[0])
    if kwargs or call.altered or len(args) > 1 or matrix.shape[-1] > linear.LARGEST or matrix.dtype not in LONGS:
        found = widely(call, args, kwargs)
        return found if only else (found[0], found[1] * _turn(found[1], call.result[1]))
    values, vectors = linear.symmetric(matrix, *np.linalg.eigh(lowered(matrix)))
    return values if only else (values, vectors * _turn(vectors, call.result[1]))


def _svd(call: Call, args: list[Any], kwargs: dict[str, Any]) -> Any:
    found = widely(call, args, kwargs)
    if not isinstance(found, tuple):
        return found
    left, values, right = found
    rank = min(left.shape[-1], right.shape[-2])
    turn = _turn(left[..., :rank], call.result[0][..., :rank])
    left, right = np.array(left), np.array(right)
    left[..., :rank] *= turn
    right[..., :rank, :] *= np.swapaxes(turn, -1, -2).conj()
    return left, values, right


def _turn(found: Any, real: Any) -> Any:
    """The phases that turn columns towards those of the real computation: both solve the problem."""
    product = np.sum(np.conj(found) * real, axis=-2, keepdims=True)
    size = np.abs(product)
    return np.where(size > 0, product / np.where(size > 0, size, 1), 1)


def narrows(call: Call, dtype: Any) -> bool:
    """Is it a cast from a float format to one of fewer bits?"""
    return (call.name in CASTS or call.name in _NEST) and any(
        floats(each.dtype) and unit(str(each.dtype)) < unit(str(dtype)) for each in arrays(call.plain)
    )


Rule = Callable[[Call, list[Any], dict[str, Any]], Any]
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(CASTS, _astype),
    **dict.fromkeys(_NEST, _nest),
    **dict.fromkeys(_WHOLE, _whole),
    "numpy.bincount": _bincount,
    "numpy.interp": _interp,
    "numpy.matmul": _product,
    "numpy.dot": _product,
    "numpy.sort": _sort,
    "numpy.partition": _sort,
    "numpy.remainder": _remainder,
    "numpy.fmod": _remainder,
    "numpy.unique": _unique,
    "numpy.linalg.svd": _svd,
    "numpy.linalg.eigh": _eigen,
    "numpy.linalg.eigvalsh": _eigen,
    "numpy.linalg.solve": _lapack,
    **dict.fromkeys(_LONG, _lapack),
    "numpy.spacing": lambda call, _args, _kwargs: up(call.result),
}
