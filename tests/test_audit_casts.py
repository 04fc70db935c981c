"""Audits of sides that cast to a coarse dtype: the same rounding in few other places, or arithmetic in the coarse dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import detconf

Program = Callable[[], dict[str, Any]]


def normal(*shape: int, seed: int) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def product(*, cast: bool = True, parts: int = 1, native: bool = False) -> Program:
    """A product in float32 whose result is rounded to float16; `native`: of float16 operands."""

    def run() -> dict[str, Any]:
        x, w = normal(96, 512, seed=0), normal(512, 128, seed=1)
        if native:
            return {"y": (x.half() @ w.half()).float()}
        if parts == 1 and cast:
            x, w = x.half().float(), w.half().float()
        size = 512 // parts
        y = torch.stack([x[:, at : at + size] @ w[at : at + size] for at in range(0, 512, size)]).sum(0)
        return {"y": y.half().float()}

    return run


def normalized(kind: torch.dtype) -> Program:
    """What is between two casts to bfloat16 is computed in `kind`."""

    def run() -> dict[str, Any]:
        x = (normal(6, 64, seed=2) * 3 + 5).bfloat16().to(kind)
        y = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5)
        return {"y": y.bfloat16().float()}

    return run


@pytest.mark.parametrize(
    ("reference", "candidate", "cause"),
    [
        pytest.param(product(cast=False), product(parts=8), "rounding", id="the same cast after another order"),
        pytest.param(product(native=True), product(), "rounding", id="the same casts by hand"),
        pytest.param(normalized(torch.float32), normalized(torch.bfloat16), "dtype", id="computed in the coarse dtype"),
        pytest.param(normalized(torch.bfloat16), normalized(torch.float32), "dtype", id="computed in the finer dtype"),
    ],
)
@pytest.mark.usefixtures("unchanged")
def test_the_cause(reference: Program, candidate: Program, cause: str) -> None:
    """Neighbouring numbers of the coarse dtype in few elements are no bug; in many they are, and the arithmetic is named."""
    found = detconf.audit(reference, candidate)
    assert str(found.cause) == cause, str(found)
    if cause == "dtype":
        assert "computes in bfloat16" in found.summary
    else:
        (bound,) = found.tolerance
        assert bound.measured is not None
        assert bound.measured <= 1
