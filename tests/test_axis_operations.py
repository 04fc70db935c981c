"""An axis that is not invariant names the operation by which its variant parts from the plain run, with its line and step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from test_ranks import SCRIPT

import detconf
from detconf.digests import mix
from detconf.pooled import first_apart
from detconf.recording.file import Writer
from detconf.recording.recorder import Recorder
from detconf.report.verification import verification
from detconf.verification import Axis, Verification

NUMPY = """
import os
import numpy as np

NAMES = "abcdefghij"
X = np.arange(12, dtype=np.float32).reshape(4, 3)

def walk():
    weights = {name: np.full(3, 0.1 * number + 1e-7) for number, name in enumerate(NAMES)}
    total = np.zeros(3)
    for name in {*NAMES}:
        total = total * 1.1 + weights[name]
    return {"total": total}

def steady():
    return {"x": np.ones(3) * 2}

def normalised(rows):
    part = X[rows] * 2
    return {"y": part - part.mean(axis=0)}

def branch():
    x = X * 2
    if os.environ["PYTHONHASHSEED"] != "0":
        x = x + 1
    return {"x": x * 3}

def outside(rows):
    part = X[rows]
    joined = (part.T * 2).reshape(-1) * 3  # all rows of the first column, then of the next
    return {"y": joined.reshape(3, -1).T + float(len(part))}
"""
TORCH = """
import torch

def layer_norm():
    torch.manual_seed(0)
    x = torch.randn(4096, 64)
    weight = torch.ones(64, requires_grad=True)
    y = torch.nn.functional.layer_norm(x * 2, (64,), weight)
    (y * y).sum(1).backward(torch.ones(4096))
    return {"grad": weight.grad}

def linear(rows):
    torch.manual_seed(4)
    layer, x = torch.nn.Linear(512, 256), torch.randn(64, 512)
    with torch.no_grad():
        hidden = layer(x[rows] * 0.5)
        return {"y": hidden.relu()}

def sequence(rows):
    torch.manual_seed(4)
    layer, x = torch.nn.Linear(512, 256), torch.randn(64, 1, 512)
    with torch.no_grad():
        return {"y": layer(x[rows].transpose(0, 1).contiguous().reshape(-1, 512))}

class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.tensor([float(index)]) + torch.rand(1)

def loaded():
    torch.manual_seed(0)
    return {"y": torch.cat(list(torch.utils.data.DataLoader(Noisy(), num_workers=2)))}

def compiled():
    function = torch.compile(lambda x: x.sin() + torch.compiler.is_compiling(), backend="eager")
    return {"y": function(torch.linspace(0, 1, 5)) * 2}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder in which children find detconf; no variable that another import has set for them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name, source in (("arrays.py", NUMPY), ("tensors.py", TORCH)):
        (tmp_path / name).write_text(source)
    return tmp_path


def line(source: str, words: str) -> int:
    return next(number for number, text in enumerate(source.splitlines(), 1) if words in text)


def judged(target: Any, axis: str, **options: Any) -> tuple[Axis, Verification]:
    """The axis and the verdict; the dictionary and the report say of the operation what the object does."""
    result = detconf.verify(target, runs=2, vary=("process", axis), **options)  # "ranks" alone looks for a cause too, which takes long
    found = next(each for each in result.axes if each.axis == axis)
    data = next(each for each in result.to_dict()["axes"] if each["axis"] == axis)
    told = verification(result, verbose=False)
    assert found.operation is not None
    assert data["operation"]["notes"] == list(found.operation.notes)
    assert all(note in told for note in found.operation.notes)
    if found.operation.finding:
        divergence = found.operation.finding.divergence
        assert (data["operation"]["name"], data["operation"]["source"]) == (divergence.name, divergence.source)
        assert f"first operation {divergence.name} at {divergence.source}" in told
    return found, result


def where(axis: Axis) -> tuple[str, str]:
    assert axis.operation is not None
    assert axis.operation.finding is not None, axis.operation.notes
    divergence = axis.operation.finding.divergence
    return divergence.name, divergence.source


