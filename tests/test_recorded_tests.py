"""A failing test that was recorded: one file with the comparison that fails, its operands as both sides of an audit anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, clean_environment
from test_audit_assertions import ADAMW, CASES

import detconf
from detconf.digests import Flag
from detconf.errors import DetconfError, TargetError
from detconf.recording.reading import Recording

MORE = """
import unittest
import numpy as np
import torch
from numpy.testing import assert_allclose

class More(unittest.TestCase):
    def setUp(self):
        self.x = np.random.default_rng(0).standard_normal((16, 40)).astype("float32")

    def test_half(self):
        x = torch.from_numpy(self.x).half()
        assert_allclose(x.numpy(), self.x.astype("float16"))
        with self.assertRaises(AssertionError):
            assert_allclose(self.x, self.x + 1)
        assert_allclose((x @ x.T).float().numpy(), self.x @ self.x.T, rtol=1e-5, err_msg="half")
        assert_allclose(self.x, self.x + 1)

    def test_plain(self):
        self.assertAlmostEqual(1.0, 2.0)

    def test_row(self):
        x = torch.from_numpy(self.x)
        assert_allclose(torch.tanh(x).numpy(), np.tanh(self.x), rtol=1e-4)
        assert_allclose((x - x.mean(0)).numpy(), np.sin(self.x[:1]), rtol=1e-6)

if __name__ == "__main__":
    unittest.main()
"""
PYTEST = """
import numpy as np
import pytest
import torch

@pytest.fixture
def data():
    return np.random.default_rng(0).standard_normal((8, 8)).astype("float32")

@pytest.mark.parametrize("slope", [0.01, 0.02])
def test_slope(data, slope):
    found = {"x": torch.from_numpy(data), "y": torch.nn.functional.leaky_relu(torch.from_numpy(data), slope)}
    torch.testing.assert_close(found, {"x": torch.from_numpy(data), "y": torch.maximum(torch.from_numpy(data), 0.01 * torch.from_numpy(data))})
