"""Two arrays, or two sets of them, bit for bit: where they part and by how much. Pure.

What the numbers mean:
    differing    elements whose bytes differ. -0.0 and 0.0 differ, by 0 ULP; two NaN with other payloads differ.
    max_ulp      the most representable numbers between two elements, taken from the ordered bit patterns of one
                 IEEE-like type (Goldberg 1991, and Dawson, "Comparing Floating Point Numbers"); pairs with a NaN are
                 left out, infinity is the neighbour of the largest finite number.
    max_abs      absolute differences, and their mean over all elements; pairs with an infinity or a NaN are left out
    mean_abs     and counted in `nonfinite`, so that they poison nothing. Exact for integers; bounded by the largest
                 float64 where a difference exceeds it.
    scaled       max_abs / (eps(dtype) * rms(first)): how many roundings of a typical element. Unlike ULP it is not
                 upset by results close to zero.
Complex numbers count as elements, and are measured by their real and imaginary parts. Types without numbers (text,
records, times, long doubles) have `differing`, `elements` and `index` only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from detconf.arrays import Array, Place, Sealed
from detconf.tally import BLOCK, Tally

CHUNK = 1 << 20
"""Elements measured at a time: temporaries stay under some 100 MB whatever the size of the arrays."""

_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_INTEGERS = frozenset({"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))})
_FLOATS = frozenset({"float16", "float32", "float64", "bfloat16"}) | {
    f"float8_{kind}" for kind in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
}


class Kind(str, Enum):
    """In what two results differ."""

    BITS = "bits"
    DTYPE = "dtype"
    SHAPE = "shape"
    MISSING = "missing"
    """The other side has no such result."""
    EXTRA = "extra"
    """Only the other side has it."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """One result that differs. Numbers are None where there is nothing to measure; see the module for their meaning.

    Attributes:
        name: of the array or operation.
        kind: what differs.
        step: optimizer step or publication, from 0.
        occurrence, rank, origin: see `detconf.arrays.Place`.
        scope: module or function it belongs to.
        source: line of the program.
        shape, dtype: of the first side, or of the other where the first has none.
        elements: how many the array has.
        index: the first element that differs.
        values: both sides there, or both dtypes or shapes, as text.
    """

    name: str
    kind: Kind
    step: int | None = None
    occurrence: int = 0
    rank: str = ""
    origin: str = "returned"
    scope: str = ""
    source: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    elements: int = 0
    differing: int | None = None
    index: tuple[int, ...] | None = None
    values: tuple[str, str] | None = None
    max_ulp: int | None = None
    max_abs: float | None = None
    mean_abs: float | None = None
    scaled: float | None = None
    nonfinite: int = 0

    def to_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()} | {"kind": str(self.kind)}


def differences(first: Mapping[Place, Array], other: Mapping[Place, Array]) -> Iterator[Divergence]:
    """What differs between two sets of results: in the order of `first`, then what only `other` has."""
    for place, array in first.items():
        found = diverge(place, array, other[place]) if place in other else _alone(place, array, Kind.MISSING)
        if found:
            yield found
    for place, array in other.items():
        if place not in first:
            yield _alone(place, array, Kind.EXTRA)


Results = Mapping[str, Array] | Mapping[Place, Array]


def compare_results(first: Results, other: Results) -> list[Divergence]:
    """All `differences`; a plain name is a returned value."""
    return list(differences(_placed(first), _placed(other)))


def _placed(results: Results) -> dict[Place, Array]:
    return {key if isinstance(key, Place) else Place(key): array for key, array in results.items()}


def _alone(place: Place, array: Array, kind: Kind) -> Divergence:
    return Divergence(**place._asdict(), kind=kind, shape=array.shape, dtype=array.dtype, elements=math.prod(array.shape))


def diverge(name: str | Place, a: Array, b: Array) -> Divergence | None:
    """How `b` differs from `a`; None where dtype, shape and every byte are equal."""
    if a == b:
        return None
    place = name if isinstance(name, Place) else Place(name)
    about: dict[str, Any] = {**place._asdict(), "shape": a.shape, "dtype": a.dtype, "elements": math.prod(a.shape)}
    if a.dtype != b.dtype:
        return Divergence(**about, kind=Kind.DTYPE, values=(a.dtype, b.dtype))
    if a.shape != b.shape:
        return Divergence(**about, kind=Kind.SHAPE, values=(str(a.shape), str(b.shape)))
    if isinstance(a, Sealed) or isinstance(b, Sealed):
        return Divergence(**about, kind=Kind.BITS)
    tally = _measure(a, b)
    found: dict[str, Any] = {"differing": tally.differing, "index": _unravel(tally.first, a.shape), "values": tally.shown}
    return Divergence(**about, **found, **tally.figures(), kind=Kind.BITS)


def _measure(a: Array, b: Array) -> Tally:
    """Count and measure, block by block. Same dtype and shape, other bytes."""
    import numpy as np

    elements = math.prod(a.shape)
    if not elements or len(a.data) != len(b.data):  # text of other length is one element that differs
        return Tally(differing=elements, shown=(_opaque(a, a.data), _opaque(b, b.data)))
    real = _PARTS.get(a.dtype, a.dtype)
    kind = _numpy_type(real)
    ours, theirs = (np.frombuffer(side.data, kind or "uint8").reshape(elements, -1) for side in (a, b))
    tally = _tally(real, kind, ours.shape[1])
    step = max(1, min(CHUNK, BLOCK // tally.parts)) * tally.parts
    with np.errstate(all="ignore"):
        for start in range(0, ours.size, step):
            tally.add(*(side.reshape(-1)[start : start + step] for side in (ours, theirs)))
    tally.shown = (_show(a, ours[tally.first], kind), _show(b, theirs[tally.first], kind))
    return tally


def _numpy_type(real: str) -> Any:
    """The numpy type of a number type; None for types that are compared as bytes."""
    import numpy as np

    if real not in _FLOATS | _INTEGERS:
        return None
    if real.startswith(("bfloat", "float8")):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, real))
    return np.dtype(real)


def _tally(real: str, kind: Any, parts: int) -> Tally:
    """An empty tally for a type."""
    import numpy as np

    if kind is None:
        return Tally(parts=parts)
    if real not in _FLOATS:
        return Tally(kind, parts, np.dtype("uint8") if real == "bool" else kind)
    import ml_dtypes

    about = ml_dtypes.finfo(kind)
    width = 8 * kind.itemsize
    bits = np.dtype("uint8" if real == "float8_e8m0fnu" else f"int{width}")  # an exponent, without a sign
    values = np.arange(1 << width, dtype="uint8").view(kind).astype("float64") if width == 8 else None
    return Tally(kind, parts, bits, eps=float(about.eps), exact=1 << about.nmant if real in ("float32", "float64") else -1, values=values)


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))


def _show(array: Array, element: Any, kind: Any) -> str:
    """One element for people: shortest digits that give its value back."""
    if kind is None:
        return _opaque(array, element.tobytes())
    return str(element[0]) if element.size == 1 else f"{element[0]}{'' if str(element[1]).startswith('-') else '+'}{element[1]}j"


def _opaque(array: Array, data: bytes | memoryview) -> str:
    start = bytes(data[:32])
    return repr(start.decode("utf-8", "replace")) if array.dtype == "str" else start.hex()
