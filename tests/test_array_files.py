"""Files of arrays are read as data: what frameworks save comes out with its bits, what is hostile or damaged is one clear error."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from conftest import run_python
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import detconf
from detconf.arrayfiles.opened import open_arrays
from detconf.arrays import Array
from detconf.errors import DetconfError
from detconf.results import flatten


def bits(arrays: Mapping[str, Array]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (array.dtype, array.shape, bytes(array.data)) for name, array in arrays.items()}


NUMPY = {
    "c": np.arange(6, dtype="f4").reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big": np.arange(3, dtype=">i4"),
    "scalar": np.float64(2.5),
    "empty": np.zeros((0, 3), "f2"),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j], "c8"),
    "text": np.array(["ab", "c"]),
    "record": np.array([(1, 2.0)], [("x", "i4"), ("y", "f8")]),
    "time": np.array(["2020-01-01"], "M8[D]"),
}


@pytest.mark.parametrize("name", NUMPY)
def test_npy(tmp_path: Path, name: str) -> None:
    """A .npy file holds the array that was saved, whatever its order, byte order or type."""
    np.save(tmp_path / "x.npy", NUMPY[name])
    assert bits(open_arrays(str(tmp_path / "x.npy"))) == bits(flatten(NUMPY[name]))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, save: Any) -> None:
    """A .npz file holds its arrays by name, compressed or not."""
    save(tmp_path / "x.npz", **NUMPY)
    assert bits(open_arrays(str(tmp_path / "x.npz"))) == bits(flatten(NUMPY))


def test_reprod_log(tmp_path: Path) -> None:
    """What reprod_log writes, a pickled dict in a .npy file, is read by name."""
    arrays = {"logits": np.arange(6, dtype="f4").reshape(2, 3).T, "loss": np.array([2.0])}
    np.save(tmp_path / "x.npy", arrays)  # type: ignore[arg-type]  # as reprod_log does
    assert bits(open_arrays(str(tmp_path / "x.npy"))) == bits(flatten(arrays))


def test_object_arrays_are_refused(tmp_path: Path) -> None:
    """An array of Python objects has no values to compare, in a file of its own or in a pickle."""
    objects = np.array([{"a": 1}, None], dtype=object)
    np.save(tmp_path / "x.npy", objects)
    (tmp_path / "x.pdparams").write_bytes(pickle.dumps({"x": objects}, 4))
    np.savez(tmp_path / "x.npz", x=objects)
    for name in ("x.npy", "x.pdparams", "x.npz"):
        with pytest.raises(DetconfError):
            dict(open_arrays(str(tmp_path / name)))


def state() -> dict[str, Any]:
    """What a checkpoint of torch may hold."""
    torch.manual_seed(0)
    weight = torch.randn(4, 6)
    names = ("float16", "bfloat16", "int64", "bool", "uint8", "complex64", "float8_e4m3fn", "float8_e5m2", "uint16", "complex32")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "weight": weight,
        "transposed": weight.t(),
        "window": weight[1:3, ::2],
        "expanded": torch.ones(1).expand(2, 1),
        "parameter": torch.nn.Parameter(weight[0]),
        "scalar": torch.tensor(2.0),
        "empty": torch.empty(0, 3),
        "epoch": 3,
        "lr": 1e-3,
        "name": "run",
        "nothing": None,
        "generator": torch.get_rng_state(),
        "numpy": np.float32(1.5),
        **{name: torch.ones(3).to(getattr(torch, name)) for name in names},
    }


@pytest.mark.filterwarnings("ignore:Complex")
def test_torch(tmp_path: Path) -> None:
    """A file of torch.save holds the bits of every tensor, strided, shared, of any type, and the plain values beside them."""
    values = state()
    torch.save(values, tmp_path / "x.pt")
    assert bits(open_arrays(str(tmp_path / "x.pt"))) == bits(flatten(values))
    assert detconf.compare(tmp_path / "x.pt", values).equal


def test_torch_is_not_needed(tmp_path: Path) -> None:
    """Reading checkpoints of torch and paddle imports neither, nor runs a pickle."""
    torch.save({"x": torch.ones(2)}, tmp_path / "x.pt")
    (tmp_path / "x.pdparams").write_bytes(pickle.dumps({"x": np.ones(2, "f4")}, 4))
    code = f"import sys, json, os; os.chdir({str(tmp_path)!r}); import detconf; found = detconf.compare('x.pt', 'x.pdparams'); "
    code += "print(json.dumps([found.equal, [m for m in ('torch', 'paddle') if m in sys.modules]]))"
    assert run_python(code) == [True, []]


@pytest.mark.parametrize("protocol", [2, 4])
def test_paddle(tmp_path: Path, protocol: int) -> None:
    """A file of paddle.save holds the bits of every parameter; bfloat16 is called that; generated names are left out."""
    code = f"""
import json, paddle
paddle.seed(0)
layer = paddle.nn.Linear(3, 2)
optimizer = paddle.optimizer.AdamW(parameters=layer.parameters())
layer(paddle.ones([1, 3])).sum().backward(); optimizer.step()
state = dict(layer.state_dict(), half=paddle.ones([3], dtype="bfloat16"))
paddle.save(state, "x.pdparams", protocol={protocol})
paddle.save(optimizer.state_dict(), "x.pdopt", protocol={protocol})
paddle.save({{"nested": [paddle.ones([2]), 3]}}, "y.pdparams", protocol={protocol})
paddle.save(paddle.ones([2]), "z.pdparams", protocol={protocol})
print(json.dumps([layer.weight.numpy().tobytes().hex(), layer.bias.numpy().tobytes().hex()]))
"""
    weight, bias = map(bytes.fromhex, run_python(code, cwd=tmp_path))
    half = np.ones(3, ml_dtypes.bfloat16).tobytes()
    assert bits(open_arrays(str(tmp_path / "x.pdparams"))) == {
        "weight": ("float32", (3, 2), weight),
        "bias": ("float32", (2,), bias),
        "half": ("bfloat16", (3,), half),
    }
    ones = ("float32", (2,), np.ones(2, "f4").tobytes())
    assert bits(open_arrays(str(tmp_path / "y.pdparams")))["nested[0]"] == ones
    assert bits(open_arrays(str(tmp_path / "z.pdparams"))) == {"result": ones}
    assert any("moment1" in name for name in open_arrays(str(tmp_path / "x.pdopt")))


def write_safetensors(path: Path, header: Any, data: bytes) -> str:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(path)


GOOD = {"__metadata__": {"format": "pt"}, "w": {"dtype": "BF16", "shape": [2], "data_offsets": [4, 8]}, "b": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}  # fmt: skip


def test_safetensors(tmp_path: Path) -> None:
    """A .safetensors file is read by name, from the offsets in its header."""
    path = write_safetensors(tmp_path / "x.safetensors", GOOD, struct.pack("<fHH", 1.5, 0x3F80, 0x4000))
    assert bits(open_arrays(path)) == {
        "w": ("bfloat16", (2,), np.array([1, 2], ml_dtypes.bfloat16).tobytes()),
        "b": ("float32", (), np.float32(1.5).tobytes()),
    }


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "needs 8 bytes"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, "needs 8 bytes"),
        ({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, "whole numbers"),
        ({"w": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}, "needs"),
        ({"w": {"dtype": "I4", "shape": [2], "data_offsets": [0, 8]}}, "dtype 'I4'"),
        ({"w": 3}, "header"),
        (b'{"w": 1, "w": 2}', "twice"),
        (b"{" + b"[" * 100_000, "header"),
        (b"{nonsense", "header"),
    ],
)
def test_damaged_safetensors(tmp_path: Path, header: Any, words: str) -> None:
    """A header that is damaged or promises what is not there is an error."""
    with pytest.raises(DetconfError, match=words):
        open_arrays(write_safetensors(tmp_path / "x.safetensors", header, bytes(8)))


MARKER = "touched"
TOUCH = f"open({MARKER!r}, 'w').close()"


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def laughs(levels: int) -> list[Any]:
    inside: list[Any] = [1, 2]
    for _ in range(levels):
        inside = [inside, inside]
    return inside


def deep(levels: int) -> bytes:
    return b"\x80\x04" + b"]" * levels + b"a" * (levels - 1) + b"."


HOSTILE = {
    "os.system": pickle.dumps(Calls(os.system, f"touch {MARKER}"), 4),
    "eval": pickle.dumps(Calls(eval, TOUCH), 2),
    "exec": pickle.dumps({"x": Calls(exec, TOUCH)}, 4),
    "getattr": b"\x80\x04" + text("builtins") + text("getattr") + b"\x93.",
    "dotted name": b"\x80\x04" + text("collections") + text("OrderedDict.__init__") + b"\x93.",
    "numpy function": b"\x80\x04" + text("numpy") + text("fromfile") + b"\x93" + text("/etc/passwd") + b"\x85R.",
    "old global": b"\x80\x02cos\nsystem\nX\x05\x00\x00\x00touch\x85R.",
    "instance": b"(S'touch x'\nios\nsystem\n.",
    "newobj": b"\x80\x02ccollections\nOrderedDict\n)\x81.",
    "extension": b"\x80\x02\x82\x01.",
    "call of a word": b"\x80\x04" + text("numpy") + text("ndarray") + b"\x93K\x05\x85R.",
    "call of text": b"\x80\x04" + text("os.system") + text("x") + b"\x85R.",
    "state of a dict": b"\x80\x04}" + text("x") + b"b.",
    "state of a name": b"\x80\x04" + text("numpy") + text("dtype") + b"\x93}b.",
    "persistent": b"\x80\x04" + text("x") + b"Q.",
    "billion laughs": pickle.dumps(laughs(60), 4),
    "deep": deep(100_000),
    "circle": b"\x80\x04]\x94h\x00a.",
    "huge string": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",
    "huge memo": b"\x80\x04Nr\xff\xff\xff\x7f}b.",
    "huge shape": b"\x80\x04" + text("numpy._core.numeric") + text("_frombuffer") + b"\x93(C\x01x" + text("numpy") + text("dtype") + b"\x93" + text("f8") + b"\x85R\x8a\x08" + bytes(6) + b"\x00\x10\x85" + text("C") + b"tR.",
    "key": b"\x80\x04}(]K\x01u.",
    "empty stack": b"\x80\x04R.",
    "no end": b"\x80\x04}",
    "mark": b"\x80\x04t.",
}  # fmt: skip


def in_zip(path: Path, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", data)
        archive.writestr("x/version", "3\n")


def in_npy(path: Path, data: bytes) -> None:
    np.save(path, np.array({}, dtype=object))
    head = path.read_bytes()
    path.write_bytes(head[: head.index(b"\n") + 1] + data)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever a pickle asks for, in any kind of file, nothing is run and one error says so."""
    monkeypatch.chdir(tmp_path)
    Path("x.pdparams").write_bytes(HOSTILE[name])
    in_zip(Path("x.pt"), HOSTILE[name])
    in_npy(Path("x.npy"), HOSTILE[name])
    for path in ("x.pdparams", "x.pt", "x.npy"):
        with pytest.raises(DetconfError) as raised:
            open_arrays(path)
        assert len(str(raised.value)) < 700
    assert not Path(MARKER).exists()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files(tmp_path: Path, data: Any) -> None:
    """A file that is cut, or has any byte changed, is read as other bits or is an error of ours: nothing else."""
    kind = data.draw(st.sampled_from(["x.pt", "x.pdparams", "x.npy", "x.npz", "x.safetensors", "packed.npz"]))
    path = tmp_path / kind
    if not path.exists():
        torch.save(OrderedDict(x=torch.ones(3), y=torch.ones(2, 2).t()), tmp_path / "x.pt")
        (tmp_path / "x.pdparams").write_bytes(pickle.dumps({"x": np.ones(3, "f4"), "y": np.ones((2, 2)).T}, 4))
        np.save(tmp_path / "x.npy", np.ones((2, 3)))
        np.savez(tmp_path / "x.npz", x=np.ones(3), y=np.ones(2))
        np.savez_compressed(tmp_path / "packed.npz", x=np.ones(3), y=np.ones(2))
        write_safetensors(tmp_path / "x.safetensors", GOOD, bytes(8))
    good = path.read_bytes()
    place = data.draw(st.integers(0, len(good) - 1))
    cut = data.draw(st.booleans())
    broken = tmp_path / f"broken{path.suffix}"
    broken.write_bytes(good[:place] if cut else good[:place] + bytes([data.draw(st.integers(0, 255))]) + good[place + 1 :])
    try:
        assert all(isinstance(array, Array) for array in open_arrays(str(broken)).values())
    except DetconfError as error:
        assert "broken" in str(error)