"""


def _record(folder: Path, *words: str, options: tuple[str, ...] = ("--values", "--sources")) -> int:
    """The exit status of a recorded command; the recording is t.det."""
    return subprocess.run(
        [sys.executable, "-m", "detconf", "record", *options, "-o", "t.det", "--", sys.executable, *words],
        cwd=folder,
        env=clean_environment(PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1"),
        capture_output=True,
        timeout=240,
        check=False,
    ).returncode


def _audited(folder: Path, source: str, *words: str) -> detconf.Audit:
    """The audit of a test that fails while it is recorded."""
    (folder / "test_x.py").write_text(source)
    assert _record(folder, *words) == 1
    return detconf.audit(str(folder / "t.det"))


@pytest.mark.slow
@pytest.mark.parametrize("runner", [("test_x.py", "Cases.test_slope"), ("-m", "pytest", "-q", "test_x.py::Cases::test_slope")])
def test_another_formula(tmp_path: Path, runner: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The operation, the place and the tolerance of the comparison, as when the test runs here; and the command says so."""
    found = _audited(tmp_path, CASES, *runner)
    assert found.cause == "semantics", found
    assert found.where
    assert "where" in found.where.name or "leaky_relu" in found.where.name
    assert found.where.source.startswith("test_x.py:")
    assert found.candidate == "out.numpy() at test_x.py:16"
    assert found.reference == "ref at test_x.py:16"
    assert "test_x.py:16: assert_allclose(out.numpy(), ref, rtol=1e-06, atol=0) fails" in found.evidence[0].statement
    from detconf.cli import main

    assert main(["audit", str(tmp_path / "t.det"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["cause"] == "semantics"
    assert main(["show", str(tmp_path / "t.det")]) == 0
    assert "a comparison fails at test_x.py:16" in capsys.readouterr().out


@pytest.mark.slow
def test_rounding_under_a_tight_tolerance(tmp_path: Path) -> None:
    """`assert numpy.allclose(...)`: benign, and the tolerance is said to be under the bound."""
    found = _audited(tmp_path, CASES, "test_x.py", "Cases.test_tight")
    assert found.cause == "rounding", found
    assert "allclose at test_x.py:22 uses rtol=0 atol=0: under the bound" in found.used


@pytest.mark.slow
def test_host_scalars_of_a_mixed_pair(tmp_path: Path) -> None:
    """A NumPy AdamW that eats the gradients of Paddle's: its scalars were formed in float64."""
    found = _audited(tmp_path, ADAMW, "-m", "pytest", "-q", "test_x.py")
    assert found.cause == "dtype", found
    assert found.proof
    assert found.proof.kind == "re-created"
    assert "test_x.py:9" in found.summary or "test_x.py:10" in found.summary
    assert found.fixes[0].verified


@pytest.mark.slow
def test_the_first_that_fails_in_another_dtype(tmp_path: Path) -> None:
    """Comparisons that hold, and one whose failure is expected, come before it; one that fails comes behind it."""
    found = _audited(tmp_path, MORE, "-m", "pytest", "-q", "test_x.py::More::test_half")
    assert found.cause == "dtype", found
    assert "test_x.py:16" in found.candidate
    with Recording(tmp_path / "t.det") as recording:
        met = [event for event in recording.events() if event.flags & Flag.COMPARED]
    assert [len(event.inputs) for event in met] == [0, 0, 2]
    assert [event.source for event in met] == ["test_x.py:13", "test_x.py:15", "test_x.py:16"]


@pytest.mark.slow
def test_operands_of_other_shapes(tmp_path: Path) -> None:
    """A row against an array is spread over it; the chain that led to it stays known."""
    found = _audited(tmp_path, MORE, "test_x.py", "More.test_row")
    assert found.where
    assert found.where.shape == (16, 40)
    assert found.cause in ("semantics", "unknown"), found


@pytest.mark.slow
def test_nested_operands_and_parameters(tmp_path: Path) -> None:
    """Of two dictionaries the entries that differ are judged."""
    found = _audited(tmp_path, PYTEST, "-m", "pytest", "-q", "test_x.py")
    assert found.cause == "semantics", found
    assert found.where
    assert found.where.scope.endswith(".y")


@pytest.mark.slow
def test_nothing_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was compared: no comparison fails, none has arrays, there is none; no values were kept; the exit status is the test's."""
    (tmp_path / "test_x.py").write_text(CASES)
    (tmp_path / "test_m.py").write_text(MORE)
    from detconf.cli import main

    path = str(tmp_path / "t.det")
    for words, status, told in (
        (("test_x.py", "Cases.test_fine"), 0, "nothing was compared: in .*t.det its one comparison holds"),
        (("test_x.py", "Cases.test_raises"), 1, "nothing was compared: in .*t.det no comparison that detconf knows"),
        (("-m", "pytest", "-q", "test_x.py::Cases::test_skipped"), 0, "nothing was compared"),
    ):
        assert _record(tmp_path, *words) == status
        with pytest.raises(TargetError, match=told):
            detconf.audit(path)
        assert main(["audit", path]) == 2
        assert "nothing was compared" in capsys.readouterr().err
    with pytest.raises(DetconfError, match="No such file"):
        detconf.audit(str(tmp_path / "other.det"))
    assert _record(tmp_path, "test_x.py", "Cases.test_slope", options=()) == 1
    with pytest.raises(TargetError, match="--values"):
        detconf.audit(path)


DIES = """
import os
import numpy as np
def check(a, b):
    np.testing.assert_allclose(a, b)
x = np.random.rand(4, 4).astype("float32")
try:
    check(np.sin(x), np.cos(x))
except AssertionError:
    os._exit(7)
"""


def test_a_process_that_is_ended_at_once(tmp_path: Path) -> None:
    """The comparison is in the file before anything else happens; what it compares was computed before."""
    (tmp_path / "test_x.py").write_text(DIES)
    assert _record(tmp_path, "test_x.py") == 7
    (tmp_path / "t.det").rename(tmp_path / "t.pid7.det")  # as a worker of pytest-xdist leaves it
    found = detconf.audit(str(tmp_path / "t.det"))
    assert found.cause == "semantics"
    assert "test_x.py:5" in found.reference


@pytest.mark.slow
def test_recordings_agree_whoever_compares(tmp_path: Path) -> None:
    """Two recordings of one failing test are equal, comparison included; the test's own output stays."""
    (tmp_path / "test_x.py").write_text(MORE)
    found = []
    for name in ("a.det", "b.det"):
        assert _record(tmp_path, "test_x.py", "More.test_row") == 1
        (tmp_path / "t.det").rename(tmp_path / name)
        found.append(str(tmp_path / name))
    assert detconf.compare(*found).equal
    assert _record(tmp_path, "test_x.py", "More.test_plain") == 1


def test_a_recording_that_cannot_be_written_harms_no_test(tmp_path: Path) -> None:
    """A comparison that cannot be taken is said on stderr, and the assertion is raised all the same."""
    code = """
import numpy as np
from detconf.auditing.assertions.noting import Noting
class Broken:
    active, keeping, index = True, True, 0
    def operation(self, *args, **options):
        raise RuntimeError("broken")
noting = Noting(Broken())
noting.patch(np.testing)
try:
    np.testing.assert_allclose(np.ones(3), np.zeros(3))
except AssertionError:
    print("raised")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, check=True
    )
    assert done.stdout == "raised\n"
    assert "a comparison could not be taken" in done.stderr


def test_numbers_of_python(tmp_path: Path) -> None:
    """A test that never imports NumPy fails by its operands all the same: it is not told as one that holds."""
    source = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertAlmostEqual(0.1 + 0.2, 0.31)\nunittest.main()\n"
    found = _audited(tmp_path, source, "test_x.py")
    assert found.candidate == "0.1 + 0.2 at test_x.py:4"
    assert "fails" in found.evidence[0].statement
