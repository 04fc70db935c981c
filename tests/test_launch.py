"""Doors into another process: `detconf run`, the printed variables, a CI job. Scripts are unmodified; children inherit."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from conftest import ROOT, clean_environment, run_python

import detconf
from detconf.commandline import attend, invocation, switched_off
from detconf.launch import INJECT, child_environment
from detconf.profile import portable

# Knows nothing of detconf. Trains, then asks its children. As a rank of a job it sums its loss over the ranks instead.
PROGRAM = """
import json, multiprocessing, os, random
import numpy as np
import torch

def state(_=None):
    import torch._inductor.config as inductor
    return {
        "algorithms": torch.get_deterministic_debug_mode(),
        "precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "graph": inductor.fallback_random,
        "hash": hash("detconf"),
        "workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    }

class Data:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return {**state(), "drawn": float(np.random.rand())}

def train():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        loss = model(torch.from_numpy(np.random.rand(4, 8)).float()).square().mean() + random.random()
        loss.backward()
        optimizer.step()
    return loss.detach()

def main():
    loss, found = train(), {"main": state()}
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
        torch.distributed.all_reduce(loss)
        rank = torch.distributed.get_rank()
        torch.distributed.destroy_process_group()
        with open(f"rank{rank}.json", "w") as file:
            json.dump({**found, "loss": loss.item()}, file)
        return
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found["spawn"] = pool.map(state, [0])[0]
    for method in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Data(), None, num_workers=1, multiprocessing_context=method)
        found[f"loader {method}"] = list(loader)
    print(json.dumps({**found, "loss": loss.item()}))

if __name__ == "__main__":
    main()
"""
CI = {"algorithms": 2, "precision": "highest", "threads": 1, "capability": "AVX2", "graph": True, "workspace": ":4096:8"}


def detconf_(*words: str, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "detconf", *words],
        env=clean_environment(**extra), cwd=cwd, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def printed(profile: str, **extra: str) -> dict[str, str]:
    return json.loads(detconf_("env", profile, "--format", "json", **extra).stdout)


def is_ci(state: dict[str, Any]) -> bool:
    hashed = run_python("import json; print(json.dumps(hash('detconf')))", PYTHONHASHSEED="0") if not _HASH else _HASH[0]
    _HASH[:] = [hashed]
    return {**CI, "hash": hashed} == {key: value for key, value in state.items() if key != "drawn"}


_HASH: list[int] = []


@cache
def by_run(folder: Path) -> dict[str, Any]:
    done = detconf_("run", "ci", "--", sys.executable, "program.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("program")
    (found / "program.py").write_text(PROGRAM)
    return found


@pytest.mark.slow
def test_run_configures_an_unmodified_script_and_its_children(folder: Path) -> None:
    """Under `detconf run ci`, the script, its spawned workers and its DataLoader's workers are under ci by their own getters."""
    found = by_run(folder)
    for state in (found["main"], found["spawn"], *found["loader fork"], *found["loader spawn"]):
        assert is_ci(state), state


