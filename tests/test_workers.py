"""The number of workers of data loaders: forced from outside, read back, put back; and the axis `workers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle
import pytest
from torch.utils.data import DataLoader

import detconf
from detconf.frameworks import catalogue

TORCH, PADDLE = "torch.utils.data.DataLoader.num_workers", "paddle.io.DataLoader.num_workers"

SOURCE = """
import torch
from torch.utils.data import DataLoader, Dataset

class Drawing(Dataset):
    def __init__(self, by_index):
        self.by_index = by_index
    def __len__(self):
        return 6
    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(1000 + i) if self.by_index else None
        return torch.rand((), generator=generator)

def _run(by_index, **more):
    torch.manual_seed(0)
    return {"draws": torch.cat(list(DataLoader(Drawing(by_index), batch_size=2, shuffle=True, **more)))}

def from_the_stream():
    return _run(False)

def by_index():
    return _run(True, num_workers=1, persistent_workers=True, prefetch_factor=4, timeout=60, multiprocessing_context="fork")

def of_paddle():
    import numpy, paddle
    class Data(paddle.io.Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, i):
            return numpy.float32([paddle.io.get_worker_info() is not None])
    return {"in a worker": [batch[0].numpy() for batch in paddle.io.DataLoader(Data(), batch_size=2)]}
"""


@pytest.fixture
def target(tmp_path: Path) -> Any:
    (tmp_path / "loading.py").write_text(SOURCE)
    return lambda name: f"{tmp_path / 'loading.py'}:{name}"


def workers(found: Any) -> Any:
    return next(axis for axis in found.axes if axis.axis == "workers")


def test_draws_from_the_global_stream_depend_on_workers(target: Any) -> None:
    """A dataset that draws from the global stream is not invariant, by the first number of workers that shows it."""
    axis = workers(detconf.verify(target("from_the_stream"), runs=2, vary="workers"))
    assert (axis.invariant, axis.divergence.name) == (False, "draws")
    assert axis.note == "with 1 worker in every DataLoader"
    assert "fixed number of workers" in axis.restored_by


def test_draws_by_index_do_not_depend_on_workers(target: Any) -> None:
    """Seeded by index it is invariant; what a loader without workers refuses (timeout, prefetching) is left out for 0."""
    axis = workers(detconf.verify(target("by_index"), runs=2, vary="workers"))
    assert axis.invariant is True
    assert axis.note == "0 workers in every DataLoader, 1 worker in every DataLoader, 2 workers in every DataLoader"


def test_workers_of_paddle_are_forced(target: Any) -> None:
    """Paddle's loaders get workers that the program never asked for."""
    axis = workers(detconf.verify(target("of_paddle"), runs=2, vary="workers"))
    assert (axis.invariant, axis.note) == (False, "with 1 worker in every DataLoader")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("knob", "loader"), [(TORCH, DataLoader), (PADDLE, paddle.io.DataLoader)])
def test_the_constructor_is_put_back(knob: str, loader: Any, tmp_path: Path) -> None:
    """While forced, the argument has no effect and the knob reads the number; afterwards the class is what it was."""
    (tmp_path / "empty.yaml").write_text("name: empty")
    before, data = loader.__init__, [0.0, 1.0]
    assert catalogue()[knob].read().value == "as-written"
    with detconf.apply(str(tmp_path / "empty.yaml"), overrides={knob: 2}) as session:
        assert session.attestation.entries[0].outcome == "set"
        assert loader(data, num_workers=1).num_workers == loader(data).num_workers == 2
        with detconf.apply(str(tmp_path / "empty.yaml"), overrides={knob: 0}):
            assert loader(data, num_workers=1, persistent_workers=True).num_workers == 0
        assert catalogue()[knob].read().value == 2
    assert loader.__init__ is before
    assert loader(data, num_workers=1).num_workers == 1


def test_a_constructor_wrapped_by_another_stays(tmp_path: Path) -> None:
    """Where somebody has wrapped the constructor since, theirs stays in place, and nothing is forced any more."""
    import functools

    (tmp_path / "empty.yaml").write_text("name: empty")
    before = DataLoader.__init__
    try:
        with detconf.apply(str(tmp_path / "empty.yaml"), overrides={TORCH: 2}):
            ours = DataLoader.__init__

            @functools.wraps(ours)
            def theirs(*args: Any, **kwargs: Any) -> None:
                ours(*args, **kwargs)

            DataLoader.__init__ = theirs  # as a profiler would
            assert DataLoader([0.0]).num_workers == 2
        assert DataLoader.__init__ is theirs
        assert DataLoader([0.0], num_workers=1).num_workers == 1
        assert catalogue()[TORCH].read().value == "as-written"
    finally:
        DataLoader.__init__ = before


def test_refused_arguments_are_refused_as_before(tmp_path: Path) -> None:
    """An unknown argument raises the constructor's own TypeError, also while workers are forced."""
    (tmp_path / "empty.yaml").write_text("name: empty")
    with detconf.apply(str(tmp_path / "empty.yaml"), overrides={TORCH: 2}), pytest.raises(TypeError, match="num_wokers"):
        DataLoader([0.0], num_wokers=1)


@pytest.mark.parametrize("value", [-1, 65, True, "many", ""])
def test_what_is_no_number_of_workers(value: Any) -> None:
    """Numbers out of range and other words are refused, and the message says what is accepted."""
    assert catalogue()[TORCH].objection(value).endswith("accepted: an integer from 0 to 64, or as-written")
