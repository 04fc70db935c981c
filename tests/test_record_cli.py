"""`detconf record` and `detconf show FILE.det`: unmodified programs, exit codes, names of files, words for what went wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import clean_environment
from test_cli import detconf

from detconf.recording.reading import Recording

SCRIPT = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
sgd = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    sgd.step()
print(model.weight.sum().item(), sys.argv[1:])
raise SystemExit(7)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def record(folder: Path, *words: str, options: tuple[str, ...] = (), **extra: str) -> subprocess.CompletedProcess[str]:
    return detconf("record", "-o", "run.det", *options, "--", *words, cwd=folder, **extra)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "det" in path.suffix)


def names(path: Path) -> list[str]:
    with Recording(path) as found:
        return [event.name for event in found.events()]


def test_an_unmodified_script_is_recorded(script: Path, tmp_path: Path) -> None:
    """The script prints and exits as without us, its words are its own, and the file is complete."""
    bare = subprocess.run(
        [sys.executable, str(script), "-x"], env=clean_environment(), capture_output=True, text=True, timeout=120, check=False
    )
    done = record(tmp_path, sys.executable, str(script), "-x")
    assert (done.returncode, done.stdout, done.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    assert done.returncode == 7
    with Recording(tmp_path / "run.det") as found:
        about = found.summary()
    assert (about["steps"], about["complete"], about["attestation"]) == (3, True, None)
    assert "aten.addmm" in names(tmp_path / "run.det")


def test_two_runs_of_a_script_give_equal_recordings(script: Path, tmp_path: Path) -> None:
    """What an unmodified script computes is recorded the same in two processes."""
    both = []
    for _ in range(2):
        record(tmp_path, sys.executable, str(script))
        with Recording(tmp_path / "run.det") as found:
            both.append(list(found.events()))
    assert both[0] == both[1]


def test_under_a_profile(script: Path, tmp_path: Path) -> None:
    """With -p the profile is in force in the recorded program, and the file says so."""
    record(tmp_path, sys.executable, str(script), options=("-p", "strict"))
    with Recording(tmp_path / "run.det") as found:
        assert found.summary()["attestation"]["profile"] == "strict"


def test_levels_values_and_sources(script: Path, tmp_path: Path) -> None:
    """The options of `record` reach the program."""
    record(tmp_path, sys.executable, str(script), options=("--level", "state"))
    assert names(tmp_path / "run.det")[:2] == ["loss", "entry.optimizer.0.0"]
    record(tmp_path, sys.executable, str(script), options=("--values", "5:7", "--sources"))
    with Recording(tmp_path / "run.det") as found:
        assert found.summary()["kept"] == 2
        assert [bool(found.values(index)) for index in range(4, 8)] == [False, True, True, False]
        assert any(event.source == "train.py:7" for event in found.events())


def test_children_write_files_of_their_own(tmp_path: Path) -> None:
    """Children that are spawned or started, and a second program of the command, each have a file with their process in its name."""
    (tmp_path / "child.py").write_text("import torch; torch.ones(2).cos()")
    (tmp_path / "main.py").write_text(
        "import multiprocessing, subprocess, sys, torch\n"
        "def work():\n    torch.ones(2).sin()\n"
        "if __name__ == '__main__':\n"
        "    torch.ones(2).exp()\n"
        "    process = multiprocessing.get_context('spawn').Process(target=work)\n    process.start(); process.join()\n"
        "    subprocess.run([sys.executable, 'child.py'], check=True)\n"
    )
    done = record(tmp_path, "sh", "-c", f"{sys.executable} main.py && {sys.executable} child.py")
    assert done.returncode == 0, done.stderr
    assert "aten.exp" in names(tmp_path / "run.det")
    others = [name for name in files(tmp_path) if name != "run.det"]
    assert all(name.startswith("run.pid") for name in others)
    assert sorted(names(tmp_path / name)[-1] for name in others) == ["aten.cos", "aten.cos", "aten.sin"]
    record(tmp_path, sys.executable, "child.py")
    assert files(tmp_path) == ["run.det"]  # those of an earlier command are gone


def test_ranks_write_files_of_their_own(tmp_path: Path) -> None:
    """Ranks have their rank in the name, also where a Python launcher started them; their children rank and process."""
    (tmp_path / "rank.py").write_text(
        "import os, subprocess, sys, torch\ntorch.ones(2).exp()\n"
        "if len(sys.argv) > 1: subprocess.run([sys.executable, 'rank.py'], check=True)\n"
    )
    (tmp_path / "launcher.py").write_text(
        "import os, subprocess, sys\n"
        "run = [subprocess.Popen([sys.executable, 'rank.py', 'x'], env={**os.environ, 'RANK': str(r), 'WORLD_SIZE': '2'}) for r in range(2)]\n"
        "raise SystemExit(sum(each.wait() for each in run))\n"
    )
    assert record(tmp_path, sys.executable, "launcher.py").returncode == 0
    assert [name for name in files(tmp_path) if "pid" not in name] == ["run.rank0.det", "run.rank1.det"]
    assert [name.partition(".pid")[0] for name in files(tmp_path) if "pid" in name] == ["run.rank0", "run.rank1"]
    with Recording(tmp_path / "run.rank1.det") as found:
        assert found.summary()["rank"] == 1


def test_a_program_that_computes_nothing(tmp_path: Path) -> None:
    """It leaves an empty, complete recording, and not none."""
    assert record(tmp_path, sys.executable, "-c", "print(1)").stdout == "1\n"
    with Recording(tmp_path / "run.det") as found:
        assert (found.summary()["events"], found.summary()["complete"]) == (0, True)


def test_a_program_that_raises(tmp_path: Path) -> None:
    """Its traceback and exit code are its own; the recording is not complete and names the exception."""
    done = record(tmp_path, sys.executable, "-c", "import torch\ntorch.ones(2) + 1\n1 / 0")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    with Recording(tmp_path / "run.det") as found:
        assert (found.summary()["complete"], found.summary()["ended"], found.summary()["events"]) == (False, "ZeroDivisionError", 2)
    assert "not complete: ended by ZeroDivisionError" in detconf("show", "run.det", cwd=tmp_path).stdout


def test_a_killed_program_can_be_shown(tmp_path: Path) -> None:
    """After kill -9, `show` reads what was written, and says that the recording is not complete."""
    (tmp_path / "loop.py").write_text("import torch\nx = torch.ones(2)\nwhile True:\n    x = x * 1\n")
    words = [sys.executable, "-m", "detconf", "record", "-o", "run.det", "--", sys.executable, "loop.py"]
    process = subprocess.Popen(words, cwd=tmp_path, env=clean_environment())
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (tmp_path / "run.det").exists():
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)  # the command took the place of detconf
    process.wait()
    done = detconf("show", "run.det", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    about = json.loads(done.stdout)
    assert about["events"] > 100
    assert not about["complete"]
    assert "was killed" in detconf("show", "run.det", cwd=tmp_path).stdout


def test_show(script: Path, tmp_path: Path) -> None:
    """`show` gives a summary, `--ops` each operation, `--json` one JSON object with the contract's keys."""
    record(tmp_path, sys.executable, str(script))
    done = detconf("show", "run.det", "--ops", cwd=tmp_path)
    assert done.stdout.startswith("run.det: ")
    assert "3 steps, complete" in done.stdout
    assert "aten.addmm" in done.stdout
    about = json.loads(detconf("show", "run.det", "--json", cwd=tmp_path).stdout)
    assert {"schema", "events", "steps", "complete", "facts"} <= set(about)
    every = json.loads(detconf("show", "run.det", "--ops", "--json", cwd=tmp_path).stdout)
    assert len(every["operations"]) == about["events"]
    assert "operations" not in about


