"""The ladder of PyTorch's graph modes: the rung where bits change, its cause, and what makes it agree."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from detconf.arrays import Array
from detconf.auditing.modes.climb import climb
from detconf.auditing.modes.isolation import forked
from detconf.auditing.modes.parcels import pack, unpack
from detconf.auditing.result import Audit
from detconf.errors import DetconfError, TargetError
from detconf.values import Cause


class Norm(nn.Module):
    """LayerNorm and GELU have decompositions that round elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 16), nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        return functional.gelu(self.norm(self.linear(x)))


class Drop(nn.Module):
    """One random operation."""

    def forward(self, x: Any) -> Any:
        return functional.dropout(x, 0.5, self.training) * 2


def cast(x: Any, gain: Any) -> Any:
    return torch.relu(x).to(torch.bfloat16) * gain


def loud(x: torch.Tensor) -> torch.Tensor:
    if x.abs().max() > 1:
        return x / x.abs().max()
    return x * 1.0


def noisy(x: Any) -> Any:
    return x + float(np.random.rand())  # noqa: NPY002  # the generator that programs use


def model() -> Norm:
    return Norm()


def inputs() -> tuple[Any, ...]:
    return (torch.randn(4, 8),)


def slow(x: Any) -> Any:
    if torch.compiler.is_compiling():
        import time

        time.sleep(600)
    return x + 1


@pytest.fixture
def x() -> Any:
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(1))


def rungs(found: Audit) -> dict[str, str]:
    return {each.name: each.status for each in found.rungs}


def words(found: Audit) -> str:
    return "\n".join(each.statement for each in found.evidence)


@pytest.mark.slow
def test_rounding_is_bounded_named_and_removed(x: Any) -> None:
    """LayerNorm and GELU: bits change with the decompositions; the operations are named with their lines; a remedy is tried."""
    torch.manual_seed(0)
    found = climb(Norm(), ("decomposed", "inductor", "lite"), (x,))
    assert found.cause is Cause.ROUNDING
    assert rungs(found) == {"eager": "equal", "decomposed": "differs", "inductor": "differs", "lite": "equal"}
    assert found.where is not None
    assert found.where.name.startswith("aten.native_layer_norm")
    assert "test_ladder_torch.py:" in found.where.source
    assert found.proof is not None
    assert found.proof.kind == "bounded"
    assert "decomposition: aten.native_layer_norm" in words(found)
    assert "neither: 100%" in words(found)
    assert found.fixes
    assert all(fix.verified and "times the time of inductor" in fix.cost for fix in found.fixes)
    assert found.tolerance
    assert all(each.measured is not None and each.measured < 1 for each in found.tolerance)


@pytest.mark.long
def test_dropout_draws_from_another_stream(x: Any) -> None:
    """Dropout: `fallback_random` removes the difference, which shows the cause."""
    found = climb(Drop(), ("inductor",), (x,))
    assert found.cause is Cause.RNG
    assert found.where is not None
    assert "dropout" in found.where.name
    assert found.fixes[0].verified
    assert "fallback_random" in found.fixes[0].text
    assert found.proof is not None
    assert found.proof.share == 1.0


@pytest.mark.long
def test_a_cast_that_the_compiler_leaves_out(x: Any) -> None:
    """A narrowing cast inside of float32 code: `emulate_precision_casts` brings it back."""
    found = climb(cast, "inductor", (x, torch.rand(8)))
    assert found.cause is Cause.DTYPE
    assert any("emulate_precision_casts" in fix.text and fix.verified for fix in found.fixes)
    assert found.where is not None
    assert "_to_copy" in found.where.name


def test_trace_freezes_a_branch() -> None:
    """Equal on the inputs of the capture and different on others: captured anew on those, it agrees there."""
    quiet, loudly = torch.tensor([0.1, -0.4]), torch.tensor([3.0, -6.0])
    found = climb(loud, ("trace",), [(quiet,), (loudly,)])
    assert found.cause is Cause.MODE
    assert found.where is not None
    assert found.where.name == "inputs2"
    assert "test_ladder_torch.py:" in found.where.source
    assert any("script" in fix.text and fix.verified for fix in found.fixes)


def test_trace_freezes_a_branch_that_no_input_shows() -> None:
    """With one set of inputs, what the tracer warns of is tried on others of another sign and size."""
    found = climb(loud, ("trace",), torch.tensor([0.1, -0.4]))
    assert found.cause is Cause.MODE
    assert "8 times" in found.summary


def test_trace_freezes_a_value_of_python(x: Any) -> None:
    """Numbers from NumPy are constants of the trace: the second call repeats the first."""
    found = climb(noisy, ("trace",), x)
    assert found.cause is Cause.MODE
    assert found.proof is not None
    assert found.proof.kind == "re-created"