@pytest.mark.slow
def test_the_printed_variables_do_the_same(folder: Path) -> None:
    """With the variables of `detconf env ci` alone, the same script gives the same states and the same bits."""
    done = subprocess.run(
        [sys.executable, "program.py"], env=clean_environment(**printed("ci")), cwd=folder,
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == by_run(folder)


@pytest.mark.slow
@pytest.mark.parametrize("door", ["run", "variables"])
def test_ranks_of_torchrun(folder: Path, door: str) -> None:
    """Two gloo ranks of the same script, by either door: each under ci, each seeded, so that their sum is the same bits."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "program.py"]
    if door == "run":
        done = detconf_("run", "ci", "--", *torchrun, cwd=folder)
        assert done.returncode == 0, done.stderr
    else:
        subprocess.run(torchrun, env=clean_environment(**printed("ci")), cwd=folder, capture_output=True, timeout=240, check=True)
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert all(is_ci(rank["main"]) for rank in ranks)
    assert [rank["loss"] for rank in ranks] == [2 * by_run(folder)["loss"]] * 2


def test_the_first_process_of_a_rank_is_seeded_and_its_children_are_not() -> None:
    """A launcher's own process, each rank it starts, and a child of a rank: seeded, seeded, not seeded."""
    code = "import os, random, subprocess, sys; print(random.random(), flush=True); rest = sys.argv[1:]\nif rest: subprocess.run([sys.executable, '-c', *rest], check=True, env={**os.environ, 'RANK': '0', 'WORLD_SIZE': '2'})"
    done = detconf_("run", "strict", "--", sys.executable, "-c", code, code, code)
    launcher, rank, child = map(float, done.stdout.split())
    assert launcher == rank == __import__("random").Random(0).random()
    assert child != rank


def test_a_local_profile_holds_in_another_folder(tmp_path: Path) -> None:
    """A profile of ./detconf.yaml or of pyproject.toml is named so that a child finds it from any folder."""
    (tmp_path / "detconf.yaml").write_text("profiles: {mine: {extends: strict, seed: 9}}\n")
    (tmp_path / "pyproject.toml").write_text("[tool.detconf.profiles.other]\nextends = 'mine'\n")
    (tmp_path / "strict").write_text("no profile")
    code = "import random; print(random.random())"
    for name in ("mine", "other"):
        done = detconf_("run", name, "--", "sh", "-c", f"cd / && {sys.executable} -c '{code}'", cwd=tmp_path)
        assert (done.stdout.strip(), done.stderr) == (str(__import__("random").Random(9).random()), "")
    assert portable("strict") == "strict"


def test_run_without_a_profile_takes_the_variable_else_strict(tmp_path: Path) -> None:
    """`detconf run -- CMD` and `detconf env` mean DETCONF_PROFILE, else strict; never nothing."""
    show = ("run", "--", "sh", "-c", "echo $DETCONF_PROFILE $OMP_NUM_THREADS")
    assert detconf_(*show).stdout == "strict\n"
    assert detconf_(*show, DETCONF_PROFILE="ci").stdout == "ci 1\n"
    assert printed("ci")["OMP_NUM_THREADS"] == "1"
    assert "DETCONF_PROFILE=ci" in detconf_("env", "--format", "github", DETCONF_PROFILE="ci").stdout.splitlines()


def test_the_printed_variables_keep_what_is_there() -> None:
    """A PYTHONPATH, a seed and overrides that are set are part of the lines; printing twice changes nothing more."""
    first = printed("strict", PYTHONPATH="src", DETCONF_SEED="4", DETCONF_SET="threads=3")
    assert first["PYTHONPATH"].split(os.pathsep) == [INJECT, "src"]
    assert (first["DETCONF_SEED"], first["OMP_NUM_THREADS"]) == ("4", "3")
    assert printed("strict", **first) == first


def test_variables_that_must_not_be_set() -> None:
    """What a profile wants unset is unset by `run` and in sh; a format that cannot say so says it on stderr."""
    name = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
    assert f"unset {name}" in detconf_("env", "strict").stdout.splitlines()
    assert detconf_("run", "strict", "--", "sh", "-c", f"echo ${{{name}-gone}}", **{name: "1"}).stdout == "gone\n"
    done = detconf_("env", "strict", "--format", "github", **{name: "1"})
    assert name not in done.stdout
    assert f"{name} is set here and must not be" in done.stderr


# ---- what `run` is to its command ----


def test_run_hands_on_the_terminal() -> None:
    """Under `detconf run`, the command has the terminal that detconf had."""
    pid, terminal = pty.fork()
    if pid == 0:
        code = "import os, sys; print(sys.stdin.isatty(), sys.stdout.isatty(), os.getpgrp() == os.tcgetpgrp(0))"
        os.execve(sys.executable, [sys.executable, "-m", "detconf", "run", "strict", "--", sys.executable, "-c", code], clean_environment())
    output = b""
    with suppress(OSError):  # how a terminal says that nobody is left at its other end
        while True:
            output += os.read(terminal, 1000)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert output.split() == [b"True"] * 3


IGNORES = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: print('ignored', flush=True)); print('ready', flush=True); sys.stdin.read(); sys.exit(5)"


