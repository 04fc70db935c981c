"""A function whose arguments come from files, against arrays: where one side is somewhere else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import detconf
from detconf.auditing.inputs import arrays_of, given
from detconf.cli import main
from detconf.errors import DetconfError, TargetError
from detconf.shadows.formats import round_to

LINEAR = """
import numpy as np
def reference(x, W, b):
    x += 0
    return {"y": x @ W + b}
def nothing():
    return {"y": np.zeros(3)}
def other(q):
    return {"y": q}
"""


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    """A file with a Linear, its inputs, and what another machine made of them."""
    generator = np.random.default_rng(0)
    x, W, b = (generator.standard_normal(shape).astype("float32") for shape in ((5, 7), (7, 4), (4,)))  # noqa: N806  # as the layer calls it
    (tmp_path / "linear_of_inputs.py").write_text(LINEAR)
    np.savez(tmp_path / "in.npz", x=x, b=b)
    np.save(tmp_path / "W.npy", W)
    np.savez(tmp_path / "same.npz", y=x @ W + b)
    np.savez(tmp_path / "wrong.npz", y=x @ W - b)
    np.savez(tmp_path / "close.npz", y=((x.astype("f8") @ W + b) * (1 + 6e-8)).astype("float32"))
    return tmp_path


def _inputs(folder: Path) -> str:
    return f"x={folder / 'in.npz'}:x,W={folder / 'W.npy'},b={folder / 'in.npz'}:b"


def test_text_and_mappings_name_inputs(linear: Path) -> None:
    """All arrays of a file, one by its name, the only one of a file; arrays of any framework."""
    found = arrays_of(_inputs(linear))
    assert {name: array.shape for name, array in found.items()} == {"x": (5, 7), "W": (7, 4), "b": (4,)}
    assert set(arrays_of(str(linear / "in.npz"))) == {"x", "b"}
    assert set(arrays_of(f"{linear / 'in.npz'},W={linear / 'W.npy'}")) == {"x", "b", "W"}
    assert arrays_of({"x": [1.0, 2.0]}).keys() == {"x[0]", "x[1]"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x=nowhere.npz:x", "nowhere.npz"),
        ("x={0}/in.npz:q", "has no array 'q'"),
        ("x={0}/in.npz:x,x={0}/in.npz:x", "named twice"),
        ("x={0}/linear_of_inputs.py", "not a file of arrays"),
        (",", "names no array"),
        (7, "not accepted"),
        ({"x": "text"}, "holds no numbers"),
    ],
)
def test_bad_inputs_are_refused(linear: Path, text: Any, words: str) -> None:
    """What is wrong, and what is accepted."""
    with pytest.raises(DetconfError, match=words):
        arrays_of(text.format(linear) if isinstance(text, str) else text)


def test_a_function_gets_fresh_copies() -> None:
    """By name; what it does not take is left out, what it needs and does not get is an error."""
    array = np.zeros(2)

    def function(x: Any, y: Any = 3) -> Any:
        x += 1
        return x, y

    called = given(function, {"x": array, "z": array})
    assert called()[0].tolist() == [1, 1]
    assert called()[0].tolist() == [1, 1]
    assert array.tolist() == [0, 0]
    with pytest.raises(TargetError, match="takes x, which"):
        given(function, {"y": array})
    with pytest.raises(TargetError, match="none of the inputs"):
        given(lambda: 1, {"y": array})


@pytest.mark.parametrize("python", [None, sys.executable])
def test_a_function_against_arrays(linear: Path, python: str | None) -> None:
    """Here, or in a process of its own."""
    target = f"{linear / 'linear_of_inputs.py'}:reference"
    with np.load(linear / "same.npz") as same, np.load(linear / "wrong.npz") as wrong:
        options: dict[str, Any] = {"inputs": _inputs(linear), "python_a": python}
        assert detconf.audit(target, {"y": same["y"]}, **options).equal
        found = detconf.audit(target, {"y": wrong["y"]}, **options)
        assert not found.equal
        assert found.cause not in ("rounding", "equal")


def test_the_command_line(linear: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`detconf audit FILE.py:reference out.npz --inputs ...`."""
    target, text = f"{linear / 'linear_of_inputs.py'}:reference", _inputs(linear)
    assert main(["audit", target, str(linear / "same.npz"), "--inputs", text]) == 0
    capsys.readouterr()
    assert main(["audit", "--json", target, str(linear / "close.npz"), "--inputs", text]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["candidate"].endswith("close.npz")
    assert found["cause"] in ("rounding", "unknown")
    assert main(["audit", target, str(linear / "same.npz"), "--inputs", "x=nowhere.npy"]) == 2
    assert main(["audit", target]) == 2
    assert main(["audit"]) == 2


PROGRAM = """
import numpy as np
import torch
def reference(x, W, b):
    return {"y": torch.nn.functional.linear(torch.from_numpy(x), torch.from_numpy(W), torch.from_numpy(b))}
"""


@pytest.mark.parametrize(
    ("made", "cause", "words"),
    [
        (lambda x, w, b: x @ w.T + b, ("rounding", "equal"), ""),
        (lambda x, w, b: round_to(x, "tf32") @ round_to(w, "tf32").T + b, ("dtype",), "tf32"),
        (lambda x, w, b: round_to(x, "bfloat16") @ round_to(w, "bfloat16").T + b, ("dtype",), "bfloat16"),
        (lambda x, w, b: (x @ w.T + b)[:, ::-1], ("layout",), "reversed along axis 1"),
        (lambda x, w, b: x @ w + b, ("layout",), "transposed"),
        (lambda x, w, _: x @ w.T, ("semantics",), "beta=1 on one side; with 0"),
        (lambda x, w, b: (x @ w.T + b) / 2, ("semantics",), "times 0.5"),
        (lambda x, w, b: x @ w.T + b + 0.125, ("semantics",), "plus 0.125"),
        (lambda x, w, b: np.tanh(x @ w.T + b) + x**3, ("unknown",), ""),
    ],
)
def test_arrays_are_explained_by_the_program(tmp_path: Path, made: Any, cause: tuple[str, ...], words: str) -> None:
    """What came from elsewhere is held against the program with one thing changed: format, order, option, factor."""
    (tmp_path / "program_of_inputs.py").write_text(PROGRAM)
    generator = np.random.default_rng(1)
    x, w, b = (generator.standard_normal(shape).astype("float32") for shape in ((64, 64), (64, 64), (64,)))
    wide = made(x.astype("f8"), w.astype("f8"), b.astype("f8")).astype("float32")
    found = detconf.audit(f"{tmp_path / 'program_of_inputs.py'}:reference", {"y": wide}, inputs={"x": x, "W": w, "b": b})
    assert found.cause in cause, found
    assert words in found.summary
