"""The command line: exit codes, streams, JSON, and bad input in words."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, clean_environment, run_python

STABLE = "import numpy as np\ndef f():\n    return {'x': np.arange(3.0)}\ndef g():\n    return {'x': np.random.default_rng().random(3)}\ndef h():\n    return None\n"


def detconf(*words: str, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "detconf", *words],
        env=clean_environment(**extra),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = tmp_path / "target.py"
    path.write_text(STABLE)
    return str(path)


ROWS = [
    # (words, exit code, in stdout, in stderr)
    (["profiles"], 0, "strict", ""),
    (["profiles", "--json"], 0, '"strict"', ""),
    (["show", "ci"], 0, "profile strict", ""),
    (["show", "ci", "--json"], 0, "detconf.profile/1", ""),
    (["show", "env.MKL_CBWR"], 0, "COMPATIBLE", ""),
    (["show", "env.MKL_CBWR", "--json"], 0, '"works_until"', ""),
    (["plan", "strict"], 0, "policy tf32: false", ""),
    (["plan", "ci"], 0, "PYTHONHASHSEED: too-late", ""),
    (["plan", "ci", "--json"], 0, "detconf.plan/1", ""),
    (["inspect", "-p", "strict"], 1, "not in force", "fresh process"),
    (["inspect", "-p", "strict", "--json"], 1, "detconf.attestation/1", ""),
    (["knobs"], 0, "torch.backends.cudnn.benchmark", ""),
    (["schema"], 0, "additionalProperties", ""),
    (["env", "ci"], 0, "export OMP_NUM_THREADS=1", ""),
    (["env", "ci", "--format", "json"], 0, '"OMP_NUM_THREADS": "1"', ""),
    (["show", "nope"], 2, "", "unknown profile"),
    (["plan", "stritc"], 2, "", "Did you mean 'strict'"),
    (["compare", "no_such.det", "no_such.det"], 2, "", "no_such.det cannot be read"),
    (["compare", "profiles", "profiles"], 2, "", "neither recordings nor files of arrays"),
    (["verify"], 2, "", "one thing to run"),
    (["verify", "x.py:f", "--", "true"], 2, "", "one thing to run"),
    (["verify", "no_such.py:f"], 2, "", "no_such.py"),
    (["verify", "x"], 2, "", "file.py:function"),
    (["verify", "--", "true"], 2, "", "nothing was compared"),
    (["verify", "--", "no-such-command-anywhere"], 2, "", "no-such-command-anywhere"),
    (["verify", "x.py:f", "--runs", "1"], 2, "", "runs"),
    (["profiles", "--", "true"], 2, "", "takes no command"),
    (["nope"], 2, "", "invalid choice"),
    (["run", "strict"], 125, "", "no command"),
    (["run", "nope", "--", "true"], 125, "", "unknown profile"),
    (["run", "strict", "--", "no-such-command-anywhere"], 125, "", "No such file"),
    (["doctor", "--no-import"], 0, "instruction sets", ""),
    (["doctor", "--no-import", "--json"], 0, "detconf.diagnosis/1", ""),
    (["inspect", "no-such-folder"], 2, "", "Accepted: a folder of reports"),
    (["env", "strict", "--hardware", "rocm"], 0, "# never tried here", ""),
    (["env", "strict", "--hardware", "rocm", "--format", "github"], 0, "MIOPEN_FIND_MODE=FAST", "never tried here"),
    (["env", "strict", "--hardware", "rocm", "--json"], 0, '"MIOPEN_FIND_MODE": "FAST"', "never tried here"),
    (["env", "strict", "--hardware", "tpu"], 2, "", "invalid choice"),
]


@pytest.mark.parametrize(("words", "code", "out", "err"), ROWS, ids=[" ".join(row[0]) for row in ROWS])
def test_commands(words: list[str], code: int, out: str, err: str) -> None:
    """Exit code, results on stdout, notices on stderr, never a traceback."""
    done = detconf(*words)
    assert "Traceback" not in done.stderr
    assert (done.returncode, out in done.stdout, err in done.stderr) == (code, True, True), done.stdout[-500:] + done.stderr[-500:]
    if "--json" in words:
        json.loads(done.stdout)


@pytest.mark.parametrize(("function", "code"), [("f", 0), ("g", 1), ("h", 2)])
@pytest.mark.parametrize("fresh", [(), ("--fresh",)])
def test_verify_exit_codes(target: str, function: str, code: int, fresh: tuple[str, ...]) -> None:
    """Stable is 0, not stable is 1, nothing to compare is 2, in one process and in fresh ones."""
    done = detconf("verify", f"{target}:{function}", "--json", *fresh)
    assert done.returncode == code, done.stderr
    if code < 2:
        assert json.loads(done.stdout)["stable"] == (code == 0)


def test_verify_a_script_under_a_profile(tmp_path: Path) -> None:
    """An unmodified script that draws without a seed is unstable bare, and stable under strict."""
    script = tmp_path / "draw.py"
    script.write_text(
        "import numpy as np, random, detconf\ndetconf.publish('x', np.random.rand(3))\ndetconf.publish('y', random.random())\n"
    )
    assert detconf("verify", "--", sys.executable, str(script)).returncode == 1
    done = detconf("verify", "-p", "strict", "--", sys.executable, str(script))
    assert done.returncode == 0, done.stdout
    assert "bitwise stable under strict" in done.stdout


def test_run_returns_the_commands_code() -> None:
    """`run` is the command: its exit code, its stdin, its signals."""
    assert detconf("run", "strict", "--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    done = subprocess.run(
        [sys.executable, "-m", "detconf", "run", "strict", "--", "cat"],
        input="hello",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "hello")
    killed = detconf("run", "strict", "--", sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(signal.SIGTERM)})")
    assert killed.returncode == -signal.SIGTERM


def test_run_puts_ci_fully_in_force() -> None:
    """Under `detconf run ci`, an unmodified script finds nothing too late."""
    code = (
        "import torch, numpy, paddle, detconf, json; a = detconf.inspect();"
        "print(json.dumps([a.profile, [e.knob for e in a.entries if e.applies and e.outcome not in ('already', 'pending')], torch.initial_seed()]))"
    )
    done = detconf("run", "ci", "--", sys.executable, "-c", code)
    profile, open_rows, seed = json.loads(done.stdout.strip().splitlines()[-1])
    assert (profile, open_rows, seed) == ("ci", [], 0)


def test_children_get_knobs_and_no_seed() -> None:
    """A child of a configured command has the same settings, and does not draw what its parent draws."""
    inner = "import torch, random; print(torch.get_deterministic_debug_mode(), random.random())"
    code = f"import subprocess, sys, random; print(random.random()); print(subprocess.check_output([sys.executable, '-c', {inner!r}], text=True))"
    first, second = detconf("run", "strict", "--", sys.executable, "-c", code).stdout.split("\n")[:2]
    assert second.split()[0] == "2"
    assert second.split()[1] != first.strip()


def test_a_foreign_sitecustomize_still_runs(tmp_path: Path) -> None:
    """The user's own sitecustomize runs after ours; a program without one starts without a word."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = True")
    code = "import sys, random; print(getattr(sys, 'theirs', False), random.random())"
    seeded = __import__("random").Random(0).random()
    for path, theirs in ((str(tmp_path), True), ("", False)):
        done = detconf("run", "strict", "--", sys.executable, "-c", code, PYTHONPATH=path)
        assert done.stdout.split() == [str(theirs), str(seeded)], done.stderr
        assert done.stderr == ""


