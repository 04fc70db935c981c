"""The doctor: fit for a bug report, true, and never stopped by what it looks at."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, clean_environment

from detconf.doctor import diagnose


def doctor(*words: str, cwd: Path | None = None, **extra: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "detconf", "doctor", *words], env=clean_environment(**{"PYTHONPATH": str(ROOT), **extra}), cwd=cwd,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done = doctor("--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_versions_and_libraries(found: dict[str, Any]) -> None:
    """Interpreter, packages, what each framework calls itself, pools with threads, dispatch levels."""
    assert found["schema"] == "detconf.diagnosis/1"
    assert found["facts"]["python"] == sys.version.split()[0]
    assert {"torch", "numpy"} <= set(found["packages"])
    assert set(found["frameworks"]) == {"numpy", "torch", "paddle"}
    assert found["frameworks"]["torch"]["version"].startswith("2.")
    assert all(pool["num_threads"] >= 1 for each in found["frameworks"].values() for pool in each["pools"])
    assert "ATEN_CPU_CAPABILITY" in found["frameworks"]["torch"]["answers"]
    assert found["findings"] == []


def test_guarantees_are_what_inspect_says(found: dict[str, Any]) -> None:
    """What only a fresh process gets, and what does not apply here, is told apart, for strict and ci."""
    strict, ci = found["guarantees"]
    assert (strict["profile"], ci["profile"]) == ("strict", "ci")
    assert "torch.use_deterministic_algorithms" in strict["at_any_moment"]
    assert "env.PYTHONHASHSEED" in ci["at_start"]
    assert "env.PYTHONHASHSEED" not in strict["at_start"]
    if "cuda" not in found["facts"]["devices"]:
        assert "env.NVIDIA_TF32_OVERRIDE" in strict["not_here"]
        assert strict["untried"] == []
    names = [*ci["at_any_moment"], *ci["at_start"], *ci["cannot"], *ci["not_here"]]
    assert len(names) == len(set(names))


def test_nothing_private(tmp_path: Path) -> None:
    """No host name, user, home, working directory or foreign variable in either form."""
    home = tmp_path / "alice"
    home.mkdir()
    private = {"HOME": str(home), "USER": "alice", "AWS_SECRET": "hunter2", "DETCONF_PROFILE": "strict", "MKL_CBWR": f"{home}/x"}
    for words in ((), ("--json",)):
        done = doctor(*words, "-v", cwd=tmp_path, **private)
        assert done.returncode == 0, done.stderr
        for secret in (socket.gethostname(), "alice", "hunter2", str(tmp_path), str(ROOT), sys.prefix):
            assert secret not in done.stdout + done.stderr, secret


def test_a_crash_is_a_finding(tmp_path: Path) -> None:
    """A framework that kills its interpreter, or cannot be imported, is a finding; the rest is said, exit 0."""
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "__init__.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    (tmp_path / "torch.py").write_text("raise ImportError('libnothing.so: cannot open')")
    done = doctor("--json", PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT))))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(found["findings"]) == [
        "paddle cannot be examined: signal SIGSEGV",
        "torch cannot be examined: exit status 1: ImportError: libnothing.so: cannot open",
    ]
    assert "numpy" in found["frameworks"]
    assert "findings:" in doctor("--no-import", MKL_CBWR="AVX9").stdout


def test_a_hang_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that does not end is ended, and said."""
    for name in ("torch", "paddle", "numpy"):
        (tmp_path / f"{name}.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    findings = diagnose(seconds=1).findings
    assert len(findings) == 3
    assert all("timeout after 1 s" in line for line in findings)


def test_without_imports() -> None:
    """--no-import starts no process: versions by the packages' word, and nothing is claimed."""
    done = doctor("--no-import", "--json")
    found = json.loads(done.stdout)
    assert (found["frameworks"], found["guarantees"]) == ({}, [])
    assert "torch" in found["packages"]


def test_a_value_that_cannot_work_is_a_finding() -> None:
    """A variable whose value no library takes is named."""
    found = json.loads(doctor("--no-import", "--json", CUBLAS_WORKSPACE_CONFIG="4096:8").stdout)
    assert found["variables"] == {"CUBLAS_WORKSPACE_CONFIG": "4096:8"}
    assert "CUBLAS_WORKSPACE_CONFIG" in found["findings"][0]
