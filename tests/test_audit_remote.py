"""Sides that run in processes of their own, and the study files that come from there."""

from __future__ import annotations

import json
import os
import stat
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, run_python
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import detconf
from detconf.arrays import Array
from detconf.auditing.elsewhere import kept
from detconf.auditing.elsewhere.packing import Opaque, Pack, Unpacked, pack_value, unpack_value
from detconf.auditing.elsewhere.remote import laboratory, remote_side
from detconf.auditing.laboratory import Observation, Side
from detconf.errors import DetconfError, TargetError
from detconf.shadows.study import Known, Read, Study

NUMPY_SIDES = """
import numpy as np
W = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
x = np.linspace(0, 2, 8, dtype="float32").reshape(4, 2)
def reference():
    return {"y": np.tanh(W @ x)}
def same():
    return {"y": np.tanh(W @ x)}
def other():
    return {"y": np.sin(W @ x)}
def raises():
    raise ValueError("no luck")
def dies():
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
def noisy():
    return {"y": np.random.standard_normal(3)}
"""


def _observation() -> Observation:
    """A small study by hand."""
    study = Study(keep_real=True)
    long = np.array([1, 3], np.longdouble) / 3
    leaf, _ = study.leaf(long, "float64", "numpy.array", real=long.astype("float64"))
    options = {"axis": None, 0: 0.1, "shape": (1, 2), "mode": "x", "flag": True, "dtype": np.float32}
    [(value, _)] = study.operation(
        "numpy.exp",
        [Read(leaf, long[::-1])],
        [(np.exp(long), "float64", None)],
        options=options,
        state=b"\0\1",
        source="a.py:3",
        lost="why",
    )
    return Observation({"y": Array("float64", (2,), np.exp(long).astype("float64").tobytes())}, {"y": Known(value.shadow, value)}, study)


def test_a_study_survives_its_file(tmp_path: Path) -> None:
    """Values, reads, operations, options, states, losses and results come back as they were."""
    before = _observation()
    kept.write(str(tmp_path / "a"), before)
    after = kept.read(str(tmp_path / "a"))
    assert after.arrays == before.arrays
    [operation] = after.study.operations
    assert (operation.name, operation.state, operation.source) == ("numpy.exp", b"\0\1", "a.py:3")
    assert {k: v for k, v in operation.options.items() if k != "dtype"} == {
        k: v for k, v in before.study.operations[0].options.items() if k != "dtype"
    }
    assert isinstance(operation.options["dtype"], Opaque)
    assert operation.reads[0].value is after.study.values[0]
    for ours, theirs in zip(before.study.values, after.study.values, strict=True):
        assert ours.shadow.dtype == theirs.shadow.dtype
        assert np.array_equal(ours.shadow, theirs.shadow)
        assert (ours.maker, ours.origin, ours.lost, ours.shape, ours.dtype) == (
            theirs.maker,
            theirs.origin,
            theirs.lost,
            theirs.shape,
            theirs.dtype,
        )
    assert np.array_equal(operation.reads[0].view, before.study.operations[0].reads[0].view)
    assert after.study.losses == ["why"]
    assert after.known["y"].value is after.study.values[1]


