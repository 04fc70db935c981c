"""Recordings with values, audited on another machine: only arrays and names of operations are at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import run_python

import detconf
from detconf.arrays import Array, raw
from detconf.auditing.recordings.recomputing import again, kind
from detconf.auditing.recordings.recorded import observed
from detconf.cli import main
from detconf.digests import Flag
from detconf.errors import TargetError
from detconf.recording.file import Writer
from detconf.recording.recorder import Recorder
from detconf.shadows.formats import ROUNDINGS, round_to

_GENERATOR = np.random.default_rng(0)
X = _GENERATOR.standard_normal((16, 300)).astype("float32")
W = _GENERATOR.standard_normal((300, 8)).astype("float32")
B = _GENERATOR.standard_normal(8).astype("float32")


def _gelu(x: Any) -> Any:
    from math import erf, sqrt

    return 0.5 * x * (1 + np.vectorize(erf)(x / sqrt(2)))


class Script:
    """A recording written by hand, as a tracer would."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.recorder = Recorder(Writer(self.path, dict), values=True)

    def run(self, name: str, inputs: list[Any], output: Any, *, random: bool = False) -> Any:
        """Record one operation."""
        before, after = [_array(each) for each in inputs], [_array(output)]
        self.recorder.operation(
            name,
            [bytes.fromhex(each.digest) for each in before],
            [bytes.fromhex(each.digest) for each in after],
            tuple((each.dtype, each.shape) for each in after),
            random=bytes(16) if random else b"",
            source="model.py:7",
            values=(before, after),
        )
        return output

    def end(self, **results: Any) -> str:
        """Publish results and close the file."""
        for name, value in results.items():
            self.recorder.state(name, _array(value), flags=Flag.PUBLISHED)
        self.recorder.close()
        return self.path


def _array(value: Any) -> Array:
    value = np.asarray(value)
    return Array(str(value.dtype), value.shape, bytes(raw(value)))


def _linear(path: Path, product: Any, *, act: str = "tanh", w: Any = W) -> str:
    script = Script(path)
    h = script.run("aten.addmm", [B, X, w], (product + B).astype("float32"))
    return script.end(y=script.run(f"aten.{act}", [h], getattr(np, act)(h)))


def _wide(x: Any, w: Any = W) -> Any:
    return x.astype("f8") @ w.astype("f8")


@pytest.fixture
def reference(tmp_path: Path) -> str:
    """What one machine recorded."""
    return _linear(tmp_path / "a.det", X @ W)


@pytest.mark.parametrize("form", [each for each in ROUNDINGS if each not in ("float32", "float16")])
def test_the_format_of_a_product_is_told(tmp_path: Path, reference: str, form: str) -> None:
    """A device that rounds the inputs of its products is found by its own recorded inputs, on either side."""
    other = _linear(tmp_path / "b.det", round_to(X, form) @ round_to(W, form))
    for pair, who in (((reference, other), "candidate"), ((other, reference), "reference")):
        found = detconf.audit(*pair)
        assert found.cause == "dtype", found
        assert form in found.summary
        assert who in found.summary
        assert found.where
        assert (found.where.name, found.where.source) == ("aten.addmm", "model.py:7")
        assert found.proof
        assert found.proof.kind == "re-created"


def test_benign_rounding_is_told(tmp_path: Path, reference: str) -> None:
    """Another order of the sum, and other names in another framework."""
    script = Script(tmp_path / "b.det")
    h = script.run("paddle.matmul", [X, W], _wide(X).astype("float32"))
    h = script.run("paddle.add", [h, B], h + B)
    found = detconf.audit(reference, script.end(y=script.run("paddle.tanh", [h], np.tanh(h))))
    assert found.cause == "rounding", found
    assert not found.unexamined


def test_another_formula_is_told(tmp_path: Path, reference: str) -> None:
    """The operation that is right by itself, and whose result the other side never has."""
    found = detconf.audit(reference, _linear(tmp_path / "b.det", X @ W, act="sin"))
    assert found.cause == "semantics"
    assert found.where
    assert found.where.name == "aten.sin"