def test_a_command_that_ignores_sigterm() -> None:
    """The process that `detconf run` was is the command: a signal reaches it, and what it does then is its own business."""
    process = subprocess.Popen(
        [sys.executable, "-m", "detconf", "run", "strict", "--", sys.executable, "-c", IGNORES],
        env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "ignored\n"
    process.stdin.close()
    assert process.wait(60) == 5
    process.stdout.close()


def test_where_no_process_can_become_another() -> None:
    """The way of Windows: the command's exit code is handed on, signals are passed to it, our own handlers come back."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert attend([sys.executable, "-c", "raise SystemExit(7)"], clean_environment()) == 7
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    code = f"import sys; from detconf.commandline import attend; sys.exit(attend([sys.executable, '-c', {IGNORES!r}], None or __import__('os').environ))"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "ignored\n"
    process.stdin.close()
    assert process.wait(60) == 5
    process.stdout.close()


def _script(folder: Path, name: str, text: str, mode: int = 0o755) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("name", "text", "mode", "words"),
    [
        ("none", None, 0, "No such file or directory. Accepted: a program on PATH, or its path."),
        ("plain", "print(1)", 0o644, "chmod +x"),
        ("headless", "print(1)", 0o755, "its first line names no interpreter"),
        ("orphan", "#!/no/such/interpreter\n", 0o755, "the interpreter that its first line names is not"),
        ("", None, 0, "is a folder"),
    ],
)
def test_what_cannot_be_started(tmp_path: Path, name: str, text: str | None, mode: int, words: str) -> None:
    """Exit code 125, and one line that says what, why, and what to do."""
    path = _script(tmp_path, name, text, mode) if text is not None else str(tmp_path / name)
    done = detconf_("run", "strict", "--", path)
    assert (done.returncode, done.stdout) == (125, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["run", "strict", "extra", "--", "true"], ["run", "--nope", "--", "true"], ["run", "strict", "--", ""]])
def test_misuse_of_run_is_125(words: list[str]) -> None:
    """A usage error of `run` does not look like an exit code of the command."""
    done = detconf_(*words)
    assert done.returncode == 125
    assert "Traceback" not in done.stderr


# ---- options that keep detconf out ----


@pytest.mark.parametrize(
    ("words", "options", "program"),
    [
        ("python", "", ()),
        ("python -u train.py -S", "u", ("train.py", "-S")),
        ("python -bIc code -S", "bIc", ()),
        ("python -S -m pkg -E", "Sm", ()),
        ("python -X dev -Werror -W ignore -E x.py", "XWWE", ("x.py",)),
        ("python -Xdev -uE x.py", "XuE", ("x.py",)),
        ("python --check-hash-based-pycs never -s x.py", "s", ("x.py",)),
        ("python -S -- -E.py", "S", ("-E.py",)),
        ("python - -E", "", ("-", "-E")),
    ],
)
def test_the_words_of_a_python_command(words: str, options: str, program: tuple[str, ...]) -> None:
    """Options are read as Python reads them: they end at the program, and some take the next word."""
    found = invocation(words.split())
    assert (found.options, found.program) == (options, program)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("python train.py", ""),
        ("python -s -P -u train.py -I", ""),
        ("ls -S", ""),
        ("python3.12 -S train.py", "-S in the command"),
        ("env A=1 /usr/bin/python3 -u -E train.py", "-E in the command"),
        ("taskset -c 0 python -ISm pkg", "-I and -S in the command"),
        ("no-such-command", ""),
    ],
)
def test_options_that_keep_detconf_out(words: str, found: str) -> None:
    """-S, -E and -I are found behind whatever starts Python; options of the program, and of other programs, are not."""
    said = switched_off(words.split())
    assert said.startswith(found)
    assert bool(said) == bool(found)


@pytest.mark.parametrize(("option", "hashed"), [("-S", True), ("-E", False), ("-I", False)])
def test_switched_off_is_said_and_the_command_runs(option: str, hashed: bool) -> None:
    """The command runs as it was written; stderr says what it does without, and that is true."""
    code = "import os, sys; print('random' in sys.modules, sys.flags.hash_randomization, os.environ['OMP_NUM_THREADS'])"
    done = detconf_("run", "ci", "--", sys.executable, option, "-c", code)
    assert done.stdout.split() == ["False", "0" if hashed else "1", "1"]
    assert f"{option} in the command keeps detconf out" in done.stderr
    assert ("PYTHONHASHSEED" in done.stderr) != hashed
    assert detconf_("run", "ci", "--", sys.executable, "-c", "pass").stderr == ""


def test_switched_off_in_the_first_line_of_a_script(tmp_path: Path) -> None:
    """Distributions write `#!/usr/bin/python3 -Es` into their programs: that is seen too."""
    script = _script(tmp_path, "tool", f"#!{sys.executable} -sE\nprint('ran')\n")
    done = detconf_("run", "strict", "--", "tool", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.stdout == "ran\n"
    assert "-E in the first line of tool keeps" in done.stderr
    assert switched_off([script]).startswith("-E")


# ---- odd surroundings ----


def test_a_foreign_sitecustomize_that_fails_is_still_the_users_business(tmp_path: Path) -> None:
    """A sitecustomize of the user's that raises is reported by Python as always; the profile is in force, the program runs."""
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('theirs')")
    code = "import random; print(random.random())"
    done = detconf_("run", "strict", "--", sys.executable, "-c", code, PYTHONPATH=str(tmp_path))
    assert done.stdout.strip() == str(__import__("random").Random(0).random())
    assert "RuntimeError: theirs" in done.stderr


def test_an_interpreter_without_detconf_runs_the_program(tmp_path: Path) -> None:
    """A Python that does not find detconf says so and runs the program."""
    environment = {key: value for key, value in child_environment("strict", clean_environment()).items() if key != "VIRTUAL_ENV"}
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-s", "-c", "print('ran')"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "ran\n"
    assert "could not be put in force" in done.stderr or os.path.realpath(sys.executable) == sys.executable


def test_an_environment_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where os.environ refuses writing, each variable is a row with the reason; the rest is set, and all is put back."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", MappingProxyType(clean_environment()))
        with pytest.warns(detconf.DetconfWarning, match="mappingproxy"):
            session = detconf.apply("strict", frameworks=[])
        rows = {entry.knob: entry for entry in session.attestation.entries}
        assert rows["env.CUBLAS_WORKSPACE_CONFIG"].outcome == "rejected"
        assert rows["random.seed"].outcome in ("set", "already")
        assert session.restore().entries == ()


