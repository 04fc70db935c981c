"""The arithmetic of one product, told from sampled elements: against emulations of each format by other means."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detconf.auditing.attempts.fingerprint import Product, last_product, named
from detconf.shadows.study import Known, Read, Study


def _cut(array: Any, bits: int, *, nearest: bool) -> Any:
    """float32 with its last `bits` bits cut off or rounded, by the bits themselves."""
    raw = np.asarray(array, np.float32).view(np.uint32)
    if nearest:
        raw = raw + np.uint32((1 << (bits - 1)) - 1) + ((raw >> np.uint32(bits)) & np.uint32(1))
    return (raw & ~np.uint32((1 << bits) - 1)).view(np.float32)


EMULATIONS: dict[str, Any] = {
    "float32": lambda x: x,
    "tf32": lambda x: _cut(x, 13, nearest=True),
    "tf32 truncated": lambda x: _cut(x, 13, nearest=False),
    "bfloat16": lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32),
    "bfloat16 truncated": lambda x: _cut(x, 16, nearest=False),
    "float16": lambda x: x.astype(np.float16).astype(np.float32),
}


def _given(form: str, rows: int, length: int, columns: int, seed: int) -> tuple[Product, Any]:
    generator = np.random.default_rng(seed)
    # Small weights: what tells float16 from TF32 are numbers below 2^-14, of which it keeps fewer digits.
    left = generator.standard_normal((rows, length), dtype=np.float32)
    right = (generator.standard_normal((length, columns)) * (2e-5 if form == "float16" else 0.05)).astype(np.float32)
    real = EMULATIONS[form](left) @ EMULATIONS[form](right)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    return Product(left.astype(np.float64), right.astype(np.float64), 2.0**-24), real.astype(np.float64) - exact


@given(
    st.sampled_from(list(EMULATIONS)),
    st.integers(1, 40),
    st.integers(16, 600),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
)
def test_every_format_is_told(form: str, rows: int, length: int, columns: int, seed: int) -> None:
    """Down to a single element of sixteen terms; float32 is no other format."""
    if form == "float16":  # it differs from TF32 in some elements only: there must be some
        rows, columns = rows + 4, columns + 4
    product, error = _given(form, rows, length, columns, seed)
    tried = product.tried(error)
    assert named(tried) == ("" if form == "float32" else form)
    assert tried[form][0] < 40


def test_an_error_of_another_kind_is_no_format() -> None:
    """A wrong element, and no error at all, are explained by none."""
    product, error = _given("float32", 8, 64, 8, 0)
    assert not named(product.tried(error + 1e-2))
    assert not named(product.tried(np.zeros_like(error)))


def _study(build: Any) -> tuple[Study, Known]:
    study = Study()
    generator = np.random.default_rng(1)
    x, w = generator.standard_normal((2, 3, 20)), generator.standard_normal((20, 20))
    values = [study.leaf(each, "float32", "outside")[0] for each in (x, w)]
    shadow, reads = build(study, values)
    [(value, _)] = study.operation("some.linear", reads, [(shadow, "float32", None)])
    return study, Known(shadow, value)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shifted", [False, True])
def test_the_operands_are_found_among_what_was_read(transposed: bool, shifted: bool) -> None:
    """A square weight may be transposed inside, a bias added, the input be a batch of matrices."""
    bias = np.arange(20.0) if shifted else np.zeros(20)

    def build(study: Study, values: list[Any]) -> tuple[Any, list[Read]]:
        x, w = (each.shadow for each in values)
        added = [Read(study.leaf(bias, "float32", "outside")[0])] if shifted else []
        return x @ (w.T if transposed else w) + bias, [*added, *map(Read, values)]

    found = last_product(*_study(build))
    assert found is not None
    _, wanted = _study(build)
    assert np.allclose(found.left @ found.right + bias, wanted.shadow.reshape(6, 20), rtol=1e-13, atol=1e-13)


def test_what_is_no_single_product_is_left_alone() -> None:
    """Something else is read, or one operand comes out of a product itself."""

    def other(_: Study, values: list[Any]) -> tuple[Any, list[Read]]:
        x, w = (each.shadow for each in values)
        return np.tanh(x @ w), list(map(Read, values))

    def twice(study: Study, values: list[Any]) -> tuple[Any, list[Read]]:
        x, w = (each.shadow for each in values)
        [(square, _)] = study.operation("numpy.matmul", [Read(values[1]), Read(values[1])], [(w @ w, "float32", None)], adds="products")
        return x @ (w @ w), [Read(values[0]), Read(square)]

    assert last_product(*_study(other)) is None
    assert last_product(*_study(twice)) is None
