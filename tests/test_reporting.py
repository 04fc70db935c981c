"""Reports: one per process, at the first optimizer step and at the end, and what a folder of them says."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, clean_environment, run_python

from detconf.errors import TargetError
from detconf.facts import shareable
from detconf.inspection import gather
from detconf.warned import Warned

OP = "torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))"
TORCH = """import os, signal, sys, warnings, torch
m = torch.nn.Linear(3, 3); o = torch.optim.SGD(m.parameters(), lr=.1)
def train(n):
    for _ in range(n):
        o.zero_grad(); m(torch.ones(2, 3)).sum().backward(); o.step()
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))
"""
PADDLE = """import os, signal, sys, paddle
m = paddle.nn.Linear(3, 3); o = paddle.optimizer.AdamW(parameters=m.parameters())
def train(n):
    for _ in range(n):
        m(paddle.ones([2, 3])).sum().backward(); o.step(); o.clear_grad()
"""
LINE_OF_OP = 6


def program(folder: Path, *words: str, profile: str = "warn", source: str = TORCH, tail: str = "train(3)", **extra: str) -> Any:
    """Run a training in `folder` under a profile with `--report reports`."""
    (folder / "train.py").write_text(source + tail + "\n")
    return subprocess.run(
        [sys.executable, "-m", "detconf", "run", profile, "--report", "reports", "--", *(words or (sys.executable, "train.py"))],
        env=clean_environment(**{"PYTHONPATH": str(ROOT), **extra}), cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def reports(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((folder / "reports").iterdir())]


def inspect(folder: Path, *words: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "detconf", "inspect", *words], env=clean_environment(), cwd=folder, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("source", [TORCH, PADDLE], ids=["torch", "paddle"])
def test_one_report_per_process(tmp_path: Path, source: str) -> None:
    """A training leaves one report, with its process in the name, an attestation that is ok, and no drift."""
    done = program(tmp_path, source=source)
    assert done.returncode == 0, done.stderr
    (found,) = reports(tmp_path)
    assert (found["schema"], found["written"], found["stepped"], found["ok"]) == ("detconf.report/1", "exit", True, True)
    assert (found["rank"], found["world_size"]) == (None, None)
    (file,) = (tmp_path / "reports").iterdir()
    assert f"pid{found['pid']}-" in file.name
    assert found["attestation"]["profile"] == "warn"
    assert found["drift"]["entries"] == []
    assert inspect(tmp_path, "reports").returncode == 0


@pytest.mark.parametrize("ending", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
@pytest.mark.parametrize("source", [TORCH, PADDLE], ids=["torch", "paddle"])
def test_a_killed_process_leaves_its_first_step(tmp_path: Path, source: str, ending: str) -> None:
    """A process that ends without a word has reported at its first step, and `inspect` says that its end is missing."""
    done = program(tmp_path, source=source, tail=f"train(1)\n{ending}")
    assert done.returncode in (3, -signal.SIGKILL), done.stderr
    (found,) = reports(tmp_path)
    assert (found["written"], found["attestation"]["ok"]) == ("first step", True)
    assert "and not the end" in inspect(tmp_path, "reports").stdout


def test_no_report_before_the_first_step(tmp_path: Path) -> None:
    """What is killed before its first step has reported nothing."""
    program(tmp_path, tail="os._exit(0)")
    assert not (tmp_path / "reports").exists() or reports(tmp_path) == []


def test_drift_is_reported(tmp_path: Path) -> None:
    """What was changed after apply() stands in the report, also when it was changed back before the end."""
    tail = (
        "torch.set_flush_denormal(True); torch.backends.cudnn.benchmark = True; train(1); torch.backends.cudnn.benchmark = False; train(1)"
    )
    program(tmp_path, tail=tail)
    (found,) = reports(tmp_path)
    assert "torch.backends.cudnn.benchmark" in {row["knob"] for row in found["drift"]["entries"]}
    assert found["ok"] is False
    done = inspect(tmp_path, "reports", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["drifted"][0]["pids"] == [found["pid"]]


FILTERS = [
    # (environment, statement before the training, times shown without us)
    ("default", "", 1),
    ("ignore", "", 0),
    ("always", "", 4),
    ("default", "warnings.simplefilter('ignore')", 0),
    ("ignore", "warnings.simplefilter('default')", 1),
    ("default", "warnings.filterwarnings('once', category=UserWarning)", 1),
    ("default", "warnings.filterwarnings('module', module='__main__')", 1),
    ("default", "warnings.resetwarnings(); warnings.filterwarnings('ignore', message='put_ ')", 0),
    ("default", "warnings.showwarning = lambda *a, **k: sys.stderr.write('seen put_ does not have a\\n')", 1),
    ("default", "c = warnings.catch_warnings(); c.__enter__(); warnings.simplefilter('always')", 4),
    ("default", "train(1); warnings.filterwarnings('ignore', category=FutureWarning)", 2),
]


@pytest.mark.parametrize(
    ("outside", "before", "shown"),
    [pytest.param(*row, id=f"{row[0]} {row[1]}", marks=[pytest.mark.slow] * (place > 3)) for place, row in enumerate(FILTERS)],
)
def test_counts_do_not_depend_on_filters(tmp_path: Path, outside: str, before: str, shown: int) -> None:
    """Every call is counted with the user's line, and the user sees exactly the warnings that the own filters let through."""
    tail = f"{before}\ntrain(4)" if "train" not in before else f"{before}\ntrain(3)"
    done = program(tmp_path, tail=tail, PYTHONWARNINGS=outside)
    assert done.returncode == 0, done.stderr
    (found,) = reports(tmp_path)
    assert found["nondeterministic"] == [{"framework": "torch", "operation": "put_", "source": f"train.py:{LINE_OF_OP}", "count": 4}]
    assert len(re.findall("put_ does not have a", done.stderr)) == shown
    plain = subprocess.run(
        [sys.executable, "-m", "detconf", "run", "warn", "--", sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True,
        env=clean_environment(PYTHONPATH=str(ROOT), PYTHONWARNINGS=outside), timeout=120, check=False,
    )  # fmt: skip
    assert done.stderr == plain.stderr


ACTIONS = [("default", 1), ("ignore", 0), ("always", 4), ("once", 1), ("module", 1)]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("action", "shown"), ACTIONS)
def test_every_action_is_imitated(action: str, shown: int, late: bool) -> None:
    """A warning that is counted is shown as often as one that is not, whenever the filter was set; then all is as before."""
    counter = Warned()
    globals().pop("__warningregistry__", None)
    warnings.onceregistry.clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("ignore" if late else action)
        counter.begin()
        if late:
            warnings.simplefilter(action)
        for _ in range(4):
            warnings.warn("put_ does not have a deterministic implementation", stacklevel=1)
            warnings.warn("another", stacklevel=1)
        counter.end()
        assert type(warnings.filters) is list
        assert len(warnings.filters) == len(set(warnings.filters))
    assert sorted(str(each.message)[:4] for each in seen) == ["anot"] * shown + ["put_"] * shown
    assert list(counter.counts.values()) == [4]


