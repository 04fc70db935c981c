"""The rungs of PyTorch's ladder that are run by name: script, freezing, optimize_for_inference, max-autotune."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from detconf.auditing.modes.climb import climb
from detconf.auditing.result import Audit
from detconf.errors import DetconfError
from detconf.frameworks.torch import lesions
from detconf.frameworks.torch.inference import folding, freezing
from detconf.frameworks.torch.ladder import BY_NAME, RUNGS
from detconf.values import Cause


class Normed(nn.Module):
    """A convolution and batch normalization, which becomes a part of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.convolution(x)))


class Scaled(nn.Module):
    """Arithmetic with parameters behind a convolution: without folding all of it is exact."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.scale, self.shift = nn.Parameter(torch.rand(8, 1, 1) + 0.5), nn.Parameter(torch.rand(8, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convolution(x) * self.scale + self.shift


class Derived(nn.Module):
    """Of its derivatives TorchScript has formulas of its own, which it takes from the second call on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 16), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = functional.gelu(self.norm(self.linear(x)))
        return (h - h.mean(dim=1, keepdim=True)) / torch.sqrt(h.var(dim=1, keepdim=True) + 1e-5) * torch.sigmoid(h) / 3.0


@pytest.fixture
def image() -> Any:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def normed(image: Any) -> Normed:
    torch.manual_seed(0)
    module = Normed()
    with torch.no_grad():
        for scale in (1.0, 2.0, 3.0):
            module(image * scale + 1)
    return module.eval()


def rungs(found: Audit) -> dict[str, str]:
    return {each.name: each.status for each in found.rungs}


def notes(found: Audit) -> dict[str, str]:
    return {each.name: each.note for each in found.rungs}


def words(found: Audit) -> str:
    return "\n".join(each.statement for each in found.evidence)


def test_they_are_run_by_name() -> None:
    """The whole ladder is what it was; a name that is close is suggested."""
    assert RUNGS == ("eager", "dynamo", "aot_eager", "decomposed", "inductor", "lite", "export", "trace")
    assert not set(BY_NAME) & set(RUNGS)
    with pytest.raises(DetconfError, match="Did you mean 'freezing'"):
        climb(nn.Linear(8, 8), ("freezin",), torch.ones(1, 8))


def test_optimize_for_inference_folds(normed: Normed, image: Any) -> None:
    """Batch normalization goes into the weights: named, shown by leaving it out, benign; a graph that is frozen only agrees."""
    found = climb(normed, ("script", "optimize_for_inference"), (image,))
    assert rungs(found) == {"eager": "equal", "script": "equal", "optimize_for_inference": "differs"}
    assert found.cause is Cause.ROUNDING
    assert found.where is not None
    assert found.where.name == "aten::batch_norm"
    assert "norm, BatchNorm2d" in found.where.source
    assert "which folds aten::batch_norm" in found.summary
    assert found.proof is not None
    assert "without folding" in found.proof.what
    assert "folding: aten::batch_norm" in words(found)
    assert any("optimize_numerics=False" in fix.text and fix.verified for fix in found.fixes)


@pytest.mark.slow
def test_freezing_folds(image: Any) -> None:
    """Arithmetic with parameters goes into the weights of a convolution; the lines are named, and the ladder without it agrees."""
    torch.manual_seed(0)
    found = climb(Scaled().eval(), ("inductor", "freezing"), (image,))
    assert rungs(found) == {"eager": "equal", "inductor": "equal", "freezing": "differs"}
    assert found.cause is Cause.ROUNDING
    assert found.where is not None
    assert found.where.name == "aten.mul.Tensor"
    assert "test_ladder_inference.py:" in found.where.source
    assert "which folds aten.mul.Tensor" in found.summary
    assert "without folding freezing gives the bits of eager" in words(found)
    assert any("freezing = False" in fix.text and fix.verified for fix in found.fixes)


@pytest.mark.long
def test_freezing_and_decompositions(normed: Normed, image: Any) -> None:
    """Where inductor alone changes bits too, the folding is told from that."""
    found = climb(normed, ("freezing",), (image,))
    assert found.cause is Cause.ROUNDING
    assert "which folds aten._native_batch_norm_legit_no_training" in found.summary
    assert "without folding freezing gives the bits of inductor" in words(found)
    assert "decomposition: " in words(found)
    assert any("no decompositions" in fix.text and fix.verified for fix in found.fixes)


def test_script_has_derivatives_of_its_own() -> None:
    """Forward equal, gradients not from the second call on; the executor without its optimizations agrees."""
    torch.manual_seed(0)
    x = torch.randn(16, 8)
    for _ in range(2):  # the code of the first audit is not found by the second
        found = climb(Derived(), ("script",), (x,))
        assert rungs(found) == {"eager": "equal", "script": "differs"}
        assert found.cause is Cause.ROUNDING
        assert found.where is not None
        assert found.where.name.startswith("call2.grad")
        assert [fix.text for fix in found.fixes] == ["torch.jit.optimized_execution(False)"]


@pytest.mark.long  # it leaves options of inductor that belong to this thread
def test_max_autotune(image: Any) -> None:
    """The kernels that it picks here are those of eager."""
    found = climb(Scaled().eval(), ("max-autotune",), (image,))
    assert found.equal
    assert notes(found)["max-autotune"] == "1 graph"


def test_what_does_not_apply(image: Any) -> None:
    """A model in training mode, inputs with gradients, functions, and what TorchScript does not take: rows, not errors."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout())
    found = climb(module, ("trace", "freezing", "optimize_for_inference"), (image,))
    assert rungs(found) == {"eager": "equal", "trace": "equal", "freezing": "absent", "optimize_for_inference": "absent"}
    assert all("call eval()" in notes(found)[name] for name in ("freezing", "optimize_for_inference"))
    found = climb(module.eval(), ("trace", "freezing"), (image.requires_grad_(),))
    assert "computes no gradients" in notes(found)["freezing"]
    found = climb(lambda x, *more: x * len(more), ("trace", "script", "freezing"), (image.detach(),))
    assert rungs(found) == {"eager": "equal", "trace": "equal", "script": "absent", "freezing": "absent"}
    assert "torch.jit.script does not take it" in notes(found)["script"]
    assert "pass a module in evaluation mode" in notes(found)["freezing"]


def test_buffers_stay_results(image: Any) -> None:
    """A frozen graph has no buffers of its own, but those that it writes."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))
            self.register_buffer("fixed", torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += 1
            return x * self.seen + self.fixed

    found = climb(Counting().eval(), ("optimize_for_inference",), (image,))
    assert found.equal
    assert found.evidence[0].figure == 2 * 3


@pytest.mark.parametrize("settings", [{}, {"folding": "off"}])
def test_everything_is_put_back(settings: dict[str, Any]) -> None:
    """Configuration, gradients, the folding pass and TorchScript's executor are as before."""
    from torch._inductor.fx_passes import freezing_patterns as passes

    passes.lazy_init()
    before = torch._inductor.config.save_config(), passes.binary_folding_pass, torch.is_grad_enabled()
    with freezing(settings), folding(None), lesions.changed({"gradients": "off", "optimized": "off"}) as rest:
        assert torch._inductor.config.freezing
        assert not rest
    assert before == (torch._inductor.config.save_config(), passes.binary_folding_pass, torch.is_grad_enabled())
    assert torch._C._get_graph_executor_optimize()