@given(
    arrays.arrays(
        st.sampled_from(
            ["bool", "int8", "uint64", "float16", "float32", "float64", "complex64", "complex128", "longdouble", "clongdouble"]
        ),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_arrays_survive_exactly(tmp_path_factory: pytest.TempPathFactory, array: Any) -> None:
    """Every dtype of a shadow or real array comes back with its values, NaN and signed zeros included."""
    path = str(tmp_path_factory.mktemp("arrays") / "a")
    pack = Pack()
    number = pack.array(array)
    pack.write(path, None)
    found = Unpacked(path).array(number)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)
    if array.dtype.kind == "f":
        assert np.array_equal(np.signbit(found) | np.isnan(found), np.signbit(array) | np.isnan(array))


@pytest.mark.parametrize("value", ["1.1", "1e-4000", "1e4000", "-0.0", "nan", "inf"])
def test_long_doubles_survive_exactly(tmp_path: Path, value: str) -> None:
    """Beyond float64 in precision or range."""
    array = np.array([np.longdouble(value), np.longdouble(1) / 3])
    pack = Pack()
    number = pack.array(array)
    pack.write(str(tmp_path / "a"), None)
    found = Unpacked(str(tmp_path / "a")).array(number)
    assert np.array_equal(found, array, equal_nan=True)
    assert np.signbit(found[0]) == np.signbit(array[0])


_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_PLAIN)
def test_values_survive(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    """Options and states: plain values in any nesting, tuples as tuples."""
    path = str(tmp_path_factory.mktemp("values") / "a")
    pack = Pack()
    document = pack_value(pack, value)
    pack.write(path, document)
    file = Unpacked(path)
    found = unpack_value(file, file.document)
    assert repr(found) == repr(value)


def _damage(path: Path, change: Any) -> None:
    """Write a study file anew with another document."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(members["document"])
    change(document, members)
    members["document"] = members["document"] if "raw" in members else json.dumps(document).encode()
    members.pop("raw", None)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    "change",
    [
        lambda document, _: document.update(schema="detconf.study/9"),
        lambda document, _: document.pop("observation"),
        lambda document, _: document["observation"]["operations"][0].__setitem__(2, [99]),
        lambda document, _: document["observation"]["operations"][0].__setitem__(2, [-1]),
        lambda document, _: document["observation"]["values"][0].__setitem__(2, 99),
        lambda document, _: document["observation"]["values"][0].__setitem__(4, 99),
        lambda document, _: document["observation"]["operations"][0].__setitem__(5, [["x", {"code": "os"}]]),
        lambda _, members: members.update(tables=b"[]"),
        lambda _, members: members.update(bytes=b""),
        lambda _, members: members.update(tables=b"[" * 100_000),
        lambda _, members: members.update(document=b'{"schema": 1, "schema": 2}', raw=b""),
        lambda _, members: members.update(tables=b'[["plain", "object", [1], 0, 8]]'),
        lambda _, members: members.pop("bytes"),
    ],
)
def test_a_damaged_study_is_refused(tmp_path: Path, change: Any) -> None:
    """Whatever a file says that contradicts itself is an error in words, and nothing is run."""
    path = tmp_path / "a"
    kept.write(str(path), _observation())
    _damage(path, change)
    with pytest.raises(DetconfError, match="damaged"):
        kept.read(str(path))


@pytest.fixture
def sides(tmp_path: Path) -> Path:
    """A file of NumPy functions."""
    path = tmp_path / "sides.py"
    path.write_text(NUMPY_SIDES)
    return path


def test_a_side_elsewhere_gives_what_it_gives_here(sides: Path) -> None:
    """Plain results and shadows of a side in another process are those of this one."""
    from detconf.auditing.laboratory import Laboratory
    from detconf.targets import load_function

    here = Side("here", load_function(f"{sides}:reference"))
    local = Laboratory()
    with laboratory() as remote:
        there = remote_side(f"{sides}:reference", None)
        assert remote.plain(there) == local.plain(here)
        ours, theirs = local.study(here), remote.study(there)
        assert ours is not None
        assert theirs is not None
        assert [each.name for each in ours.study.operations] == [each.name for each in theirs.study.operations]
        assert np.array_equal(ours.known["y"].shadow, theirs.known["y"].shadow)


def test_amendments_are_worked_out_here(sides: Path) -> None:
    """A change of a shadow is a function; the other process gets its result."""
    with laboratory() as remote:
        side = remote_side(f"{sides}:reference", None)
        exact = remote.study(side)
        assert exact is not None
        leaf = next(each for each in exact.study.values if each.origin == "module W")
        amended = remote.study(side, amendments={leaf.index: lambda shadow: shadow * 0})
        assert amended is not None
        assert np.all(amended.known["y"].shadow == 0)
        assert amended.arrays == exact.arrays


def test_failures_elsewhere_are_told(sides: Path) -> None:
    """A side that raises, and one whose process dies; the next request starts the process again."""
    with laboratory() as remote:
        with pytest.raises(TargetError, match="no luck"):
            remote.plain(remote_side(f"{sides}:raises", None))
        dying = remote_side(f"{sides}:dies", None)
        for _ in range(2):
            with pytest.raises(TargetError, match="SIGKILL"):
                remote.plain(dying)
        assert remote.study(dying) is None
        assert "SIGKILL" in remote.problems[dying.label]


def test_missing_things_are_told(tmp_path: Path, sides: Path) -> None:
    """No such file, no such interpreter, an interpreter without NumPy."""
    with pytest.raises(TargetError, match="no such file"):
        detconf.audit("nowhere.py:f", f"{sides}:same", python_a=sys.executable)
    with pytest.raises(TargetError, match="cannot be started"):
        detconf.audit(f"{sides}:reference", f"{sides}:same", python_a=str(tmp_path / "python"))
    bare = _interpreter(tmp_path, "bare", ("numpy",))
    with pytest.raises(TargetError, match="has no numpy"):
        detconf.audit(f"{sides}:reference", f"{sides}:same", python_a=bare)


def test_both_sides_enter_alike(sides: Path) -> None:
    """Two processes begin with generators of their own; from the same state they agree."""
    found = detconf.audit(f"{sides}:noisy", f"{sides}:noisy", python_a=sys.executable, python_b=sys.executable)
    assert found.cause in ("rng", "equal")


def test_training_mode_elsewhere_is_found(tmp_path: Path) -> None:
    """What layers are called in training mode, and when backward was last called, is told by the process that runs a side."""
    file = tmp_path / "modes.py"
    file.write_text(
        "import torch\n"
        "def run(train):\n"
        "    torch.manual_seed(0)\n"
        "    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))\n"
        "    x = torch.linspace(-1, 1, 24).reshape(6, 4)\n"
        "    net(x).pow(2).mean().backward()\n"
        "    with torch.no_grad():\n"
        "        for p in net.parameters():\n"
        "            p -= 0.1 * p.grad\n"
        "    return {'y': net.train(train)(x).detach()}\n"
        "def reference():\n    return run(False)\n"
        "def candidate():\n    return run(True)\n"
    )
    found = detconf.audit(f"{file}:reference", f"{file}:candidate", python_a=sys.executable, python_b=sys.executable)
    assert str(found.cause) == "mode", str(found)


def test_an_audit_of_two_processes(sides: Path) -> None:
    """Equal sides are equal, other formulas are named, and the generators' states are shared."""
    assert detconf.audit(f"{sides}:reference", f"{sides}:same", python_a=sys.executable).equal
    found = detconf.audit(f"{sides}:reference", f"{sides}:other", python_a=sys.executable)
    assert found.cause == "semantics"
    assert found.where
    assert "sin" in found.where.name


def _interpreter(folder: Path, name: str, blocked: tuple[str, ...]) -> str:
    """An interpreter like this one in which some packages cannot be imported."""
    shim = folder / f"{name}.shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {blocked!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
    )
    path = folder / name
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{shim}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


