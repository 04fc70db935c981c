"""`detconf record --against`: the first event that differs from an earlier recording, said while the program runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from test_cli import detconf

from detconf.recording.reading import Recording

SCRIPT = """
import sys, numpy as np
import torch
word = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
sgd = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    x = torch.ones(2, 4)
    if word == "other" and step == 1:
        x = x * torch.tensor(1.0000001)
    elif word in ("same", "shorter") and step == 1:
        x = x * torch.tensor(1.0)
    elif word == "relu" and step == 1:
        x = torch.relu(x)
    model(x).sum().backward()
    sgd.step()
if word != "shorter":
    model(x)
print("done")
"""


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """`run(word, *options)`: the script, recorded; the first recording is a.det."""
    (tmp_path / "train.py").write_text(SCRIPT)

    def start(word: str, output: str, *options: str) -> Any:
        return detconf("record", "-o", output, *options, "--", sys.executable, "train.py", word, cwd=tmp_path)

    assert start("same", "a.det").returncode == 0
    return start


def test_an_equal_run_is_said_to_be_equal(run: Any) -> None:
    """Nothing differs: one line at the end with the number of events, and the command's own exit status and output."""
    done = run("same", "b.det", "--against", "a.det", "--stop")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.startswith("detconf: ")
    assert "events are equal in" in done.stderr
    assert "goes on" not in done.stderr


def test_the_first_difference_is_said_and_the_program_goes_on(run: Any) -> None:
    """Step, operation and both digests, once; without --stop the program ends as it would have."""
    done = run("other", "b.det", "--against", "a.det")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "done\n", 1)
    assert "step 1, " in done.stderr
    assert "there, " in done.stderr


def test_stop_ends_behind_the_first_difference(run: Any, tmp_path: Path) -> None:
    """With --stop the exit status is 1, and the event that differs is the last of the file."""
    done = run("relu", "b.det", "--against", "a.det", "--stop")
    assert (done.returncode, done.stdout) == (1, "")
    assert "step 1, " in done.stderr
    with Recording(tmp_path / "b.det") as found:
        events = list(found.events())
    assert f"first at event {events[-1].index}, step {events[-1].step}, {events[-1].name}: there " in done.stderr


def test_a_run_that_ends_early_is_named(run: Any) -> None:
    """Where the earlier recording goes on, its next event is named."""
    assert "which goes on with aten.addmm" in run("shorter", "b.det", "--against", "a.det").stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--against", "none.det"), "No such file"),
        (("--against", "a.det", "--level", "state"), "Accepted: --level operations"),
        (("--against", "b.det"), "Accepted: --against an earlier recording of another name"),
        (("--stop",), "Accepted: --against an earlier recording"),
    ],
)
def test_what_cannot_be_compared_with(run: Any, options: tuple[str, ...], words: str) -> None:
    """A file that is not there, is of another level or is the one to be written: refused before anything runs."""
    done = run("same", "b.det", *options)
    assert (done.returncode, done.stdout, words in done.stderr) == (125, "", True), done.stderr
