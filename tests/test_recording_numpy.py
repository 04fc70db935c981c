"""Recording of NumPy: unmodified code is seen, no bit changes, everything is put back."""

# ruff: noqa: NPY002  # the legacy generator is what most programs draw from

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import detconf
from detconf.arrays import Array
from detconf.digests import NOTHING, Flag
from detconf.recording.event import Event
from detconf.recording.reading import Recording
from detconf.results import flatten
from tests.conftest import run_python


def events(path: Path) -> list[Event]:
    with Recording(path) as recording:
        return list(recording.events())


def recorded(folder: Path, code: Callable[[], Any], **options: Any) -> list[Event]:
    """The events of a call."""
    with detconf.record(folder / "run.det", **options):
        code()
    return events(folder / "run.det")


def digest(value: Any) -> bytes:
    return bytes.fromhex(flatten(value)["result"].digest)


def canonical(value: Any) -> Any:
    """Kind, layout in memory and bytes."""
    if isinstance(value, (list, tuple)):
        return [canonical(each) for each in value]
    if isinstance(value, np.ndarray):
        data = repr(value.tolist()) if value.dtype.hasobject else value.tobytes()
        return value.dtype.str, value.shape, value.strides, data
    return type(value).__name__, value.tobytes() if isinstance(value, np.generic) else repr(value)


def numbers() -> list[Any]:
    np.random.seed(0)
    x, rng = np.random.randn(5, 4), np.random.default_rng(3)
    w, b = rng.normal(size=(4, 3)).astype("float32"), np.random.RandomState(2).rand(3)
    h = np.maximum(x @ w + b, 0)
    h[0] = 5
    h[[1, 2]] = h[[2, 1]]
    h *= 2
    h[h > 4] = 4.0
    np.add.at(h, [0, 0], 1.0)
    drawn = [np.random.permutation(5), np.random.rand(), rng.choice(5), rng.permutation(6), np.random.choice(4, 2), rng.integers(9, size=3)]
    np.random.shuffle(drawn[0])
    rng.shuffle(drawn[3])
    filled = np.full((3,), 2.0)
    filled.fill(4)
    filled.sort()
    return [h, *drawn, filled, rng.bit_generator.state, np.random.get_state(legacy=False)]


def functions() -> list[Any]:
    h = np.random.default_rng(1).normal(size=(4, 4))
    out = np.empty_like(h)
    return [
        h.sum(), h.mean(0), h.mean(), np.mean(h), h.std(axis=1), np.var(h), h.max(1), h.cumsum(), h.clip(0, 1), np.clip(h, 0, 1, out=out), out,
        list(np.linalg.svd(h)), np.linalg.solve(h, np.eye(4)), np.linalg.norm(h), np.fft.fft(h), np.einsum("ij,kj->ik", h, h),
        np.concatenate([h, h]), np.where(h > 1, h, 0.0), np.sort(h), np.tensordot(h, h, 1), np.dot(h, h.T), np.outer(h[0], h[1]), h.T.copy(),
        h[:, ::2].sum(), h**2, h**0.5, 2**h, h // 2, divmod(h, 2), -h, abs(h), np.modf(h), np.add.reduce(h), np.histogram(h)[0], np.median(h),
        np.percentile(h, 30), np.unique(h.round(1)), np.gradient(h), np.cov(h), np.vectorize(lambda v: v + 1)(h), sum(h), [r.max() for r in h],
        np.apply_along_axis(lambda r: r.sum() * 1.1, 0, h), h.astype(int), h.argsort(), np.asfortranarray(h) + 1, np.arange(3) + np.datetime64("2020-01-01"),
        np.char.add(np.array(["a", "b"]), "c"), np.multiply(h, 2, out=h), h.tolist(), h.tobytes(), float(h[0, 0]), h[1, 1], h.real, h.view("int64"),
        np.zeros((0, 3)).sum(), np.zeros((0, 3)) + 1, np.array(3.0) + 1, np.array(2.0), np.array([1, 2], dtype=object) * np.ones(2),
    ]  # fmt: skip


@pytest.mark.parametrize("code", [numbers, functions])
@pytest.mark.parametrize("options", [{}, {"values": True, "sources": True}], ids=["digests", "values"])
def test_recording_changes_no_bit(code: Callable[[], Any], options: Any, tmp_path: Path) -> None:
    """Results have the same types of scalars, layouts in memory and bytes before, under and after a recording."""
    before = canonical(code())
    under: list[Any] = []
    found = recorded(tmp_path, lambda: under.extend(code()), **options)
    assert before == canonical(under)
    assert before == canonical(code())
    assert len(found) > 20


def _references() -> dict[str, int]:
    owners = (np, np.random, np.fft, np.linalg, np.lib.npyio.NpzFile)
    return {f"{owner.__name__}.{name}": id(value) for owner in owners for name, value in vars(owner).items()}


