"""Shadows by memory: one `Store` for all the arrays that share a piece of it.

The shadow of a view is the same view of the store's shadow, found by address and strides. So whatever makes a view
(slices, transposes, `reshape`, stride tricks) needs no care, and what is written through one is seen through all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from detconf.frameworks.numpy.precision import floats, shadow_dtype
from detconf.shadows.study import Read, Value

_PATTERN = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8")}
_as_strided, _array = as_strided, np.array  # as they are while nothing is patched
Place = tuple[int, tuple[int, ...], tuple[int, ...]]


def place(array: Any) -> Place:
    """Where an array lies: address, shape, strides."""
    return array.__array_interface__["data"][0], array.shape, array.strides


def bounds(at: Place, itemsize: int) -> tuple[int, int]:
    """The first byte of an array with elements, and that after its last."""
    low = high = at[0]
    for length, stride in zip(at[1], at[2], strict=True):
        if stride < 0:
            low += (length - 1) * stride
        else:
            high += (length - 1) * stride
    return low, high + itemsize


class Store:
    """The shadow of a piece of memory, and the values that stand in it.

    Args:
        array: a plain array; the store covers its memory and keeps it alive.
        shadow: its shadow, of its shape; unused for integers, which are their own.
        value: what it is.
    """

    __slots__ = ("__weakref__", "_parts", "_seen", "_values", "array", "buffer", "dtype", "high", "low")

    def __init__(self, array: Any, shadow: Any, value: Value) -> None:
        self.array, self.dtype = array, array.dtype
        at = place(array)
        self._values: list[tuple[Value, Place | None]] = [(value, at)]
        self._parts: Any = None
        self.buffer: Any = None
        self._seen: Any = None
        if 0 in array.shape:
            self.low = self.high = at[0]
            return
        self.low, self.high = bounds(at, array.dtype.itemsize)
        if floats(self.dtype):
            self._fill(array, shadow)

    def _fill(self, array: Any, shadow: Any) -> None:
        whole = self.whole(array)
        self._seen = _array(whole)
        self.buffer = whole.astype(shadow_dtype(self.dtype))
        self._lie(self.buffer, array)[...] = shadow

    def whole(self, array: Any) -> Any:
        """The memory from its first element to its last, in one row; `array` covers it."""
        mirrored = array[tuple(slice(None, None, -1 if stride < 0 else 1) for stride in array.strides)] if array.ndim else array
        return _as_strided(mirrored, ((self.high - self.low) // self.dtype.itemsize,), (self.dtype.itemsize,))

    @property
    def value(self) -> Value:
        """What was written last."""
        return self._values[-1][0]

    def covers(self, array: Any) -> bool:
        """Does an array, or a scalar's place in it, lie in this memory?"""
        if 0 in array.shape:
            return False
        low, high = bounds(place(array), array.dtype.itemsize)
        return self.low <= low and high <= self.high

    def _lie(self, flat: Any, array: Any) -> Any:
        """The part of a flat array, element for element beside this memory, that lies where `array` does."""
        start, shape, strides = place(array)
        size, own = self.dtype.itemsize, flat.dtype.itemsize
        if array.dtype != self.dtype:  # the real or the imaginary part
            flat, size, own = flat.view(flat.real.dtype), size // 2, own // 2
        steps = tuple(stride // size * own if length > 1 else 0 for length, stride in zip(shape, strides, strict=True))
        return np.ndarray(shape, flat.dtype, flat, (start - self.low) // size * own, steps)

    def fits(self, array: Any) -> bool:
        """Is `array` made of the elements of this memory, or of their real or imaginary parts?"""
        if array.dtype == self.dtype:
            size = self.dtype.itemsize
        elif self.dtype.kind == "c" and array.dtype == self.array.real.dtype:
            size = self.dtype.itemsize // 2
        else:
            return False
        start, shape, strides = place(array)
        return (start - self.low) % size == 0 and all(
            stride % size == 0 for length, stride in zip(shape, strides, strict=True) if length > 1
        )

    def shadow(self, array: Any) -> Any:
        """The shadow of an array that lies in this memory: a view; an integer array itself."""
        if 0 in array.shape:
            return array.astype(shadow_dtype(array.dtype))
        return array if self.buffer is None else self._lie(self.buffer, array)

    def strayed(self, array: Any) -> bool:
        """Did someone write into these elements without our seeing it? Their shadow becomes what they are."""
        if self._seen is None:
            return False
        seen = self._lie(self._seen, array)
        pattern = _PATTERN.get(array.dtype.itemsize)
        same = _equal(seen, array) if pattern is None else seen.view(pattern) == array.view(pattern)
        if same.all():
            return False
        self.shadow(array)[~same] = array[~same]
        seen[...] = array
        return True

    def mixed(self, array: Any) -> list[Value]:
        """The values that stand in an array that lies in this memory, where they are several."""
        if self._parts is None or not array.size or array.dtype != self.dtype:
            return []
        parts = self._lie(self._parts, array)
        return [self._values[index][0] for index in np.unique(parts)] if parts.min() != parts.max() else []

    def read(self, array: Any) -> Read:
        """What reading an array that lies in this memory reads."""
        index = 0
        if self._parts is not None and array.size:
            parts = self._lie(self._parts, array) if array.dtype == self.dtype else self._parts
            index = int(parts.max())
        value, at = self._values[index]
        whole = at == place(array) and value.shape == array.shape
        return Read(value, None if whole else _array(self.shadow(array)))

    def write(self, array: Any, shadow: Any, value: Value, key: Any = ...) -> None:
        """`array[key]`, where `array` lies in this memory, was written.

        Args:
            array: plain, as it is now.
            shadow: of what was written; broadcast.
            value: what was written.
            key: of an assignment.
        """
        if 0 in array.shape:
            return
        at = place(array) if key is ... else None
        if at is not None and bounds(at, array.dtype.itemsize) == (self.low, self.high) and array.size == self._count():
            self._values, self._parts = [(value, at)], None
        else:
            self._part(array, value, at, key)
        if self.buffer is not None:
            self.shadow(array)[key] = shadow
            seen = self._lie(self._seen, array)
            seen[key] = array[key]

    def _count(self) -> int:
        return int((self.high - self.low) // self.dtype.itemsize)

    def _part(self, array: Any, value: Value, at: Place | None, key: Any) -> None:
        if self._parts is None:
            self._parts = np.zeros(self._count(), np.int32)
        if array.dtype == self.dtype:
            self._lie(self._parts, array)[key] = len(self._values)
        else:
            self._parts[:] = len(self._values)
        self._values.append((value, at))


def _equal(a: Any, b: Any) -> Any:
    """Complex numbers and long doubles, which have bytes that mean nothing: equal, or no number both."""
    return (a == b) | (np.isnan(a) & np.isnan(b))
