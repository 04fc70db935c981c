"""Reruns agree bit for bit, or the first difference is named; a run may crash, hang or print anything."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from conftest import ROOT, run_python

from detconf.errors import TargetError
from detconf.launch import child_environment
from detconf.publishing import publish, step
from detconf.rerun import verify
from detconf.results import flatten
from detconf.targets import load_function, locate
from detconf.values import Cause

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of the test's own, in which children find detconf and no settings of ours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in list(os.environ):
        if name.startswith("DETCONF_") or name == "RANK":
            monkeypatch.delenv(name)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(name: str, code: str) -> str:
    """A file in the working folder."""
    Path(name).write_text(code)
    return name


def counter(*values: Any) -> Callable[[], Any]:
    """A function that returns the next of `values` each time."""
    rest = iter(values)
    return lambda: next(rest)


def digests(value: Any, runs: int = 2) -> list[list[str]]:
    """What `digests["arrays"]` says of `runs` runs that all gave `value`."""
    return [[array.digest] * runs for array in flatten(value).values()]


# -- verdicts


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda: 1.0, id="number"),
        pytest.param(lambda: {"x": np.arange(3), "y": [torch.ones(2), paddle.ones([2])]}, id="all frameworks"),
        pytest.param(lambda: torch.full((2,), float("nan")), id="NaN is equal to itself"),
        pytest.param(lambda: torch.nn.init.ones_(torch.nn.Linear(2, 2).weight), id="parameter"),
    ],
)
def test_stable(value: Callable[[], Any]) -> None:
    """Equal bits are stable, with the number of runs and the share of differing runs that they can miss."""
    found = verify(value, runs=4)
    assert (found.stable, found.runs, found.distinct, found.cause, found.divergence) == (True, 4, 1, Cause.EQUAL, None)
    assert found.missed_at_95 == pytest.approx(1 - 0.05 ** (1 / 3))
    assert found.axes[0].invariant
    assert len(set(found.digests["runs"])) == 1


def test_unstable() -> None:
    """The first array that differs is named, with the place, count and distance; others are not looked at."""
    results = [{"same": 1, "x": np.array([[1.0, 2.0], [3.0, 4.0]], "f4"), "later": number} for number in range(3)]
    results[2]["x"][1, 0] = np.nextafter(np.float32(3), np.float32(9))
    results[2]["x"][1, 1] = 5.0
    results[1]["later"] = results[2]["later"] = 0
    found = verify(counter(*results), runs=3)
    assert not found.stable
    assert found.distinct == 2
    assert found.divergence
    assert tuple(getattr(found.divergence, name) for name in ("name", "differing", "elements", "index", "max_abs")) == (
        "x",
        2,
        4,
        (1, 0),
        1.0,
    )
    assert (found.cause, found.missed_at_95, found.axes[0].invariant) == (Cause.UNKNOWN, None, False)
    assert found.axes[0].divergence == found.divergence


def test_the_earliest_difference_of_any_run_is_reported() -> None:
    """Run 1 differs late and run 2 early: the early one is where to look."""
    found = verify(counter({"a": 0, "b": 0}, {"a": 0, "b": 1}, {"a": 1, "b": 0}))
    assert found.divergence
    assert (found.divergence.name, found.distinct) == ("a", 3)


def test_missing_and_extra_results() -> None:
    """A run that returns less or more than the first differs."""
    missing, extra = verify(counter({"a": 1, "b": 2}, {"a": 1}), runs=2), verify(counter({"a": 1}, {"b": 2, "a": 1}), runs=2)
    assert missing.divergence
    assert extra.divergence
    assert (missing.divergence.name, str(missing.divergence.kind)) == ("b", "missing")
    assert (extra.divergence.name, str(extra.divergence.kind)) == ("b", "extra")


def test_order_of_keys_is_no_difference() -> None:
    """The same results in another order are the same."""
    assert verify(counter({"a": 1, "b": 2}, {"b": 2, "a": 1}), runs=2).stable


def test_results_are_copied_at_once() -> None:
    """A function that returns the same buffer each time, changed in place, is unstable."""
    buffer = torch.zeros(3)
    assert not verify(lambda: buffer.add_(1), runs=2).stable


def test_to_dict() -> None:
    """The keys of the design are there, and JSON carries them."""
    for found in (verify(lambda: np.arange(3)), verify(counter(np.float64("nan"), np.inf), runs=2)):
        data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        keys = "schema stable runs distinct cause divergence axes missed_at_95 observed environment digests failures"
        assert set(keys.split()) <= set(data)
        assert data["schema"] == "detconf.verification/1"
        assert {"axis", "invariant", "divergence", "restored_by"} <= set(data["axes"][0])
        assert {"arrays", "steps", "ranks", "state"} <= set(data["observed"])
        assert "versions" in data["environment"]
        assert [row["name"] for row in data["digests"]["arrays"]] == ["result"]
        assert [found.runs] == [len(row["digests"]) for row in data["digests"]["arrays"]]


def test_published_results_of_a_function() -> None:
    """What a function publishes is compared beside what it returns, by step."""
    noise = iter([0.0, 0.0, 0.0, 1.0])

    def train() -> dict[str, float]:
        for _ in range(2):
            publish("loss", next(noise))
            step()
        return {"final": 1.0}

    found = verify(train, runs=2)
    assert found.divergence
    assert (found.divergence.name, found.divergence.step, found.divergence.origin) == ("loss", 1, "published")
    assert (found.observed.arrays, found.observed.steps) == (3, 2)


@pytest.mark.usefixtures("unchanged")
def test_a_profile_gives_each_run_the_same_seeds() -> None:
    """Under a profile each run starts from the same generators, and everything is put back."""

    def draw() -> list[Any]:
        return [random.random(), np.random.rand(2), torch.rand(2), paddle.rand([2])]  # noqa: NPY002  # the global generator is the subject

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = (verify(draw, runs=2, profile="strict", seed=seed) for seed in (1, 2))
    assert one.stable
    assert other.stable
    assert one.profile == "strict"
    assert one.digests["runs"] != other.digests["runs"]


def test_without_a_profile_generators_go_on() -> None:
    """Without a profile a function that draws numbers is unstable: nothing was seeded for it."""
    assert not verify(lambda: torch.rand(2), runs=2).stable


@pytest.mark.usefixtures("unchanged")
def test_a_profile_is_in_force_before_a_file_is_loaded() -> None:
    """What must be set before an import is set before the file that imports."""
    file = write("t.py", "import os\nSEEN = os.environ.get('CUBLAS_WORKSPACE_CONFIG')\ndef f(): return SEEN")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = verify(f"{file}:f", profile="strict", runs=2)
    assert digests(":4096:8") == [row["digests"] for row in found.digests["arrays"]]


@pytest.mark.usefixtures("unchanged")
def test_without_a_profile_nothing_is_touched() -> None:
    """Verifying without a profile changes no setting and no generator."""
    verify(lambda: torch.ones(2))


# -- refusals


@pytest.mark.parametrize("value", [None, [], {}, {"a": None}, np.zeros((0, 3))])
def test_nothing_compared_is_no_agreement(value: Any) -> None:
    """Without a byte to compare there is no verdict."""
    with pytest.raises(TargetError, match=r"nothing was compared.*detconf\.publish"):
        verify(lambda: value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"runs": 1}, "runs: 1 is not accepted. Accepted: an integer of 2 or more"),
        ({"runs": True}, "runs: True"),
        ({"runs": 2.0}, "runs: 2.0"),
        ({"vary": ("treads",)}, "Did you mean 'threads'"),
        ({"vary": ("threads",)}, "Pass 'file.py:function'"),
        ({"timeout": 5}, "timeout: 5 is not accepted"),
        ({"timeout": 0, "fresh": True}, "timeout: 0 is not accepted"),
        ({"seed": 1}, "seed: 1 has no effect without a profile"),
        ({"outputs": "out.npy"}, "outputs: 'out.npy' is one text"),
        ({"target": 3}, "3 is no target. Accepted: a function"),
        ({"target": ""}, "'' is no target"),
        ({"target": []}, r"\[\] is no target"),
        ({"target": ["python", 3]}, "is no target"),
        ({"target": ["no-such-program-here"]}, "no-such-program-here cannot be started: .*No such file"),
        ({"target": lambda: 1, "fresh": True}, "<lambda> cannot be found by another process.*Pass 'file.py:function'"),
        ({"target": functools.partial(int, 1), "fresh": True}, "partial cannot be found"),
        ({"target": "absent.py:f", "fresh": True}, "absent.py: no such file"),
        ({"target": "absent.py"}, "'absent.py' names no function"),
    ],
)
def test_arguments(arguments: dict[str, Any], said: str) -> None:
    """What cannot be used is refused with what was received and what is accepted."""
    with pytest.raises(TargetError, match=said):
        verify(**{"target": lambda: 1.0, **arguments})


@pytest.mark.parametrize("error", [ValueError("first\nsecond"), SystemExit(3), AssertionError()])
def test_a_function_that_raises(error: BaseException) -> None:
    """A function that raises, or leaves the interpreter, is an error that carries the original."""

    def function() -> None:
        raise error

    with pytest.raises(TargetError, match=f"function raised {type(error).__name__}") as caught:
        verify(function)
    assert caught.value.__cause__ is error


def test_uncomparable_results_are_named() -> None:
    """The path of what cannot be compared is in the error."""
    with pytest.raises(TargetError, match=r"^out\.f: builtin_function"):
        verify(lambda: {"out": {"f": print}})


# -- functions in files


@pytest.mark.parametrize(
    ("code", "target", "said"),
    [
        ("x = 1", "t.py:x", "t.py: x is a int, not a function"),
        ("def predict(): pass", "t.py:predit", r"t.py has no function 'predit'\. Did you mean 'predict'"),
        ("import nothing_like_it", "t.py:f", "t.py cannot be loaded: ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("def f(:", "t.py:f", "t.py cannot be loaded: SyntaxError"),
        ("raise SystemExit(1)", "t.py:f", "t.py cannot be loaded: SystemExit"),
        ("", "no.py:f", r"no.py: no such file \(working folder"),
        ("", "t.py:", "names no function"),
        ("", ":f", "names no function"),
    ],
)
def test_load_errors(code: str, target: str, said: str) -> None:
    """A function that cannot be loaded says why; the half-loaded module is gone."""
    write("t.py", code)
    with pytest.raises(TargetError, match=said):
        load_function(target)
    assert "x" in code or "predict" in code or "t" not in sys.modules


def test_load() -> None:
    """A file is loaded once, as a module of its name, and finds its neighbours."""
    write("neighbour.py", "VALUE = 5")
    write("t.py", "import neighbour\ndef f(): return neighbour.VALUE, __name__")
    assert load_function("t.py:f")() == (5, "t")
    assert load_function("t.py:f") is load_function(str(Path("t.py").resolve()) + ":f")
    assert not list(Path("__pycache__").glob("t.*"))


def test_load_beside_a_module_of_that_name() -> None:
    """A file called as a module that is in use replaces nothing."""
    write("json.py", "def f(): return __name__")
    assert load_function("json.py:f")() == "detconf_target_json"
    assert sys.modules["json"] is json


def test_a_path_with_a_colon() -> None:
    """Only the last colon parts file and function, as a Windows path needs."""
    Path("c:x").mkdir()
    assert load_function(write("c:x/t.py", "def f(): return 7") + ":f")() == 7


def test_locate() -> None:
    """A function at the top level of a file can be found again; one inside another cannot."""
    assert f"{__file__}:counter" == locate(counter)
    with pytest.raises(TargetError, match="at the top level of a file"):
        locate(counter(1))


# -- processes of their own

VIEW = "import os, sys\ndef f(): return {'argv': sys.argv, 'name': __name__, 'path': sys.path[0], 'cwd': os.getcwd()}\ndef g(): return os.urandom(4)"


def test_fresh_function() -> None:
    """A function runs in a fresh process as it would in a script: arguments, folder, module name."""
    Path("sub").mkdir()
    file = write("sub/t.py", VIEW)
    found = verify(f"{file}:f", fresh=True, runs=2)
    assert (found.stable, found.axes[0].axis) == (True, "process")
    wanted = {"argv": [file], "name": "t", "path": str(Path("sub").resolve()), "cwd": os.getcwd()}
    assert digests(wanted) == [row["digests"] for row in found.digests["arrays"]]
    assert not verify(f"{file}:g", vary=("process",), runs=2).stable


def test_fresh_callable() -> None:
    """A function object is found again by its file and name."""
    function = load_function(write("t.py", VIEW) + ":f")
    assert verify(function, fresh=True, runs=2).stable


def test_fresh_profile() -> None:
    """A profile is in force in each process before its file is loaded, seeds included; a seed changes the results."""
    file = write(
        "t.py",
        "import os\nSEEN = os.environ.get('CUBLAS_WORKSPACE_CONFIG', 'nothing')\nimport torch\n"
        "def f(): return {'seen': SEEN, 'x': torch.rand(3), 'on': torch.are_deterministic_algorithms_enabled()}",
    )
    one = verify(f"{file}:f", fresh=True, runs=2, profile="strict")
    other = verify(f"{file}:f", fresh=True, runs=2, profile="strict", seed=7)
    assert one.stable
    assert other.stable
    assert digests({"seen": ":4096:8", "on": True}) == [row["digests"] for row in one.digests["arrays"] if row["name"] != "x"]
    assert one.digests["runs"] != other.digests["runs"]


def test_every_run_is_seeded_where_the_verifier_was() -> None:
    """Under variables that seed every first process, each run is one, though the verifier has been seeded itself."""
    write("s.py", "import detconf, random\ndetconf.publish('x', random.random())")
    code = "import detconf, json, sys; print(json.dumps(detconf.verify([sys.executable, 's.py'], runs=2).stable))"
    environment: Any = child_environment("strict", {"PYTHONPATH": str(ROOT)})
    assert run_python(code, cwd=Path.cwd(), **environment)


def test_script() -> None:
    """A script is compared by what it publishes, step by step."""
    file = write(
        "s.py", "import os, detconf\nfor n in range(3):\n    detconf.publish('loss', n if n < 2 else os.getpid())\n    detconf.step()"
    )
    found = verify([PYTHON, file], runs=2)
    assert found.divergence
    assert (found.divergence.name, found.divergence.step, found.distinct) == ("loss", 2, 2)
    assert (found.observed.arrays, found.observed.steps, found.observed.ranks) == (3, 3, 1)


def test_script_with_profile() -> None:
    """An unmodified script that draws numbers is unstable, and stable under a profile."""
    file = Path(write("s.py", "import detconf, torch\ndetconf.publish('x', torch.rand(2))"))
    assert not verify([PYTHON, file], runs=2).stable
    assert verify([PYTHON, file], runs=2, profile="strict").stable


def test_script_that_publishes_nothing() -> None:
    """A script without results is no agreement."""
    with pytest.raises(TargetError, match="nothing was compared"):
        verify([PYTHON, "-c", "print('accuracy 0.9')"], runs=2)


CRASHES = [
    ("import os; os.abort()", "signal SIGABRT"),
    ("import ctypes; ctypes.string_at(0)", "signal SIGSEGV"),
    ("import os; os.kill(os.getpid(), 9)", "signal SIGKILL"),
    ("import sys; print('the reason', file=sys.stderr); sys.exit(3)", "exit status 3"),
    ("raise ValueError('the reason')", "exit status 1"),
    ("print('the reason'); raise SystemExit(4)", "exit status 4"),
]


@pytest.mark.parametrize(("code", "reason"), CRASHES)
def test_every_run_fails(code: str, reason: str) -> None:
    """When no run ends well there is no verdict, and the error says how the first one ended and what it said."""
    said = f"every run failed \\({reason}\\)" + (".*\n.*the reason" if "reason" in code else "")
    with pytest.raises(TargetError, match=re.compile(said, re.DOTALL)):
        verify([PYTHON, "-c", "import detconf; detconf.publish('x', 1)\n" + code], runs=2)


def nth(code: str, number: int = 1) -> list[str]:
    """A script that publishes, and in its run `number` does `code` before it publishes once more."""
    lines = [
        "import os, sys, detconf",
        "runs = len(os.listdir('ran')); open(f'ran/{runs}', 'w').close()",
        "detconf.publish('x', 1)",
        f"if runs == {number}:",
        *("    " + line for line in code.splitlines()),
        "detconf.publish('y', 2)",
    ]
    Path("ran").mkdir(exist_ok=True)
    return [PYTHON, write("nth.py", "\n".join(lines))]


@pytest.mark.parametrize(("code", "reason"), CRASHES)
@pytest.mark.parametrize("number", [0, 1])
def test_one_run_fails(code: str, reason: str, number: int) -> None:
    """A run that fails beside one that does not is a difference; what it had not yet published is where it ended."""
    found = verify(nth(code, number), runs=2)
    assert (found.stable, found.distinct, found.cause) == (False, 2, Cause.UNKNOWN)
    assert [(number, reason)] == [(failure.run, failure.reason) for failure in found.failures]
    assert found.divergence
    assert (found.divergence.name, str(found.divergence.kind)) == ("y", "missing")
    if "the reason" in code:
        assert any("the reason" in line for line in found.failures[0].lines)


def test_a_run_that_fails_after_its_last_result() -> None:
    """A run that fails with all its results is a difference without a differing array."""
    found = verify(nth("import atexit; atexit.register(os._exit, 5)"), runs=2)
    assert (found.stable, found.divergence, found.failures[0].reason) == (False, None, "exit status 5")


def test_differing_bits_come_before_failures() -> None:
    """Where runs that ended well differ, that is the finding, not what a failed run lacks."""
    command = nth("sys.exit(1)")
    with open(command[1], "a", encoding="utf-8") as script:
        script.write("\ndetconf.publish('z', runs)")
    found = verify(command, runs=3)
    assert found.divergence
    assert (found.divergence.name, len(found.failures), found.distinct) == ("z", 1, 3)


def alive(process: int) -> bool:
    """Is it running? A dead one that nobody has collected is not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what must happen; a test that waits for ever is ended by pytest's own limit."""
    while not condition():
        time.sleep(0.01)


GRANDCHILD = "import os, subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)']); open('pid.part', 'w').write(str(child.pid)); os.rename('pid.part', 'pid')"


def test_a_hanging_run_is_ended_with_all_it_started() -> None:
    """A run over its time is killed, its children too, and counts as failed."""
    for timeout in (2, 10, 60):  # on a busy machine even a run that does not hang takes seconds
        shutil.rmtree("ran", ignore_errors=True)
        with contextlib.suppress(TargetError):
            found = verify(nth(f"{GRANDCHILD}; child.wait()"), runs=2, timeout=timeout)
            if Path("pid").exists():
                break
    assert [(1, f"timeout after {timeout} s")] == [(failure.run, failure.reason) for failure in found.failures]
    wait_until(lambda: not alive(int(Path("pid").read_text())))


def test_what_a_run_leaves_behind_is_ended() -> None:
    """A child that outlives its run does not disturb the next one."""
    assert verify(nth(GRANDCHILD), runs=2).stable
    wait_until(lambda: not alive(int(Path("pid").read_text())))


def test_interrupt_ends_the_run() -> None:
    """Ctrl-C at the verifier ends the run, which is in a session of its own, and is raised again."""
    write("hang.py", "import os, time\nopen('pid.part', 'w').write(str(os.getpid())); os.rename('pid.part', 'pid')\ntime.sleep(1000)")
    verifier = subprocess.Popen(
        [PYTHON, "-c", "import detconf, sys; detconf.verify([sys.executable, 'hang.py'])"], stderr=subprocess.PIPE, text=True
    )
    wait_until(Path("pid").exists)
    verifier.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in verifier.communicate()[1]
    wait_until(lambda: not alive(int(Path("pid").read_text())))


def test_garbage_is_harmless() -> None:
    """Megabytes of bytes on both streams neither block a run nor reach a terminal."""
    noise = "for stream in (1, 2):\n    os.write(stream, os.urandom(1 << 16) * 64 + b'\\x1b[31mred\\x07\\n')\n"
    assert verify(nth(noise, 0), runs=2).stable
    Path("ran").rename("before")
    (failure,) = verify(nth(noise + "os.abort()"), runs=2).failures
    assert "red" in failure.lines[-1]
    assert all(line.isprintable() for line in failure.lines)
    assert len(failure.lines) <= 10
    assert sum(map(len, failure.lines)) <= 4000


def test_a_run_reads_no_input() -> None:
    """A run that asks for input gets none, and does not wait."""
    assert verify([PYTHON, "-c", "import sys, detconf; detconf.publish('x', len(sys.stdin.read()) + 1)"], runs=2).stable


# -- output files

WRITER = "import os, sys\nwith open(sys.argv[1], 'wb') as f: f.write({})"


def test_output_files() -> None:
    """Declared files are compared byte by byte, by path."""
    Path("out").mkdir()
    same, other = (write(name, WRITER.format(data)) for name, data in (("same.py", "b'abc'"), ("other.py", "b'ab' + os.urandom(8)")))
    found = verify([PYTHON, same, "out/x.bin"], runs=2, outputs=("out/*.bin",))
    assert (found.stable, found.observed.arrays, found.observed.bytes) == (True, 1, 3)
    found = verify([PYTHON, other, "out/x.bin"], runs=2, outputs=["**/*.bin"])
    assert found.divergence
    assert tuple(getattr(found.divergence, name) for name in ("name", "origin", "dtype", "shape")) == ("out/x.bin", "file", "uint8", (10,))
    assert found.divergence.index
    assert found.divergence.index[0] >= 2


def test_a_file_that_is_left_alone_is_not_compared() -> None:
    """A file of an earlier run is no result of this one."""
    Path("old.bin").write_bytes(b"old")
    with pytest.raises(TargetError, match="nothing was compared"):
        verify([PYTHON, "-c", "pass"], runs=2, outputs=("old.bin",))
    command = [PYTHON, "-c", "import os\nif not os.path.exists('once.bin'): open('once.bin', 'wb').write(b'x')"]
    found = verify(command, runs=2, outputs=("*.bin",))
    assert found.divergence
    assert (found.divergence.name, str(found.divergence.kind)) == ("once.bin", "missing")


def test_a_declared_file_that_no_run_writes() -> None:
    """A pattern that nothing matches would pass unseen: it is an error."""
    with pytest.raises(TargetError, match=r"outputs: no run .* wrote a file that matches 'lost\.npy'"):
        verify([PYTHON, write("s.py", WRITER.format("b'x'")), "x.bin"], runs=2, outputs=("x.bin", "lost.npy"))


def test_output_files_of_a_function() -> None:
    """A function that writes the same bytes again and again within a tick of the clock has written them each time."""
    found = verify(lambda: Path("x.bin").write_bytes(b"abc") and None, runs=5, outputs=("x.bin",))
    assert found.stable
    assert [row["name"] for row in found.digests["arrays"]] == ["x.bin"]