def test_a_warning_that_is_an_error_stays_one(tmp_path: Path) -> None:
    """A filter that turns warnings into errors still does, and the call is counted."""
    done = program(tmp_path, tail="train(1)", PYTHONWARNINGS="error::UserWarning")
    assert done.returncode == 1
    assert "put_ does not have a" in done.stderr
    assert reports(tmp_path)[0]["nondeterministic"][0]["count"] == 1


def test_the_line_is_the_users(tmp_path: Path) -> None:
    """An operation that torch's own Python code calls is told by the user's line, not by torch's."""
    tail = "x = torch.rand(1, 1, 4, 4)\nF = torch.nn.functional\nF.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)"
    program(tmp_path, tail=tail)
    (row,) = reports(tmp_path)[0]["nondeterministic"]
    assert (row["operation"], row["source"]) == ("max_unpooling2d_forward_out", f"train.py:{LINE_OF_OP + 3}")


def test_apply_reports_what_restore_ends() -> None:
    """apply() under DETCONF_REPORT reports at restore, and leaves filters and optimizers as they were."""
    code = f"""
import json, os, sys, tempfile, warnings
folder = os.environ["DETCONF_REPORT"] = tempfile.mkdtemp()
import torch, paddle, detconf
filters, own = warnings.filters, list(warnings.filters)
hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
methods = paddle.optimizer.Adam.step, paddle.optimizer.Optimizer.step, dict(hooks)
with detconf.apply("warn") as session:
    {OP}
    warnings.simplefilter("ignore", FutureWarning)
    nested = detconf.apply("warn")
    assert methods[0] != paddle.optimizer.Adam.step and hooks
    nested.restore()
assert warnings.filters is filters and type(filters) is list
assert warnings.filters[1:] == own, (warnings.filters, own)
assert methods == (paddle.optimizer.Adam.step, paddle.optimizer.Optimizer.step, dict(hooks))
(name,) = os.listdir(folder)
found = json.load(open(os.path.join(folder, name)))
print(json.dumps([found["written"], found["drift"]["entries"], found["nondeterministic"][0]["count"]]))
"""
    assert run_python(code) == ["restore", [], 1]


