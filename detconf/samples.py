"""Elements of an array as decimal text that gives them back, and where two arrays are furthest apart. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from detconf.arrays import Array, raw
from detconf.comparison import CHUNK

SIZE = 8
"""Elements in a sample: the first, the last, and others evenly between them."""

_COMPLEX = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_PLAIN = ("float16", "float32", "float64", "complex64", "complex128", "bool")


@dataclass(frozen=True, slots=True)
class Furthest:
    """The largest difference between two arrays.

    Attributes:
        value: how large; infinite where one side is not finite.
        index: where.
    """

    value: float
    index: tuple[int, ...]


def elements(array: Array) -> Any:
    """A flat numpy array of the elements; None for types that are no numbers, or that numpy cannot hold."""
    import numpy as np  # only where numbers are looked at

    if array.dtype == "complex32":
        halves = np.frombuffer(array.data, "float16").astype("float32")
        return halves.view("complex64")
    kind = _kind(array.dtype)
    return None if kind is None else np.frombuffer(array.data, kind)


def _kind(dtype: str) -> Any:
    import numpy as np

    if dtype in _PLAIN or dtype.removeprefix("u").removeprefix("int") in ("8", "16", "32", "64"):
        return np.dtype(dtype)
    if dtype.startswith(("bfloat16", "float8")):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else None
    return None


def places(count: int) -> list[int]:
    """The flat indices of the sample of an array with `count` elements."""
    size = min(count, SIZE)
    return [place * (count - 1) // max(size - 1, 1) for place in range(size)]


def sample(array: Array) -> dict[int, str]:
    """Flat index -> decimal text of a few elements; empty for types that are no numbers."""
    values = elements(array)
    return {} if values is None else {place: decimal(values[place]) for place in places(values.size)}


def decimal(value: Any) -> str:
    """The shortest text that gives the element back exactly, NaN payloads apart."""
    if isinstance(value, complex) or value.dtype.kind == "c":
        real, imaginary = decimal(value.real), decimal(value.imag)
        return f"{real}{'' if imaginary.startswith('-') else '+'}{imaginary}j"
    if value.dtype.kind in "biu":
        return str(int(value))
    short = str(value)
    exact = value.dtype.name in _PLAIN and value.dtype.type(float(short)).tobytes() == value.tobytes()
    return short if exact else repr(float(value))


def parse(texts: Mapping[int, str], dtype: str) -> Array:
    """The sampled elements as an array of their own.

    Raises:
        ValueError: a text is no number of this type.
        OverflowError: nor does it fit.
    """
    import numpy as np

    kind = _kind("complex64" if dtype == "complex32" else dtype)
    read = complex if dtype in _COMPLEX else int if kind is not None and kind.kind in "biu" else float
    values = np.array([read(text) for text in texts.values()], dtype=kind)
    return Array("complex64" if dtype == "complex32" else dtype, (len(texts),), raw(values))


def pick(array: Array, chosen: Mapping[int, str]) -> Array:
    """The elements of `array` at the places of a sample.

    Raises:
        IndexError: a place is outside the array.
    """
    values = elements(array)[list(chosen)]
    return Array("complex64" if array.dtype == "complex32" else array.dtype, (len(chosen),), raw(values))


def furthest(expected: Array, actual: Array) -> tuple[Furthest, Furthest] | None:
    """(the greatest absolute difference, the greatest relative one); None where there are no numbers to subtract.

    Equal elements, two infinities of one sign and two NaN among them, are no distance apart.
    """
    import numpy as np

    ours, theirs = elements(expected), elements(actual)
    if ours is None or theirs is None or not ours.size:
        return None
    best: list[tuple[float, int]] = [(-1.0, 0), (-1.0, 0)]
    for start in range(0, ours.size, CHUNK):
        x, y = (_wide(side[start : start + CHUNK]) for side in (ours, theirs))
        with np.errstate(all="ignore"):
            apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
            apart = np.where(np.isnan(apart), math.inf, apart)
            relative = np.where(apart == 0, 0.0, apart / np.abs(x))
        relative = np.where(np.isnan(relative), math.inf, relative)
        for which, distance in enumerate((apart, relative)):
            place = int(distance.argmax())
            best[which] = max(best[which], (float(distance[place]), -(start + place)))
    absolute, ratio = (Furthest(value, unravel(-place, expected.shape)) for value, place in best)
    return absolute, ratio


def beyond(expected: Array, actual: Array, rtol: float, atol: float) -> list[int]:
    """The flat places where |actual - expected| <= atol + rtol * |expected| does not hold; NaN agrees with NaN."""
    import numpy as np

    x, y = _wide(elements(expected)), _wide(elements(actual))
    with np.errstate(all="ignore"):
        close = (x == y) | (np.isnan(x) & np.isnan(y)) | (np.isfinite(x) & np.isfinite(y) & (np.abs(y - x) <= atol + rtol * np.abs(x)))
    return [int(place) for place in np.flatnonzero(~close)]


def _wide(values: Any) -> Any:
    return values.astype("complex128" if values.dtype.kind == "c" else "float64")


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of the flat place in an array of `shape`."""
    index = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))
