"""Recordings: parts of arrays found in the arrays that they are of, dropping taken away, comparisons noted within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import run_python
from hypothesis import given
from hypothesis import strategies as st
from test_audit_recordings import Script

import detconf
from detconf.auditing.assertions.comparisons import spelt, tolerance
from detconf.auditing.recordings.recomputing import again
from detconf.auditing.recordings.recorded import observed
from detconf.auditing.recordings.viewing import elements, viewed


@st.composite
def _views(draw: Any) -> tuple[Any, Any]:
    """An array, and a way to take a view of it."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axes = tuple(draw(st.permutations(range(len(shape)))))
    starts = [draw(st.integers(0, size - 1)) for size in shape]
    steps = [draw(st.sampled_from((1, 2, -1))) for _ in shape]
    slices = tuple(slice(start, None, step) for start, step in zip(starts, steps, strict=True))
    return shape, lambda array: np.transpose(array[slices], axes)


@given(_views(), st.booleans())
def test_views_are_told_from_their_elements(made: tuple[Any, Any], few: bool) -> None:  # drawn
    """Slices, flips and transposes, in arrays of distinct numbers: exactly; of equal ones, where it is told at all."""
    shape, take = made
    whole = np.random.default_rng(0).standard_normal(shape)
    if few:
        whole = np.round(whole)
    after = whole * 2 + 1
    found = viewed(whole, take(whole), after)
    assert few or found is not None
    assert found is None or np.array_equal(found, take(after))


def test_no_view() -> None:
    """Numbers that are not there, in part or at all; nothing at all."""
    whole = np.arange(12.0).reshape(3, 4)
    assert elements(whole, np.array([1.0, 2.0, 50.0])) is None
    assert elements(whole, np.array([])) is None
    assert elements(whole, whole.T.copy()) is not None
    assert viewed(whole, np.full((2, 3), 5.0), whole * 3).tolist() == [[15.0] * 3] * 2


def test_a_part_leads_to_its_array(tmp_path: Path) -> None:
    """What was computed with a slice is computed from the whole array."""
    x = np.random.default_rng(0).standard_normal((6, 8)).astype("float32")
    script = Script(tmp_path / "a.det")
    y = script.run("aten.exp", [x], np.exp(x))
    found = observed(script.end(z=script.run("aten.sin", [y[1:4, ::2]], np.sin(y[1:4, ::2]))))
    assert [each.name for each in found.study.operations] == ["aten.exp", "aten.sin"]
    (read,) = found.study.operations[1].reads
    assert read.value is found.study.operations[0].writes[0]
    assert np.array_equal(read.shadow, y[1:4, ::2])


def _dropped(path: Path, *, drops: bool, seed: int = 0) -> str:
    """A recording of dropout by hand, as torch's CPU kernels do it."""
    x = np.random.default_rng(9).standard_normal((16, 40)).astype("float32")
    script = Script(path)
    h = script.run("aten.tanh", [x], np.tanh(x))
    if drops:
        mask = script.run("aten.bernoulli_.float", [], np.random.default_rng(seed).integers(0, 2, h.shape).astype("float32"), random=True)
        mask = script.run("aten.div_.Scalar", [mask], mask * 2)
        h = script.run("aten.mul.Tensor", [h, mask], h * mask)
    return script.end(y=script.run("aten.exp", [h], np.exp(h)))


def test_dropping_on_one_side_is_the_mode(tmp_path: Path) -> None:
    """Taken away, the sides agree; on both sides it is the draws that differ."""
    plain = _dropped(tmp_path / "a.det", drops=False)
    found = detconf.audit(plain, _dropped(tmp_path / "b.det", drops=True))
    assert found.cause == "mode", found
    assert found.proof
    assert found.proof.kind == "removed"
    assert "the candidate drops" in found.summary
    assert "the reference drops" in detconf.audit(str(tmp_path / "b.det"), plain).summary
    assert detconf.audit(str(tmp_path / "b.det"), _dropped(tmp_path / "c.det", drops=True, seed=1)).cause == "rng"


