"""Samples of arrays as text, distances between arrays, and the file of goldens under concurrent writers."""

from __future__ import annotations

import json
import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detconf.arrays import Array
from detconf.goldens import File, Kept, Record
from detconf.machine import machine_class, unlike
from detconf.results import flatten
from detconf.samples import SIZE, beyond, decimal, elements, furthest, parse, pick, places, sample

TYPES = [
    *(np.dtype(name) for name in ("float16", "float32", "float64", "complex64", "complex128", "bool", "int8", "uint16", "int64", "uint64")),
    *(np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(data=st.data())
def test_decimals_give_every_bit_back(kind: np.dtype[Any], data: st.DataObject) -> None:
    """The text of any bit pattern of any type reads back as the same bits, NaN payloads apart."""
    raw = data.draw(st.binary(min_size=kind.itemsize, max_size=kind.itemsize))
    array = Array(str(kind), (), bytes([raw[0] & 1]) if str(kind) == "bool" else raw)
    wide = elements(array)[0].astype("complex128")
    if not (math.isnan(wide.real) or math.isnan(wide.imag)):
        assert bytes(parse(sample(array), array.dtype).data) == array.data


def test_types_without_numbers_have_no_sample() -> None:
    """Text, records and integers beyond 64 bits go by their digest alone."""
    arrays = flatten({"text": "yes", "big": 2**70, "none": None, "record": np.zeros(2, "i4,f4"), "time": np.zeros(1, "M8[s]")})
    assert all(sample(array) == {} for array in arrays.values())


@given(st.integers(0, 10_000))
def test_samples_are_spread(count: int) -> None:
    """A sample has the first and the last element and no element twice."""
    found = places(count)
    assert len(set(found)) == len(found) == min(count, SIZE)
    assert not found or (found[0], found[-1]) == (0, count - 1)


def test_distances_are_those_of_assert_close() -> None:
    """The greatest differences and their places are the ones that torch names."""
    generator = torch.Generator().manual_seed(0)
    expected, actual = (torch.randn(5, 7, dtype=torch.float64, generator=generator) for _ in range(2))
    both = furthest(flatten(expected)["result"], flatten(actual)["result"])
    assert both is not None
    with pytest.raises(AssertionError) as said:
        torch.testing.assert_close(actual, expected)
    for word, found in zip(("absolute", "relative"), both, strict=True):
        assert f"Greatest {word} difference: {found.value} at index {found.index}" in str(said.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite(value: float) -> None:
    """The same infinity or NaN on both sides is no distance; against a number it is an infinite one, beyond any bound."""
    one, other = flatten(np.float32([value, 1]))["result"], flatten(np.float32([2, 1]))["result"]
    same, apart = furthest(one, one), furthest(other, one)
    assert same
    assert same[0].value == same[1].value == 0
    assert apart
    assert apart[0].value == math.inf
    assert apart[0].index == (0,)
    assert beyond(one, one, 0, 0) == []
    assert beyond(other, one, 1e9, 1e9) == beyond(one, other, 1e9, 1e9) == [0]


def test_complex32_is_measured() -> None:
    """A type that numpy lacks is sampled and measured through a wider one."""
    array = Array("complex32", (2,), np.float16([1, 2, 3, -4]).tobytes())
    kept = sample(array)
    assert kept == {0: "1.0+2.0j", 1: "3.0-4.0j"}
    assert bytes(parse(kept, "complex32").data) == bytes(pick(array, kept).data)
    assert decimal(np.complex64(complex(0, -0.0))) == "0.0-0.0j"


def test_classes_are_compared_by_what_both_know() -> None:
    """A library that only one side has loaded is no difference; this process is like itself, and named by nothing private."""
    here = machine_class()
    assert unlike(here, here) == {}
    assert {"architecture", "numpy version", "NumPy kernels", "torch version", "ATen kernels"} <= set(here)
    assert unlike({**here, "other": "1"}, here) == {}
    assert unlike({**here, "ATen kernels": "default"}, here) == {"ATen kernels": ("default", here["ATen kernels"])}


def _put(job: tuple[str, int]) -> bool:
    path, number = job
    record = Record({"architecture": f"a{number % 3}"}, None, None, {"x": Kept("int64", (), str(number), {0: str(number)})})
    return File(path).put(f"test_{number % 7}", f"v{number}", record)


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """Four processes that write one file keep each other's goldens, and leave neither lock nor draft."""
    path = tmp_path / "goldens" / "test_m.json"
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        assert all(pool.map(_put, [(str(path), number) for number in range(80)]))
    content = json.loads(path.read_text())
    assert sum(map(len, content["goldens"].values())) == 80
    assert len(content["machines"]) == 3
    assert [each.name for each in path.parent.iterdir()] == ["test_m.json"]