@pytest.mark.parametrize("module", ["torch", "paddle"])
def test_steps_are_seen_once_and_no_longer(module: str) -> None:
    """Each step of each optimizer is seen once, also one that calls its parent's, until the watch ends."""
    if module == "torch":
        body = "layer = torch.nn.Linear(2, 2); kinds = [torch.optim.SGD, torch.optim.AdamW]; make = lambda k: k(layer.parameters(), lr=.1)\nones = torch.ones(1, 2)"
    else:
        body = "layer = paddle.nn.Linear(2, 2)\nclass Mine(paddle.optimizer.SGD):\n    def step(self):\n        super().step()\nkinds = [paddle.optimizer.SGD, paddle.optimizer.AdamW, paddle.optimizer.Adam, Mine]; make = lambda k: k(parameters=layer.parameters())\nones = paddle.ones([1, 2])"
    code = f"""
import json, {module}
from detconf.frameworks.{module}.steps import watch
{body}
seen = []
def steps():
    for kind in kinds:
        optimizer = make(kind); layer(ones).sum().backward(); optimizer.step()
end = watch(lambda: seen.append(1)); steps(); first = len(seen)
end(); steps()
print(json.dumps([first - len(kinds), len(seen) - first]))
"""
    assert run_python(code) == [0, 0]


