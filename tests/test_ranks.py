"""The axis `ranks`: a script under a launcher, two ranks on this machine, twice."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import detconf
from detconf.ranking import launched

PYTHON = sys.executable

SCRIPT = """
import os, sys, torch, torch.distributed as dist
torch.manual_seed(0)
ranks = "RANK" in os.environ
if ranks or "plain" not in sys.argv:
    dist.init_process_group("gloo")
if "unseeded" in sys.argv and ranks and dist.get_rank() == 1:
    torch.seed()
weight = torch.ones(3, requires_grad=True)
sgd = torch.optim.SGD([weight], lr=0.1)
for step in range(2):
    sgd.zero_grad()
    (weight * torch.rand(3)).sum().backward()
    if ranks:
        dist.all_reduce(weight.grad)
    sgd.step()
if ranks:
    dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.slow
def test_a_script_that_needs_ranks_is_judged_in_ranks(script: str) -> None:
    """With `ranks` alone nothing runs outside the launcher; every rank is compared at every step, and --steps ends them all."""
    found = detconf.verify([PYTHON, script], runs=2, vary=("ranks",), steps=1)
    assert [(axis.axis, axis.invariant) for axis in found.axes] == [("ranks", True)]
    assert (found.stable, found.observed.ranks, found.observed.steps) == (True, 2, 1)


@pytest.mark.slow
def test_the_rank_that_differs_is_named(script: str) -> None:
    """Rank 1 is not seeded: its own loss is the first difference, before the gradients that it hands on to rank 0."""
    found = detconf.verify([PYTHON, script, "plain", "unseeded"], runs=2, vary=("process", "ranks"))
    axis = found.axes[-1]
    assert (found.axes[0].invariant, axis.axis, axis.invariant) == (True, "ranks", False)
    assert axis.divergence is not None
    assert (axis.divergence.name, axis.divergence.step, axis.divergence.rank) == ("loss", 0, "1")
    assert "first in rank 1" in axis.note
    assert (found.stable, str(found.cause)) == (False, "unknown")


NO_SCRIPTS: list[tuple[Any, str]] = [
    (lambda: 1, "whose first word is a Python"),
    (["sh", "train.sh"], "whose first word is a Python"),
    ([PYTHON, "-c", "pass"], "it takes a script"),
    ([PYTHON], "it takes a script"),
]


@pytest.mark.parametrize(("target", "words"), NO_SCRIPTS)
def test_what_no_launcher_starts_is_not_judged(target: Any, words: str) -> None:
    """A function, another program, or code on the command line: the reason in words."""
    assert words in str(launched(target))


def test_the_options_of_python_stay_its_own() -> None:
    """Words before the script belong to the interpreter, those behind it to the script."""
    found = launched([PYTHON, "-X", "dev", "--", "train.py", "-c", "1"])
    assert isinstance(found, list)
    assert found[:3] == [PYTHON, "-X", "dev"]
    assert found[-4:] == ["2", "train.py", "-c", "1"]


def test_not_judged_without_a_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no framework with a launcher is installed, the axis says so."""
    monkeypatch.setattr("detconf.ranking.find_spec", lambda _name: None)
    assert "no framework with a launcher" in str(launched([PYTHON, "train.py"]))