@pytest.mark.parametrize("level", ["operations", "state"])
def test_everything_is_put_back(level: Any, tmp_path: Path) -> None:
    """After a recording that an exception ended, NumPy holds what it held before."""
    before = _references()

    def fail() -> None:
        with detconf.record(tmp_path / "run.det", level=level):
            np.zeros(3) + np.ones(4)

    with pytest.raises(ValueError, match="could not be broadcast"):
        fail()
    assert _references() == before


def test_names_and_digests(tmp_path: Path) -> None:
    """Operations are named as NumPy's functions; what is read and written is witnessed by its content."""
    made: list[Any] = []

    def code() -> None:
        x = np.array([[3.0, 1.0], [2.0, 4.0]])
        made.extend([x.copy(), x + 0.5, x.sum(axis=0), np.sum(x), x @ x, x[[1]]])
        x[0] = 7
        x.sort()
        made.append(x.copy())

    found = recorded(tmp_path, code)
    names = [each.name.removeprefix("numpy.") for each in found]
    assert names == ["array", "add", "sum", "sum", "matmul", "getitem", "setitem", "ndarray.sort"]
    assert [each.outputs[0].digest for each in found[:6]] == [digest(each) for each in made[:6]]
    assert found[1].inputs[0] == found[0].outputs[0].digest == digest(made[0])
    assert found[-1].outputs[0].digest == digest(made[-1])
    assert found[0].flags == Flag.LEAF
    assert found[6].flags == found[7].flags == Flag.IN_PLACE


def test_draws_carry_the_state(tmp_path: Path) -> None:
    """A draw is recorded with the state before it, from the global generator and from one's own; the state moves on."""

    def code() -> None:
        np.random.seed(1)
        rng = np.random.default_rng(1)
        for _ in range(2):
            np.random.normal(size=2)
            rng.normal(size=2)
            rng.random()

    found = recorded(tmp_path, code)
    assert [each.name for each in found] == ["numpy.random.normal", "numpy.random.normal", "numpy.random.random"] * 2
    assert all(each.flags == Flag.RANDOM for each in found)
    assert len({each.random for each in found}) == 6
    again = recorded(tmp_path, code)
    assert [each.to_dict() for each in found] == [each.to_dict() for each in again]


def test_views_are_followed(tmp_path: Path) -> None:
    """Views are no events, and what is written through one is read by what reads its base."""

    def code() -> None:
        x = np.zeros((2, 3))
        row = x.reshape(3, 2).T[0]
        row += 1.0
        np.negative(x)

    found = recorded(tmp_path, code)
    assert [each.name for each in found] == ["numpy.zeros", "numpy.add", "numpy.negative"]
    assert found[1].flags == Flag.IN_PLACE
    assert found[2].inputs[0] == digest(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))


def test_scalars_are_inputs(tmp_path: Path) -> None:
    """A number that is an argument counts as an input: another one is another input, not a difference out of nothing."""
    one = recorded(tmp_path, lambda: np.ones(2) * 3.0)[-1]
    two = recorded(tmp_path, lambda: np.ones(2) * np.float64(4.0))[-1]
    assert one.inputs[0] == two.inputs[0]
    assert one.inputs[1] != two.inputs[1]


def test_what_has_no_bytes_is_skipped(tmp_path: Path) -> None:
    """Arrays of Python objects and uninitialised memory have no digest; 0-d and empty arrays have one."""

    def code() -> None:
        np.array([1, None], dtype=object)
        np.empty(3)
        np.array(2.0)
        np.zeros((0, 2))

    objects, empty, scalar, nothing = recorded(tmp_path, code)
    assert objects.flags & Flag.SKIPPED
    assert empty.flags == Flag.UNINITIALISED
    assert objects.outputs[0].digest == empty.outputs[0].digest == NOTHING
    assert scalar.outputs[0].digest == digest(np.array(2.0))
    assert nothing.outputs[0].digest == digest(np.zeros((0, 2)))


def test_an_array_looks_plain(tmp_path: Path) -> None:
    """A traced array prints, pickles, copies and tests as a plain one, and is one to the bases of the class."""
    x = np.array([1.0, 2.0])
    with detconf.record(tmp_path / "run.det"):
        y = np.array([1.0, 2.0])
        assert isinstance(y, np.ndarray)
        assert (repr(y), str(y), f"{y}", type(y).__name__, type(y).__module__) == (repr(x), str(x), f"{x}", "ndarray", "numpy")
        assert type(y) is not np.ndarray  # documented: this is how a program can tell
        assert type(pickle.loads(pickle.dumps(y))) is np.ndarray
        assert np.asarray(y) is y
        np.testing.assert_array_equal(copy.deepcopy(y), x)
    later = y + 1
    assert type(later) is np.ndarray
    y[0] = 9
    assert y.sum() == 11