@pytest.mark.parametrize("source", [TORCH, PADDLE], ids=["torch", "paddle"])
def test_reporting_does_not_change_the_bits(tmp_path: Path, source: str) -> None:
    """A training gives the same weights with a report as without."""
    tail = (
        "train(3); import numpy as np; print(np.asarray((m.weight.detach() if hasattr(m.weight, 'detach') else m.weight)).tobytes().hex())"
    )
    with_report = program(tmp_path, source=source, tail=tail)
    without = subprocess.run(
        [sys.executable, "-m", "detconf", "run", "warn", "--", sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True,
        env=clean_environment(PYTHONPATH=str(ROOT)), timeout=120, check=True,
    )  # fmt: skip
    assert with_report.stdout.splitlines()[-1:] == without.stdout.splitlines()[-1:] != []


def test_a_compiled_step_is_seen(tmp_path: Path) -> None:
    """A step inside torch.compile is reported, and Dynamo does not warn of our hook."""
    tail = "import torch._dynamo\n@torch.compile(backend='eager')\ndef go():\n    o.step()\nm(torch.ones(2, 3)).sum().backward(); go(); os._exit(0)"
    done = program(tmp_path, tail=tail, PYTHONWARNINGS="default")
    assert reports(tmp_path)[0]["written"] == "first step", done.stderr
    assert "detconf" not in done.stderr
    assert "Dynamo does not know" not in done.stderr


def test_a_forked_child_has_its_own(tmp_path: Path) -> None:
    """A forked child that makes a step writes its own report, and one that makes none writes nothing."""
    tail = "train(2)\nfor steps in (0, 1):\n    if os.fork() == 0:\n        train(steps); sys.exit(0)\n    os.wait()"
    program(tmp_path, tail=tail)
    counts = sorted(row["nondeterministic"][0]["count"] for row in reports(tmp_path))
    assert counts == [1, 2]


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/reports"])
def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path, where: str) -> None:
    """One line on stderr; the program's output and exit code are its own."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "train.py").write_text(TORCH + "train(2); print('done'); sys.exit(5)")
    done = subprocess.run(
        [sys.executable, "-m", "detconf", "run", "warn", "--report", where, "--", sys.executable, "train.py"], cwd=tmp_path,
        env=clean_environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("done\n", 5)
    lines = [line for line in done.stderr.splitlines() if "no report in" in line]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_keeps_the_first_report(tmp_path: Path) -> None:
    """A disk that fills up after the first step costs one line; the first report stays whole, without leftovers."""
    folder = tmp_path / "reports"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)], capture_output=True, check=False).returncode:
        pytest.skip("this needs the right to mount a tmpfs")
    try:
        tail = "train(1)\ntry:\n    open('reports/fill', 'wb').write(bytes(1 << 20))\nexcept OSError:\n    pass\nprint('done')"
        done = program(tmp_path, tail=tail)
        assert done.stdout == "done\n"
        assert done.stderr.count("no report in") == 1, done.stderr
        (file,) = (name for name in os.listdir(folder) if name != "fill")
        assert json.loads((folder / file).read_text())["written"] == "first step"
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_nothing_private(tmp_path: Path) -> None:
    """No host name, user, home or working directory in a report, wherever the program lies."""
    home, job = tmp_path / "alice" / "secret place", tmp_path / "job"
    home.mkdir(parents=True)
    job.mkdir()
    (home / "mine.yaml").write_text("profiles: {mine: {extends: warn}}\n")
    program(job, sys.executable, "-c", f"exec(compile({TORCH + 'train(2)'!r}, {str(home / 'train.py')!r}, 'exec'))", HOME=str(home),
            USER="alice", LOGNAME="alice", OPENBLAS_CORETYPE=f"{home}/x")  # fmt: skip
    (file,) = (job / "reports").iterdir()
    text = file.read_text()
    for private in (socket.gethostname(), "alice", "secret", str(tmp_path), str(ROOT), sys.prefix):
        assert private not in text, private
    assert json.loads(text)["nondeterministic"][0]["source"] == f"train.py:{LINE_OF_OP}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no such file: /opt/data/set.bin", "no such file: set.bin"),
        (f"{os.path.expanduser('~')}/runs/a.py:3", "runs/a.py:3"),
        (f"in {os.path.expanduser('~')}, said", "in ~, said"),
        (":4096:8", ":4096:8"),
        ("https://docs.pytorch.org/a/b", "https://docs.pytorch.org/a/b"),
        ("a/b of 3/4", "a/b of 3/4"),
    ],
)
def test_paths_are_cut(text: str, expected: str) -> None:
    """Paths are cut to what says nothing of the machine; what only looks like one stays."""
    assert shareable(text) == expected


DDP = """import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
m = torch.nn.Linear(3, 3); o = torch.optim.SGD(m.parameters(), lr=.1)
m(torch.ones(2, 3)).sum().backward()
dist.all_reduce(m.weight.grad)
MIDDLE
o.step()
torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))
dist.barrier()
"""


def torchrun(folder: Path, middle: str) -> dict[str, Any]:
    done = program(
        folder, sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py",
        source=DDP.replace("MIDDLE", middle), tail="",
    )  # fmt: skip
    found = inspect(folder, "reports", "--json")
    assert found.returncode in (0, 1), done.stderr + found.stderr
    return {"code": found.returncode, **json.loads(found.stdout)}


@pytest.mark.slow
def test_two_ranks_that_agree(tmp_path: Path) -> None:
    """Two ranks of torchrun are merged: both reported, nothing differs, counts are summed; the launcher is set aside."""
    found = torchrun(tmp_path, "")
    assert (found["code"], found["ranks"], found["world_size"], found["missing_ranks"]) == (0, [0, 1], 2, [])
    assert (found["differs"], found["not_in_force"], found["drifted"]) == ([], [], [])
    assert [(row["operation"], row["count"], row["ranks"]) for row in found["nondeterministic"]] == [("put_", 2, [0, 1])]
    assert len(found["others"]) == 1
    assert {name[:6] for name in os.listdir(tmp_path / "reports")} >= {"rank0-", "rank1-"}


@pytest.mark.slow
def test_a_knob_that_differs_between_ranks(tmp_path: Path) -> None:
    """A knob that one rank changed is named with each rank's value, and the exit code is 1."""
    found = torchrun(tmp_path, "if rank == 1: torch.backends.cudnn.benchmark = True")
    assert found["code"] == 1
    (row,) = found["differs"]
    assert (row["kind"], row["name"]) == ("knob", "torch.backends.cudnn.benchmark")
    assert [(value["value"], value["ranks"]) for value in row["values"]] == [(False, [0]), (True, [1])]
    assert [(row["knob"], row["ranks"]) for row in found["drifted"]] == [("torch.backends.cudnn.benchmark", [1])]


