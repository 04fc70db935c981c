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


def masked(how: str, *, scale: float = 0.7, rate: float = 0.7) -> Program:
    """Dropout by hand in one framework or the other, scaled before the elements are dropped, after it, or not at all."""

    def first() -> dict[str, Any]:
        torch.manual_seed(3)
        kept = (torch.rand(X.shape) < rate).float() / scale
        return {"y": torch.tanh(torch.from_numpy(X) * kept)}

    def after() -> dict[str, Any]:
        kept = np.random.default_rng(3).random(X.shape) < rate
        return {"y": np.tanh(np.where(kept, X, 0) / np.float32(scale))}

    def twice() -> dict[str, Any]:
        paddle.seed(3)
        kept = paddle.rand(X.shape) < rate
        dropped = paddle.to_tensor(X) * kept.astype("float32") / scale
        return {"y": paddle.tanh(dropped).numpy()}

    return {"first": first, "after": after, "twice": twice}[how]


def variance(*, unbiased: bool) -> Program:
    """Of one element an unbiased variance is NaN, and means to be; of the others both agree."""

    def run() -> dict[str, Any]:
        return {"y": torch.from_numpy(X)[:, :1].var(1, unbiased=True) if unbiased else X[:, :1].var(1)}

    return run


def attention(*, fill: float) -> Program:
    """A row that masks everything: NaN with infinity, a plain mean with a large number."""

    def run() -> dict[str, Any]:
        scores = torch.from_numpy(X[:, :6]) + torch.triu(torch.full((6, 6), fill))
        return {"y": scores.softmax(-1) @ torch.from_numpy(X)}

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
        pytest.param(masked("first"), masked("after"), "rng", "", id="masks by hand, scaled before or after"),
        pytest.param(masked("twice"), masked("first"), "rng", "", id="masks by hand of two frameworks"),
        pytest.param(
            masked("first"), masked("after", scale=1.0), "semantics", "div", id="other masks, and one not scaled", marks=pytest.mark.long
        ),
        pytest.param(variance(unbiased=True), variance(unbiased=False), "semantics", "", id="NaN on one side"),
        pytest.param(attention(fill=-np.inf), attention(fill=-1e9), "semantics", "", id="NaN of a row that is masked whole"),
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


def test_an_order_that_is_drawn_is_rng_though_no_result_is_computed_of_it() -> None:
    """Shuffling makes Python numbers of what it draws: what reaches the results, the first weights, is drawn alike."""

    def run(seed: int) -> Program:
        def program() -> dict[str, Any]:
            torch.manual_seed(0)
            weight, rows = torch.rand(3), torch.linspace(-1, 1, 24).reshape(8, 3)
            for place in torch.randperm(8, generator=torch.Generator().manual_seed(seed)).tolist():
                weight = (weight + rows[place] * weight.sum()).tanh()
            return {"weight": weight}

        return program

    found = detconf.audit(run(1), run(2))
    assert (str(found.cause), found.proof is not None) == ("rng", True), str(found)