def test_the_order_of_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hash-seed`: the sum that met another name, measured; the plain runs are steady, with a fixed seed."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    axis, result = judged("arrays.py:walk", "hash-seed")
    name, source = where(axis)
    assert name in ("numpy.add", "numpy.multiply")
    assert source == f"arrays.py:{line(NUMPY, 'total * 1.1')}"
    assert result.operation is axis.operation


def test_what_one_side_alone_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch that the plain runs do not take: the operation in it, and that only one side shows it."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    axis, _ = judged("arrays.py:branch", "hash-seed")
    assert where(axis) == ("numpy.add", f"arrays.py:{line(NUMPY, 'x = x + 1')}")
    assert axis.operation
    assert any("only one side shows" in note for note in axis.operation.notes)


def test_what_is_invariant_is_not_run_again() -> None:
    """No operation where nothing differs."""
    result = detconf.verify("arrays.py:steady", runs=2, vary=("hash-seed",))
    assert [axis.operation for axis in result.axes] == [None, None]
    assert result.operation is None


def test_what_mixes_the_rows() -> None:
    """`batch`: the mean over the rows, and not the difference that reads it."""
    axis, _ = judged("arrays.py:normalised", "batch")
    assert where(axis) == ("numpy.mean", f"arrays.py:{line(NUMPY, 'part.mean')}")
    assert axis.operation
    assert axis.operation.finding
    assert axis.operation.finding.divergence.values == ("9.0", "0.0")


def test_a_number_that_python_made_of_the_rows() -> None:
    """`batch`: a number that Python makes of the rows reaches an operation as its argument: that one is named.

    Operations before it follow the rows in their second dimension, or in one that is joined of both.
    """
    axis, _ = judged("arrays.py:outside", "batch")
    assert where(axis) == ("numpy.add", f"arrays.py:{line(NUMPY, 'float(len(part))')}")


@pytest.mark.slow
def test_a_sum_over_threads() -> None:
    """`threads`: the backward of a layer norm, which adds up by threads, with its size; the forward agrees."""
    axis, _ = judged("tensors.py:layer_norm", "threads")
    name, source = where(axis)
    assert "layer_norm_backward" in name
    assert source == f"tensors.py:{line(TORCH, 'backward(torch.ones')}" or source.startswith("tensors.py:")
    assert axis.operation
    assert axis.operation.finding
    assert axis.operation.finding.divergence.differing


@pytest.mark.slow
@pytest.mark.parametrize("function", ["linear", pytest.param("sequence", marks=pytest.mark.long)])
def test_the_kernel_for_one_row(function: str) -> None:
    """`batch`: the product, for which one row takes another kernel; also where rows are not the first dimension on the way."""
    axis, _ = judged(f"tensors.py:{function}", "batch")
    name, source = where(axis)
    assert name in ("aten.addmm", "aten.mm", "aten.addmv", "aten.mv")
    assert source == f"tensors.py:{line(TORCH, 'hidden = layer' if function == 'linear' else 'transpose(0, 1)')}"


@pytest.mark.slow
def test_what_a_data_worker_draws() -> None:
    """`workers`: the draw in the data set, in whatever process it ran, and that its generator stands elsewhere."""
    axis, _ = judged("tensors.py:loaded", "workers")
    assert where(axis) == ("aten.rand", f"tensors.py:{line(TORCH, 'torch.rand(1)')}")
    assert axis.operation
    assert axis.operation.finding
    assert "generator's state differs" in axis.operation.finding.hint
    assert not axis.operation.others  # what reads it introduces nothing


@pytest.mark.long
def test_what_compiled_code_does() -> None:
    """`compile`: the operation by which eager code parts from it, by its line in the program and not in generated code."""
    axis, _ = judged("tensors.py:compiled", "compile")
    assert where(axis) == ("aten.add.Tensor", f"tensors.py:{line(TORCH, 'is_compiling()')}")


@pytest.mark.long
def test_the_rank_that_draws_elsewhere(here: Path) -> None:
    """`ranks`: the draw of the rank that is not seeded, and not the collective that hands it on."""
    (here / "ranks.py").write_text(SCRIPT)
    axis, _ = judged([sys.executable, "ranks.py", "plain", "unseeded"], "ranks")
    assert where(axis) == ("aten.rand", f"ranks.py:{line(SCRIPT, 'torch.rand(3)')}")
    assert axis.operation
    assert axis.operation.finding
    assert (axis.operation.finding.divergence.rank, axis.operation.finding.divergence.step) == ("1", 0)


def written(path: Path, rows: list[tuple[str, bytes, bytes, bytes]]) -> str:
    """A recording of (name, what is read, what is written, state of the generator); the name is its line too."""
    recorder = Recorder(Writer(str(path), lambda: {"level": "operations", "facts": {}}), sources=True)
    recorder.begin()
    for name, read, wrote, drawn in rows:
        state = mix(drawn) if drawn else b""
        recorder.operation(name, [mix(read)], [mix(wrote)], (("float32", (2,)),), random=state, source=f"{name}.py:1")
    recorder.close()
    return str(path)


def test_work_that_is_shared_out_otherwise(here: Path) -> None:
    """The line whose draws differ, in whatever process it ran; not what reads them, nor what one side alone does with a queue."""
    main = [("scale", b"data", b"scaled", b""), ("queue", b"", b"", b""), ("stack", b"batch", b"stacked", b"")]
    workers = [[("draw", b"seed", b"a%d" % number, b"state %d" % number)] for number in range(2)]
    alone = [main[0], ("draw", b"seed", b"b0", b"other"), ("draw", b"seed", b"b1", b"another"), ("stack", b"other batch", b"other", b"")]
    ours = [written(here / "a.det", main), *(written(here / f"a.pid{number}.det", rows) for number, rows in enumerate(workers, 1))]
    found = first_apart(ours, [written(here / "b.det", alone)])
    assert [(each.divergence.name, each.divergence.source, str(each.verdict)) for each in found] == [
        ("draw", "draw.py:1", "introduced"),
        ("stack", "stack.py:1", "propagated"),
    ]
    assert found[0].hint == "the generator's state differs"
    assert first_apart(ours, ours) == ()
