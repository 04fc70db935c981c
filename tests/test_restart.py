"""apply(on_late="restart"): the interpreter starts again, once, with what it lacked; or says why it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import clean_environment

import detconf
from detconf import restart
from detconf.errors import LateError

REPORT = """
import json, os, sys
print("before", flush=False)
import detconf
session = detconf.apply("ci", on_late="restart"{arguments})
print(json.dumps({{
    "ok": session.attestation.ok,
    "late": [entry.knob for entry in session.attestation.entries if entry.outcome == "too-late"],
    "pid": os.getpid(), "argv": sys.argv, "warn": sys.warnoptions, "x": sys._xoptions, "flags": [sys.flags.optimize, sys.flags.utf8_mode],
    "hash": hash("detconf"), "main": __name__,
}}))
"""
BRIEF = REPORT.format(arguments=", frameworks=[]")
HASHED = json.loads(
    subprocess.run(
        [sys.executable, "-c", "print(hash('detconf'))"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
)


def python(*words: str, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    extra = more.pop("variables", {})
    return subprocess.run(
        [sys.executable, *words], env=clean_environment(**extra), cwd=cwd, capture_output=True, text=True, timeout=240, check=False, **more
    )


def restarted(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What the second start reported; the first had printed "before", which was not lost."""
    assert done.returncode == 0, done.stderr[-3000:]
    first, second, report = done.stdout.splitlines()
    assert (first, second) == ("before", "before")
    found = json.loads(report)
    assert (found["ok"], found["late"], found["hash"]) == (True, [], HASHED)
    return found


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["program.py"], ["program.py"]),
        (["-O", "-X", "utf8", "-Werror::ImportWarning", "program.py", "a b", "--flag=-E", ""], ["program.py", "a b", "--flag=-E", ""]),
        (["-m", "package", "x"], None),
        (["-c", BRIEF, "x"], ["-c", "x"]),
    ],
    ids=["script", "options", "module", "code"],
)
def test_restart_keeps_the_command(tmp_path: Path, words: list[str], argv: list[str] | None) -> None:
    """Script, -m and -c, with their arguments and the interpreter's options: the same again, and nothing is too late."""
    (tmp_path / "program.py").write_text(BRIEF)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(BRIEF)
    found = restarted(python(*words, cwd=tmp_path))
    assert found["main"] == "__main__"
    assert found["argv"] == (argv or [str(tmp_path / "package" / "__main__.py"), "x"])
    if "-O" in words:
        assert (found["warn"], found["x"], found["flags"]) == (["ignore", "error::ImportWarning"], {"utf8": True}, [1, 1])


def test_with_frameworks_that_were_imported_first(tmp_path: Path) -> None:
    """torch and NumPy imported before apply(): after the restart they come up with their variables, and ok is true."""
    (tmp_path / "program.py").write_text("import numpy, torch\n" + REPORT.format(arguments=", frameworks=['numpy', 'torch']"))
    restarted(python("program.py", cwd=tmp_path))


def test_it_stays_the_same_process(tmp_path: Path) -> None:
    """Whoever started the program waits for the same process, which hands on its exit code."""
    (tmp_path / "program.py").write_text(BRIEF + "sys.exit(9)\n")
    process = subprocess.Popen([sys.executable, "program.py"], env=clean_environment(), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=120)
    assert json.loads(output.splitlines()[-1])["pid"] == process.pid
    assert process.returncode == 9


def test_nothing_late_is_no_restart(tmp_path: Path) -> None:
    """With everything in time, apply() goes on at once."""
    (tmp_path / "program.py").write_text(BRIEF.replace('"ci"', '"strict"'))
    done = python("program.py", cwd=tmp_path)
    assert done.stdout.splitlines()[0] == "before"
    assert len(done.stdout.splitlines()) == 2


def test_children_may_restart_themselves(tmp_path: Path) -> None:
    """The guard against loops is for one process: a program that it starts, with another environment, may restart too."""
    (tmp_path / "inner.py").write_text(BRIEF)
    (tmp_path / "program.py").write_text(
        BRIEF + "import subprocess; environment = {**os.environ, 'PYTHONHASHSEED': 'random'}\n"
        "sys.stdout.flush(); subprocess.run([sys.executable, 'inner.py'], env=environment, check=True)\n"
    )
    done = python("program.py", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line == "before"] == ["before"] * 4, done.stderr
    assert all(json.loads(line)["ok"] for line in (lines[2], lines[5]))


def refused(done: subprocess.CompletedProcess[str], words: str, starts: int = 1) -> None:
    """LateError with the reason, after `starts` starts."""
    assert "LateError: ci is not fully in force" in done.stderr, done.stderr[-2000:]
    assert f"Not restarted: {words}" in done.stderr
    assert "Everything has been put back." in done.stderr
    assert done.stdout.split().count("before") == starts


