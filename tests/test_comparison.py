"""Two arrays part at a place, by a distance; nothing poisons the numbers, nothing is compared that was not."""

from __future__ import annotations

import json
import math
import sys
import tracemalloc
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from detconf import comparison
from detconf.arrays import Array, Place
from detconf.comparison import Kind, compare_results, diverge
from detconf.results import flatten
from detconf.tally import ulps

STANDARD = ["bool", "int8", "int64", "uint16", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
SMALL = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
FLOATS = ["float16", "float32", "float64", *SMALL]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, max_side=5)


def numpy_dtype(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def only(value: Any) -> Array:
    return flatten(value)["result"]


def raw_array(name: str, shape: tuple[int, ...], data: bytes) -> Array:
    return Array(name, shape, data)


@st.composite
def raw(draw: Any, dtypes: tuple[str, ...] = (*STANDARD[1:], *SMALL)) -> Array:
    """Any bytes at all: NaN with payloads, infinities, denormals."""
    name, shape = draw(st.sampled_from(dtypes)), draw(SHAPES)
    size = math.prod(shape) * numpy_dtype(name).itemsize
    return raw_array(name, shape, draw(st.binary(min_size=size, max_size=size)))


@given(raw())
def test_equal(array: Array) -> None:
    """An array does not differ from itself or its copy, NaN included."""
    assert diverge("x", array, array) is None
    assert diverge("x", array, raw_array(array.dtype, array.shape, bytes(bytearray(array.data)))) is None
    assert compare_results({"x": array}, {"x": array}) == []


@given(raw(), st.data())
def test_one_bit(array: Array, data: Any) -> None:
    """One flipped bit is found, at exactly its element."""
    bit = data.draw(st.integers(0, 8 * len(array.data) - 1))
    flipped = bytearray(array.data)
    flipped[bit // 8] ^= 1 << (bit % 8)
    found = diverge("x", array, raw_array(array.dtype, array.shape, bytes(flipped)))
    assert found
    place = tuple(map(int, np.unravel_index(bit // 8 // numpy_dtype(array.dtype).itemsize, array.shape)))
    assert (Kind.BITS, 1, place) == (found.kind, found.differing, found.index)
    assert math.prod(array.shape) == found.elements


@given(raw(), st.data())
def test_mirror_and_json(array: Array, data: Any) -> None:
    """Exchanging the sides exchanges the values and nothing else, but for the reference; JSON carries every number."""
    size = len(array.data)
    other = raw_array(array.dtype, array.shape, data.draw(st.binary(min_size=size, max_size=size)))
    there, back = diverge("x", array, other), diverge("x", other, array)
    if there is None or back is None:
        assert there is back
        return
    for name in ("kind", "shape", "dtype", "elements", "differing", "index", "max_ulp", "max_abs", "mean_abs", "nonfinite"):
        assert getattr(there, name) == getattr(back, name)
    assert there.values
    assert there.values[::-1] == back.values
    assert there.to_dict() == json.loads(json.dumps(there.to_dict(), allow_nan=False))


@given(raw(tuple(STANDARD[1:])), st.data())
def test_count_and_place(array: Array, data: Any) -> None:
    """As many elements differ, from the same first one, as numpy finds by their bytes."""
    size = len(array.data)
    other = raw_array(array.dtype, array.shape, data.draw(st.binary(min_size=size, max_size=size)))
    words = [np.frombuffer(each.data, np.uint8).reshape(*array.shape, -1) for each in (array, other)]
    differs = np.asarray((words[0] != words[1]).any(axis=-1))
    assume(differs.any())
    found = diverge("x", array, other)
    assert found
    assert int(differs.sum()) == found.differing
    assert tuple(map(int, np.argwhere(differs)[0])) == found.index


@given(raw(), st.data(), st.integers(1, 4))
def test_chunks_do_not_matter(array: Array, data: Any, chunk: int) -> None:
    """Any size of chunk gives the same result, up to the rounding of the two means."""
    size = len(array.data)
    other = raw_array(array.dtype, array.shape, data.draw(st.binary(min_size=size, max_size=size)))
    with pytest.MonkeyPatch.context() as patch:
        whole = diverge("x", array, other)
        patch.setattr(comparison, "CHUNK", chunk)
        parts = diverge("x", array, other)
    if whole is None or parts is None:
        assert whole is parts
        return
    one, two = whole.to_dict(), parts.to_dict()
    for name in ("mean_abs", "scaled"):
        first, second = one.pop(name), two.pop(name)
        assert first is second is None or first == pytest.approx(second, rel=1e-12)
    assert one == two


@pytest.mark.parametrize("dtype", [name for name in FLOATS if numpy_dtype(name).itemsize < 4])
def test_order_of_every_small_float(dtype: str) -> None:
    """ULP distance is the difference of ranks among all values of a type, for each of its bit patterns."""
    kind = numpy_dtype(dtype)
    patterns = np.arange(2 ** (8 * kind.itemsize), dtype=f"u{kind.itemsize}").view(kind)
    with np.errstate(all="ignore"):
        values = patterns.astype("f8")
    numbers = patterns[~np.isnan(values)]
    ranks = np.unique(numbers.astype("f8"), return_inverse=True)[1]
    bits = numbers.view("u1" if dtype == "float8_e8m0fnu" else f"i{kind.itemsize}")  # an exponent, without a sign
    for turn in (1, len(bits) // 3, len(bits) // 2, len(bits) - 2):
        assert (ulps(bits, np.roll(bits, turn)) == abs(ranks - np.roll(ranks, turn))).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(data=st.data())
def test_neighbours_are_one_ulp_apart(dtype: str, data: Any) -> None:
    """nextafter is 1 ULP away, across zero, denormals and powers of two, in either direction."""
    width = numpy_dtype(dtype).itemsize * 8
    x = numpy_dtype(dtype).type(data.draw(st.floats(width=width, allow_nan=False)))
    with np.errstate(all="ignore"):
        y = np.nextafter(x, numpy_dtype(dtype).type(data.draw(st.sampled_from([-np.inf, np.inf]))))
    assume(x != y)
    found = diverge("x", only(x), only(y))
    assert found
    assert found.max_ulp == 1


PARTS = {"complex64": "float32", "complex128": "float64"}


@st.composite
def patterns(draw: Any, dtype: str, size: int) -> bytes:
    """Numbers of a type: any bits, or its corners: zeros, NaN with payloads, infinities, subnormals, the largest, and neighbours."""
    kind = numpy_dtype(PARTS.get(dtype, dtype))
    width = 8 * kind.itemsize
    corner = st.sampled_from([0, 1, 2, 3])
    if dtype in FLOATS or dtype in PARTS:
        about = ml_dtypes.finfo(kind)
        top = ((1 << (width - 1 - about.nmant)) - 1) << about.nmant if dtype != "float8_e8m0fnu" else 0xFF
        one = (top >> (about.nmant + 1)) << about.nmant
        corner = st.sampled_from([0, 1, 2, one - 1, one, one + 1, one + 7, 2 * one, top - 1, top, top + 1])
    sign = st.sampled_from([0, 1 << (width - 1)])
    element = st.one_of(st.builds(int.__xor__, corner, sign), corner, st.integers(0, (1 << width) - 1))
    found = draw(st.lists(element, min_size=size, max_size=size))
    return b"".join((each % (1 << width)).to_bytes(kind.itemsize, "little") for each in found)


@pytest.mark.parametrize("dtype", [name for name in [*STANDARD[1:], *SMALL] if name not in PARTS])
@given(data=st.data())
def test_against_a_plain_count(dtype: str, data: Any) -> None:
    """Every figure is what exact fractions give, element by element, whatever way each block takes."""
    size = data.draw(st.integers(1, 12))
    sides = [data.draw(patterns(dtype, size)) for _ in range(2)]
    mixed = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))  # equal elements, and blocks of them
    kind = numpy_dtype(dtype)
    x, y = (np.frombuffer(side, kind).copy() for side in sides)
    y[mixed] = x[mixed]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "CHUNK", data.draw(st.integers(1, size)))
        found = diverge("x", *(raw_array(dtype, (size,), each.tobytes()) for each in (x, y)))
    differing = [place for place in range(size) if x[place].tobytes() != y[place].tobytes()]
    if found is None:
        assert not differing
        return
    assert (found.differing, found.index) == (len(differing), (differing[0],))
    with np.errstate(all="ignore"):
        ours, theirs = ([float(each) if dtype in FLOATS else int(each) for each in side] for side in (x, y))
    finite = [place for place in range(size) if math.isfinite(ours[place]) and math.isfinite(theirs[place])]
    distances = [abs(Fraction(ours[place]) - Fraction(theirs[place])) for place in finite]
    assert found.nonfinite == len(set(differing) - set(finite))
    if not distances:
        assert (found.max_abs, found.mean_abs) == (None, None)
    else:
        assert found.max_abs == (min(sys.float_info.max, nearest(max(distances))) if dtype in FLOATS else max(distances))
        total = nearest(sum(distances, Fraction(0)))
        assert found.mean_abs == pytest.approx(total / len(distances) if math.isfinite(total) else sys.float_info.max, rel=1e-12)
    if dtype in FLOATS:
        numbers = [place for place in differing if not math.isnan(ours[place]) and not math.isnan(theirs[place])]
        ranks = [abs(rank(x[place]) - rank(y[place])) for place in numbers]
        assert found.max_ulp == max(ranks, default=None)


def nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def rank(number: Any) -> int:
    """The place of a number among all of its type, from zero."""
    bits = int(number.view(f"u{number.dtype.itemsize}"))
    if number.dtype.name == "float8_e8m0fnu":
        return bits
    magnitude = bits & ((1 << (8 * number.dtype.itemsize - 1)) - 1)
    return magnitude if bits == magnitude else -magnitude


@pytest.mark.parametrize("dtype", PARTS)
@given(data=st.data())
def test_complex_is_its_parts(dtype: str, data: Any) -> None:
    """Complex numbers have the figures of their parts, and are counted whole."""
    size = data.draw(st.integers(1, 6))
    x, y = (data.draw(patterns(dtype, 2 * size)) for _ in range(2))
    whole = diverge("x", raw_array(dtype, (size,), x), raw_array(dtype, (size,), y))
    parts = diverge("x", raw_array(PARTS[dtype], (size, 2), x), raw_array(PARTS[dtype], (size, 2), y))
    if whole is None or parts is None:
        assert whole is parts
        return
    width = len(x) // size
    assert whole.differing == sum(x[at : at + width] != y[at : at + width] for at in range(0, len(x), width))
    assert parts.index
    assert whole.index == parts.index[:1]
    assert (whole.max_abs, whole.mean_abs, whole.scaled) == (parts.max_abs, parts.mean_abs, parts.scaled)
    assert (whole.max_ulp or 0) == (parts.max_ulp or 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "int8", "int64", "uint64"])
@pytest.mark.parametrize("change", ["neighbours", "factors", "signs", "one NaN", "one infinity"])
def test_large_arrays_as_small_ones(dtype: str, change: str) -> None:
    """Several blocks, each of its own kind, give what their pieces give."""
    generator = np.random.default_rng(0)
    kind = numpy_dtype(dtype)
    size = 100_003
    x = (10 * generator.standard_normal(size)).astype(kind)
    y = x.copy()
    half = slice(size // 2, None)
    if dtype not in FLOATS:
        y[half] += kind.type(1)
    elif change == "neighbours":
        y.view(f"u{kind.itemsize}")[half] ^= np.array(1, f"u{kind.itemsize}")
    elif change == "factors":
        y[half] = x[half] * kind.type(3)
    elif change == "signs":
        y[half] = -x[half]
    else:
        y[-5] = kind.type(np.nan if change == "one NaN" or dtype == "float8_e4m3fn" else np.inf)
        y[-3] = -y[-3]
    whole = diverge("x", only(x), only(y))
    pieces = [diverge("x", only(x[at : at + 997]), only(y[at : at + 997])) for at in range(0, size, 997)]
    found = [each for each in pieces if each]
    assert whole
    assert whole.differing == sum(each.differing or 0 for each in found)
    assert whole.nonfinite == sum(each.nonfinite for each in found)
    assert whole.max_ulp == max((each.max_ulp for each in found if each.max_ulp is not None), default=None)
    assert whole.max_abs == max(each.max_abs for each in found if each.max_abs is not None)
    assert whole.values == found[0].values


@pytest.mark.parametrize(
    ("dtype", "a", "b", "ulp"),
    [
        ("float32", 1.0, 1.0 + 2**-23, 1),
        ("float32", 0.0, -0.0, 0),  # other bytes, no distance
        ("float32", -(2.0**-149), 2.0**-149, 2),
        ("float32", np.finfo("f4").max, np.inf, 1),
        ("float64", -np.finfo("f8").max, np.finfo("f8").max, 2 * 0x7FEFFFFFFFFFFFFF),  # needs all of 64 bits
        ("bfloat16", 1.0, 1.0078125, 1),
        ("float8_e4m3fn", 1.0, 1.125, 1),
        ("float8_e5m2", -1.0, 1.0, 120),
        ("float8_e8m0fnu", 0.5, 4.0, 3),
        ("float16", np.nan, 1.0, None),
        ("complex64", 1 + 1j, complex(1, 1 + 2**-22), 2),
        ("int32", 1, 5, None),
    ],
)
def test_ulp(dtype: str, a: Any, b: Any, ulp: int | None) -> None:
    """Known distances."""
    found = diverge("x", only(np.array(a).astype(numpy_dtype(dtype))), only(np.array(b).astype(numpy_dtype(dtype))))
    assert found
    assert ulp == found.max_ulp


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_half_precision_complex() -> None:
    """complex32, which only torch has, is measured by its parts."""
    a = torch.zeros(3, dtype=torch.complex32)
    b = a.clone()
    b[1] = 1j
    found = diverge("x", only(a), only(b))
    assert found
    assert (found.differing, found.index, found.max_abs, found.values) == (1, (1,), 1.0, ("0.0+0.0j", "0.0+1.0j"))


def test_nonfinite_poisons_nothing() -> None:
    """Infinities and NaN are counted apart, and the distances are those of the other elements."""
    a = np.array([1.0, np.nan, np.inf, 2.0, np.nan], "f4")
    b = np.array([1.5, 7.0, -np.inf, 2.0, np.nan], "f4")
    found = diverge("x", only(a), only(b))
    assert found
    assert (found.differing, found.nonfinite, found.max_abs, found.mean_abs) == (3, 2, 0.5, 0.25)
    assert found.scaled == pytest.approx(0.5 / (2**-23 * math.sqrt(2.5)))
    everything = diverge("x", only(np.array([np.nan])), only(np.array([np.inf])))
    assert everything
    assert (everything.max_ulp, everything.max_abs, everything.mean_abs, everything.scaled) == (None, None, None, None)
    assert (everything.differing, everything.nonfinite, everything.values) == (1, 1, ("nan", "inf"))


def test_payload_of_nan() -> None:
    """Two NaN with other payloads differ, without a distance."""
    a, b = (np.array([bits, 0], "u4").view("f4") for bits in (0x7FC00000, 0x7FC00001))
    found = diverge("x", only(a), only(b))
    assert found
    assert (found.differing, found.nonfinite, found.index, found.max_ulp, found.max_abs) == (1, 1, (0,), None, 0.0)


@given(hnp.arrays(np.float64, 7, elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_scaled_is_what_it_says(array: Any) -> None:
    """scaled = max_abs / (eps * rms(reference)); huge and tiny numbers overflow nowhere."""
    with np.errstate(all="ignore"):
        other = np.nextafter(array, np.inf)
    assume(np.isfinite(other).all())
    found = diverge("x", only(array), only(other))
    assert found
    with np.errstate(all="ignore"):
        reference = array.astype(np.longdouble)
        rms = np.sqrt((reference**2).mean())
        unit = np.float64(2**-52) * np.float64(rms)
    if unit > 1e-300:
        assert found.scaled == pytest.approx(float(np.abs(other - array).max() / unit), rel=1e-9)
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_differences_beyond_the_largest_number() -> None:
    """A difference that float64 cannot hold is bounded by the largest that it can."""
    largest = np.finfo("f8").max
    found = diverge("x", only(np.array([largest, largest])), only(np.array([-largest, -largest])))
    assert found
    assert found.max_abs == found.mean_abs == largest
    assert json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (np.array([2**63 - 1]), np.array([-(2**63)]), 2**64 - 1),
        (np.array([2**64 - 1], "u8"), np.array([0], "u8"), 2**64 - 1),
        (np.array([-128], "i1"), np.array([127], "i1"), 255),
        (np.array([True]), np.array([False]), 1),
        (3, 5, 2),
    ],
)
def test_integers(a: Any, b: Any, distance: int) -> None:
    """Distances of integers are exact, and have no ULP."""
    found = diverge("x", only(a), only(b))
    assert found
    assert (distance, None, None) == (found.max_abs, found.max_ulp, found.scaled)


@pytest.mark.parametrize(
    ("a", "b", "differing", "index", "values"),
    [
        ("abc", "abd", 1, (), ("'abc'", "'abd'")),
        ("abc", "a longer one", 1, (), ("'abc'", "'a longer one'")),
        (b"\x00", b"\xff", 1, (), ("00", "ff")),
        (2**70, 2**70 + 1, 1, (), None),
        (np.array(["ab", "cd"]), np.array(["ab", "ce"]), 1, (1,), None),
        (np.array([(1, 2.0), (3, 4.0)], "i4,f8"), np.array([(1, 2.0), (3, 4.5)], "i4,f8"), 1, (1,), None),
        (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-02"], "M8[D]"), 1, (0,), None),
        (np.array([[1.0, 2.0]], np.longdouble), np.array([[1.0, 3.0]], np.longdouble), 1, (0, 1), None),
    ],
)
def test_without_numbers(a: Any, b: Any, differing: int, index: tuple[int, ...], values: Any) -> None:
    """Text, bytes, records, times and long doubles have a count and a place, and no distance."""
    found = diverge("x", only(a), only(b))
    assert found
    assert (differing, index, None, None) == (found.differing, found.index, found.max_ulp, found.max_abs)
    assert values in (None, found.values)


def test_dtype_and_shape() -> None:
    """Another dtype or shape is said as that, and nothing is measured."""
    x: Any = np.zeros((2, 3), "f4")
    dtype, shape = diverge("x", only(x), only(x.astype("f8"))), diverge("x", only(x), only(x.T))
    assert dtype
    assert shape
    assert (dtype.kind, dtype.values, dtype.differing) == (Kind.DTYPE, ("float32", "float64"), None)
    assert (shape.kind, shape.values, shape.differing) == (Kind.SHAPE, ("(2, 3)", "(3, 2)"), None)
    assert dtype.to_dict()["kind"] == "dtype"
    assert dtype.to_dict()["shape"] == [2, 3]


def test_order_of_findings() -> None:
    """Findings come in the order of the first side, missing ones in their place, extra ones last."""
    first = flatten({"a": 1, "b": 2.0, "c": 3, "d": 4})
    other = flatten({"x": 0, "d": 5, "b": 2.5, "a": 1})
    found = compare_results(first, other)
    assert [(each.name, each.kind) for each in found] == [("b", Kind.BITS), ("c", Kind.MISSING), ("d", Kind.BITS), ("x", Kind.EXTRA)]
    back = compare_results(other, first)
    assert [(each.name, each.kind) for each in back] == [("x", Kind.MISSING), ("d", Kind.BITS), ("b", Kind.BITS), ("c", Kind.EXTRA)]


def test_places_are_kept() -> None:
    """Step, rank and origin stand in the finding."""
    place = Place("loss", 3, 1, "2", "published")
    found = compare_results({place: only(1.0)}, {place: only(2.0)})
    assert [(each.name, each.step, each.occurrence, each.rank, each.origin) for each in found] == [("loss", 3, 1, "2", "published")]
    assert (found[0].to_dict()["name"], found[0].to_dict()["step"]) == ("loss", 3)


def test_damaged_lengths_are_no_crash() -> None:
    """Data that does not fit its shape differs as a whole."""
    found = diverge("x", raw_array("float32", (2,), b"\0" * 8), raw_array("float32", (2,), b"\0" * 4))
    assert found
    assert found.differing == 2


def test_memory_stays_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring needs memory for a chunk, not for the arrays."""
    monkeypatch.setattr(comparison, "CHUNK", 1 << 14)
    a = only(np.zeros(8 << 20, "f4")).owned()
    b = only(np.ones(8 << 20, "f4")).owned()
    tracemalloc.start()
    try:
        assert diverge("x", a, b)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20  # of 32 MB each
    finally:
        tracemalloc.stop()
