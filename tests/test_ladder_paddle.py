"""The ladder of PaddlePaddle's graph modes; every rung is a process of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.nn import functional

from detconf.auditing.modes.climb import climb
from detconf.auditing.result import Audit
from detconf.errors import DetconfError, TargetError
from detconf.values import Cause

pytestmark = pytest.mark.slow  # each rung imports the framework anew


class Norm(paddle.nn.Layer):
    """Operations that have primitive decompositions."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = paddle.nn.Linear(4, 8), paddle.nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        return functional.gelu(self.norm(self.linear(x)))


def model() -> Norm:
    return Norm()


def inputs() -> tuple[Any, ...]:
    return (paddle.to_tensor(np.random.RandomState(0).rand(6, 4).astype("float32")),)


def doubles() -> tuple[Any, ...]:
    return (paddle.to_tensor(np.random.RandomState(0).rand(6, 4)),)


def integers() -> tuple[Any, ...]:
    return (paddle.to_tensor([3, 5], dtype="int64"),)


def many() -> tuple[Any, ...]:
    return (paddle.ones([200, 200]),)


def plain(x: Any) -> Any:
    return paddle.tanh(x) + x


def noisy(x: Any) -> Any:
    return x + float(np.random.rand())  # noqa: NPY002  # the generator that programs use


def marks(x: Any) -> Any:
    flat = x.flatten()
    flat[1] = 100.0
    return x * 1.0, flat * 1.0


def large(x: Any) -> Any:
    return x * 16777217


def tenth(x: Any) -> Any:
    return x * 0.1


def seventh(x: Any) -> Any:
    return x / 7


def cube(x: Any) -> Any:
    return x**3


def draws(x: Any) -> Any:
    return functional.dropout(paddle.tanh(paddle.tanh(paddle.tanh(x))), 0.5) + paddle.rand(x.shape)


def dies(x: Any) -> Any:
    if not paddle.in_dynamic_mode():
        os.kill(os.getpid(), signal.SIGSEGV)
    return x * 2


def mixed(x: Any) -> Any:
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        return paddle.matmul(x, x.T)


def rungs(found: Audit) -> dict[str, str]:
    return {each.name: each.status for each in found.rungs}


def words(found: Audit) -> str:
    return "\n".join(each.statement for each in found.evidence)


def test_equal_everywhere() -> None:
    """A program whose bits never change; that SOT makes no graph of it is said, and that this build has no CINN."""
    found = climb(plain, None, inputs)
    assert found.equal
    assert rungs(found) == {"dynamic": "equal", "ast": "equal", "sot": "equal", "static": "equal", "prim": "equal", "cinn": "absent"}
    notes = {each.name: each.note for each in found.rungs}
    assert "ran eagerly" in notes["sot"]
    assert "not in this build: not checked" in notes["cinn"]


def test_primitive_decomposition_rounds_elsewhere() -> None:
    """Bits change with the primitives only; both are as far from float64."""
    found = climb(model, ("ast", "static", "prim"), inputs)
    assert rungs(found) == {"dynamic": "equal", "ast": "equal", "static": "equal", "prim": "differs"}
    assert found.cause is Cause.ROUNDING
    assert found.where is not None
    assert found.where.name in ("paddle.layer_norm", "paddle.gelu")
    assert any("FLAGS_prim_all" in fix.text and fix.verified for fix in found.fixes)


def test_a_value_of_python_is_frozen() -> None:
    """Numbers from NumPy are constants of a graph; SOT draws them anew."""
    found = climb(noisy, ("ast", "sot"), inputs)
    assert found.cause is Cause.MODE
    assert rungs(found) == {"dynamic": "equal", "ast": "differs", "sot": "equal"}
    assert any("full_graph=False" in fix.text and fix.verified for fix in found.fixes)


def test_a_write_through_a_view_is_lost() -> None:
    """Dynamic mode whose views are copies gives the graph's bits: the cause is shown, and the write is named."""
    found = climb(marks, ("ast",), inputs)
    assert found.cause is Cause.SEMANTICS
    assert found.proof is not None
    assert found.proof.kind == "re-created"
    assert found.where is not None
    assert found.where.name == "paddle.set_value_"
    assert "test_ladder_paddle.py:" in found.where.source


@pytest.mark.parametrize(
    ("target", "given", "cause", "remedy", "operation"),
    [
        (large, integers, Cause.DTYPE, "+, - and *", "paddle.scale"),
        (tenth, doubles, Cause.DTYPE, "+, - and *", "paddle.scale"),
        (seventh, inputs, Cause.ROUNDING, "x / c", "paddle.scale"),
        (cube, inputs, Cause.ROUNDING, "x ** c", "paddle.elementwise_pow"),
    ],
    ids=["integers", "float64", "division", "power"],
)
def test_constants_of_a_graph(target: Any, given: Any, cause: Cause, remedy: str, operation: str) -> None:
    """Python's constants become float32 or go through another kernel; written as tensors they do not."""
    found = climb(target, ("ast",), given)
    assert found.cause is cause
    assert found.where is not None
    assert found.where.name == operation
    assert any(remedy in fix.text and fix.verified for fix in found.fixes)


def test_random_operations_race_in_the_executor() -> None:
    """Dropout is not ordered against other draws: one state gives several results, and the program's order gives one."""
    found = climb(draws, ("ast", "static"), many)
    assert found.cause in (Cause.RACE, Cause.RNG)
    assert any("sequential_run" in fix.text and fix.verified for fix in found.fixes)
    assert found.where is not None
    assert found.where.name == "paddle.dropout"


def test_a_rung_that_crashes_is_a_row() -> None:
    """A signal ends the rung's process and not ours."""
    found = climb(dies, ("sot", "static"), inputs)
    assert rungs(found) == {"dynamic": "equal", "sot": "equal", "static": "failed"}
    assert any("SIGSEGV" in each for each in found.unexamined)


def test_mixed_precision_that_is_not_in_force() -> None:
    """`auto_cast` changes nothing on this device in dynamic mode, and is in force in a static program."""
    found = climb(mixed, ("static",), inputs)
    assert found.cause is Cause.CONFIG
    assert "is not in force" in words(found)


def test_a_layer_of_this_process() -> None:
    """A layer that no other process could find runs in forks of this one."""
    paddle.seed(0)
    layer = Norm()
    before = {name: each.numpy() for name, each in layer.state_dict().items()}
    found = climb(layer, ("ast", "static"), inputs())
    assert rungs(found) == {"dynamic": "equal", "ast": "equal", "static": "absent"}
    assert any("a function without arguments that makes it" in each for each in found.unexamined)
    assert all(np.array_equal(each.numpy(), before[name]) for name, each in layer.state_dict().items())


def test_bad_input() -> None:
    """Unknown rungs, layers without inputs, and targets that raise."""
    with pytest.raises(DetconfError, match="Did you mean 'static'"):
        climb(plain, ("statc",), inputs)
    with pytest.raises(TargetError, match="needs inputs"):
        climb(model, ("ast",))
    with pytest.raises(TargetError, match="no such file"):
        climb(f"{Path(__file__).parent}/absent.py:model", ("ast",), inputs)