def test_the_ci_job(tmp_path: Path) -> None:
    """examples/ci.yml, step by step as a runner does it: the variables reach later steps, and the training repeats."""
    steps = yaml.safe_load((ROOT / "examples" / "ci.yml").read_text())["jobs"]["repeatable"]["steps"]
    file = tmp_path / "github_env"
    file.touch()
    for step in steps:
        if "run" not in step or step["run"].startswith("pip install"):
            continue
        later = dict(line.split("=", 1) for line in file.read_text().splitlines())
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        environment = clean_environment(**later, GITHUB_ENV=str(file), PATH=path)
        done = subprocess.run(
            ["bash", "-e", "-c", step["run"]], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, (step, done.stdout[-2000:], done.stderr[-2000:])
    assert "bitwise stable" in done.stdout


def test_a_program_may_wait_for_its_input_under_run() -> None:
    """stdin is the command's: what is written to `detconf run` is read by the command, line by line."""
    code = textwrap.dedent("""
        import sys
        for line in sys.stdin:
            print(line.upper(), end="", flush=True)
    """)
    process = subprocess.Popen(
        [sys.executable, "-m", "detconf", "run", "strict", "--", sys.executable, "-c", code],
        env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for word in ("one", "two"):
        process.stdin.write(word + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == word.upper() + "\n"
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