def test_a_restart_is_not_repeated(tmp_path: Path) -> None:
    """A program that wants two hash seeds cannot have both: one restart, then an error, no loop."""
    second = BRIEF.replace("import detconf", "import detconf; detconf.apply('ci', on_late='restart', frameworks=[])", 1)
    (tmp_path / "program.py").write_text(
        second.replace("frameworks=[])\nprint", "frameworks=[], overrides={'env.PYTHONHASHSEED': '1'})\nprint")
    )
    refused(python("program.py", cwd=tmp_path), "it was restarted once already", starts=2)


def test_a_restart_that_does_not_help_is_said(tmp_path: Path) -> None:
    """-E makes the interpreter deaf to PYTHONHASHSEED: one restart, then a warning of what is not in force, no loop."""
    (tmp_path / "program.py").write_text(BRIEF)
    done = python("-E", "program.py", cwd=tmp_path)
    assert done.stdout.split().count("before") == 2
    assert "env.PYTHONHASHSEED: rejected (in time, but the library answers random)" in done.stderr


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        ("import types; sys.modules['IPython'] = types.SimpleNamespace(get_ipython=lambda: object())", "this is IPython or a notebook"),
        ("sys.orig_argv = []", "Python runs inside another program"),
        ("sys.frozen = True", "Python runs inside another program"),
        ("sys.ps1 = '>>> '", "this is an interactive session"),
        ("os.environ.update(RANK='0', WORLD_SIZE='2')", "this is one rank of several"),
        ("os.environ.update(TORCHELASTIC_RUN_ID='none')", "this is one rank of several"),
        ("os.mkdir('other'); os.chdir('other')", "the working folder has changed"),
        ("import threading, time; threading.Thread(target=time.sleep, args=(1,)).start()", "other threads are at work"),
        ("from multiprocessing import Process; import time; Process(target=time.sleep, args=(1,)).start()", "child processes are at work"),
        ("pid = os.fork(); pid and (os.waitpid(pid, 0), os._exit(0))", "this process was forked"),
        ("sys.executable = '/etc/hostname'", "[Errno 8] Exec format error"),
    ],
)  # fmt: skip
def test_where_a_restart_would_do_harm(tmp_path: Path, setup: str, words: str) -> None:
    """Refused with the reason, and everything put back, where output, a kernel, a rank or other work would be lost."""
    program = BRIEF.replace("import detconf", f"import multiprocessing\n{setup}\nimport detconf")
    if "fork" in setup:
        program = program.replace("flush=False", "flush=True")  # else both would print it
    (tmp_path / "program.py").write_text(program)
    refused(python("program.py", cwd=tmp_path), words)


@pytest.mark.parametrize(
    ("words", "given", "reason"),
    [
        (["-"], BRIEF, "the program came from standard input"),
        ([], BRIEF, "the program came from standard input"),
        (["-i", "program.py"], "", "this is an interactive session"),
        (["-i"], BRIEF.replace("\n    ", " ").replace("{\n", "{").replace(",\n}", "}"), "this is an interactive session"),
    ],
    ids=["dash", "piped", "-i script", "repl"],
)
def test_programs_that_cannot_be_read_twice(tmp_path: Path, words: list[str], given: str, reason: str) -> None:
    """A program on standard input, and an interactive session, are not restarted."""
    (tmp_path / "program.py").write_text(BRIEF)
    refused(python(*words, cwd=tmp_path, input=given), reason)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing(tmp_path: Path, method: str) -> None:
    """A child of each start method is not restarted: its parent would wait for an answer that never comes."""
    (tmp_path / "program.py").write_text(
        "import multiprocessing, sys\n"
        "def work():\n    import detconf\n    print('before', flush=True)\n    detconf.apply('ci', on_late='restart', frameworks=[])\n"
        "if __name__ == '__main__':\n"
        f"    child = multiprocessing.get_context({method!r}).Process(target=work)\n    child.start()\n    child.join()\n    sys.exit(child.exitcode)\n"
    )
    done = python("program.py", cwd=tmp_path)
    refused(done, "this is a child process of multiprocessing")
    assert done.returncode == 1


@pytest.mark.usefixtures("unchanged")
def test_pytest_is_not_restarted() -> None:
    """In this very process: refused, and every control is as before."""
    with pytest.raises(LateError, match=r"Not restarted: pytest is running[\s\S]*put back"):
        detconf.apply("ci", on_late="restart")
    assert restart.obstacle().startswith("pytest is running")


def test_xdist_workers_are_not_restarted(tmp_path: Path) -> None:
    """A worker of pytest-xdist, while it collects and while it runs, says why and keeps its results."""
    pytest.importorskip("xdist")
    (tmp_path / "test_it.py").write_text(
        "import detconf, pytest\n"
        "def late():\n    with pytest.raises(detconf.LateError, match='pytest is running'):\n        detconf.apply('ci', on_late='restart', frameworks=[])\n"
        "late()\n"
        "def test_it():\n    late()\n"
    )
    done = python("-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout
