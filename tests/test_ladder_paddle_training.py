"""Training steps on PaddlePaddle's rung `static`: the same Python function builds a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

from detconf.auditing.modes.climb import climb
from detconf.auditing.result import Audit
from detconf.errors import TargetError
from detconf.frameworks.paddle import lesions
from detconf.frameworks.paddle.ladder import subject
from detconf.frameworks.paddle.programmed import Built, Later, building
from detconf.frameworks.paddle.static import static_mode
from detconf.frameworks.paddle.training import build
from detconf.frameworks.rungs import Refused
from detconf.values import Cause

pytestmark = pytest.mark.slow  # each rung imports the framework anew

_X = np.random.RandomState(0).rand(6, 4)
_FOLDER = Path(__file__).parent


def _held(kind: Any, dtype: str = "float32", **options: Any) -> tuple[Any, Any]:
    paddle.set_default_dtype(dtype)
    layer = paddle.nn.Sequential(paddle.nn.Linear(4, 5), paddle.nn.BatchNorm1D(5), paddle.nn.Linear(5, 3))
    paddle.set_default_dtype("float32")
    return layer, kind(learning_rate=0.01, parameters=layer.parameters(), **options)


LAYER, OPTIMIZER = _held(paddle.optimizer.AdamW)
WIDE, WIDE_OPTIMIZER = _held(paddle.optimizer.Adam, "float64")
INPUT = paddle.to_tensor(_X)
DEEP = [[[paddle.to_tensor(_X)]]]


def held() -> dict[str, Any]:
    """Parameters, running statistics and moments belong to objects that live longer than the step."""
    loss = paddle.tanh(LAYER(paddle.to_tensor(_X.astype("float32")))).mean()
    loss.backward()
    OPTIMIZER.step()
    gradient = LAYER[0].weight.grad
    found = {"loss": loss.item(), "gradient": gradient.numpy(), "mean": LAYER[1]._mean.numpy(), "weight": LAYER[2].weight}
    OPTIMIZER.clear_grad()
    return found


def made() -> dict[str, Any]:
    """The step makes everything itself, and several steps under a schedule, with gradients accumulated over two losses."""
    paddle.seed(7)
    layer = paddle.nn.Linear(4, 3)
    schedule = paddle.optimizer.lr.StepDecay(0.1, 1)
    momentum = paddle.optimizer.Momentum(schedule, parameters=layer.parameters(), grad_clip=paddle.nn.ClipGradByGlobalNorm(0.1))
    x, losses = paddle.to_tensor(_X.astype("float32")), []
    for _ in range(3):
        for scale in (1.0, 2.0):
            loss = paddle.tanh(layer(x) * scale).mean()
            loss.backward()
        momentum.step()
        momentum.clear_grad()
        schedule.step()
        losses.append(loss.numpy().copy())
    return {"losses": losses, "weight": layer.weight.numpy()}


def wide() -> Any:
    """Adam on parameters in float64."""
    paddle.tanh(WIDE(INPUT)).mean().backward()
    WIDE_OPTIMIZER.step()
    WIDE_OPTIMIZER.clear_grad()
    return [each.numpy() for each in WIDE.parameters()]


def grouped() -> Any:
    """Other betas, groups of parameters, and a constant of the program beside them."""
    paddle.seed(7)
    weight = paddle.create_parameter([4, 3], "float64")
    bias = paddle.create_parameter([3], "float64", is_bias=True)
    adam = paddle.optimizer.Adam(0.01, beta1=0.8, beta2=0.95, parameters=[{"params": [weight]}, {"params": [bias], "learning_rate": 0.1}])
    (paddle.tanh(INPUT @ weight + bias) * 0.1).mean().backward()
    adam.step()
    return {"weight": weight, "bias": bias}


def reads() -> Any:
    loss = LAYER(paddle.to_tensor(_X.astype("float32"))).mean()
    loss.backward()
    OPTIMIZER.step()
    OPTIMIZER.clear_grad()
    return float(loss)


def branches() -> Any:
    loss = LAYER(paddle.to_tensor(_X.astype("float32"))).mean()
    return loss * 2 if loss > 0 else loss


def writes() -> Any:
    loss = (LAYER[0].weight * 2).sum()
    LAYER[0].weight.set_value(np.zeros([4, 5], "float32"))
    return loss + LAYER[0].weight.sum()


def stale() -> Any:
    return LAYER[0].weight * 2, DEEP[0][0][0]


def saves() -> Any:
    LAYER(paddle.to_tensor(_X.astype("float32"))).mean().backward()
    OPTIMIZER.step()
    return OPTIMIZER.state_dict()


def rungs(found: Audit) -> dict[str, str]:
    return {each.name: each.status for each in found.rungs}


def words(found: Audit) -> str:
    return "\n".join(each.statement for each in found.evidence)


@pytest.mark.parametrize("step", [held, made])
def test_a_step_as_a_program(step: Any) -> None:
    """In float32 the program gives the bits of dynamic mode: results, gradients, statistics, and what the next call goes on from."""
    found = climb(step, ("static",))
    assert found.equal
    assert rungs(found) == {"dynamic": "equal", "static": "equal"}


def test_numbers_of_an_optimizer_in_a_graph() -> None:
    """Adam's betas are float32 in the program: named, shown by tensors of the parameters' dtype; `to_static` leaves them alone."""
    found = climb(wide, ("ast", "static"))
    assert found.cause is Cause.DTYPE
    assert rungs(found) == {"dynamic": "equal", "ast": "equal", "static": "differs"}
    assert found.where is not None
    assert found.where.name == "paddle.adam_"
    assert "test_ladder_paddle_training.py:" in found.where.source
    assert "held as float32 beside float64: paddle.adam_" in words(found)
    assert found.proof is not None
    assert found.proof.share == 1.0
    assert {"beta1", "paddle"} == {fix.text.partition(".")[0].partition(",")[0] for fix in found.fixes if fix.verified}


def test_other_betas_and_a_constant() -> None:
    """Both are needed for equal bits, and both were tried."""
    found = climb(grouped, ("static",))
    assert found.cause is Cause.DTYPE
    assert any("beta1" in fix.text and "constants as" in fix.text and fix.verified for fix in found.fixes)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (reads, "float() needs the numbers of a tensor"),
        (branches, "bool() needs the numbers of a tensor"),
        (writes, "writes a tensor from Python"),
        (stale, "none of the program's"),
        (saves, "state_dict() of Optimizer"),
    ],
    ids=["reads", "branches", "writes", "stale", "saves"],
)
def test_what_no_program_can_hold(step: Any, reason: str) -> None:
    """It is refused with the reason, and Paddle is as it was."""
    before = [vars(paddle.Tensor).get(name) for name in ("numpy", "grad", "backward", "set_value", "__float__")]
    methods = [vars(kind).get("step") for kind in (paddle.optimizer.Optimizer, paddle.optimizer.Adam)]
    with pytest.raises(Refused, match=reason.replace("(", r"\(").replace(")", r"\)")):
        build(subject(step, None))
    assert before == [vars(paddle.Tensor).get(name) for name in ("numpy", "grad", "backward", "set_value", "__float__")]
    assert methods == [vars(kind).get("step") for kind in (paddle.optimizer.Optimizer, paddle.optimizer.Adam)]
    assert paddle.in_dynamic_mode()


def test_refused_is_a_row() -> None:
    """A step that is no program is absent from the rung, and the other rungs have their answers."""
    found = climb(f"{_FOLDER}/test_ladder_paddle_training.py:reads", ("ast", "static"))
    assert rungs(found) == {"dynamic": "equal", "ast": "equal", "static": "absent"}
    with pytest.raises(TargetError, match="nothing was compared"):
        climb(reads, ("static",))


def test_promises() -> None:
    """Numbers that a program will give are handed through, and nothing else."""
    built = Built()
    with building(built):
        value = paddle.ones([2]) * 2
        promise = value.numpy().copy().numpy()
        assert promise.tolist().method == "tolist"
        assert promise.item().method == "item"
        for use in (float, bool, np.asarray):
            with pytest.raises(Refused, match="needs the numbers"):
                use(promise)
        with pytest.raises(Refused, match="of an element"):
            value.item(0)
    assert isinstance(promise, Later)


def test_lesions_are_put_back() -> None:
    """The change of an optimizer's numbers ends with the experiment."""
    from contextlib import ExitStack

    plain = paddle.optimizer.Optimizer._apply_optimize
    with ExitStack() as stack:
        lesions.apply({"exact": [lesions.OPTIMIZER]}, stack)
        assert paddle.optimizer.Optimizer._apply_optimize is not plain
    assert paddle.optimizer.Optimizer._apply_optimize is plain
    with static_mode():
        assert not paddle.in_dynamic_mode()
    assert paddle.in_dynamic_mode()