def test_a_broken_profile_does_not_stop_the_program() -> None:
    """With a bad DETCONF_SET, the program still starts, and stderr says why the profile does not hold."""
    from detconf.launch import INJECT

    environment = clean_environment(DETCONF_PROFILE="strict", DETCONF_SET="nope=1", PYTHONPATH=f"{INJECT}:{ROOT}")
    done = subprocess.run([sys.executable, "-c", "print(1)"], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("1\n", 0)
    assert "unknown knob 'nope'" in done.stderr


@pytest.mark.parametrize("form", ["sh", "github", "dotenv", "powershell", "json"])
def test_env_round_trips_through_a_shell(form: str) -> None:
    """The printed lines hold what `run` would set; sh is tried in a shell."""
    done = detconf("env", "ci", "--format", form)
    assert "NPY_DISABLE_CPU_FEATURES" in done.stdout or "X86" not in done.stdout
    if form == "sh":
        shell = subprocess.run(
            ["sh", "-c", f"{done.stdout}\n{sys.executable} -c 'import os, json; print(json.dumps(dict(os.environ)))'"],
            env=clean_environment(), capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        expected = json.loads(detconf("env", "ci", "--format", "json").stdout)
        assert {key: json.loads(shell.stdout)[key] for key in expected} == expected


def test_a_read_only_home_does_not_matter(tmp_path: Path) -> None:
    """Nothing is written: apply works where no folder can be written to."""
    tmp_path.chmod(0o555)
    assert run_python(
        "import detconf, json; print(json.dumps(detconf.apply('strict').attestation.ok))",
        cwd=tmp_path,
        HOME=str(tmp_path),
        TMPDIR=str(tmp_path),
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["sh", "github", "dotenv", "powershell", "json"])
@pytest.mark.parametrize(
    ("hardware", "there", "not_there"),
    [
        ("cpu", ["ONEDNN_DEFAULT_FPMATH_MODE"], ["CUBLAS", "NVIDIA", "TUNABLEOP", "MIOPEN", "ROCBLAS", "HIPBLASLT", "never tried"]),
        ("cuda", ["ONEDNN_DEFAULT_FPMATH_MODE", "CUBLAS_WORKSPACE_CONFIG", "TUNABLEOP"], ["MIOPEN", "ROCBLAS", "HIPBLASLT"]),
        ("rocm", ["ONEDNN_DEFAULT_FPMATH_MODE", "MIOPEN", "ROCBLAS", "HIPBLASLT", "TUNABLEOP"], ["CUBLAS", "NVIDIA_TF32"]),
    ],
)
def test_env_for_some_hardware(form: str, hardware: str, there: list[str], not_there: list[str]) -> None:
    """Only what the hardware needs, its CPU included; what was never tried is marked where there are comments."""
    done = detconf("env", "strict", "--hardware", hardware, "--format", form)
    whole = detconf("env", "strict", "--format", form).stdout.splitlines()
    assert done.returncode == 0
    assert [word for word in there if word not in done.stdout] == []
    assert [word for word in not_there if word in done.stdout] == []
    lines = [line.rstrip(",") for line in done.stdout.splitlines()]
    assert {line for line in lines if not line.startswith("#")} <= {line.rstrip(",") for line in whole}
    marked = "# never tried here" in done.stdout
    assert marked == (hardware != "cpu" and form not in ("github", "json"))
    assert ("never tried here" in done.stderr) == (hardware != "cpu" and not marked)