FAILURES = [
    # (words, exit code, in stderr)
    (["record", "-o", "run.det"], 125, "no command"),
    (["record", "--", "no-such-command-anywhere"], 125, "no-such-command-anywhere"),
    (["record", "-o", "no/such/run.det", "--", "true"], 125, "cannot be written"),
    (["record", "-o", "mine.det", "--", "true"], 125, "not overwritten"),
    (["record", "-p", "nope", "--", "true"], 125, "unknown profile"),
    (["record", "--values", "x", "--", "true"], 125, "FIRST:LAST"),
    (["record", "--level", "x", "--", "true"], 125, "invalid choice"),
    (["show", "none.det"], 2, "No such file"),
    (["show", "mine.det"], 2, "not a recording"),
    (["show", "mine.det", "--json"], 2, "not a recording"),
    (["show", "strict", "--ops"], 2, "Accepted"),
]


@pytest.mark.parametrize(("words", "code", "err"), FAILURES, ids=[" ".join(row[0]) for row in FAILURES])
def test_failures_of_our_own(tmp_path: Path, words: list[str], code: int, err: str) -> None:
    """125 from `record`, 2 from `show`, one line on stderr, nothing on stdout, never a traceback; nothing is overwritten."""
    (tmp_path / "mine.det").write_text("mine")
    done = detconf(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout, err in done.stderr) == (code, "", True), done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "mine.det").read_text() == "mine"


def test_an_interpreter_that_keeps_us_out_is_named(tmp_path: Path) -> None:
    """Under -S nothing can be recorded; stderr says so, and the program runs."""
    done = record(tmp_path, sys.executable, "-S", "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "not recorded" in done.stderr
