"""In which order and format terms were added up: emulations against independent ones, and audits of programs that differ by it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import paddle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import detconf
from detconf.auditing.laboratory import Laboratory, Side
from detconf.auditing.sums.accumulating import WIDE, Terms, Way, added
from detconf.auditing.sums.summing import order, reduced
from detconf.auditing.sums.terms import last_sum
from detconf.frameworks import adds
from detconf.shadows.formats import round_to

torch.set_num_threads(torch.get_num_threads())
KINDS: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
Results = dict[str, Any]


def _factors(seed: int, count: int, rows: int = 6, columns: int = 5) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, count), dtype=np.float32), generator.standard_normal((count, columns), dtype=np.float32)


def _terms(x: Any, w: Any) -> Terms:
    rows, columns = np.divmod(np.arange(x.shape[0] * w.shape[1]), w.shape[1])
    return Terms(x.T[:, rows].astype("f8"), w[:, columns].astype("f8"))


def one_by_one(x: Any, w: Any, form: str) -> Any:
    """Products and sums rounded, each by itself."""
    kind, total = KINDS[form], np.zeros((x.shape[0], w.shape[1]), KINDS[form])
    for place in range(x.shape[1]):
        total = (total + (x[:, place, None] * w[place]).astype(kind)).astype(kind)
    return total


def in_hardware(x: Any, w: Any, form: str, length: int, inputs: str = "float32") -> Any:
    """Blocks added up without rounding, the running sum rounded after each: what a matrix unit does."""
    x, w = round_to(x, inputs), round_to(w, inputs)
    total = np.zeros((x.shape[0], w.shape[1]))
    for at in range(0, x.shape[1], length):
        total = round_to(total + x[:, at : at + length] @ w[at : at + length], form)
    return total


def fused(x: Any, w: Any) -> Any:
    """Multiplied and added with one rounding, in whole numbers of 2^-300."""
    found = np.zeros((x.shape[0], w.shape[1]), np.float32)
    for row, column in np.ndindex(*found.shape):
        for place in range(x.shape[1]):
            exact = Fraction(float(x[row, place])) * Fraction(float(w[place, column])) + Fraction(float(found[row, column]))
            found[row, column] = _single(exact)
    return found


def _single(exact: Fraction) -> Any:
    """The nearest float32, ties to even."""
    near = np.float32(float(exact))
    around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    return min(around, key=lambda each: (abs(Fraction(float(each)) - exact), int(np.float32(each).view(np.int32)) & 1))


@given(st.integers(0, 2**32 - 1), st.integers(3, 60), st.sampled_from(list(KINDS)))
def test_steps_are_those_of_the_format(seed: int, count: int, form: str) -> None:
    """One after the other, against the format's own arithmetic."""
    x, w = _factors(seed, count)
    assert np.array_equal(added(_terms(x, w), Way(form)), one_by_one(x, w, form).astype("f8").reshape(-1))


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_a_fused_multiply_add_rounds_once(seed: int, count: int) -> None:
    """Against exact fractions, with products that nearly cancel the sum."""
    x, w = _factors(seed, count, 2, 2)
    x[:, 1::2] = -x[:, : x.shape[1] // 2 * 2 : 2] * np.float32(1 + 2**-22)
    w[1::2] = w[: len(w) // 2 * 2 : 2]
    way = Way("float32", length=count, fused=True)
    assert np.array_equal(added(_terms(x, w), way), fused(x, w).astype("f8").reshape(-1))


@given(st.integers(0, 2**32 - 1), st.integers(3, 5000))
def test_pairs_are_those_of_numpy(seed: int, count: int) -> None:
    """The pairwise sum of a row."""
    rows = np.random.default_rng(seed).standard_normal((3, count), dtype=np.float32)
    assert np.array_equal(added(Terms(rows.T.astype("f8")), Way("float32", "pairs", 128)), rows.sum(axis=1).astype("f8"))


@given(st.integers(0, 2**32 - 1), st.integers(3, 5000), st.sampled_from([0, 1]))
def test_cascades_are_those_of_torch(seed: int, count: int, axis: int) -> None:
    """The sum of a row, in vectors of the processor's, and of a column, whose terms lie apart."""
    array = np.random.default_rng(seed).standard_normal((3, count) if axis else (count, 32), dtype=np.float32)
    real = torch.from_numpy(array).sum(axis).double().numpy()
    terms = Terms((array.T if axis else array).astype("f8"))
    assert any(np.array_equal(added(terms, Way("float32", "cascade", width)), real) for width in ((4, 8, 16) if axis else (0, 1)))


@given(st.integers(0, 2**32 - 1), st.integers(20, 300), st.integers(2, 40), st.sampled_from(["float16", "bfloat16"]))
def test_blocks_are_those_of_a_matrix_unit(seed: int, count: int, length: int, form: str) -> None:
    """Rounded after so many terms."""
    x, w = _factors(seed, count)
    way = Way(form, length=length, inner=WIDE)
    assert np.array_equal(added(_terms(x, w), way), in_hardware(x, w, form, length).astype("f8").reshape(-1))


LOOPS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "one by one": (lambda x, w: one_by_one(x, w, "float32"), "one after the other"),
    "fused": (fused, "one after the other by fused multiply-add"),
    "in float64": (lambda x, w: (x.astype("f8") @ w.astype("f8")).astype("f4"), "in more than float32, rounding to float32 once"),
    "in blocks of 24": (
        lambda x, w: sum((one_by_one(x[:, at : at + 24], w[at : at + 24], "float32") for at in range(24, 100, 24)), one_by_one(x[:, :24], w[:24], "float32")),
        "up blocks of 24 and 4 terms",
    ),
    "side by side": (
        lambda x, w: sum((one_by_one(x[:, at::4], w[at::4], "float32") for at in (1, 2, 3)), one_by_one(x[:, ::4], w[::4], "float32")),
        "up 4 sums side by side, in the end added in turn",
    ),
    "pairwise": (lambda x, w: np.ascontiguousarray(x[:, None, :] * w.T).sum(axis=2), "pairwise, down to blocks of 128 terms"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_the_order_is_told(name: str) -> None:
    """In the result's own format, bit for bit, length included."""
    loop, words = LOOPS[name]
    x, w = _factors(1, 100)
    told = order(_terms(x, w), loop(x, w).astype("f8").reshape(-1), "float32")
    assert told is not None
    assert told.way.words(100) == words
    assert told.chance < 1e-6


def test_an_order_that_is_not_known_is_not_named() -> None:
    """A shuffled sum, an exact one in which all orders agree, and a single element that any of several may give."""
    x, w = _factors(2, 100)
    shuffled = np.random.default_rng(0).permutation(100)
    assert order(_terms(x, w), one_by_one(x[:, shuffled], w[shuffled], "float32").astype("f8").reshape(-1), "float32") is None
    whole = np.rint(x * 4), np.rint(w * 4)
    assert order(_terms(*whole), (whole[0] @ whole[1]).astype("f8").reshape(-1), "float32") is None
    few = _terms(x[:1, :20], w[:20, :1])
    assert order(few, one_by_one(x[:1, :20], w[:20, :1], "float32").astype("f8").reshape(-1), "float32") is None


@pytest.mark.parametrize("form", ["float16", "bfloat16"])
def test_sums_in_less_than_single_precision_are_told(form: str) -> None:
    """One by one, and as a matrix unit adds, of factors as they are and rounded; float32 never is."""
    x, w = _factors(3, 144)
    for real, length, inputs in (
        (one_by_one(x, w, form), 1, ""),
        (in_hardware(x, w, form, 16), 16, ""),
        (in_hardware(x, w, form, 24, form), 24, form),
    ):
        told = reduced(_terms(x, w), real.astype("f8").reshape(-1))
        assert told is not None
        assert (told.way.form, told.way.length, told.way.inputs, told.share) == (form, length, inputs, 1.0)
    assert reduced(_terms(x, w), (x @ w).astype("f8").reshape(-1)) is None


def test_a_kernel_whose_order_is_not_known_still_shows_its_format() -> None:
    """PyTorch's float16 product adds in float32, in an order of its own: all but ties of the last rounding fit."""
    x, w = _factors(4, 1500, 16, 16)
    real = (torch.from_numpy(x).half() @ torch.from_numpy(w).half()).double().numpy().reshape(-1)
    told = reduced(_terms(x, w), real)
    assert told is not None
    assert (told.way.form, told.way.inputs) == ("float16", "float16")
    assert told.way.inner
    assert told.way.length >= 1500
    assert told.left * 8 <= told.next


X, W = _factors(5, 200, 24, 16)
LONG = np.random.default_rng(6).random(100_000, dtype=np.float32)
ROWS = np.random.default_rng(7).random((40, 700), dtype=np.float32)


def product() -> Results:
    return {"y": X @ W}


def in_torch() -> Results:
    return {"y": torch.from_numpy(X.copy()) @ torch.from_numpy(W.copy())}


def in_paddle() -> Results:
    return {"y": paddle.to_tensor(X) @ paddle.to_tensor(W)}


def half_loop() -> Results:
    return {"y": one_by_one(X, W, "float16").astype("f4")}


def half_running() -> Results:
    return {"y": np.add.accumulate((X[:, :, None] * W).astype("f2"), axis=1)[:, -1].astype("f4")}


def torch_half() -> Results:
    return {"y": (torch.from_numpy(X.copy()).half() @ torch.from_numpy(W.copy()).half()).float()}


def torch_brain() -> Results:
    return {"y": (torch.from_numpy(X.copy()).bfloat16() @ torch.from_numpy(W.copy()).bfloat16()).float()}


def rounded_half() -> Results:
    return {"y": X.astype("f2").astype("f4") @ W.astype("f2").astype("f4")}


def rounded_brain() -> Results:
    x, w = (torch.from_numpy(each.copy()).bfloat16().float() for each in (X, W))
    return {"y": x @ w}


def half_at_once() -> Results:
    return {"y": torch.from_numpy(X.astype("f2")) @ torch.from_numpy(W.astype("f2"))}


def half_one_by_one() -> Results:
    return {"y": one_by_one(X.astype("f2"), W.astype("f2"), "float16")}


def brain_at_once() -> Results:
    return {"y": (torch.from_numpy(X.copy()).bfloat16() @ torch.from_numpy(W.copy()).bfloat16()).float()}


def brain_in_parts() -> Results:
    x, w = torch.from_numpy(X.copy()).bfloat16(), torch.from_numpy(W.copy()).bfloat16()
    return {"y": (x[:, :90] @ w[:90] + x[:, 90:] @ w[90:]).float()}


REDUCED: dict[str, tuple[Any, Any, str]] = {
    "a loop in float16": (product, half_loop, "accumulates in float16: it adds one after the other"),
    "running sums in float16": (in_torch, half_running, "accumulates in float16: it adds one after the other"),
    "PyTorch's float16": (rounded_half, torch_half, "rounds its sums to float16"),
    "PyTorch's bfloat16": (rounded_brain, torch_brain, "rounds its sums to bfloat16"),
    "float16 throughout, added at once and one by one": (half_at_once, half_one_by_one, "the candidate accumulates in float16"),
    "arrays of a float16 accumulator": (product, half_loop(), "accumulates in float16: it adds one after the other"),
    "arrays of a bfloat16 accumulator": (in_torch, {"y": one_by_one(X, W, "bfloat16").astype("f4")}, "accumulates in bfloat16"),
    "arrays of a matrix unit": (product, {"y": in_hardware(X, W, "float16", 16, "float16").astype("f4")}, "after every 16 terms"),
    "reference arrays of a matrix unit": ({"y": in_hardware(X, W, "float16", 8).astype("f4")}, in_paddle, "the reference accumulates"),
    "arrays in float16, in no known order": (product, {"y": one_by_one(X[:, ::-1], W[::-1], "float16").astype("f4")}, "number of float16"),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCED)
def test_an_accumulator_is_a_dtype(name: str) -> None:
    """The format of the running sum is named, and proved by adding up again."""
    require_accumulator(*REDUCED[name])


def require_accumulator(reference: Any, candidate: Any, words: str) -> None:
    """The verdict is `dtype`, in these words; an accumulator is proved by adding up again."""
    found = detconf.audit(reference, candidate)
    assert found.cause == "dtype", found
    assert words in found.summary, found
    assert found.proof is not None
    if "accumulates" in words:
        assert found.proof.kind == "re-created"
        assert found.proof.share == 1.0


def long_pairwise() -> Results:
    return {"s": LONG.sum()}


def long_running() -> Results:
    return {"s": np.cumsum(LONG)[-1]}


def rows_pairwise() -> Results:
    return {"s": ROWS.sum(axis=1)}


def rows_running() -> Results:
    total = np.zeros(40, np.float32)
    for each in ROWS.T:
        total = total + each
    return {"s": total}


def loop() -> Results:
    total = np.zeros((24, 16), np.float32)
    for place in range(200):
        total = total + X[:, place, None] * W[place]
    return {"y": total}


FUSED = {"y": fused(X[:, :60], W[:60])}


def short_loop() -> Results:
    total = np.zeros((24, 16), np.float32)
    for place in range(60):
        total += X[:, place, None] * W[place]
    return {"y": total}


ORDERS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "a long sum": (long_pairwise, long_running, ("candidate agrees bit for bit with adding one after the other in float32: 100000 terms",)),
    "sums of rows": (rows_pairwise, rows_running, ("reference agrees bit for bit with adding pairwise", "candidate agrees bit for bit with adding one")),
    "sums of rows in two frameworks": (rows_pairwise, lambda: {"s": torch.from_numpy(ROWS.copy()).sum(1)}, ("candidate agrees bit for bit with adding in a cascade",)),
    "two frameworks": (product, loop, ("candidate agrees bit for bit with adding one after the other in float32: 200 terms",)),
    "bfloat16 throughout, in two parts": (brain_at_once, brain_in_parts, ()),
    "fused in arrays, against a loop": (short_loop, FUSED, ("candidate agrees bit for bit with adding one after the other by fused multiply-add", "reference agrees")),
    "fused in arrays, against a product": (lambda: {"y": np.einsum("ij,jk->ik", X[:, :60], W[:60])}, FUSED, ("by fused multiply-add",)),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_rounding(name: str) -> None:
    """The verdict stays benign; what was shown bit for bit is said."""
    reference, candidate, words = ORDERS[name]
    found = detconf.audit(reference, candidate)
    assert found.cause == "rounding", found
    said = "\n".join(each.statement for each in found.evidence)
    assert all(each in said for each in words), said


def _recipe(function: Any) -> tuple[Any, Terms | None]:
    side = Side("here", function)
    observation, kept = Laboratory().study(side), Laboratory().study(side, keep_real=True)
    assert observation is not None
    assert kept is not None
    found = last_sum(observation.study, observation.known["r"])
    return found, found.real(kept.study) if found else None


SUMS: dict[str, Any] = {
    "vectors": lambda: X[0] @ W[:, 0],
    "matrix and vector": lambda: X @ W[:, 0],
    "vector and matrix": lambda: torch.from_numpy(X[0].copy()) @ torch.from_numpy(W.copy()),
    "transposed, with a bias": lambda: torch.nn.functional.linear(torch.ones(3, 200), torch.from_numpy(W.T.copy()), torch.arange(16.0)),
    "of a batch": lambda: paddle.matmul(paddle.to_tensor(X.reshape(2, 12, 200)), paddle.to_tensor(W)),
    "a sum of an axis": lambda: torch.from_numpy(ROWS.copy()).sum(0),
    "a mean of all": lambda: paddle.to_tensor(ROWS).mean(),
    "cast afterwards": lambda: (X.astype("f2") @ W.astype("f2")).astype("f4"),
    "a loop": lambda: sum((each * each for each in ROWS[:, :5].T), np.zeros(40, np.float32)),
}


@pytest.mark.parametrize("name", SUMS)
def test_the_terms_of_a_result_are_found(name: str) -> None:
    """What was read, real, in the order of the terms: added up in float64 it is the result, to rounding."""
    result = SUMS[name]()
    real = np.asarray(result, dtype=np.float64).reshape(-1)
    found, terms = _recipe(lambda: {"r": SUMS[name]()})
    assert terms is not None
    tolerance = 2e-3 if name == "cast afterwards" else 2e-6
    scale = np.sum(np.abs(terms.products), axis=0) / terms.count
    assert np.all(np.abs(terms.exact - real[found.places]) <= tolerance * (scale + np.abs(real[found.places])))


def test_what_fails_costs_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding up again only adds to a verdict; that it failed is said."""

    def broken(*_: Any) -> None:
        msg = "no such way"
        raise ValueError(msg)

    monkeypatch.setattr("detconf.auditing.sums.orders.order", broken)
    found = detconf.audit(rows_pairwise, lambda: {"s": np.cumsum(ROWS, axis=1)[:, -1]})
    assert found.cause == "rounding", found
    assert any("no such way" in each for each in found.tried)


def test_what_is_no_sum_has_no_terms() -> None:
    """A function of a product, a part of a sum, a norm."""
    assert _recipe(lambda: {"r": np.tanh(X @ W)})[0] is None
    assert _recipe(lambda: {"r": (X @ W)[::-1]})[0] is None
    assert _recipe(lambda: {"r": np.linalg.norm(X, axis=1)})[0] is None


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("aten.mm", "products"), ("aten.addmm_", "products"), ("aten.convolution", "products"), ("numpy.einsum", "products"),
        ("paddle.conv2d", "products"), ("paddle.matmul.grad", "products"), ("aten.sum.dim_IntList", "terms"), ("numpy.add.reduce", "terms"),
        ("paddle.mean", "terms"), ("aten._foreach_norm.Scalar", "terms"), ("numpy.add", ""), ("aten.upsample_bilinear2d", ""),
        ("aten.mul.Tensor", ""), ("python.add", ""), ("", ""),
    ],
)  # fmt: skip
def test_what_an_operation_adds_up_is_known_by_its_name(name: str, what: str) -> None:
    """Of a recording there is nothing else; no framework is asked."""
    assert adds(name) == what


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda: X @ W, "products"),
        (lambda: torch.from_numpy(X.copy()) @ torch.from_numpy(W.copy()), "products"),
        (lambda: paddle.to_tensor(X) @ paddle.to_tensor(W), "products"),
        (lambda: np.mean(ROWS), "terms"),
        (lambda: torch.from_numpy(ROWS.copy()).sum(), "terms"),
        (lambda: paddle.to_tensor(ROWS).sum(), "terms"),
        (lambda: ROWS + ROWS, ""),
    ],
)
def test_every_engine_marks_what_adds_up(function: Any, what: str) -> None:
    """The last operation of a study."""
    observation = Laboratory().study(Side("here", lambda: {"r": function()}))
    assert observation is not None
    assert observation.study.operations[-1].adds == what


def test_a_recorded_accumulator_is_told(tmp_path: Path) -> None:
    """Two recordings, of which one device adds up in float16."""
    from test_audit_recordings import Script

    paths = []
    for name, made in (("a.det", X @ W), ("b.det", in_hardware(X, W, "float16", 16, "float16").astype("f4"))):
        script = Script(tmp_path / name)
        paths.append(script.end(y=script.run("aten.mm", [X, W], made)))
    found = detconf.audit(*paths)
    assert found.cause == "dtype", found
    assert "accumulates in float16" in found.summary
    assert "after every 16 terms" in found.summary
    assert found.proof is not None
    assert found.proof.kind == "re-created"
