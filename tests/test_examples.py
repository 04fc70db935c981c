"""Every example runs as its docstring says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from conftest import ROOT, clean_environment


def python(*words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=clean_environment(**extra), capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_digits(framework: str) -> None:
    """The training learns, strict is in force with nothing drifted, and two fresh processes agree in every bit."""
    script = f"examples/digits_{framework}.py"
    done = python(script)
    accuracy = float(done.stdout.split("held-out digits: ")[1].split()[0])
    assert accuracy > 0.85
    assert "drift: none" in done.stdout
    assert "not in force" not in done.stdout
    found = json.loads(python("-m", "detconf", "verify", "-p", "strict", "--runs", "2", "--json", "--", sys.executable, script).stdout)
    assert found["stable"]
    assert found["observed"]["arrays"] > 10


@pytest.mark.parametrize(("race", "runs"), [("torch_gradient", 60), ("paddle_program", 60)])
def test_races(race: str, runs: int) -> None:
    """Unstable without a profile (at least two results; the busier the machine, the fewer), one result under strict."""
    bare = json.loads(python("-m", "detconf", "verify", f"examples/races.py:{race}", "--runs", str(runs), "--json").stdout)
    assert bare["distinct"] >= 2
    strict = json.loads(
        python("-m", "detconf", "verify", "-p", "strict", f"examples/races.py:{race}", "--runs", str(runs), "--json").stdout
    )
    assert strict["stable"], strict["divergence"]
