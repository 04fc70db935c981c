"""A failing test as a question: unmodified commands, their first failing comparison, and its two operands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, clean_environment, run_python

from detconf.arrays import Array
from detconf.auditing.assertions.commanding import CommandLaboratory, Run
from detconf.auditing.assertions.comparisons import expected, operands, spelt, tolerance
from detconf.auditing.assertions.pairs import Pair, one_side
from detconf.auditing.attempts.hostfloats import VARIANTS, product, rounding, single, transformed
from detconf.auditing.elsewhere.requests import Request
from detconf.auditing.laboratory import Observation
from detconf.shadows.study import Read, Study
from detconf.supervise import Ending
from detconf.values import Cause

CASES = """
import unittest
import numpy as np
import torch

class Cases(unittest.TestCase):
    def test_fine(self):
        x = np.random.rand(3, 4).astype("float32")
        np.testing.assert_allclose(torch.from_numpy(x).exp().numpy(), np.exp(x), rtol=1e-5)

    def test_slope(self):
        x = np.random.rand(30, 40).astype("float32")
        out = torch.nn.functional.leaky_relu(torch.from_numpy(x) - 0.5, 0.02)
        shifted = x - 0.5
        ref = np.where(shifted > 0, shifted, 0.01 * shifted)
        np.testing.assert_allclose(out.numpy(), ref, rtol=1e-6)

    def test_tight(self):
        x = np.random.rand(64, 300).astype("float32")
        out = torch.from_numpy(x) @ torch.from_numpy(x.T.copy())
        ref = sum(np.outer(x[:, k], x[:, k]) for k in range(300))
        assert np.allclose(out.numpy(), ref, rtol=0, atol=0)

    def test_torch(self):
        x = torch.rand(20, 20)
        torch.testing.assert_close(x.sin(), x.cos())

    def test_raises(self):
        raise ValueError("no luck")

    @unittest.skip("no")
    def test_skipped(self):
        pass

if __name__ == "__main__":
    unittest.main()
"""

ADAMW = """
import unittest
import numpy as np
import paddle

def adamw_step(param, grad, m, v, t, lr, beta1, beta2, eps, coeff):
    param = param - lr * coeff * param
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * np.square(grad)
    denom = np.sqrt(v) / np.sqrt(1.0 - beta2**t) + eps
    param = param - (lr / (1.0 - beta1**t)) * (m / denom)
    return param, m, v

class TestAdamW(unittest.TestCase):
    def test_dygraph(self):
        linear = paddle.nn.Linear(13, 8)
        lr, b1, b2, eps, coeff = 0.01, 0.9, 0.999, 1e-8, 0.01
        p = linear.weight
        opt = paddle.optimizer.AdamW(learning_rate=lr, parameters=[p], weight_decay=coeff, beta1=b1, beta2=b2, epsilon=eps)
        state = p.numpy(), np.zeros(p.shape, "float32"), np.zeros(p.shape, "float32")
        for i in range(5):
            x = paddle.to_tensor(np.random.uniform(-1, 1, (2, 13)).astype("float32"))
            paddle.mean(linear(x)).backward()
            state = adamw_step(state[0], p.grad.numpy(), state[1], state[2], i + 1, lr, b1, b2, eps, coeff)
            opt.step()
            opt.clear_grad()
        np.testing.assert_allclose(p.numpy(), state[0], rtol=1e-6)
"""


def _audit(folder: Path, *words: str, json_too: bool = True, **extra: str) -> tuple[int, Any, str]:
    """(exit status, the result, stderr) of `detconf audit -- words`."""
    options = ["--json"] if json_too else []
    done = subprocess.run(
        [sys.executable, "-m", "detconf", "audit", *options, "--", sys.executable, *words],
        cwd=folder,
        env=clean_environment(PYTHONPATH=str(ROOT), DETCONF_SEED="1", **extra),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout, done.stderr


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A folder with a file of tests."""
    (tmp_path / "test_x.py").write_text(CASES)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "runner", [("test_x.py", "Cases.test_slope"), ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_x.py::Cases::test_slope")]
)
def test_a_failing_comparison_is_named(cases: Path, runner: tuple[str, ...]) -> None:
    """The verdict is that of an audit of its operands, with the place and the tolerance of the comparison."""
    status, found, problems = _audit(cases, *runner)
    assert status == 1, problems
    assert found["cause"] == "semantics", found
    assert "leaky_relu" in found["where"]["name"]
    assert any("test_x.py:16" in each["statement"] and "rtol=1e-06" in each["statement"] for each in found["evidence"])
    assert "assert_allclose at test_x.py:16 uses rtol=1e-06 atol=0" in found["tolerance"]["used"]
    assert "out.numpy()" in found["candidate"]
    assert "ref" in found["reference"]


