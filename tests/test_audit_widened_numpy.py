"""The first pass of programs that compute with NumPy, alone or beside another framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy import zeros as made_before
from test_audit_widened import passed

import detconf
from detconf.auditing import widened
from detconf.auditing.laboratory import Laboratory, Side
from detconf.frameworks.base import Widened

Program = Callable[[], dict[str, Any]]
X = np.random.default_rng(3).standard_normal((32, 48)).astype(np.float32)
W = np.random.default_rng(4).standard_normal((48, 48)).astype(np.float32)
STATE = {"w": np.ones(48, np.float32), "part": X[::2, 1::3]}


def run(program: Program) -> tuple[dict[str, Any], Widened]:
    """(what it gives in float64 by name, what was seen)."""
    found = widened.widened(Laboratory(), Side("here", program))
    assert found is not None
    return {name: np.frombuffer(each.data, each.dtype).reshape(each.shape) for name, each in found[0].items()}, found[1]


def layer(order: slice = slice(None), factor: float = 0.1, through: Any = np.float32) -> Program:
    def here() -> dict[str, Any]:
        x, w = X[:, order].astype(through).astype("float32"), W[order]
        return {"y": np.tanh(x @ w * factor)}

    return here


def in_torch() -> dict[str, Any]:
    return {"y": torch.tanh(torch.from_numpy(X) @ torch.from_numpy(W) * 0.1)}


@pytest.mark.usefixtures("unchanged")
def test_rounding_vanishes_and_formulas_do_not() -> None:
    """Between two programs of NumPy, and between one and another framework's."""
    for a, b in ((layer(), layer(slice(None, None, -1))), (layer(through=np.float16), layer()), (in_torch, layer()), (layer(), in_torch)):
        found = passed(a, b)
        assert found is not None
        assert found.agrees
        assert not found.doubts
    other = passed(in_torch, layer(factor=0.1001))
    assert other is not None
    assert not other.agrees


def test_a_mixed_pair_has_it_as_evidence() -> None:
    """The verdict rests on noise."""
    found = detconf.audit(in_torch, layer())
    assert found.cause == "rounding", found
    assert any("whole in float64" in each.statement for each in found.evidence)


def _closed() -> Program:
    inner = X[:4]

    def closed() -> dict[str, Any]:
        return {"y": inner.T @ inner}

    return closed


PROGRAMS: dict[str, Program] = {
    "made": lambda: {"y": np.zeros((3, 4), np.float32) + np.full(4, 0.1, "f4") + made_before(4, "f4")},
    "made of numbers": lambda: {"y": np.array([0.1, 0.2], dtype=np.float32) * np.linspace(0, 1, 2, dtype="f4")},
    "cast": lambda: {"y": (np.arange(12) / 7).astype("float16").astype(dtype=np.float32, copy=False)},
    "like": lambda: {"y": np.ones_like(X[0], dtype=np.float16) / 3},
    "out": lambda: {"y": np.add(X[0], X[1], out=np.empty(48, np.float32))},
    "reduced in less": lambda: {"y": np.sum(X, axis=0, dtype=np.float32) + X.mean(0, dtype="f4") + np.add.reduce(X, 0, np.float32)},
    "in place": lambda: {"y": _accumulated()},
    "a part of an array": lambda: {"y": STATE["part"].cumsum(1)},
    "captured": _closed(),
    "scalars": lambda: {"y": X.mean().astype(np.float32) * W + X[0, 0] / X.max()},
    "numbers of a type": lambda: {"y": (np.float32(0.1) + np.float16(1) / 3) * X.astype(np.dtype(np.single)) + np.float32(X.sum()) * np.float32(2)},
    "one number": lambda: {"y": X.var(dtype=np.float32)},
    "lists": lambda: {"y": np.stack([row.sum() * row for row in X])},
    "complex": lambda: {"y": np.fft.fft(X, axis=1).astype(np.complex64).real.astype(np.float32)},
    "sorted": lambda: {"y": np.sort(X, axis=0)[:, ::-1] - np.float32(1)},
    "einsum": lambda: {"y": np.einsum("ij,jk->ik", X, W, dtype=np.float32)},
    "from a tensor": lambda: {"y": (torch.from_numpy(X) * 0.1).numpy().astype("f4") / 3},
    "into a tensor": lambda: {"y": torch.tensor(np.float32(1) + X[0]) / torch.from_numpy(np.full(48, 3.1, "f4"))},
}  # fmt: skip


def _accumulated() -> Any:
    total = np.zeros(48, np.float32)
    for row in X:
        total += row
        total[1:] -= row[1:] / 3
    np.copyto(total[:2], X[0, :2] / 7)
    return total


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("unchanged")
def test_a_program_is_run_in_float64(name: str) -> None:
    """Its results have that dtype, and are those of the program to the rounding of float32 or float16."""
    program, names = PROGRAMS[name], [*vars(np), *vars(np.random)]
    before = [vars(np).get(each, vars(np.random).get(each)) for each in names]
    plain = np.asarray(program()["y"])
    found, seen = run(program)
    assert found["y"].dtype == np.float64
    tolerance = 2e-3 if name in {"cast", "like"} else 1e-5
    assert np.allclose(found["y"], plain, rtol=tolerance, atol=tolerance)
    assert not np.array_equal(found["y"], plain)
    assert not seen.draws
    assert not seen.decides
    assert not seen.lost
    assert [vars(np).get(each, vars(np.random).get(each)) for each in names] == before