def test_rounded_inputs_are_not_reordered_ones(tmp_path: Path) -> None:
    """Sums hardly tell TF32 from another order of the elements; the elements do."""
    from detconf.shadows.formats import round_to

    x = np.random.default_rng(0).standard_normal((32, 256)).astype("float32")
    paths = []
    for name, array in (("a", x), ("b", round_to(x, "tf32").astype("float32"))):
        script = Script(tmp_path / f"{name}.det")
        paths.append(script.end(y=script.run("aten.sum", [array], array.sum(1))))
    assert detconf.audit(*paths).cause == "dtype"


def test_a_result_of_the_wrong_stage_is_not_benign(tmp_path: Path) -> None:
    """That a value is somewhere in the reference does not make it the same result."""
    x = np.random.default_rng(0).standard_normal((4, 9)).astype("float32")
    paths = []
    for name in ("a", "b"):
        script = Script(tmp_path / f"{name}.det")
        h = script.run("aten.mystery", [x], x * 3 + 1)
        paths.append(script.end(y=script.run("aten.riddle", [h], h[::-1].copy()) if name == "a" else h))
    assert detconf.audit(*paths).cause not in ("rounding", "equal")


def test_a_side_that_goes_further(tmp_path: Path) -> None:
    """The candidate lacks the reference's last operation: all that it computed is in the reference, but not as the result."""
    x = np.random.default_rng(0).standard_normal((4, 9)).astype("float32")
    paths = []
    for name in ("a", "b"):
        script = Script(tmp_path / f"{name}.det")
        h = script.run("aten.exp", [x], np.exp(x))
        paths.append(script.end(y=script.run("aten.sin", [h], np.sin(h)) if name == "a" else h))
    for pair in (paths, paths[::-1]):
        found = detconf.audit(*pair)
        assert found.cause == "semantics", found
        assert found.where
        assert found.where.name == "aten.sin"


def test_an_overflow_on_the_way_to_a_finite_result(tmp_path: Path) -> None:
    """A square that float16 cannot hold, below a fraction."""
    x = (np.random.default_rng(0).standard_normal((4, 300)) * 300).astype("float16")
    paths = []
    for dtype in ("float32", "float16"):
        script = Script(tmp_path / f"{dtype}.det")
        wide = x if dtype == "float16" else script.run("numpy.astype", [x], x.astype(dtype))
        with np.errstate(all="ignore"):
            square = script.run("aten.mul.Tensor", [wide, wide], wide * wide)
            mean = script.run("aten.mean.dim", [square], np.asarray(square.mean(1, keepdims=True), dtype))
            y = script.run("aten.div.Tensor", [wide, mean], wide / mean)
            paths.append(script.end(y=script.run("aten._to_copy", [y], y.astype("float32"))))
    found = detconf.audit(*paths)
    assert found.cause == "overflow", found
    assert found.where
    assert found.where.name == "aten.mul.Tensor"


def test_what_vanishes_on_the_way(tmp_path: Path) -> None:
    """Squares below the least number of float32 make a norm zero, and the results infinite: both sides mean the same."""
    x = np.random.default_rng(0).standard_normal((4, 9)).astype("float32") * np.float32(1e-25)
    script = Script(tmp_path / "a.det")
    top = script.run("numpy.max", [x], x.max(1, keepdims=True))
    h = script.run("numpy.divide", [x, top], x / top)
    norm = script.run(
        "numpy.sqrt", [s := script.run("numpy.sum", [q := script.run("numpy.square", [h], h * h)], q.sum(1, keepdims=True))], np.sqrt(s)
    )
    paths = [script.end(y=script.run("numpy.divide", [h, norm], h / norm))]
    script = Script(tmp_path / "b.det")
    q = script.run("aten.mul.Tensor", [x, x], x * x)
    s = script.run("aten.sum", [q], q.sum(1, keepdims=True))
    norm = script.run("aten.sqrt", [s], np.sqrt(s))
    with np.errstate(all="ignore"):
        paths.append(script.end(y=script.run("aten.div.Tensor", [x, norm], x / norm)))
    found = detconf.audit(*paths)
    assert found.cause == "overflow", found
    assert "becomes zero at aten.mul.Tensor" in found.summary