def test_bombs(tmp_path: Path) -> None:
    """A member that would expand a thousandfold is refused before it does; so is a header that promises more than is there."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (1 << 29,)})  # type: ignore[no-untyped-call]
        for _ in range(1 << 5):
            member.write(bytes(1 << 24))
    with pytest.raises(DetconfError, match="would expand"):
        dict(open_arrays(str(tmp_path / "x.npz")))
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387903, 4611686018427387903), }\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(16))
    with pytest.raises(DetconfError, match="promises"):
        open_arrays(str(tmp_path / "x.npy"))


def test_other_files(tmp_path: Path) -> None:
    """Formats that are not read say what to do: torch before its zip, programs of torch.jit, sparse tensors, text, nothing."""
    torch.save({"x": torch.ones(2)}, tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"x": torch.eye(2).to_sparse()}, tmp_path / "sparse.pt")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    with zipfile.ZipFile(tmp_path / "jit.pt", "w") as archive:
        for name in ("data.pkl", "constants.pkl"):
            archive.writestr(f"x/{name}", pickle.dumps({}, 2))
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "empty.npy").write_bytes(b"")
    rows = [("legacy.pt", "before 1.6"), ("sparse.pt", "_rebuild_sparse_tensor"), ("module.pt", "not read"), ("jit.pt", "torch.jit"), ("text.npy", "not a file of arrays"), ("empty.npy", "not a file of arrays"), ("none.npy", "No such file")]  # fmt: skip
    for name, words in rows:
        with pytest.raises(DetconfError, match=words):
            open_arrays(str(tmp_path / name))


def test_folders_of_arrays(tmp_path: Path) -> None:
    """Folders are compared file by file; a file that one side alone has is missing with all its arrays."""
    for side in ("a", "b"):
        (tmp_path / side / "deep").mkdir(parents=True)
        np.save(tmp_path / side / "deep" / "x.npy", np.ones(3) + (side == "b"))
    np.savez(tmp_path / "a" / "y.npz", p=np.ones(1), q=np.ones(1))
    found = detconf.compare(tmp_path / "a", tmp_path / "b")
    assert found.divergence
    assert (found.divergence.name, found.divergence.max_abs) == ("deep/x.npy:result", 1.0)
    assert [each.divergence.name for each in found.missing] == ["y.npz:p", "y.npz:q"]


def test_one_file_in_three_formats(tmp_path: Path) -> None:
    """The same arrays are equal whichever format they stand in."""
    x = np.linspace(0, 1, 5, dtype="f4")
    np.savez(tmp_path / "x.npz", w=x)
    torch.save({"w": torch.from_numpy(x)}, tmp_path / "x.pt")
    write_safetensors(tmp_path / "x.safetensors", {"w": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}}, x.tobytes())
    for name in ("x.pt", "x.safetensors"):
        assert detconf.compare(tmp_path / "x.npz", tmp_path / name).equal


def test_large_arrays_stay_on_the_disk(tmp_path: Path) -> None:
    """Comparing two files takes no memory of its own for their arrays, equal or not."""
    code = """
import json, numpy as np, resource, detconf, tracemalloc
x = np.lib.format.open_memmap("a.npy", "w+", "f4", (1 << 25,)); x[:] = 1.5
y = np.lib.format.open_memmap("b.npy", "w+", "f4", (1 << 25,)); y[:] = 1.5; y[-1] = 2
del x, y
tracemalloc.start()
found = detconf.compare("a.npy", "b.npy")
print(json.dumps([found.divergence.index, tracemalloc.get_traced_memory()[1]]))
"""
    index, peak = run_python(code, cwd=tmp_path)
    assert index == [(1 << 25) - 1]
    assert peak < 1 << 25