def test_an_operation_that_is_not_known_is_not_judged(tmp_path: Path, reference: str) -> None:
    """Neither called wrong nor right."""
    script = Script(tmp_path / "b.det")
    h = script.run("aten.addmm", [B, X, W], X @ W + B)
    found = detconf.audit(reference, script.end(y=script.run("aten.mystery", [h], np.tanh(h) * np.float32(1.01))))
    assert found.cause == "unknown"
    assert any("mystery" in each for each in found.unexamined)


def test_inputs_that_differ_are_told(tmp_path: Path, reference: str) -> None:
    """Other weights: nothing is said of the computation. Rounded or reordered ones: that is the cause."""
    assert detconf.audit(reference, _linear(tmp_path / "b.det", X @ (W + 1), w=W + 1)).cause == "unknown"
    rounded = round_to(W, "bfloat16").astype("float32")
    assert detconf.audit(reference, _linear(tmp_path / "c.det", X @ rounded, w=rounded)).cause == "dtype"
    turned = np.ascontiguousarray(W[::-1])
    assert detconf.audit(reference, _linear(tmp_path / "d.det", X @ turned, w=turned)).cause in ("layout", "semantics")


def test_draws_that_differ_are_told(tmp_path: Path) -> None:
    """A random operation whose numbers the other side never had."""
    paths = []
    for seed in (0, 1):
        script = Script(tmp_path / f"{seed}.det")
        noise = script.run("aten.rand", [], np.random.default_rng(seed).random((4, 5)).astype("float32"), random=True)
        paths.append(script.end(y=script.run("aten.exp", [noise], np.exp(noise))))
    found = detconf.audit(*paths)
    assert found.cause == "rng"
    assert found.where
    assert found.where.name == "aten.rand"


