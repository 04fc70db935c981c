"""What shadows are made of, found again by, and rearranged with: pure parts, against references of their own."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detconf.shadows.arrangements import arrangements, blocks
from detconf.shadows.formats import ROUNDINGS, round_to, unit
from detconf.shadows.pool import Pool
from detconf.shadows.regions import ancestors, region
from detconf.shadows.study import Known, Read, Study

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(
    st.lists(FLOATS, min_size=1, max_size=50),
    st.sampled_from([("float32", np.float32), ("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)]),
)
def test_rounding_is_that_of_the_type(numbers: list[float], form: tuple[str, type]) -> None:
    """Rounding to a format that NumPy or ml_dtypes has gives its bits: subnormals, overflow, signs of zero."""
    name, kind = form
    array = np.array(numbers, dtype=np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        expected = array.astype(np.float32).astype(kind).astype(np.float64)
    found = round_to(array, name)
    assert np.array_equal(found, expected, equal_nan=True)
    numbered = ~np.isnan(expected)
    assert np.array_equal(np.signbit(found)[numbered], np.signbit(expected)[numbered])


@given(st.floats(min_value=-(2.0**100), max_value=2.0**100, width=32))
def test_tf32_keeps_eleven_bits(number: float) -> None:
    """TF32 by bits: ten explicit ones kept, to nearest even, or cut off."""
    bits = np.array([number], np.float32).view(np.uint32)
    nearest = ((bits + 0x0FFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)
    cut = (bits & np.uint32(0xFFFFE000)).view(np.float32)
    tiny = abs(number) < 2.0**-126
    if not tiny:
        assert round_to(np.array([number]), "tf32")[0] == nearest[0]
        assert round_to(np.array([number]), "tf32 truncated")[0] == cut[0]


def test_a_public_product_of_a_gpu_fits_tf32() -> None:
    """1.0 x -44.54772186 printed -44.5625 on an Ampere card (PaddlePaddle/Paddle#54208): TF32 to nearest, nothing else."""
    assert {name: round_to(np.array([-44.54772186]), name)[0] for name in ROUNDINGS if name != "float32"} == {
        "tf32": -44.5625,
        "tf32 truncated": -44.53125,
        "bfloat16": -44.5,
        "bfloat16 truncated": -44.5,
        "float16": -44.5625,
    }


def test_units_are_half_an_epsilon() -> None:
    """The unit roundoff of each type; exact types have none."""
    assert unit("float32") == np.finfo(np.float32).eps / 2
    assert unit("bfloat16") == float(ml_dtypes.finfo(ml_dtypes.bfloat16).eps) / 2
    assert unit("int64") == 0.0


ARRAYS = st.integers(2, 40).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, 2**32 - 1)))


@given(ARRAYS, st.floats(-1e6, 1e6).filter(lambda scale: abs(scale) > 1e-6))
def test_a_pool_finds_what_is_there(about: tuple[int, int], scale: float) -> None:
    """An array is found with other roundoff, not with another order, another sign, or one element changed a little."""
    size, seed = about
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(size) * scale
    pool = Pool([("it", array), ("other", rng.standard_normal(size))], 1e-9)
    assert pool.find(array * (1 + 1e-14)) == ["it"]
    assert pool.find(array.reshape(-1, 1)) == ["it"]
    shuffled = array[::-1]
    assert pool.find(shuffled) == []
    assert pool.find(shuffled, ordered=False) == ["it"]
    changed = array.copy()
    changed[0] += np.abs(array).sum() * 1e-6
    assert pool.find(changed) == pool.find(changed, ordered=False) == []
    assert pool.find(-array) == []


SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4).filter(lambda shape: math.prod(shape) <= 400)