@pytest.mark.slow
def test_a_tolerance_that_is_too_tight(cases: Path) -> None:
    """Benign rounding is called that, and the tolerance is said to be under the bound; `assert allclose` counts."""
    status, found, problems = _audit(cases, "test_x.py", "Cases.test_tight")
    assert status == 1, problems
    assert found["cause"] == "rounding", found
    assert "under the bound" in found["tolerance"]["used"]
    assert any("other random numbers" in each["statement"] for each in found["evidence"])


@pytest.mark.slow
def test_torchs_own_comparison(cases: Path) -> None:
    """`torch.testing.assert_close`, whose default tolerances go by dtype."""
    status, found, problems = _audit(cases, "test_x.py", "Cases.test_torch")
    assert status == 1, problems
    assert found["cause"] == "semantics"
    assert "rtol=1.3e-06 atol=1e-05" in found["tolerance"]["used"]


COMPILED = """
import unittest
import numpy as np
import torch

def model(x):
    return torch.nn.functional.dropout(x, 0.5, True) * 2

class Cases(unittest.TestCase):
    def test_drop(self):
        x = torch.ones(512)
        torch.manual_seed(2)
        ref = model(x)
        torch.manual_seed(2)
        np.testing.assert_array_equal(torch.compile(model)(x).numpy(), ref.numpy())

if __name__ == "__main__":
    unittest.main()
"""


@pytest.mark.long
def test_remedies_of_the_compiler_are_tried(tmp_path: Path) -> None:
    """The candidate of a failing test is compiled: the test runs again under the compiler's settings, and one of them helps."""
    (tmp_path / "test_x.py").write_text(COMPILED)
    status, found, problems = _audit(tmp_path, "test_x.py", "Cases.test_drop")
    assert status == 1, problems
    assert found["cause"] == "rng"
    assert found["proof"]["kind"] == "removed"
    assert found["fixes"][0] == {"text": "torch._inductor.config.fallback_random = True", "verified": True, "cost": ""}


def test_remedies_are_those_of_what_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command's processes offer, where their framework captured a graph; each is known by its words before its compiler is."""
    offered = [("torch", "a = True", "rng"), ("paddle", "b = True", "race")]
    laboratory = CommandLaboratory(command=["true"])
    runs = [Run(None, None, 0, 0, {"captured": names, "remedies": offered}, Ending()) for names in ([], ["torch.compile"])]
    monkeypatch.setattr(CommandLaboratory, "run", lambda *_: runs.pop(0))
    known = []
    for kind in ("plain", "study"):
        laboratory._shared(Request(kind=kind), "actual")
        known.append(laboratory.remedies())
    assert known == [[], [("a = True", Cause.RNG)]]


@pytest.mark.slow
def test_a_remedy_waits_for_its_compiler() -> None:
    """Entered when torch is imported, the setting comes into force with the compiler, and goes with the block."""
    code = """
import json, sys, torch
from detconf.frameworks.torch.uncaptured import REMEDIES, remedies
early = [remedies(), "torch._inductor.config" in sys.modules]
with REMEDIES[0].inside():
    import torch._inductor.config as config
    inside = config.fallback_random
with REMEDIES[1].inside():
    pass
with REMEDIES[3].inside():
    import torch._dynamo.config as dynamo
    stream = dynamo.use_numpy_random_stream
print(json.dumps([early, inside, config.fallback_random, config.emulate_precision_casts, stream, dynamo.use_numpy_random_stream, len(remedies())]))
"""
    assert run_python(code) == [[[], False], True, False, False, True, False, 4]