@pytest.mark.parametrize(
    ("name", "inputs", "function"),
    [
        ("numpy.where", [np.array([[True, False, True]]), np.ones((2, 3)), np.zeros((2, 3))], np.where),
        ("aten.cat", [np.ones((2, 3)), np.zeros((2, 1))], lambda x, y: np.concatenate([x, y], 1)),
        ("numpy.outer", [np.arange(3.0), np.arange(4.0)], np.outer),
        ("aten.embedding", [np.arange(12.0).reshape(4, 3), np.array([1, 3])], lambda w, i: w[i]),
        ("aten.mse_loss", [np.arange(4.0), np.ones(4)], lambda x, y: np.mean((x - y) ** 2)),
        ("aten.var.correction", [np.arange(12.0).reshape(3, 4)], lambda x: x.var(1, ddof=1)),
        ("paddle.logsumexp", [np.arange(12.0).reshape(3, 4)], lambda x: np.log(np.exp(x).sum(1))),
        ("numpy.multiply", [np.arange(4.0)], lambda x: x * x),
    ],
)
def test_more_operations_are_computed_again(tmp_path: Path, name: str, inputs: list[Any], function: Any) -> None:
    """With a mask or indices among what is read, of several arrays, and of one array twice."""
    single = [each.astype("float32") if each.dtype.kind == "f" else each for each in inputs]
    script = Script(tmp_path / "a.det")
    observation = observed(script.end(y=script.run(name, single, np.asarray(function(*single), "float32"))))
    found = again(observation.study.operations[0])
    assert found
    assert found.ratio < 8, found


def test_pytest_approx(tmp_path: Path) -> None:
    """`assert x == approx(y)`, either way round: operands, tolerance, that it fails the test; an own `==` is left alone."""
    path = tmp_path / "statement.py"
    path.write_text("assert got == pytest.approx(ref, rel=1e-3)\nassert approx(expected=b) == a\nok = a != approx(b)\n")
    assert spelt(str(path), 1, "approx") == ("got", "ref", True)
    assert spelt(str(path), 2, "approx") == ("a", "b", True)
    assert spelt(str(path), 3, "approx")[2] is False
    assert tolerance("approx", {"rel": None, "abs": None}, "") == (1e-6, 1e-12)
    assert tolerance("approx", {"rel": None, "abs": 0.1}, "") == (0.0, 0.1)


NOTED = """
import json, sys
import numpy as np
import pytest
from detconf.auditing.assertions.noting import Noting
class Recorder:
    active, keeping, index, events = True, True, 0, []
    def operation(self, name, inputs, outputs, layouts, **more):
        self.events.append((name, len(inputs)))
    def flush(self):
        pass
noting = Noting(Recorder())
noting.watch()
for _ in range(20):
    np.allclose(np.ones(3), np.zeros(3))
found = bool(np.float32(1.0) == pytest.approx(2.0)), [1.0, 2.0] == pytest.approx([1.0, 2.0])
try:
    np.testing.assert_allclose(np.ones(3), np.zeros(3))
except AssertionError as error:
    print(json.dumps([[name for name, inputs in Recorder.events if inputs == 2], found, len(Recorder.events)]))
"""


def test_comparisons_that_fail_nothing_are_noted_within_bounds() -> None:
    """A program may compare as often as it likes; what fails a test for certain is noted all the same. Results are what they were."""
    names, found, count = run_python(NOTED)
    assert names == ["numpy.allclose"] * 16 + ["numpy.testing.assert_allclose"]
    assert found == [False, True]
    assert count == 23