@pytest.mark.slow
def test_a_rank_that_never_reports(tmp_path: Path) -> None:
    """A rank that was gone before its first step is named, and the exit code is 1."""
    found = torchrun(tmp_path, "if rank == 1: os._exit(0)")
    assert (found["code"], found["missing_ranks"], found["world_size"]) == (1, [1], 2)
    text = inspect(tmp_path, "reports").stdout
    assert "never reported: rank 1" in text


def written(folder: Path, name: str = "rank0-pid1-a.json", **changes: Any) -> None:
    """A report as a process would write it."""
    facts = {"python": "3.11.7", "cpu": "X", "cores": 2, "versions": {"torch": "2.13.0"}}
    row = {
        "knob": "k",
        "framework": "torch",
        "applies": True,
        "wanted": 1,
        "before": 0,
        "now": 1,
        "outcome": "set",
        "because": "",
        "note": "",
    }
    content = {
        "schema": "detconf.report/1", "rank": 0, "world_size": 2, "pid": 1, "written": "exit", "stepped": True, "profile": "ci", "ok": True,
        "attestation": {"entries": [row | changes.pop("row", {})], "facts": facts | changes.pop("facts", {})},
        "drift": {"entries": []}, "nondeterministic": [],
    }  # fmt: skip
    (folder / name).write_text(json.dumps(content | changes))


MERGED = [
    # (what the second rank reports, ok, kinds of what differs)
    ({}, True, []),
    ({"row": {"now": 2}}, False, ["knob"]),
    ({"row": {"outcome": "pending", "now": "(torch is not imported)"}}, True, []),
    ({"row": {"outcome": "too-late"}}, False, []),
    ({"row": {"outcome": "too-late", "applies": False}}, True, []),
    ({"facts": {"cores": 4}}, False, ["fact"]),
    ({"facts": {"versions": {"torch": "2.12.0"}}}, False, ["fact"]),
    ({"facts": {"versions": {"numpy": "2.4.6"}}}, True, []),
    ({"profile": "strict"}, False, ["profile"]),
    ({"world_size": 3}, False, []),
    ({"nondeterministic": [{"framework": "torch", "operation": "put_", "source": "a.py:1", "count": 7}]}, True, []),
]


@pytest.mark.parametrize(("second", "ok", "kinds"), MERGED, ids=[str(row[0]) for row in MERGED])
def test_merging(tmp_path: Path, second: dict[str, Any], ok: bool, kinds: list[str]) -> None:
    """What makes two ranks disagree, and what does not."""
    written(tmp_path)
    written(tmp_path, "rank1-pid2-b.json", rank=1, pid=2, **second)
    found = gather(str(tmp_path))
    assert (found.ok, [row["kind"] for row in found.differs]) == (ok, kinds)
    assert str(found)
    json.dumps(found.to_dict(), allow_nan=False)


