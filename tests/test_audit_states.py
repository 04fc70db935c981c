"""What a program carries from one step to the next, begun anew on one side: found by what the reference reads there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import detconf

Results = dict[str, Any]
Program = Callable[[], Results]
_STEPS, _STOP = 5, 3


def _data(*shape: int) -> Any:
    return np.random.default_rng(7).normal(size=shape).astype("float32")


def average_in_numpy(*, stop: int = 0, decay: float = 0.8, late: bool = True) -> Program:
    """Weights that are trained, and their moving average; at `stop` it is made anew of the weights."""

    def run() -> Results:
        x, w = _data(12, 3), _data(3)
        mean = w.copy()
        for step in range(_STEPS):
            if stop and step == stop:
                mean = w.copy()
            before = w
            w = w - np.float32(0.1) * (x.T @ (x @ w - 1)) / np.float32(12)
            mean = np.float32(decay) * mean + np.float32(1 - decay) * (w if late else before)
        return {"w": w, "mean": mean}

    return run


def average_in_torch(*, stop: int = 0) -> Program:
    """The same by PyTorch's own class, which copies the weights at its first update."""

    def run() -> Results:
        torch.manual_seed(0)
        net, x = torch.nn.Linear(3, 1), torch.from_numpy(_data(12, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mean = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.8))
        for step in range(_STEPS):
            if stop and step == stop:
                mean = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.8))
            optimizer.zero_grad()
            (net(x) - 1).pow(2).mean().backward()
            optimizer.step()
            mean.update_parameters(net)
        return {"mean": mean.module.weight.detach()}

    return run


def average_in_paddle(*, stop: int = 0) -> Program:
    """The same by hand in Paddle."""

    def run() -> Results:
        paddle.seed(0)
        net, x = paddle.nn.Linear(3, 1), paddle.to_tensor(_data(12, 3))
        optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())
        mean = net.weight.clone().detach()
        for step in range(_STEPS):
            if stop and step == stop:
                mean = net.weight.clone().detach()
            (net(x) - 1).square().mean().backward()
            optimizer.step()
            optimizer.clear_grad()
            mean = 0.8 * mean + 0.2 * net.weight.detach()
        return {"mean": mean}

    return run


def momentum_in_numpy(*, stop: int = 0) -> Program:
    """A velocity that begins as the number zero, so that the first product with it is no operation of arrays."""

    def run() -> Results:
        x, w, velocity = _data(12, 3), _data(3), 0.0
        for step in range(_STEPS + 1):
            velocity = 0.0 if stop and step == stop else velocity
            velocity = np.float32(0.9) * velocity + (x.T @ (x @ w - 1)) / np.float32(12)
            w = w - np.float32(0.1) * velocity
        return {"w": w}

    return run


def gradients_summed(*, stop: int = 0, window: int = 4) -> Program:
    """A step for so many batches; at `stop` the gradients summed so far are lost."""

    def run() -> Results:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for number, batch in enumerate(torch.from_numpy(_data(8, 4, 3))):
            if stop and number == stop:
                optimizer.zero_grad()
            ((net(batch) - 1).pow(2).mean() / window).backward()
            if number % window == window - 1:
                optimizer.step()
                optimizer.zero_grad()
        return {"w": net.weight.detach()}

    return run


PAIRS: dict[str, tuple[Program, Program, str]] = {
    "average, NumPy": (average_in_numpy(), average_in_numpy(stop=_STOP), "state"),
    "average, torch": (average_in_torch(), average_in_torch(stop=_STOP), "state"),
    "average, Paddle": (average_in_paddle(), average_in_paddle(stop=_STOP), "state"),
    "velocity, NumPy": (momentum_in_numpy(), momentum_in_numpy(stop=_STOP), "state"),
    "sum of gradients": (gradients_summed(), gradients_summed(stop=6), "state"),
    "another decay": (average_in_numpy(), average_in_numpy(decay=0.6), "semantics"),
    "average of the weights before": (average_in_numpy(), average_in_numpy(late=False), "semantics"),
    "steps of fewer batches": (gradients_summed(), gradients_summed(window=2), "semantics"),
}
SLOW = ("steps of fewer batches",)


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.long] * (each in SLOW)) for each in PAIRS])
def test_a_state_that_begins_anew_is_told_from_another_formula(name: str) -> None:
    """`state` where the reference's value, put where the candidate begins anew, makes the sides agree; only there."""
    reference, candidate, cause = PAIRS[name]
    found = detconf.audit(reference, candidate)
    assert str(found.cause) == cause, str(found)
    if cause == "state":
        assert found.proof is not None
        assert (found.proof.kind, "the sides agree" in found.proof.what) == ("removed", True), str(found)