def test_numbers_are_drawn_as_ever() -> None:
    """In the dtype in which the program draws them, and that is said."""

    def drawn() -> dict[str, Any]:
        generator = np.random.default_rng(0)
        np.random.seed(1)  # noqa: NPY002  # as programs do
        return {"y": generator.standard_normal(5, dtype=np.float32), "z": np.random.rand(5).astype(np.float32)}  # noqa: NPY002

    plain = drawn()
    found, seen = run(drawn)
    assert seen.draws == 2
    assert np.array_equal(found["y"], plain["y"])
    assert found["y"].dtype == found["z"].dtype == np.float64
    assert np.allclose(found["z"], plain["z"])


DECIDING: dict[str, Callable[[], Any]] = {
    "a branch": lambda: X if X.sum() > 0 else -X,
    "a branch on an element": lambda: X if X[0, 0] < 1 else -X,
    "truth": lambda: X if X.max() else -X,
    "a mask": lambda: np.where(X > 0, X, 0),
    "an index": lambda: X[X.argmax(0)],
    "a number of Python": lambda: X * float(X.sum()),
    "an item": lambda: X * X.mean(0).item(3),
    "numbers of Python": lambda: np.array(X[0].tolist(), np.float32),
    "an integer": lambda: X[: int(abs(X[0, 0]))],
    "rounded to integers": lambda: (X * 10).astype(np.int32) / np.float32(3),
    "equality": lambda: X * np.allclose(X, X),
    "the largest of some": lambda: X * max(row.max() for row in X),
    "vectorized": lambda: np.vectorize(lambda x: x if x > 0 else 0.1 * x, otypes="f")(X),
}


@pytest.mark.parametrize("name", DECIDING)
def test_choices_are_seen(name: str) -> None:
    """Float64 may go another way."""
    _, seen = run(lambda: {"y": DECIDING[name]()})
    assert seen.decides


LOSING: dict[str, Callable[[], Any]] = {
    "bits": lambda: X.view(np.int32).view(np.float32),
    "a function of the program": lambda: np.apply_along_axis(lambda row: row if row[0] > 0 else -row, 1, X),
    "integers": lambda: np.sqrt(np.arange(5, dtype=np.int16)),
}


@pytest.mark.parametrize("name", LOSING)
def test_what_is_not_followed_is_said(name: str) -> None:
    """In words."""
    _, seen = run(lambda: {"y": LOSING[name]()})
    assert seen.lost


@pytest.mark.usefixtures("unchanged")
def test_what_is_outside_is_as_after_any_run() -> None:
    """The same objects, of the same dtype; what was written to them is there, rounded, and said."""

    def step() -> dict[str, Any]:
        STATE["w"] *= 1.5
        STATE["w"][3] = 0.1
        return {"y": STATE["w"] @ W}

    before = STATE["w"], STATE["w"].copy(), X, X.copy()
    try:
        found, seen = run(step)
        assert STATE["w"] is before[0]
        assert type(STATE["w"]) is np.ndarray
        assert STATE["w"].dtype == np.float32
        assert STATE["w"][2] == np.float32(1.5)
        assert STATE["w"][3] == np.float32(0.1)
        assert np.array_equal(X, before[3])
        assert X is before[2]
        assert "outside" in seen.lost
        assert np.allclose(found["y"], STATE["w"] @ W, atol=1e-4)
    finally:
        STATE["w"][...] = before[1]


def test_a_program_that_does_not_run_in_float64() -> None:
    """It says nothing, and NumPy is as before."""

    def insists() -> dict[str, Any]:
        x = X * 2
        assert x.dtype == np.float32
        return {"y": x}

    before = np.zeros, np.random.rand
    assert widened.widened(Laboratory(), Side("insists", insists)) is None
    assert (np.zeros, np.random.rand) == before
    assert type(X) is np.ndarray


def test_a_type_that_makes_wide_numbers_is_the_one_it_stands_for() -> None:
    """In comparisons, tables and as a dtype; for libraries it makes what it always made."""

    def here() -> dict[str, Any]:
        assert np.dtype(np.float32) == np.dtype("f4")
        assert {np.dtype("f4").type: 1}[np.float32] == 1
        assert np.dtype("f4").type in {np.float32, np.float64}
        assert issubclass(np.float32, np.floating)
        assert not isinstance(np.float64(1), np.float32)
        assert np.finfo(np.float32).eps == np.finfo("f4").eps
        assert np.array(0.1, np.float32) == np.float32(0.1)
        return {"y": np.zeros(2, np.float32) + np.float32(0.1)}

    found, seen = run(here)
    assert np.array_equal(found["y"], [0.1, 0.1])
    assert seen.decides
    assert type(np.float32(1)) is np.float32