def test_helpers_do_not_speak_for_a_rank(tmp_path: Path) -> None:
    """A worker that loads data for a rank, and a launcher without one, may have other threads."""
    written(tmp_path)
    written(tmp_path, "rank1-pid2-b.json", rank=1, pid=2)
    written(tmp_path, "rank1-pid3-c.json", rank=1, pid=3, stepped=False, row={"now": 5, "outcome": "rejected"})
    written(tmp_path, "pid4-d.json", rank=None, world_size=None, pid=4, row={"now": 5, "outcome": "rejected"})
    found = gather(str(tmp_path))
    assert found.ok
    assert found.to_dict()["others"] == [3, 4]


DAMAGED = [
    "",
    "{",
    "[1]",
    "null",
    '{"schema": "detconf.report/9"}',
    '{"schema": "detconf.report/1"}',
    "[" * 100_000,
    '"\ud800"',
    "\x00\xff",
]


@pytest.mark.parametrize("text", DAMAGED, ids=[ascii(text[:30]) for text in DAMAGED])
def test_a_damaged_report_hides_nothing(tmp_path: Path, text: str) -> None:
    """A file that is no report is named; the others are read; alone it is an error in words."""
    (tmp_path / "bad.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(TargetError, match="no report here"):
        gather(str(tmp_path))
    written(tmp_path, world_size=1)
    found = gather(str(tmp_path))
    assert len(found.reports) == 1
    assert {*found.damaged, *found.foreign} == {"bad.json"}
    assert found.ok == bool(found.foreign)
    assert "bad.json" in str(found)


def test_every_field_is_checked(tmp_path: Path) -> None:
    """A report with any field of a wrong kind is damaged, and never a traceback."""
    written(tmp_path, "good.json")
    content = json.loads((tmp_path / "good.json").read_text())
    for name in content:
        for value in ({}, [], "x", -1, True, 10**30):
            (tmp_path / "bad.json").write_text(json.dumps(content | {name: value}))
            found = gather(str(tmp_path))
            assert len(found.reports) in (1, 2)
            found.to_dict()
            str(found)


def test_a_report_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Control characters of a report that someone mailed do not reach the terminal."""
    written(tmp_path, profile="ci\x1b[2J", nondeterministic=[{"framework": "t", "operation": "\x1b]0;x\x07", "source": "a", "count": 1}])
    assert "\x1b" not in str(gather(str(tmp_path)))


def test_inspect_exit_codes(tmp_path: Path) -> None:
    """0 where all agree, 1 where something does not, 2 for no folder, an empty one, or one without reports."""
    (tmp_path / "empty").mkdir()
    for words in (["nowhere"], ["empty"], ["empty", "--json"]):
        done = inspect(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "Traceback" not in done.stderr
    (tmp_path / "good").mkdir()
    written(tmp_path / "good", world_size=1)
    assert inspect(tmp_path, "good").returncode == 0
    assert inspect(tmp_path, "good/rank0-pid1-a.json", "--json").returncode == 0
    written(tmp_path / "good", world_size=2)
    assert inspect(tmp_path, "good", "--json").returncode == 1


def test_verify_reports(tmp_path: Path) -> None:
    """`verify --report` leaves the report of every run; runs in fresh processes are merged."""
    (tmp_path / "job.py").write_text(TORCH + "train(1)\nimport detconf; detconf.publish('w', m.weight)\n")
    done = subprocess.run(
        [sys.executable, "-m", "detconf", "verify", "-p", "warn", "--report", "reports", "--runs", "2", "--", sys.executable, "job.py"],
        cwd=tmp_path, env=clean_environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(reports(tmp_path)) == 2
    assert inspect(tmp_path, "reports").returncode == 0