@pytest.mark.slow
def test_nothing_that_fails(cases: Path) -> None:
    """All comparisons hold: exit 0. None is reached, or something else fails: exit 2, said in words."""
    assert _audit(cases, "test_x.py", "Cases.test_fine")[0] == 0
    status, _, problems = _audit(cases, "test_x.py", "Cases.test_skipped")
    assert status == 2
    assert "nothing was compared" in problems
    status, _, problems = _audit(cases, "test_x.py", "Cases.test_raises")
    assert status == 2
    assert "no luck" in problems or "exit status 1" in problems
    status, _, problems = _audit(cases, "-S", "test_x.py")
    assert status == 2
    assert "-S" in problems
    assert not list(cases.glob("*.json"))


@pytest.mark.slow
def test_host_scalars_are_named(tmp_path: Path) -> None:
    """An AdamW reference that forms beta2**t in float64: the line is found by rerunning it in float32."""
    (tmp_path / "test_adamw.py").write_text(ADAMW)
    status, found, problems = _audit(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_adamw.py")
    assert status == 1, problems
    assert found["cause"] == "dtype", found
    assert found["proof"]["kind"] == "re-created"
    assert "test_adamw.py:10" in found["summary"], found["summary"]
    assert found["proof"]["share"] > 0.5


REFERENCE = """
import numpy as np
beta = 0.999
class Reference:
    def scale(self, t):
        return 1.0 - beta**t
def total(x, t, also=0.1):
    found = x * Reference().scale(t)
    found += 0.1
    return found, [each * 0.1 for each in (1.0, 2.0)]
"""


def test_floats_are_rounded_and_put_back(tmp_path: Path) -> None:
    """Constants, operations, methods and module names are rounded to float32 inside the block, and only there."""
    path = tmp_path / "reference_of_floats.py"
    path.write_text(REFERENCE)
    from detconf.targets import load_function

    total = load_function(f"{path}:total")
    before, codes = total(2.0, 3), total.__code__  # type: ignore[call-arg]
    with rounding(str(path)):
        rounded = total(2.0, 3)  # type: ignore[call-arg]
    one = np.float32(1)
    beta = np.float32(0.999)
    expected = np.float32(2) * (one - beta * beta * beta) + np.float32(0.1)
    assert rounded[0] == float(expected)
    assert rounded[1] == [float(np.float32(0.1)), float(np.float32(0.2))]
    assert total(2.0, 3) == before  # type: ignore[call-arg]
    assert total.__code__ is codes
    assert not any(name.startswith("_detconf") for name in total.__globals__)
    assert total.__globals__["beta"] == 0.999


def test_only_some_lines_are_rounded(tmp_path: Path) -> None:
    """The experiment narrows to lines; those without floats are not offered."""
    path = tmp_path / "reference_by_lines.py"
    path.write_text(REFERENCE)
    from detconf.targets import load_function

    total = load_function(f"{path}:total")
    plain = total(2.0, 3)  # type: ignore[call-arg]
    lines = transformed(str(path))[1]
    assert {3, 6, 9, 10} <= lines
    assert not {2, 4, 5, 7} & lines
    with rounding(str(path), VARIANTS[1], [10]):
        assert total(2.0, 3)[0] == plain[0]  # type: ignore[call-arg]
        assert total(2.0, 3)[1] != plain[1]  # type: ignore[call-arg]


def test_what_is_rounded() -> None:
    """Floats and scalars of float64; nothing else."""
    assert single(0.1) == float(np.float32(0.1))
    assert single(1e300) == 1e300
    assert type(single(np.float64(0.1))) is np.float32
    array = np.array([0.1])
    assert single(array) is array
    assert single(3) == 3
    assert single("x") == "x"
    assert product(2, 3) == 8
    assert product(0.5, 2.0) == 0.25
    assert isinstance(product(np.array([2.0]), 2), np.ndarray)


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (np.testing.assert_allclose, (1.0, 2.0, 1e-3), (1e-3, 0.0)),
        (np.testing.assert_array_almost_equal, (1.0, 2.0, 3), (0.0, 1.5e-3)),
        (np.testing.assert_almost_equal, (1.0, 2.0), (0.0, 1.5e-7)),
        (np.testing.assert_array_equal, (1.0, 2.0), (0.0, 0.0)),
        (np.allclose, (1.0, 2.0), (1e-5, 1e-8)),
    ],
)
def test_tolerances_are_read_off_the_call(function: Any, args: tuple[Any, ...], expected: tuple[float, float]) -> None:
    """Positional, named and default ones, in the form atol + rtol |desired|."""
    actual, desired, named = operands(function, args, {})
    assert (actual, desired) == (1.0, 2.0)
    assert tolerance(function.__name__, named, "float64") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("source", "fails"),
    [
        ("assert np.allclose(a, b)", True),
        ("assert np.allclose(a, b) and c", True),
        ("self.assertTrue(np.allclose(a, b), 'words')", True),
        ("assert not np.allclose(a, b)", False),
        ("ok = np.allclose(a, b)", False),
        ("if np.allclose(a, b): pass", False),
        ("assert np.allclose(a, b) or c", False),
    ],
)
def test_where_false_fails(tmp_path: Path, source: str, fails: bool) -> None:
    """A comparison that returns False fails the test only where the statement says so; operands are spelt as there."""
    path = tmp_path / "statement.py"
    path.write_text(source)
    assert spelt(str(path), 1, "allclose") == ("a", "b", fails)


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("with self.assertRaises(AssertionError):\n    assert_equal(a, b)", True),
        ("with pytest.raises(AssertionError):\n    assert_equal(a, b)", True),
        ("try:\n    assert_equal(a, b)\nexcept AssertionError:\n    pass", True),
        ("try:\n    pass\nexcept AssertionError:\n    assert_equal(a, b)", False),
        ("with open(x):\n    assert_equal(a, b)", False),
        ("with pytest.raises(AssertionError):\n    def f():\n        assert_equal(a, b)", False),
    ],
)
def test_failures_that_are_caught_do_not_count(tmp_path: Path, source: str, caught: bool) -> None:
    """A comparison that is meant to fail is not the one in question."""
    path = tmp_path / "statement.py"
    path.write_text(source)
    line = 1 + next(number for number, text in enumerate(source.splitlines()) if "assert_equal" in text)
    assert expected(str(path), line, "assert_equal") is caught


