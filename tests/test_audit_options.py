"""Audits that try other options of an operation: not every kernel checks them, and an audit must not end the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # its customary name
from paddle.nn import functional as paddle_functional

import detconf
from detconf.auditing.attempts.choices import harmless, words_like

Program = Callable[[], dict[str, Any]]
_random = np.random.default_rng(11)
X, KERNEL = _random.standard_normal((2, 3, 5, 5)).astype(np.float32), _random.standard_normal((3, 4, 3, 3)).astype(np.float32)
A, B = (_random.standard_normal((8, 8)).astype(np.float32) for _ in range(2))


def of_torch() -> dict[str, Any]:
    found = F.conv_transpose2d(torch.from_numpy(X), torch.from_numpy(KERNEL), stride=2, padding=1, output_padding=1)
    return {"y": found}


def cropped() -> dict[str, Any]:
    """The last row and column are cut off in place of the first: zero groups, if tried, would divide by zero in the kernel."""
    return {"y": paddle_functional.conv2d_transpose(paddle.to_tensor(X), paddle.to_tensor(KERNEL), stride=2)[:, :, :10, :10]}


def contracted() -> dict[str, Any]:
    return {"y": torch.einsum("ij,jk->ik", torch.from_numpy(A), torch.from_numpy(B))}


def contracted_otherwise() -> dict[str, Any]:
    """Its equation is a string: another word in its place, if tried, would be none and end the process."""
    return {"y": paddle.einsum("ij,kj->ik", paddle.to_tensor(A), paddle.to_tensor(B))}


def padded(mode: str) -> Program:
    def run() -> dict[str, Any]:
        return {"y": paddle_functional.pad(paddle.to_tensor(X), [1, 1, 1, 1], mode=mode) * 2.0}

    return run


def enlarged() -> dict[str, Any]:
    return {"y": F.interpolate(torch.from_numpy(X), (13, 17), mode="bilinear", align_corners=False)}


def enlarged_by_paddle(*, align: bool) -> Program:
    """Its coordinates are in single precision, whatever the numbers are: that is no other formula."""

    def run() -> dict[str, Any]:
        found = paddle_functional.interpolate(paddle.to_tensor(X), (13, 17), mode="bilinear", align_corners=align)
        return {"y": found.numpy()}

    return run


@pytest.mark.parametrize(
    ("reference", "candidate", "cause", "words"),
    [
        pytest.param(of_torch, cropped, "semantics", "conv2d_transpose", id="groups", marks=pytest.mark.long),
        pytest.param(contracted, contracted_otherwise, "layout", "transposed", id="equation"),
        pytest.param(padded("reflect"), padded("replicate"), "semantics", "'reflect'", id="a word of a vocabulary"),
        pytest.param(enlarged, enlarged_by_paddle(align=False), "rounding", "same formula", id="coordinates in single precision"),
        pytest.param(enlarged, enlarged_by_paddle(align=True), "semantics", "align_corners", id="other corners"),
    ],
)
@pytest.mark.usefixtures("unchanged")
def test_the_process_goes_on(reference: Program, candidate: Program, cause: str, words: str) -> None:
    """And the cause is named."""
    found = detconf.audit(reference, candidate)
    assert (str(found.cause), words in found.summary) == (cause, True), str(found)


def test_what_is_tried() -> None:
    """Words of one vocabulary; counts stay positive; other numbers may be zero."""
    assert words_like("ij,jk->ik") == []
    assert words_like("none") == ["tanh", "mean", "sum"]
    assert not harmless("groups", 1, 0)
    assert not harmless(6, 1, -1)
    assert harmless("groups", 1, 2)
    assert harmless("axis", 1, 0)