def test_equal_everywhere_and_nothing_is_left_behind(x: Any) -> None:
    """A module whose bits never change; its parameters, gradients, generators and the compiler's settings stay as they were."""
    module = nn.Linear(8, 8)
    kept = {name: each.clone() for name, each in module.state_dict().items()}
    state, options = torch.get_rng_state(), torch._inductor.config.save_config()
    found = climb(module, ("dynamo", "aot_eager", "decomposed", "export", "trace"), (x,))
    assert found.equal
    assert set(rungs(found).values()) == {"equal"}
    assert all(torch.equal(each, kept[name]) for name, each in module.state_dict().items())
    assert all(each.grad is None for each in module.parameters())
    assert torch.equal(state, torch.get_rng_state())
    assert options == torch._inductor.config.save_config()
    gc.collect()


def test_running_statistics_are_results(x: Any) -> None:
    """What a call leaves in buffers is compared too."""
    found = climb(nn.BatchNorm1d(8), ("trace",), (x,))
    assert found.equal
    assert found.evidence[0].figure == 2 * (1 + 2 + 3)  # two calls: result, two gradients, three buffers


def test_a_training_step() -> None:
    """A function that does everything itself; what it holds is brought back between the runs."""
    module = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x = torch.ones(2, 4)
    before = module.weight.detach().clone()

    def step() -> Any:
        optimizer.zero_grad()
        module(x).sum().backward()
        optimizer.step()
        return {"weight": module.weight.detach().clone()}

    found = climb(step, ("dynamo", "trace"))
    assert rungs(found) == {"eager": "equal", "dynamo": "equal", "trace": "absent"}
    assert torch.equal(module.weight, before)
    assert not optimizer.state


def test_a_rung_that_raises_is_a_row() -> None:
    """What a compiler says is reported; nothing of ours is raised while another rung ran."""
    found = climb(loud, ("export", "trace"), [(torch.tensor([0.1, -0.4]),)])
    assert rungs(found) == {"eager": "equal", "export": "failed", "trace": "equal"}
    assert any("export: raised" in each for each in found.unexamined)


def test_nothing_examined() -> None:
    """No rung but the first ran: there is no answer."""
    with pytest.raises(TargetError, match="nothing was compared"):
        climb(loud, ("export",), torch.tensor([0.1, -0.4]))


def test_a_program_that_disagrees_with_itself(x: Any) -> None:
    """It is said to, and not explained by a rung."""
    calls: list[int] = []

    def counting(x: Any) -> Any:
        calls.append(1)
        return x + len(calls)

    found = climb(counting, ("trace",), x)
    assert not found.equal
    assert "disagrees with itself" in found.summary
    assert found.cause is Cause.UNKNOWN
    assert [each.name for each in found.rungs] == ["eager"]


def test_a_fork_that_crashes_hangs_or_raises(tmp_path: Path) -> None:
    """What becomes of a process is told by how it ended, and by what it wrote."""
    assert forked(lambda: None, str(tmp_path), 30).reason == ""
    assert forked(lambda: os.kill(os.getpid(), signal.SIGSEGV), str(tmp_path), 30).reason == "signal SIGSEGV"
    assert forked(lambda: time.sleep(600), str(tmp_path), 0.3).reason.startswith("timeout")
    failed = forked(lambda: sys.exit("no"), str(tmp_path), 30)
    assert failed.reason == "exit status 1"
    assert failed.lines[-1] == "SystemExit: no"


ARRAYS = st.builds(lambda data: Array("uint8", (len(data),), data), st.binary(max_size=20))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), ARRAYS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=12,
)


@given(VALUES)
def test_what_a_child_answers_arrives(value: Any) -> None:
    """Any nesting comes back as it was sent."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "answer")
        pack(value, path)
        assert unpack(path) == value


def test_unknown_rung(x: Any) -> None:
    """The name of a rung that is close is suggested."""
    with pytest.raises(DetconfError, match="Did you mean 'inductor'"):
        climb(nn.Linear(8, 8), ("indutor",), x)
    with pytest.raises(DetconfError, match="nothing to compare"):
        climb(nn.Linear(8, 8), ("eager",), x)


def test_bad_targets(x: Any) -> None:
    """A module without inputs, and one that does not run."""
    with pytest.raises(TargetError, match="needs inputs"):
        climb(nn.Linear(8, 8), ("trace",))
    with pytest.raises(TargetError, match="eager: raised"):
        climb(nn.Linear(7, 8), ("trace",), x)


@pytest.mark.long
def test_a_hanging_rung_in_a_process_of_its_own() -> None:
    """With a timeout each rung is a process; one that hangs is a row."""
    found = climb(f"{Path(__file__)}:sleeper", ("dynamo", "trace"), f"{Path(__file__)}:inputs", timeout=25)
    assert rungs(found) == {"eager": "equal", "dynamo": "failed", "trace": "equal"}
    assert any("timed out" in each for each in found.unexamined)


def sleeper() -> Any:
    return slow
