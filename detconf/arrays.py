"""An array of any framework as its bytes: what results are compared by.

Foundations: this module knows no framework. Each `frameworks/*/tensors.py` makes an `Array` of one tensor; `results`
walks nested values.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import pack
from typing import Any, NamedTuple

_LARGEST = 1 << 63


class Place(NamedTuple):
    """Which result an array is. Two runs are compared place by place.

    Attributes:
        name: a path, such as "model.weight" or "grads[0]"; "result" for a bare tensor.
        step: for a published value, the steps that `detconf.step()` had ended, or how often the name had been
            published where no step was ever ended; else None.
        occurrence: counts publications of one name within one step.
        rank: of a process of a distributed job, as its launcher spells it; else empty.
        origin: "returned", "published", "file" or "state". A returned and a published "loss" are two results.
    """

    name: str
    step: int | None = None
    occurrence: int = 0
    rank: str = ""
    origin: str = "returned"


@dataclass(frozen=True, eq=False)
class Array:
    """The bytes of one array, with what gives them their meaning.

    Attributes:
        dtype: as numpy or ml_dtypes spell it: "float32", "bfloat16", "float8_e4m3fn", "[('a', '<i4')]". Python values
            are 0-d: "bool", "int64", "float64", "complex128", and beyond numpy "str" (UTF-8), "bytes", "none", and
            "int" (decimal text, where 64 bits are too few).
        shape: empty for a scalar.
        data: contiguous, in logical C order, byte order of this machine. May alias the tensor: see `owned`.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    @cached_property
    def digest(self) -> str:
        """xxh3-128 over dtype, shape and bytes, so -0.0, NaN payloads, permutations and sign flips count."""
        from xxhash import xxh3_128  # only where something is compared

        state = xxh3_128(json.dumps([self.dtype, self.shape]).encode())
        state.update(self.data)
        return state.hexdigest()

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return len(self.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def owned(self) -> Array:
        """Itself, with bytes that nobody can change any more."""
        return self if isinstance(self.data, bytes) else Array(self.dtype, self.shape, bytes(self.data))


@dataclass(frozen=True, eq=False)
class Sealed(Array):
    """An array of which only the digest is known: it can be compared, not measured.

    Attributes:
        seal: the digest.
        index: where it was recorded, so that it can be kept another time.
    """

    seal: str = ""
    index: int = 0

    @property
    def digest(self) -> str:  # known, not computed
        return self.seal

    @property
    def nbytes(self) -> int:
        bits = re.search(r"\d+", self.dtype)
        return math.prod(self.shape) * (int(bits[0]) // 8 if bits else 1)


def raw(array: Any) -> memoryview:
    """The bytes of a numpy array of any shape and strides in logical C order, without a copy where it is contiguous."""
    if array.nbytes == 0:
        return memoryview(b"")
    return memoryview(sys.modules["numpy"].ascontiguousarray(array).reshape(-1).view("uint8"))


def scalars(args: Sequence[Any]) -> list[Array | None]:
    """By position: the arguments of an operation that are Python's numbers, as 0-d arrays; None for all others."""
    return [_scalar(each) for each in args]


def _scalar(value: Any) -> Array | None:
    if type(value) is float:
        return Array("float64", (), pack("d", value))
    return Array("int64", (), pack("q", value)) if type(value) is int and -_LARGEST <= value < _LARGEST else None
