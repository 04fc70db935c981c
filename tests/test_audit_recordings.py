"""Recordings with values, audited on another machine: only arrays and names of operations are at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import run_python

import detconf
from detconf.arrays import Array, raw
from detconf.auditing.recomputing import again, kind
from detconf.auditing.recorded import observed
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