def test_recordings_without_values_or_results_are_refused(tmp_path: Path, reference: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is missing, and how to get it; exit 2."""
    script = Script(tmp_path / "b.det")
    script.run("aten.exp", [X], np.exp(X))
    with pytest.raises(TargetError, match="publish"):
        detconf.audit(reference, script.end())
    script = Script(tmp_path / "c.det")
    script.recorder.operation("aten.exp", [bytes(16)], [bytes(16)], (("float32", (2,)),))
    assert main(["audit", reference, script.end(y=X)]) == 2
    assert "--values" in capsys.readouterr().err
    assert main(["audit", reference, Script(tmp_path / "d.det").end(z=X)]) == 2
    assert main(["audit", reference, reference]) == 0


def test_a_recording_stands_for_its_results(tmp_path: Path, reference: str) -> None:
    """Against arrays, or a function, a recording is what it published."""
    arrays = {"y": np.tanh((X @ W + B).astype("float32"))}
    assert detconf.audit(reference, arrays).equal


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten.mm", "matmul"),
        ("aten.sum.dim_IntList", "sum"),
        ("paddle.add_", "add"),
        ("numpy.multiply", "mul"),
        ("aten._softmax", "softmax"),
    ],
)
def test_names_of_operations(name: str, expected: str) -> None:
    """Of three frameworks."""
    assert kind(name) == expected


@pytest.mark.parametrize(
    ("name", "inputs", "function"),
    [
        ("aten.sum.dim_IntList", [X], lambda x: x.sum(1)),
        ("aten.mean", [X], lambda x: x.mean()),
        ("paddle.max", [X], lambda x: x.max(0, keepdims=True)),
        ("aten.bmm", [X.reshape(2, 8, 300), np.stack([W.T, W.T])], lambda x, _: np.stack([each @ W for each in x])),
        ("paddle.linear", [X, W, B], lambda x, w, b: x @ w + b),
        ("aten._softmax", [X], lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
        ("numpy.power", [np.abs(X), B[0]], lambda x, y: x**y),
        ("aten.gelu", [X[:, :5]], _gelu),
    ],
)
def test_operations_are_computed_again(tmp_path: Path, name: str, inputs: list[Any], function: Any) -> None:
    """Whatever their options were, as far as shapes say."""
    script = Script(tmp_path / "a.det")
    result = script.run(name, inputs, np.asarray(function(*inputs), dtype="float32"))
    [operation] = observed(script.end(y=result)).study.operations
    found = again(operation)
    assert found is not None
    assert found.ratio < 50


@pytest.mark.slow
def test_programs_of_two_frameworks(tmp_path: Path) -> None:
    """torch here, paddle there: recorded each by itself, audited by a third process."""
    common = """
import numpy as np, detconf
g = np.random.RandomState(0)
x, w, b = (g.standard_normal(s).astype("float32") for s in ((64, 256), (256, 32), (32,)))
"""
    torch = (
        common
        + """
import torch
with detconf.record("t.det", values=True, sources=True):
    h = torch.nn.functional.linear(torch.from_numpy(x), torch.from_numpy(w.T.copy()), torch.from_numpy(b))
    detconf.publish("y", torch.tanh(h).sum(1))
print(0)
"""
    )
    paddle = (
        common
        + """
import paddle
for name, act in (("p.det", paddle.tanh), ("q.det", paddle.sin)):
    with detconf.record(name, values=True, sources=True):
        h = paddle.nn.functional.linear(paddle.to_tensor(x), paddle.to_tensor(w), paddle.to_tensor(b))
        detconf.publish("y", act(h).sum(1))
print(0)
"""
    )
    run_python(torch, cwd=tmp_path)
    run_python(paddle, cwd=tmp_path)
    assert detconf.audit(str(tmp_path / "t.det"), str(tmp_path / "p.det")).cause == "rounding"
    found = detconf.audit(str(tmp_path / "t.det"), str(tmp_path / "q.det"))
    assert found.cause == "semantics"
    assert found.where
    assert found.where.name == "paddle.sin"


def test_a_tolerance_is_given(tmp_path: Path, reference: str) -> None:
    """From rounding noise on the recorded operations; the bound of the same two sides, run, is of its size."""
    script = Script(tmp_path / "b.det")
    h = script.run("paddle.linear", [X, W, B], (_wide(X) + B).astype("float32"))
    found = detconf.audit(reference, script.end(y=script.run("paddle.tanh", [h], np.tanh(h))))
    [tolerance] = found.tolerance
    assert tolerance.name == "y"
    assert tolerance.measured is not None
    assert 0 < tolerance.measured < 1
    live = detconf.audit(lambda: {"y": np.tanh(X @ W + B)}, lambda: {"y": np.tanh((X.astype("f8") @ W + B).astype("float32"))})
    assert 0.2 < (tolerance.rtol + tolerance.atol) / (live.tolerance[0].rtol + live.tolerance[0].atol) < 5
    assert not found.unexamined


def test_a_tolerance_that_values_do_not_suffice_for_is_said(tmp_path: Path) -> None:
    """Not guessed: what leads to the result is not known; where it is known behind that, the sides' own gap counts there."""
    paths = []
    for name, noise in (("a", 0), ("b", 1e-7)):
        script = Script(tmp_path / f"{name}.det")
        h = script.run("aten.mystery", [X], (np.sin(X) * (1 + noise)).astype("float32"))
        paths.append(script.end(y=h, z=script.run("aten.tanh", [h], np.tanh(h))))
    found = detconf.audit(*paths)
    assert [each.name for each in found.tolerance] == ["z"]
    assert any("tolerance of y" in each and "aten.mystery" in each for each in found.unexamined)
    assert any("inside aten.mystery" in each for each in found.unexamined)


def test_errors_that_cancel_are_seen(tmp_path: Path, reference: str) -> None:
    """Sums over a result agree to a millionth; the results do not."""
    h = X @ W + B
    off = h * (1 + 3e-4 * np.where(np.arange(h.size).reshape(h.shape) % 2, 1, -1)).astype("float32")
    script = Script(tmp_path / "b.det")
    script.run("aten.addmm", [B, X, W], h)
    found = detconf.audit(reference, script.end(y=script.run("aten.mystery", [h], np.tanh(off))))
    assert found.cause == "unknown", found


def test_amplified_rounding_is_told(tmp_path: Path) -> None:
    """The difference of close means, in two orders: neither is called wrong."""
    wide = (np.random.default_rng(2).standard_normal((40, 50)) + 1000).astype("float32")
    paths = []
    for name, mean in (("a", wide.mean(1)), ("b", wide.astype("f8").mean(1).astype("float32"))):
        script = Script(tmp_path / f"{name}.det")
        m = script.run("numpy.mean", [wide], mean)
        y = script.run("numpy.subtract", [m, script.run("numpy.max", [wide[:, :1]], wide[:, 0])], m - wide[:, 0])
        paths.append(script.end(y=script.run("numpy.multiply", [y, y], y * y), z=script.run("numpy.subtract", [m, m[0]], m - m[0])))
    assert detconf.audit(*paths).cause in ("rounding", "ill-conditioned")


def test_a_side_that_overflows_is_told(tmp_path: Path) -> None:
    """Finite inputs, an infinite result, finite in float64."""
    x = np.linspace(80, 100, 21, dtype="float32")
    good, bad = Script(tmp_path / "a.det"), Script(tmp_path / "b.det")
    scaled = good.run("numpy.subtract", [x, np.full_like(x, 100)], x - 100)
    y = good.run("numpy.exp", [scaled], np.exp(scaled))
    with np.errstate(over="ignore", invalid="ignore"):
        powers = bad.run("numpy.exp", [x], np.exp(x))
        z = bad.run("numpy.divide", [powers, powers.max()], powers / powers.max())
    found = detconf.audit(good.end(y=y), bad.end(y=z))
    assert found.cause == "overflow", found
    assert found.where
    assert found.where.name == "numpy.exp"


def test_a_side_that_is_not_finite_is_not_benign(tmp_path: Path) -> None:
    """Infinite in float64 as well, on its own recorded inputs: a square that vanished, and its reciprocal."""
    x = np.full(20, 1e-30, "float32")
    good, bad = Script(tmp_path / "a.det"), Script(tmp_path / "b.det")
    y = good.run("numpy.reciprocal", [x], 1 / x)
    zero = bad.run("numpy.square", [x], x * x)
    with np.errstate(divide="ignore"):
        z = bad.run("numpy.reciprocal", [zero], 1 / zero)
    assert detconf.audit(good.end(y=y), bad.end(y=z)).cause not in ("rounding", "ill-conditioned", "equal")


_SIDES = """
import numpy as np
X = np.random.default_rng(0).standard_normal((16, 300)).astype("float32")
W = np.random.default_rng(1).standard_normal((300, 8)).astype("float32")

def reference():
    return {"y": np.tanh(X @ W)}

def reordered():
    return {"y": np.tanh((X[:, ::-1].copy() @ W[::-1].copy()))}

def other():
    return {"y": np.sin(X @ W)}

def with_input(x):
    return {"y": np.sin(x @ W)}

def broken():
    raise ValueError("no data")
"""


def test_a_recording_against_a_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The function is run and recorded here: the operation where the sides part is found; from the command line too."""
    (tmp_path / "sides.py").write_text(_SIDES)
    path, file = str(tmp_path / "a.det"), str(tmp_path / "sides.py")
    with detconf.record(path, values=True, sources=True):
        from detconf.targets import load_function

        detconf.publish("y", load_function(f"{file}:reference")()["y"])
    found = detconf.audit(path, f"{file}:other")
    assert found.cause == "semantics", found
    assert found.where
    assert (found.where.name, found.where.source.rpartition("/")[2]) == ("numpy.sin", "sides.py:13")
    assert (found.reference, found.candidate) == (path, f"{file}:other")
    assert detconf.audit(f"{file}:reordered", path).cause in ("rounding", "equal")
    assert main(["audit", path, f"{file}:reference"]) == 0
    assert main(["audit", path, f"{file}:broken"]) == 2
    assert "no data" in capsys.readouterr().err
    x = np.random.default_rng(0).standard_normal((16, 300)).astype("float32")
    assert detconf.audit(path, f"{file}:with_input", inputs={"x": x}).cause == "semantics"


def test_steps_of_one_side_are_no_other_name(tmp_path: Path, reference: str) -> None:
    """A side that counted steps holds "y@1"; one that counted none, and a file of arrays, hold "y"."""
    script = Script(tmp_path / "b.det")
    h = script.run("aten.addmm", [B, X, W], X @ W + B)
    script.recorder.step()
    path = script.end(y=script.run("aten.tanh", [h], np.tanh(h)))
    assert list(observed(path).arrays) == ["y@1"]
    assert detconf.audit(reference, path).equal
    assert detconf.audit(path, {"y": np.tanh(X @ W + B)}).equal
