"""Constants held in single precision on one side: told from rounding, and from another formula, by what they explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import detconf

Program = Callable[[], dict[str, Any]]
DATA = np.random.default_rng(5).standard_normal((48, 6))
SINGLE = DATA.astype(np.float32)
LONG = np.random.default_rng(6).standard_normal(60_000).astype(np.float32)
WEIGHTS = np.linspace(0.1, 0.9, 6)
WEIGHTS_SINGLE = WEIGHTS.astype(np.float32)
TENTH, TENTH_SINGLE = np.float64(0.1), np.float32(0.1)
TENTHS_SINGLE = np.full(1, 0.1, np.float32)
DECAY = np.float32(0.999)
WINDOW = np.hanning(48)
WINDOW_SINGLE = WINDOW.astype(np.float32)
IMAGE = np.random.default_rng(7).integers(0, 256, (3, 8, 8)).astype(np.uint8)
MEANS = np.array([0.485, 0.456, 0.406])


def decayed(x: Any, by: Any) -> Any:
    for _ in range(100):
        x = x * by
    return x


def weighted(weights: Any) -> dict[str, Any]:
    return {"y": torch.tanh(torch.from_numpy(DATA) * torch.from_numpy(weights))}


def transformed(window: Any) -> dict[str, Any]:
    return {"y": np.abs(np.fft.rfft(DATA[:, 0] * window))}


PAIRS: dict[str, tuple[Program, Program]] = {
    "scalars of NumPy": (lambda: {"y": np.exp(DATA * TENTH)}, lambda: {"y": np.exp(DATA * TENTH_SINGLE)}),
    "arrays of a module": (lambda: {"y": np.tanh(DATA * WEIGHTS)}, lambda: {"y": np.tanh(DATA * WEIGHTS_SINGLE)}),
    "tensors": (lambda: weighted(WEIGHTS), lambda: weighted(WEIGHTS_SINGLE)),
    "a window": (lambda: transformed(WINDOW), lambda: transformed(WINDOW_SINGLE)),
    "literals of torch": (
        lambda: {"y": IMAGE / 255.0 - MEANS[:, None, None]},
        lambda: {"y": torch.from_numpy(IMAGE).double() / 255 - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)},
    ),
    "literals of paddle": (
        lambda: {"y": IMAGE / 255.0 - MEANS[:, None, None]},
        lambda: {"y": (paddle.to_tensor(IMAGE).astype("float64") / 255 - paddle.to_tensor(MEANS.tolist()).reshape([3, 1, 1])).numpy()},
    ),
    "many times": (lambda: {"y": decayed(SINGLE.astype(np.float64), 0.999).astype(np.float32)}, lambda: {"y": decayed(SINGLE, DECAY)}),
}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("exchanged", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_a_constant_in_single_precision_is_dtype(name: str, exchanged: bool) -> None:
    """Whichever side holds it: the cause is `dtype`, what the roundings do explains the difference, and the fix was tried."""
    found = detconf.audit(*(PAIRS[name][::-1] if exchanged else PAIRS[name]))
    assert str(found.cause) == "dtype", str(found)
    assert found.proof is not None
    assert found.proof.kind in {"re-created", "bounded"}
    assert found.proof.kind == "bounded" or any(fix.verified for fix in found.fixes)


def test_a_rounded_constant_that_explains_nothing_is_rounding() -> None:
    """Kernels of float32 round a Python number as well: a sum in another order stays benign, whoever holds the constant how."""

    def python() -> dict[str, Any]:
        return {"y": (torch.from_numpy(LONG).square() * 0.1).sum()}

    def held() -> dict[str, Any]:
        terms = torch.from_numpy(LONG).square() * torch.from_numpy(TENTHS_SINGLE)
        return {"y": terms.view(100, -1).sum(0).flip(0).cumsum(0)[-1]}

    found = detconf.audit(python, held)
    assert str(found.cause) in {"rounding", "equal"}, str(found)


def test_data_that_both_sides_round_is_no_constant() -> None:
    """One rounds its inputs in the program, the other holds them rounded: they compute with the same numbers."""

    def inside() -> dict[str, Any]:
        return {"y": torch.from_numpy(DATA).float().reshape(-1).cumsum(0)}

    def before() -> dict[str, Any]:
        x = torch.from_numpy(SINGLE).reshape(-1)
        return {"y": torch.cat([x[:100].cumsum(0), x[:100].flip(0).sum() + x[100:].cumsum(0)])}

    assert str(detconf.audit(inside, before).cause) in {"rounding", "equal"}


def scaled(data: Any, scalar: Any) -> Program:
    return lambda: {"y": np.cos(data * scalar) + data}


def test_another_constant_is_no_rounding() -> None:
    """A little away, but further than roundings are: another formula."""
    assert str(detconf.audit(scaled(DATA[0], 0.3), scaled(DATA[0], 0.300003)).cause) == "semantics"


@settings(max_examples=5, deadline=None)
@given(value=st.floats(0.01, 3.0).filter(lambda x: float(np.float32(x)) != x), seed=st.integers(0, 99))
def test_any_scalar(value: float, seed: int) -> None:
    """The same for scalars and data that are made up."""
    data, single = np.random.default_rng(seed).standard_normal(32), np.float32(value)
    assert str(detconf.audit(scaled(data, value), scaled(data, single)).cause) == "dtype"