@given(SHAPES)
def test_arrangements_move_elements_and_keep_the_shape(shape: list[int]) -> None:
    """Every arrangement gives the same elements, each once, in the same shape."""
    array = np.arange(math.prod(shape)).reshape(shape)
    for each in list(arrangements(shape))[:300]:
        found = each.apply(array)
        assert found.shape == array.shape, each.words
        assert np.array_equal(np.sort(found, axis=None), array.reshape(-1)), each.words


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (lambda x: x.T, (5, 5)),
        (lambda x: x[:, ::-1], (2, 3)),
        (lambda x: np.concatenate([np.split(x, 4)[place] for place in (0, 2, 1, 3)]), (8, 3)),
        (lambda x: x.reshape(3, 2, 4).transpose(1, 0, 2).reshape(6, 4), (6, 4)),
        (lambda x: x.transpose(0, 2, 3, 1).reshape(x.shape), (1, 2, 3, 4)),
        (lambda x: x.reshape(4, 3).T, (3, 4)),
    ],
    ids=["transposed", "reversed", "gates", "heads", "channels last", "weight in another order"],
)
def test_common_mistakes_are_among_them(made: object, shape: tuple[int, ...]) -> None:
    """What people do to weights and data by mistake can be undone by one of the arrangements."""
    array = np.arange(math.prod(shape)).reshape(shape)
    wrong = made(array)  # type: ignore[operator]
    assert any(np.array_equal(each.apply(wrong), array) for each in arrangements(shape))


def test_blocks_are_all_orders_but_the_given_one() -> None:
    """Four blocks have 23 other orders, and two have one."""
    assert len(list(blocks((8, 2), 0, 4))) == 23
    assert len(list(blocks((8, 2), 0, 2))) == 1
    assert list(blocks((8, 2), 0, 3)) == []


def _run(study: Study, *, extra: bool) -> int:
    """x -> double -> (plus one) -> sine. Returns the number of the result."""
    x, _ = study.leaf(np.arange(4.0), "float32", "input")
    ((double, _),) = study.operation("double", [Read(x)], [(np.arange(4.0) * 2, "float32", None)])
    last = double
    if extra:
        ((last, _),) = study.operation("plus", [Read(double)], [(double.shadow + 1, "float32", None)])
    ((result, _),) = study.operation("sine", [Read(last)], [(np.sin(last.shadow), "float32", None)])
    return result.index


def test_a_region_ends_at_what_both_have() -> None:
    """The source of a difference is the operation that reads what the other side has and makes what it has not."""
    first, other = Study(), Study()
    a, b = _run(first, extra=False), _run(other, extra=True)
    pool = Pool(((value, value.shadow) for value in first.values), 1e-9)
    found = region(other, [Known(other.values[b].shadow, other.values[b])], pool)
    assert [each.name for each in found.operations] == ["plus", "sine"]
    assert [each.name for each in found.sources] == ["plus"]
    assert [read.value.shadow.tolist() for read in found.anchors] == [[0.0, 2.0, 4.0, 6.0]]
    assert found.leaves == []
    assert ancestors(first, [first.values[a]]) == ({0, 1, 2}, {0, 1})


def test_amendments_change_what_goes_on_and_are_kept() -> None:
    """An amended value's shadow is what the engine goes on with; alterations wait for their operation."""
    study = Study(amendments={1: lambda shadow: shadow + 10}, alterations={1: {"eps": 0.5}})
    x, shadow = study.leaf(np.zeros(2), "float32", "input")
    assert shadow.tolist() == [0.0, 0.0]
    assert study.altered() == {}
    ((value, shadow),) = study.operation("add", [Read(x)], [(np.ones(2), "float32", None)])
    assert shadow.tolist() == value.shadow.tolist() == [11.0, 11.0]
    assert study.altered() == {"eps": 0.5}


def test_draws_are_set_as_asked() -> None:
    """Plain draws are left alone, frozen ones start from the fixed state, replayed ones from the given."""
    assert Study().drawing("fixed") is None
    assert Study(draws="frozen").drawing("fixed") == "fixed"
    replayed = Study(draws="replay", states={1: "other"})
    assert [replayed.drawing("fixed"), replayed.drawing("fixed"), replayed.drawing("fixed")] == [None, "other", None]
