"""The three reports that this project started from, each audited by its example."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from conftest import ROOT, clean_environment, run_python

IMPORT = "import sys; sys.path.insert(0, 'examples')\n"


def verdicts(example: str) -> dict[str, dict[str, Any]]:
    """What an example prints with --json."""
    words = [sys.executable, f"examples/{example}.py", "--json"]
    done = subprocess.run(words, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert all(each["schema"] == "detconf.audit/1" for each in found.values())
    return found


def figure(found: dict[str, Any], words: str) -> float:
    """The figure of the first evidence that says so."""
    return float(next(each["figure"] for each in found["evidence"] if words in each["statement"]))


@pytest.mark.slow
def test_linear() -> None:
    """Arrays alone: TF32 is told from bfloat16 and from float32 sums. Two real frameworks on CPU: rounding."""
    found = verdicts("linear_torch_vs_paddle")
    gpu, cpu = found["torch on CPU against paddle on GPU (emulated)"], found["torch on CPU against paddle on CPU"]
    assert gpu["cause"] == "dtype"
    assert gpu["proof"]["kind"] == "re-created"
    assert "tf32" in gpu["summary"]
    assert figure(gpu, "rounded to tf32: mean effect") < 300 < figure(gpu, "rounded to bfloat16: mean effect")
    assert figure(gpu, "mean distance from the float64 shadow") == pytest.approx(1.35e-4, rel=0.1)
    assert cpu["cause"] == "rounding"
    code = IMPORT + "import json, linear_torch_vs_paddle as m; print(json.dumps([m.propagated(), m.switches()]))"
    propagated, switches = run_python(code, cwd=ROOT)
    assert 5e-9 < propagated < 1e-7
    assert any("float32_matmul_precision" in each for each in switches["torch"])
    assert any("cublas" in each for each in switches["paddle"])
    assert any("NVIDIA_TF32_OVERRIDE" in each for each in switches["native"])


@pytest.mark.long
def test_derivatives() -> None:
    """The honest pair is rounding; each planted fault is named where it stands."""
    found = verdicts("derivatives_numpy_vs_torch")
    honest = found["honest"]
    assert honest["cause"] == "rounding"
    assert max(each["rtol"] for each in honest["tolerance"]["arrays"]) < 1e-10
    source = (ROOT / "examples/derivatives_numpy_vs_torch.py").read_text().splitlines()

    def line(name: str) -> str:
        return source[int(found[name]["where"]["source"].rpartition(":")[2]) - 1]

    assert found["float32_in_one_product"]["cause"] == "dtype"
    assert "float()" in line("float32_in_one_product")
    assert found["wrong_weight_order"]["cause"] in ("layout", "semantics")
    assert "x @ weight" in line("wrong_weight_order")
    assert found["not_squared"]["cause"] == "semantics"
    assert "curve * dz +" in line("not_squared")
    assert found["transposed_square_weight"]["cause"] == "layout"
    assert "x @ weight" in line("transposed_square_weight")


def test_advice_changes_nothing_that_matters() -> None:
    """Each piece of advice stays at rounding; mm and matmul, the device and the default dtype change no bit."""
    code = """
import json, derivatives_numpy_vs_torch as m
reference, plain = m.with_numpy(), m.with_torch()
print(json.dumps({words: [m.apart(reference, advised()), m.share_of_equal_bits(plain, advised())] for words, advised in m.ADVICE.items()}))
"""
    found = run_python(IMPORT + code, cwd=ROOT)
    assert len(found) == 5
    assert all(apart < 1e-13 for apart, _ in found.values())
    assert [found[words][1] for words in ("run it on the CPU", "matmul in place of mm", "float64 as the default dtype")] == [1, 1, 1]
    assert found["write the sigmoid yourself"][1] < 1


@pytest.mark.long
def test_adamw() -> None:
    """All modes are equal; the reference's host scalars are named, in two functions, in a graph, and in the test itself."""
    found = verdicts("adamw_dynamic_vs_static")
    for name in ("static against dynamic", "to_static against dynamic"):
        assert found[name]["equal"], name
    dynamic = found["dynamic against the test's reference"]
    assert dynamic["where"]["source"].startswith("examples/adamw_dynamic_vs_static.py:")
    assert figure(dynamic, "its scalar is 0.001") == pytest.approx(1.29e-5, rel=0.01)
    for name in (
        "dynamic against the test's reference",
        "to_static against the test's reference",
        "static against the test's reference",
        "the failing test itself",
    ):
        assert found[name]["cause"] == "dtype", name
        assert found[name]["proof"]["kind"] == "re-created", name
        assert found[name]["fixes"][0]["verified"], name
        assert "BETA2" in " ".join(each["statement"] for each in found[name]["evidence"]), name
    corrected = found["dynamic against a float32 reference"]
    assert corrected["cause"] in ("equal", "rounding")  # equal where the kernel contracts a * b + c; without FMA one ULP
    if corrected["where"]:
        assert corrected["where"]["max_ulp"] <= 16
    assert any("DCU" in each and "record --values" in each and "detconf audit" in each for each in dynamic["unexamined"])


def test_most_initialisations_trip_the_test() -> None:
    """About two in three fail against the test's reference, few against the float32 one."""
    code = """
import json, adamw_dynamic_vs_static as m
print(json.dumps([sum(m.trips(update, seed) for seed in range(60)) for update in (m.adamw_as_tested, m.adamw_as_computed)]))
"""
    tested, computed = run_python(IMPORT + code, cwd=ROOT)
    assert 25 <= tested <= 55
    assert computed <= 10
