"""The axis `batch`: a row alone and in a batch; and reruns that go on until enough has been seen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import detconf
from detconf.verification import runs_until

SOURCE = """
import numpy as np
import detconf

X = np.arange(21, dtype=np.float32).reshape(7, 3)

def rowwise(rows):
    detconf.publish("twice", X[rows] * 2)
    return {"y": X[rows] + 1, "weight": X[:2], "loss": float(X[0, 0])}

def by_default(rows=slice(None)):
    return {"y": X[rows] + 1}

def normalised(rows):
    return {"y": X[rows] - X[rows].mean(axis=0)}

def halved(rows):
    part = X[rows]
    return {"y": part + (len(part) == 3)}

def two_or_more(rows):
    assert len(X[rows]) > 1, "needs two rows"
    return {"y": X[rows]}

def total(rows):
    return {"loss": X[rows].sum()}

def plain(rows=3):
    return {"y": X[:rows]}

def linear(rows):
    import torch
    torch.manual_seed(4)
    layer, x = torch.nn.Linear(512, 256), torch.randn(64, 512)
    with torch.no_grad():
        return {"y": layer(x[rows])}
"""


@pytest.fixture
def target(tmp_path: Path) -> Any:
    (tmp_path / "rows.py").write_text(SOURCE)
    return lambda name: f"{tmp_path / 'rows.py'}:{name}"


def judged(target: Any, **options: Any) -> Any:
    found = detconf.verify(target, runs=2, vary="batch", **options)
    return next(axis for axis in found.axes if axis.axis == "batch")


def test_rows_that_do_not_know_each_other_are_invariant(target: Any) -> None:
    """Each row alone and half of the rows have the bits they have in the batch; what has no rows is left out and counted."""
    axis = judged(target("rowwise"))
    assert axis.invariant is True
    assert axis.note == "one row alone, the first 3 rows; 2 results do not follow rows and were not compared"


def test_a_default_of_all_rows_is_asked_for_less(target: Any) -> None:
    """`rows=slice(None)` is an argument `rows` too."""
    assert judged(target("by_default")).invariant is True


@pytest.mark.parametrize(("name", "part"), [("normalised", "one row alone"), ("halved", "the first 3 rows")])
def test_rows_that_depend_on_the_batch_are_named(target: Any, name: str, part: str) -> None:
    """The part that showed it, and the first element, are named; nothing was tried, so nothing restores it."""
    axis = judged(target(name))
    assert (axis.invariant, axis.note, axis.restored_by) == (False, f"with {part}", None)
    assert (axis.divergence.name, axis.divergence.index) == ("y", (0, 0))


def test_a_row_through_a_linear_layer(target: Any) -> None:
    """One row goes to another kernel than many, with another order of sums: found, with the size of the rounding."""
    axis = judged(target("linear"))
    assert axis.invariant is False
    assert axis.divergence.shape == (1, 256)
    assert 0 < axis.divergence.scaled < 100


def test_a_function_that_fails_for_one_row(target: Any) -> None:
    """A part that cannot be computed is not invariant, with the reason."""
    axis = judged(target("two_or_more"))
    assert (axis.invariant, axis.note) == (False, "with one row alone: exit status 1")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("total", "no result has the rows as its first dimension"), ("plain", "the function takes no argument `rows`")],
)
def test_what_cannot_be_judged(target: Any, name: str, reason: str) -> None:
    """Results without rows, or a function that takes no slice: not judged, with the reason, and the verdict stands."""
    axis = judged(target(name))
    assert axis.invariant is None
    assert reason in axis.note


def test_a_command_has_no_rows() -> None:
    """For a command the axis is not judged."""
    axis = judged([sys.executable, "-c", "import detconf; detconf.publish('x', 1.0)"])
    assert (axis.invariant, "a command has no rows" in axis.note) == (None, True)


def test_all_rows_in_one_process() -> None:
    """A function that takes rows gets all of them where nothing else is asked for."""

    def returns(rows: slice) -> Any:
        return {"x": np.arange(4.0)[rows]}

    assert detconf.verify(returns).observed.bytes == 32


class Rare:
    """A function whose result differs in one run."""

    def __init__(self, run: int) -> None:
        self.run, self.calls = run, 0

    def __call__(self) -> dict[str, float]:
        self.calls += 1
        return {"x": float(self.calls == self.run)}


def test_reruns_go_on_until_a_difference_shows() -> None:
    """A difference in the eleventh run ends the reruns there, and is reported as any other."""
    found = detconf.verify(Rare(11), until=0.05)
    assert (found.stable, found.runs, found.distinct) == (False, 11, 2)
    assert found.divergence is not None
    assert found.to_dict()["until"] == 0.05


def test_reruns_go_on_until_the_confidence() -> None:
    """Without a difference there are as many runs as it takes, and one fewer would not do."""
    found = detconf.verify(lambda: {"x": 1.0}, until=0.05)
    assert (found.stable, found.runs) == (True, 60)
    assert found.missed_at_95 is not None
    assert found.missed_at_95 <= 0.05 < 1 - 0.05 ** (1 / 58)
    assert "fewer runs" not in str(found)


def test_runs_is_the_least() -> None:
    """A difference in the second run does not end reruns before `runs` are made."""
    assert detconf.verify(Rare(2), runs=5, until=0.05).runs == 5


def test_most_runs_ends_them_and_says_so() -> None:
    """The cap holds, and the verdict says that less was seen than was asked for."""
    found = detconf.verify(lambda: {"x": 1.0}, until=0.01, most_runs=10)
    assert (found.stable, found.runs) == (True, 10)
    assert "fewer runs than were asked for: the most that were allowed (10) do not show 1.00%" in str(found)


@pytest.mark.parametrize(
    ("share", "most", "words"), [(0, 9, "until: 0"), (1.0, 9, "until: 1.0"), (True, 9, "until: True"), (0.1, 2, "most_runs: 2")]
)
def test_what_is_no_share(share: Any, most: int, words: str) -> None:
    """A share outside 0 to 1, or a cap below `runs`, is refused before anything runs."""
    with pytest.raises(detconf.TargetError, match=words):
        runs_until(share, 3, most)


def test_until_on_the_command_line(target: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`detconf verify --until 0.5` makes six runs."""
    from detconf.cli import main

    assert main(["verify", target("by_default"), "--until", "0.5"]) == 0
    assert "bitwise stable: 6 runs in one process" in capsys.readouterr().out
