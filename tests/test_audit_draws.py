"""Audits of sides that draw in other portions, drop elements where the other does not, or pass through infinity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # its customary name

import detconf

Program = Callable[[], dict[str, Any]]
X = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)


def portions(count: int) -> Program:
    def run() -> dict[str, Any]:
        torch.manual_seed(3)
        drawn = torch.cat([torch.randn(48 // count) for _ in range(count)])
        return {"y": torch.from_numpy(X).sum() * drawn}

    return run


def dropping(*, training: bool, seed: int = 1) -> Program:
    """Two layers of functional dropout in an evaluated network."""

    def run() -> dict[str, Any]:
        torch.manual_seed(0)
        first, second = torch.nn.Linear(16, 8), torch.nn.Linear(8, 4)
        torch.manual_seed(seed)
        hidden = F.dropout(torch.relu(first(torch.from_numpy(X))), 0.25, training=training)
        return {"y": F.dropout(second(hidden), 0.5, training=training).detach()}

    return run


def by_hand(*, drop: bool) -> Program:
    """A mask of NumPy's."""

    def run() -> dict[str, Any]:
        mask = np.random.default_rng(5).random(X.shape) < 0.8
        return {"y": np.tanh(X * (mask / np.float32(0.8)) if drop else X)}

    return run


def in_paddle(*, training: bool) -> Program:
    def run() -> dict[str, Any]:
        paddle.seed(1)
        dropped = paddle.nn.functional.dropout(paddle.to_tensor(X) * 2.0, 0.3, training=training)
        return {"y": paddle.nn.functional.relu(dropped).numpy()}  # sets elements to zero as well, and draws nothing

    return run


def scaled(kind: np.dtype[Any] | type[Any]) -> Program:
    """Squares that float16 cannot hold: what is divided by their sum becomes 0, which is finite."""

    def run() -> dict[str, Any]:
        x = torch.from_numpy((X * 150).astype(np.float16).astype(kind))
        return {"y": (x / (x * x).sum(-1, keepdim=True).sqrt()).float()}

    return run


def squashed(*, stable: bool) -> Program:
    """exp of a large number is infinite, and 1 / (1 + infinity) is right."""

    def run() -> dict[str, Any]:
        x = torch.from_numpy(X * 60)
        return {"y": torch.sigmoid(x) if stable else 1 / (1 + torch.exp(-x))}

    return run


@pytest.mark.parametrize(
    ("reference", "candidate", "cause", "operation"),
    [
        pytest.param(portions(1), portions(6), "rng", "randn", id="portions"),
        pytest.param(dropping(training=False), dropping(training=True), "mode", "mul", id="dropout ignores the mode"),
        pytest.param(dropping(training=True), dropping(training=False), "mode", "mul", id="reference drops"),
        pytest.param(dropping(training=True), dropping(training=True, seed=2), "rng", "bernoulli", id="both drop, others"),
        pytest.param(by_hand(drop=False), by_hand(drop=True), "mode", "multiply", id="mask by hand"),
        pytest.param(in_paddle(training=False), in_paddle(training=True), "mode", "dropout", id="dropout of Paddle"),
        pytest.param(scaled(np.float32), scaled(np.float16), "overflow", "mul", id="infinite on the way"),
        pytest.param(squashed(stable=True), squashed(stable=False), "rounding", "", id="harmless infinity"),
    ],
)
@pytest.mark.usefixtures("unchanged")
def test_the_cause(reference: Program, candidate: Program, cause: str, operation: str) -> None:
    """Named, proved by a rerun without it, and where."""
    found = detconf.audit(reference, candidate)
    assert str(found.cause) == cause, str(found)
    assert found.proof is not None
    if operation:
        assert found.where is not None
        assert operation in found.where.name, str(found)
