"""A side that is there as arrays, whose products were added up in less somewhere inside a longer program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from test_accumulating import in_hardware, one_by_one

from detconf.auditing.laboratory import Laboratory, Side
from detconf.auditing.question import Finding, Question
from detconf.auditing.sums.everywhere import added_in_less
from detconf.frameworks.base import Captured

_RANDOM = np.random.default_rng(1)
X, W, V, B = (_RANDOM.standard_normal(shape, dtype=np.float32) for shape in ((12, 90), (90, 20), (20, 6), (20,)))
Product = Callable[[Any, Any], Any]


def in_torch() -> dict[str, Any]:
    x, w, v, b = (torch.from_numpy(each.copy()) for each in (X, W, V, B))
    return {"y": torch.softmax(torch.tanh((x @ w) * 0.1 + b) @ v, -1)}


def in_paddle() -> dict[str, Any]:
    x, w, v, b = map(paddle.to_tensor, (X, W, V, B))
    return {"y": paddle.nn.functional.softmax(paddle.tanh((x @ w) * 0.1 + b) @ v, -1)}


def in_numpy() -> dict[str, Any]:
    return arrays(np.matmul, np.matmul)


def arrays(first: Product, second: Product) -> dict[str, Any]:
    """The same program, with products of its own."""
    inner = np.tanh(first(X, W).astype(np.float32) * np.float32(0.1) + B)
    z = second(inner, V).astype(np.float32)
    powers = np.exp(z - z.max(1, keepdims=True))
    return {"y": powers / powers.sum(1, keepdims=True)}


def asked(reference: Any, candidate: Any) -> Finding | None:
    laboratory = Laboratory()
    a, b = (
        Side(who, each) if callable(each) else Side(who, None, laboratory.plain(Side(who, lambda: each)))  # noqa: B023  # called at once
        for who, each in (("reference", reference), ("candidate", candidate))
    )
    return added_in_less(Question(laboratory, a, b, laboratory.plain(a), laboratory.plain(b), (Captured(), Captured())))


def half(x: Any, w: Any) -> Any:
    return one_by_one(x, w, "float16")


def unit(x: Any, w: Any) -> Any:
    return in_hardware(x, w, "float16", 16, "float16")


def brain(x: Any, w: Any) -> Any:
    return one_by_one(x, w, "bfloat16")


def backwards(x: Any, w: Any) -> Any:
    return one_by_one(x[:, ::-1], w[::-1], "float16")


PAIRS: dict[str, tuple[Any, Any, str]] = {
    "one after the other": (in_torch, arrays(half, half), "the candidate accumulates its products in float16"),
    "a matrix unit": (in_paddle, arrays(unit, unit), "the candidate accumulates its products, of factors rounded to float16, in float16"),
    "bfloat16, of the reference": (arrays(brain, brain), in_numpy, "the reference accumulates its products in bfloat16"),
    "the first alone": (in_numpy, arrays(half, np.matmul), "the candidate accumulates one of its products"),
    "the second alone": (in_torch, arrays(np.matmul, half), "the candidate accumulates one of its products"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_format_is_named(name: str) -> None:
    """Proved by the other side's program, with its products added up so."""
    reference, candidate, words = PAIRS[name]
    found = asked(reference, candidate)
    assert found is not None
    assert str(found.cause) == "dtype"
    assert words in found.summary
    assert found.proof is not None
    assert found.proof.kind == "re-created"


OTHERS: dict[str, Any] = {
    "another order": arrays(backwards, backwards),
    "a factor": {"y": in_numpy()["y"] * np.float32(1.001)},
    "noise": {"y": in_numpy()["y"] + np.random.default_rng(0).standard_normal((12, 6)).astype(np.float32) * np.float32(1e-3)},
    "float32": arrays(lambda x, w: one_by_one(x, w, "float32"), np.matmul),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_no_way_gives_is_not_named(name: str) -> None:
    """Errors of that size, from something else."""
    assert asked(in_torch, OTHERS[name]) is None


def test_a_single_number_shows_nothing() -> None:
    """One of many ways comes near it by accident."""
    assert asked(lambda: {"y": in_torch()["y"][:1, :2]}, {"y": arrays(half, half)["y"][:1, :2]}) is None
