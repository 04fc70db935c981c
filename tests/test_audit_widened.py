"""The first pass: whole programs in float64, what agreement there shows, and where it must not be trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812  # as everybody calls it

import detconf
from detconf.auditing import entry, widened
from detconf.auditing.laboratory import Laboratory, Side
from detconf.auditing.question import Finding, Question
from detconf.frameworks.base import Captured

Program = Callable[[], dict[str, Any]]
X = np.random.default_rng(3).standard_normal((32, 48)).astype(np.float32)
W = np.random.default_rng(4).standard_normal((48, 48)).astype(np.float32)
OUTSIDE = torch.nn.Linear(48, 4)


def product(order: slice = slice(None), through: torch.dtype | None = None) -> Program:
    """A product and its tail; summed in another order, or with its input rounded on the way."""

    def run() -> dict[str, Any]:
        x, w = torch.from_numpy(X), torch.from_numpy(W)
        x = x.to(through).float() if through else x
        places = torch.arange(48)[torch.from_numpy(np.arange(48)[order].copy())]
        return {"y": torch.tanh(x[:, places] @ w[places] * 0.1)}

    return run


def trained(step: float = 0.1, *, dropped: bool = False) -> Program:
    """Two steps of a small network made, and drawn, inside."""

    def run() -> dict[str, Any]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(48, 16), torch.nn.Dropout(0.5 if dropped else 0.0), torch.nn.ReLU(), torch.nn.Linear(16, 2)
        )
        optimizer = torch.optim.SGD(net.parameters(), lr=step, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.from_numpy(X)).pow(2).mean().backward()
            optimizer.step()
        return {"w": net[0].weight.detach()}

    return run


def passed(reference: Program, candidate: Program) -> widened.FirstPass | None:
    laboratory, a, b = Laboratory(), Side("a", reference), Side("b", candidate)
    seen = Captured(), Captured()
    real = laboratory.plain(a, inside=entry.watching(seen[0])), laboratory.plain(b, inside=entry.watching(seen[1]))
    return widened.first_pass(Question(laboratory, a, b, *real, seen))


def test_rounding_vanishes_and_formulas_do_not() -> None:
    """The difference falls by many orders where only sums were reordered, and stays where a factor differs."""
    found = passed(product(), product(slice(None, None, -1)))
    assert found is not None
    assert found.agrees
    assert not found.doubts
    other = passed(trained(), trained(0.11))
    assert other is not None
    assert not other.agrees


@pytest.mark.usefixtures("unchanged")
def test_agreement_is_no_verdict() -> None:
    """A cast to fewer bits vanishes in float64 as rounding does. It stays `dtype`, and what was seen is among the evidence."""
    found = passed(product(), product(through=torch.bfloat16))
    assert found is not None
    assert found.agrees
    verdict = detconf.audit(product(), product(through=torch.bfloat16))
    assert str(verdict.cause) == "dtype", str(verdict)
    assert any("whole in float64" in each.statement for each in verdict.evidence)
    verdict = detconf.audit(product(), product(slice(None, None, -1)))
    assert str(verdict.cause) in {"rounding", "equal"}
    assert verdict.proof is not None
    assert "noise" in verdict.proof.what  # and not the first pass


def test_draws_are_repeated_and_leave_a_doubt() -> None:
    """The same numbers are drawn as ever, dropout included; agreement is not trusted all the same."""
    laboratory, side = Laboratory(), Side("net", trained(dropped=True))
    plain, found = laboratory.plain(side), widened.widened(laboratory, side)
    assert found is not None
    results, seen = found
    assert results["w"].dtype == "float64"
    assert seen.draws
    assert np.allclose(np.frombuffer(results["w"].data), np.frombuffer(plain["w"].data, np.float32), atol=1e-6)
    assert passed(trained(), trained()) is None  # equal bits: nothing to ask


@pytest.mark.usefixtures("unchanged")
def test_a_branch_on_a_dtype_is_not_settled() -> None:
    """Float64 takes another branch, where both sides agree. The shadows, which follow the real one, say otherwise and are believed."""

    def branch() -> dict[str, Any]:
        x = torch.from_numpy(X)
        return {"y": F.gelu(x, approximate="tanh" if x.dtype is torch.float32 else "none")}

    def plain() -> dict[str, Any]:
        return {"y": F.gelu(torch.from_numpy(X))}

    found = passed(plain, branch)
    assert found is not None
    assert found.agrees
    verdict = detconf.audit(plain, branch)
    assert str(verdict.cause) == "semantics", str(verdict)
    assert not any("whole in float64" in each.statement for each in verdict.evidence)


def test_a_branch_on_a_value_leaves_a_doubt() -> None:
    """A number that is taken out of a tensor, or a comparison, may send float64 another way."""

    def branch() -> dict[str, Any]:
        x = torch.from_numpy(X)
        return {"y": torch.cumsum(x if float(x.sum()) < 1e9 else -x, 0)}

    def masked() -> dict[str, Any]:
        x = torch.from_numpy(X)
        return {"y": torch.where(x > 0, x, x).flip(0).cumsum(0)[-1:] + torch.zeros(32, 1)}

    for each in (branch, masked):
        found = passed(product(), lambda each=each: {"y": each()["y"][:, :48]})  # type: ignore[misc]
        assert found is None or any("choices" in doubt for doubt in found.doubts)


def test_captured_graphs_are_left_alone() -> None:
    """A traced function was captured in its own dtype."""

    def traced() -> dict[str, Any]:
        x = torch.from_numpy(X)
        return {"y": torch.jit.trace(lambda x: torch.tanh(x * 0.1), (x,), check_trace=False)(x)}

    assert passed(traced, lambda: {"y": torch.tanh(torch.from_numpy(X) / 10)}) is None


@pytest.mark.usefixtures("unchanged")
def test_what_is_outside_is_as_before() -> None:
    """A module that was made outside is widened where it is used; it and its gradients keep their dtype."""

    def run() -> dict[str, Any]:
        OUTSIDE.zero_grad()
        loss = OUTSIDE(torch.from_numpy(X)).square().mean()
        loss.backward()
        return {"loss": loss.detach()}

    before = torch.get_default_dtype(), torch.from_numpy, torch.as_tensor
    found = widened.widened(Laboratory(), Side("outside", run))
    assert found is not None
    assert found[1].lost
    assert OUTSIDE.weight.dtype is torch.float32
    assert OUTSIDE.weight.grad is not None
    assert OUTSIDE.weight.grad.dtype is torch.float32
    assert (torch.get_default_dtype(), torch.from_numpy, torch.as_tensor) == before


@pytest.mark.usefixtures("unchanged")
def test_a_program_that_does_not_run_in_float64() -> None:
    """It says nothing, and everything is as before."""

    def run() -> dict[str, Any]:
        x = torch.from_numpy(X)
        assert x.dtype is torch.float32
        return {"y": x}

    before = torch.get_default_dtype()
    assert widened.widened(Laboratory(), Side("insists", run)) is None
    assert torch.get_default_dtype() is before


@pytest.mark.parametrize("draws", [False, True])
def test_what_looks_for_another_formula_is_skipped(monkeypatch: pytest.MonkeyPatch, draws: bool) -> None:
    """Where the pass is trusted those attempts are not made, and it is said; where it is not they are."""
    called: list[Question] = []

    def spy(question: Question) -> Finding | None:
        called.append(question)
        return None

    def noise() -> dict[str, Any]:
        torch.manual_seed(1)
        return {"y": torch.rand(48) @ torch.from_numpy(W)}

    def other() -> dict[str, Any]:
        torch.manual_seed(1)
        return {"y": (torch.rand(48).flip(0)[:, None] * torch.from_numpy(W).flip(0)).sum(0)}

    monkeypatch.setattr(entry, "ATTEMPTS", (spy,))
    monkeypatch.setattr(entry, "MEANINGS", (spy,))
    verdict = detconf.audit(noise, other) if draws else detconf.audit(product(), product(slice(None, None, -1)))
    assert bool(called) is draws
    assert any("whole in float64" in each for each in verdict.tried) is not draws
