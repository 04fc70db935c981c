"""The first pass of programs that compute with Paddle in dynamic graphs, alone or beside another framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F  # noqa: N812  # as everybody calls it
from test_audit_widened import passed
from test_audit_widened_numpy import run

import detconf
from detconf.auditing import widened
from detconf.auditing.laboratory import Laboratory, Side

Program = Callable[[], dict[str, Any]]
X = np.random.default_rng(3).standard_normal((32, 48)).astype(np.float32)
W = np.random.default_rng(4).standard_normal((48, 48)).astype(np.float32)
OUTSIDE = paddle.nn.Linear(48, 4)
OUTSIDE_STEP = paddle.optimizer.AdamW(0.01, parameters=OUTSIDE.parameters())


def layer(order: slice = slice(None), factor: float = 0.1, through: str = "float32") -> Program:
    def here() -> dict[str, Any]:
        places = paddle.to_tensor(np.arange(48)[order].copy())
        x, w = paddle.to_tensor(X).astype(through).astype("float32"), paddle.to_tensor(W)
        return {"y": paddle.tanh(x.index_select(places, 1) @ w.index_select(places, 0) * factor)}

    return here


def in_numpy() -> dict[str, Any]:
    return {"y": np.tanh(X @ W * 0.1)}


@pytest.mark.usefixtures("unchanged")
def test_rounding_vanishes_and_formulas_do_not() -> None:
    """Between two programs of Paddle, and between one and NumPy."""
    for a, b in ((layer(), layer(slice(None, None, -1))), (layer(through="bfloat16"), layer()), (in_numpy, layer()), (layer(), in_numpy)):
        found = passed(a, b)
        assert found is not None
        assert found.agrees
        assert not found.doubts
    other = passed(in_numpy, layer(factor=0.1001))
    assert other is not None
    assert not other.agrees


def test_a_mixed_pair_has_it_as_evidence() -> None:
    """The verdict rests on noise."""
    found = detconf.audit(in_numpy, layer())
    assert found.cause == "rounding", found
    assert any("whole in float64" in each.statement for each in found.evidence)


def _trained(make: Callable[..., Any]) -> Program:
    def here() -> dict[str, Any]:
        paddle.seed(0)
        net = paddle.nn.Sequential(paddle.nn.Linear(48, 16), paddle.nn.BatchNorm1D(16), paddle.nn.Dropout(0.2), paddle.nn.Linear(16, 2))
        step = make(parameters=net.parameters())
        for _ in range(2):
            loss = net(paddle.to_tensor(X)).pow(2).mean()
            loss.backward()
            step.step()
            step.clear_grad()
        return {"y": net[0].weight, "mean": net[1]._mean, "loss": loss}

    return here


def _assigned() -> Program:
    weights = paddle.ParamAttr(initializer=paddle.nn.initializer.Assign(W[:, :4].copy()))
    constant = paddle.ParamAttr(initializer=paddle.nn.initializer.Constant(0.1))

    def here() -> dict[str, Any]:
        net = paddle.nn.Linear(48, 4, weight_attr=weights, bias_attr=constant)
        other = paddle.nn.Linear(48, 4, weight_attr=weights, bias_attr=constant)
        other.set_state_dict({"weight": W[:, 4:8].copy(), "bias": np.zeros(4, np.float32)})
        net.bias.set_value(paddle.full([4], 0.3))
        return {"y": net(paddle.to_tensor(X)) + other(paddle.to_tensor(X))}

    return here


def _parts() -> Any:
    x = paddle.zeros([32, 48])
    x[:, 1:3] = 0.1
    x[0] = paddle.to_tensor(X[0]) / 3
    x.add_(paddle.ones([48]) / 7)
    return x


def _mixed() -> Any:
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        return (paddle.to_tensor(X) @ paddle.to_tensor(W)).astype("float32")


PROGRAMS: dict[str, Program] = {
    "made of numbers": lambda: {"y": paddle.to_tensor([0.1, 0.2]) * paddle.full([2], 0.3) + paddle.arange(2, dtype="float32") / 3},
    "cast": lambda: {"y": (paddle.to_tensor(X).astype("float16") / 3).cast(paddle.float32)},
    "mixed precision": lambda: {"y": _mixed()},
    "parts": lambda: {"y": _parts()},
    "assigned": _assigned(),
    "a product": lambda: {"y": F.linear(paddle.to_tensor(X), paddle.to_tensor(W), paddle.to_tensor(W[0]))},
    "normalized": lambda: {"y": F.layer_norm(paddle.to_tensor(X), 48)},
    "convolved": lambda: {"y": F.conv2d(paddle.to_tensor(X[None, None]), paddle.to_tensor(W[None, None, :3, :3]), padding=1)},
    "reduced": lambda: {"y": paddle.to_tensor(X).sum(0, dtype="float32") / 3 + paddle.to_tensor(X).mean()},
    "into numpy": lambda: {"y": np.tanh((paddle.to_tensor(X) * 0.1).numpy()).astype(np.float32)},
    "from numpy": lambda: {"y": paddle.to_tensor(np.tanh(X).astype(np.float32)) + paddle.to_tensor(np.float32(1) / X.shape[0])},
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("unchanged")
def test_a_program_is_run_in_float64(name: str) -> None:
    """Its results have that dtype, and are those of the program to the rounding of its own."""
    before = {**vars(paddle.Tensor)}, {**vars(paddle._C_ops)}
    plain = np.asarray(PROGRAMS[name]()["y"])
    found, seen = run(PROGRAMS[name])
    assert found["y"].dtype == np.float64
    tolerance = {"cast": 2e-3, "mixed precision": 2e-1}.get(name, 1e-5)
    assert np.allclose(found["y"], plain, rtol=tolerance, atol=tolerance)
    assert not np.array_equal(found["y"], plain)
    assert not seen.decides
    assert not seen.lost
    assert paddle.get_default_dtype() == "float32"
    assert ({**vars(paddle.Tensor)}, {**vars(paddle._C_ops)}) == before


@pytest.mark.parametrize("name", ["SGD", "Momentum", "Adam", "AdamW", "RMSProp", "Adagrad", "Lamb"])
def test_a_training_is_run_in_float64(name: str) -> None:
    """Parameters and what optimizers keep, made inside; the same numbers are drawn, and that is said."""
    program = _trained(lambda **kwargs: getattr(paddle.optimizer, name)(learning_rate=0.01, **kwargs))
    plain = {key: np.asarray(each) for key, each in program().items()}
    found, seen = run(program)
    assert seen.draws
    assert not seen.lost
    for key, each in found.items():
        assert each.dtype == np.float64
        if key != "mean":  # gradients before a normalization are rounding noise, of which some optimizers make whole steps
            assert np.allclose(each, plain[key], rtol=1e-4, atol=1e-5)


DECIDING: dict[str, Callable[[Any], Any]] = {
    "a branch": lambda x: x if x.sum() > 0 else -x,
    "truth": lambda x: x if x.max() else -x,
    "a mask": lambda x: paddle.where(x > 0, x, paddle.zeros_like(x)),
    "an index": lambda x: x.index_select(x.argmax(0)),
    "a number of Python": lambda x: x * float(x.sum()),
    "an item": lambda x: x * x.mean().item(),
    "numbers of Python": lambda x: paddle.to_tensor(x[0].tolist()),
    "integers": lambda x: (x * 10).astype("int32") / 3.0,
}


@pytest.mark.parametrize("name", DECIDING)
def test_choices_are_seen(name: str) -> None:
    """Float64 may go another way."""
    _, seen = run(lambda: {"y": DECIDING[name](paddle.to_tensor(X))})
    assert seen.decides


@pytest.mark.usefixtures("unchanged")
def test_what_is_outside_is_as_before() -> None:
    """A layer and an optimizer that were made outside are widened where they are used, and keep their dtypes; a step is lost."""

    def step() -> dict[str, Any]:
        loss = OUTSIDE(paddle.to_tensor(X)).square().mean()
        loss.backward()
        OUTSIDE_STEP.step()
        OUTSIDE_STEP.clear_grad()
        return {"loss": loss}

    plain = float(step()["loss"])
    found, seen = run(step)
    assert found["loss"].dtype == np.float64
    assert float(found["loss"]) < plain
    assert "outside" in seen.lost
    assert OUTSIDE.weight.dtype is paddle.float32
    assert all(each.dtype in {paddle.float32, paddle.int64} for each in OUTSIDE_STEP.state_dict().values() if hasattr(each, "dtype"))
    assert float(step()["loss"]) < plain


@pytest.mark.usefixtures("unchanged")
def test_what_is_written_outside_is_said() -> None:
    """In place, by running statistics, and whole: rounded into the tensor that it is."""
    target, norm = paddle.zeros([48]), paddle.nn.BatchNorm1D(48)
    programs: tuple[Callable[[], Any], ...] = (
        lambda: target.add_(paddle.to_tensor(X[0]) / 3),
        lambda: norm(paddle.to_tensor(X) / 3),
        lambda: target.set_value(paddle.full([48], 0.1)),
    )
    for each in programs:
        _, seen = run(lambda: {"y": each() if each() is not None else target + 0.5})  # noqa: B023  # called at once
        assert "outside" in seen.lost
    assert target.dtype is norm._mean.dtype is paddle.float32
    assert np.allclose(target.numpy(), 0.1)
    assert norm._mean.numpy().any()


def test_a_program_that_does_not_run_in_float64() -> None:
    """It says nothing, and Paddle is as before."""

    def insists() -> dict[str, Any]:
        x = paddle.to_tensor(X) * 2
        assert x.dtype is paddle.float32
        return {"y": x}

    before = paddle._C_ops.matmul, paddle.Tensor.set_value
    assert widened.widened(Laboratory(), Side("insists", insists)) is None
    assert (paddle._C_ops.matmul, paddle.Tensor.set_value) == before