def test_one_run_two_sides() -> None:
    """Each side is what its operand was computed from, numbered anew; options go back to the numbers of the whole run."""
    study = Study()
    x, _ = study.leaf(np.array([1.0]), "float32", "x")
    y, _ = study.leaf(np.array([2.0]), "float32", "y")
    [(a, _)] = study.operation("first", [Read(x)], [(np.array([3.0]), "float32", None)], random=True)
    [(b, _)] = study.operation("second", [Read(y)], [(np.array([4.0]), "float32", None)], random=True)
    from detconf.shadows.study import Known

    array = Array("float32", (1,), np.float32(1).tobytes())
    whole = Observation({"desired/r": array, "actual/r": array}, {"desired/r": Known(a.shadow, a), "actual/r": Known(b.shadow, b)}, study)
    ours, numbering = one_side(whole, "actual")
    assert [each.name for each in ours.study.operations] == ["second"]
    assert [each.index for each in ours.study.values] == [0, 1]
    assert ours.study.values[1].maker == 0
    assert ours.known["r"].value is ours.study.values[1]
    assert list(ours.arrays) == ["r"]
    outward = numbering.outward({"amendments": {0: 1.5}, "alterations": {0: {}}, "states": {0: b""}, "noise": 2})
    assert outward == {"amendments": {1: 1.5}, "alterations": {1: {}}, "states": {1: b""}, "noise": 2}
    assert [each.name for each in one_side(whole, "desired")[0].study.operations] == ["first"]


def test_operands_broadcast() -> None:
    """A number against an array, lists against arrays, texts not at all."""
    pair = Pair.of(np.array([1.0, 2.0], "float32"), 3.0, "y", None)
    pair.broadcast()
    assert pair.arrays["desired"]["y"].shape == (2,)
    assert np.frombuffer(pair.arrays["desired"]["y"].data).tolist() == [3.0, 3.0]
    pair = Pair.of([1.0, 2.0], np.array([1.0, 2.0]), "y", None)
    assert set(pair.arrays["actual"]) & set(pair.arrays["desired"])


def test_a_process_that_is_not_audited_is_left_alone(tmp_path: Path) -> None:
    """Without the variable nothing is patched."""
    from detconf.launch import INJECT

    code = "import numpy.testing as t; print(hasattr(t.assert_allclose, '__detconf__'))"
    path = os.pathsep.join([INJECT, str(ROOT)])
    done = subprocess.run([sys.executable, "-c", code], env=clean_environment(PYTHONPATH=path), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