TORCH_SIDE = """
import numpy as np, torch
def reference():
    g = np.random.RandomState(0)
    x, w, b = (torch.from_numpy(g.standard_normal(s).astype("float32")) for s in ((8, 16), (16, 16), (16,)))
    w.requires_grad_()
    y = torch.nn.functional.leaky_relu((x @ w).tanh() + b, 0.01)
    y.sum().backward()
    return {"y": y.detach().numpy(), "dw": w.grad.numpy()}
"""
PADDLE_SIDE = """
import numpy as np, paddle
def _run(slope):
    g = np.random.RandomState(0)
    x, w, b = (paddle.to_tensor(g.standard_normal(s).astype("float32")) for s in ((8, 16), (16, 16), (16,)))
    w.stop_gradient = False
    y = paddle.nn.functional.leaky_relu((x @ w).tanh() + b, slope)
    y.sum().backward()
    return {"y": y.numpy(), "dw": w.grad.numpy()}
def candidate():
    return _run(0.01)
def steeper():
    return _run(0.02)
"""


@pytest.mark.slow
def test_environments_that_cannot_live_together(tmp_path: Path) -> None:
    """torch and paddle from two environments, neither holding both, judged by a process that has neither."""
    (tmp_path / "t.py").write_text(TORCH_SIDE)
    (tmp_path / "p.py").write_text(PADDLE_SIDE)
    a, b = _interpreter(tmp_path, "with_torch", ("paddle",)), _interpreter(tmp_path, "with_paddle", ("torch",))
    judge = tmp_path / "with_neither.shim"
    _interpreter(tmp_path, "with_neither", ("torch", "paddle"))
    code = f"""
import json, sys, detconf
found = [detconf.audit("t.py:reference", "p.py:" + each, python_a={a!r}, python_b={b!r}).to_dict() for each in ("candidate", "steeper")]
assert not {{"torch", "paddle"}} & set(sys.modules)
print(json.dumps(found))
"""
    path = os.pathsep.join([str(judge), str(ROOT)])
    benign, other = run_python(code, cwd=tmp_path, PYTHONPATH=path)
    assert benign["cause"] == "rounding", benign
    assert other["cause"] == "semantics", other
    assert "leaky_relu" in other["where"]["name"]