def test_generators_look_plain(tmp_path: Path) -> None:
    """Generators made while recording are those classes, pickle as such, and draw on after the end."""
    old = np.random.RandomState(0)
    with detconf.record(tmp_path / "run.det") as recorder:
        rng, legacy = np.random.default_rng(0), np.random.RandomState(0)
        assert isinstance(rng, np.random.Generator)
        assert isinstance(old, np.random.RandomState)
        assert np.random.default_rng(rng) is rng
        assert type(pickle.loads(pickle.dumps(rng))).__name__ == "Generator"
        drawn = legacy.randn(3)
        count = recorder.index
    np.testing.assert_array_equal(drawn, old.randn(3))
    rng.random(2)
    assert recorder.index == count
    assert isinstance(rng, np.random.Generator)


def test_frameworks_are_not_traced(tmp_path: Path) -> None:
    """What NumPy computes inside NumPy, and what libraries make for themselves, is not recorded."""

    def code() -> None:
        x = np.linspace(0.0, 1.0, 5)
        np.histogram(x, bins=2)
        np.linalg.lstsq(np.vander(x, 3), x, rcond=None)
        np.random.default_rng(0).bit_generator.state  # noqa: B018  # a property in Cython that makes arrays

    found = recorded(tmp_path, code)
    assert [each.name for each in found] == ["numpy.linspace", "numpy.histogram", "numpy.vander", "numpy.linalg.lstsq"]


def test_files_are_leaves(tmp_path: Path) -> None:
    """Arrays that are loaded enter as leaves, those of archives when they are asked for."""
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "b.npz", x=np.arange(4))

    def code() -> None:
        np.load(tmp_path / "a.npy")
        np.load(tmp_path / "b.npz")["x"] * 2

    found = recorded(tmp_path, code)
    assert [(each.name, each.flags) for each in found] == [("numpy.load", Flag.LEAF), ("numpy.load", Flag.LEAF), ("numpy.multiply", 0)]
    assert found[1].outputs[0].digest == digest(np.arange(4))


def test_threads(tmp_path: Path) -> None:
    """Other threads are recorded under their own number."""

    def code() -> None:
        np.exp(np.ones(2))
        thread = threading.Thread(target=lambda: np.log(np.ones(3)))
        thread.start()
        thread.join()

    found = {each.name: each.thread for each in recorded(tmp_path, code)}
    assert found == {"numpy.ones": 1, "numpy.exp": 0, "numpy.log": 1}


def test_kept_values_and_sources(tmp_path: Path) -> None:
    """With `values`, arrays can be had back from before a write, and numbers by position; with `sources`, an event names its line."""

    def code() -> None:
        x = np.array([1.0, 2.0])
        x += 1

    found = recorded(tmp_path, code, values=True, sources=True)
    assert found[1].source.rpartition("/")[2].startswith("test_recording_numpy.py:")
    with Recording(tmp_path / "run.det") as recording:
        kept = recording.values(1)
    assert {role: np.frombuffer(each.data, each.dtype).tolist() for role, each in kept.items()} == {
        ("input", 0): [1.0, 2.0],
        ("output", 0): [2.0, 3.0],
        ("scalar", 1): [1],
    }
    assert all(isinstance(each, Array) for each in kept.values())


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_arrays_of_tensors_are_followed(tmp_path: Path, framework: str) -> None:
    """What user code computes with `tensor.numpy()` is seen, with the same bits; afterwards the method is what it was."""
    module = pytest.importorskip(framework)
    tensor = module.ones([3]) * 2
    before = vars(module.Tensor).get("numpy")

    def code() -> Any:
        return [0.999 * np.square(tensor.numpy()), tensor.numpy()]

    plain = canonical(code())
    under: list[Any] = []
    found = recorded(tmp_path, lambda: under.extend(code()), values=True)
    assert canonical(under) == plain
    assert [each.name for each in found] == ["numpy.square", "numpy.multiply"]
    with Recording(tmp_path / "run.det") as recording:
        assert np.frombuffer(recording.values(1)["scalar", 0].data).tolist() == [0.999]
    assert vars(module.Tensor).get("numpy") is before
    assert type(tensor.numpy()) is np.ndarray


def test_torch_takes_traced_arrays(tmp_path: Path) -> None:
    """Tensors share memory with a traced array, and arrays of tensors are traced once they meet one."""
    torch = pytest.importorskip("torch")

    def code() -> Any:
        x = np.random.RandomState(0).rand(4, 3)
        shared = torch.from_numpy(x)
        shared.add_(1.0)
        return [x, np.asarray(torch.tensor(x).numpy()) - x[:, :1], (shared @ shared.T).numpy()]

    before = canonical(code())
    under: list[Any] = []
    recorded(tmp_path, lambda: under.extend(code()))
    assert canonical(under) == before


def test_a_script_is_recorded_from_its_import_on(tmp_path: Path) -> None:
    """A recording that begins before NumPy is imported sees what is computed afterwards, at the top of a script too."""
    code = """
import json, detconf
from detconf.recording.reading import Recording
with detconf.record("run.det"):
    import numpy
    numpy.ones(2) + 1
print(json.dumps([each.name for each in Recording("run.det").events()]))
"""
    assert run_python(code, cwd=tmp_path) == ["numpy.ones", "numpy.add"]
