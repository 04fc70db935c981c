"""Audits of captured programs: traced, exported, static. And what no formula explains: zeros, near choices, eight bits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from torch.jit import trace as traced_by_name  # held by the program itself, as programs do

import detconf
from detconf.auditing.result import Audit
from detconf.frameworks.paddle import uncaptured as paddle_capture
from detconf.frameworks.torch import uncaptured as torch_capture

X = torch.randn(8, 3, 12, 12, generator=torch.Generator().manual_seed(1))
SMALL = torch.linspace(-1, 1, 8)
Results = dict[str, Any]


def cause(found: Audit) -> str:
    return str(found.cause)


def model() -> Any:
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    made[1].running_mean.normal_()
    made[1].running_var.uniform_(0.5, 2)
    return made.eval()


def folded(function: Any, *args: Any) -> Any:
    """Traced, with the normalisation folded into the convolution: other roundings."""
    graph = torch.jit.optimize_for_inference(torch.jit.trace(function, args))
    for _ in range(2):
        graph(*args)
    return graph(*args)


class Scaled(torch.nn.Module):  # type: ignore[misc]  # torch is not typed for us
    """A number of the module's that a graph keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0

    def forward(self, x: Any) -> Any:
        x = x * 0.5 if self.training else x
        return torch.tanh(x / self.scale)


def rescaled(module: Any, call: Callable[[Any], Any]) -> Results:
    module.scale = 1.0
    first = call(X)
    module.scale = 4.0
    return {"first": first, "second": call(X)}


def signed(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x - 5


def plain_of(make: Callable[[], Any]) -> Callable[[], Results]:
    def reference() -> Results:
        module = make()
        return rescaled(module, module)

    return reference


def exported() -> Results:
    module = Scaled()
    return rescaled(module, torch.export.export(module, (X,)).run_decompositions().module())


def traced() -> Results:
    module = Scaled()
    return rescaled(module, torch.jit.trace(module, X))


def symbolic() -> Results:
    module = Scaled()
    return rescaled(module, torch.fx.symbolic_trace(module))


@pytest.mark.parametrize("candidate", [exported, traced, symbolic])
def test_frozen(candidate: Callable[[], Results]) -> None:
    """A number that a graph took from Python when it was made, and does not ask for again."""
    found = detconf.audit(plain_of(Scaled), candidate)
    assert cause(found) == "mode"
    assert found.proof
    assert found.proof.kind == "removed"
    assert any(fix.verified for fix in found.fixes)


def test_frozen_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function that captures is held by the program, under another name, since before Dynamo wrapped it; afterwards too."""
    ones = torch.ones(4)
    held = traced_by_name

    @functools.wraps(torch.jit.trace)
    def wrapper(
        *args: Any, **kwargs: Any
    ) -> Any:  # the first compilation of a process, which may lie behind this one, puts such a one there
        return held(*args, **kwargs)

    monkeypatch.setattr(torch.jit, "trace", wrapper)

    def reference() -> Results:
        return {"up": signed(ones), "down": signed(-ones)}

    def candidate() -> Results:
        graph = traced_by_name(signed, ones)
        return {"up": graph(ones), "down": graph(-ones)}

    found = detconf.audit(reference, candidate)
    assert str(found.cause) == "mode", str(found)
    assert traced_by_name is held


def test_folded_is_rounding() -> None:
    """A graph that is frozen and optimized can be taken out of the way: what is left is rounding."""

    def reference() -> Results:
        with torch.no_grad():
            return {"y": model()(X)}

    def candidate() -> Results:
        with torch.no_grad():
            return {"y": folded(model(), X)}

    assert cause(detconf.audit(reference, candidate)) == "rounding"


@contextmanager
def _here(*modules: Any) -> Iterator[list[Any]]:
    yield [(module, dict(vars(module))) for module in modules]


def test_put_back() -> None:
    """Experiments on capture leave no function of theirs behind."""
    with _here(torch, torch.jit, torch.fx, torch.export, paddle._C_ops) as before:
        with torch_capture.without(), torch_capture.anew():
            assert vars(torch.jit)["trace"] is not before[1][1]["trace"]
        with torch_capture.disturbed(0, 4.0), paddle_capture.disturbed(0, 4.0):
            pass
        for module, names in before:
            assert all(vars(module)[name] is value for name, value in names.items())
    assert torch.equal(torch.exp(X), torch.exp(X))


def test_disturbed_by_roundings() -> None:
    """What is computed is off by roundings, what is moved or drawn is not; generators draw what they would."""
    torch.manual_seed(3)
    drawn = torch.randn(1000)
    torch.manual_seed(3)
    with torch_capture.disturbed(0, 4.0):
        same, moved, off = torch.randn(1000), X.permute(1, 0, 2, 3).contiguous(), torch.exp(X)
    assert torch.equal(same, drawn)
    assert torch.equal(moved, X.permute(1, 0, 2, 3))
    error = ((off - torch.exp(X)) / torch.exp(X)).abs()
    assert 0 < float(error.max()) < 40 * 2.0**-24
    x = paddle.to_tensor(X.numpy())
    with paddle_capture.disturbed(0, 4.0):
        off, moved = paddle.exp(x).numpy(), x.transpose([1, 0, 2, 3]).numpy()
    error = np.abs(off / paddle.exp(x).numpy() - 1)
    assert 0 < error.max() < 40 * 2.0**-24
    assert np.array_equal(moved, X.permute(1, 0, 2, 3).numpy())


def test_disturbed_keeps_state() -> None:
    """What a model keeps is as before, also where an operation is declared to write it."""
    judge, other = model(), paddle.nn.BatchNorm2D(3)
    other.eval()
    state = {name: each.clone() for name, each in judge.state_dict().items()}
    kept = {name: each.numpy().copy() for name, each in other.state_dict().items()}
    with torch_capture.disturbed(0, 4.0), paddle_capture.disturbed(0, 4.0), torch.no_grad():
        judge(X)
        other(paddle.to_tensor(X.numpy()))
    assert all(torch.equal(each, state[name]) for name, each in judge.state_dict().items())
    assert all(np.array_equal(each.numpy(), kept[name]) for name, each in other.state_dict().items())


def test_choice_of_a_rounding() -> None:
    """A comparison that only rounding decides falls otherwise in a graph: no fault of the graph."""
    with torch.no_grad():
        own = model()(X)

    def choose(x: Any) -> Any:
        return (judge(x) > own).float()

    judge = model()

    def reference() -> Results:
        with torch.no_grad():
            return {"chosen": choose(X)}

    class Chosen(torch.nn.Module):  # type: ignore[misc]  # as above
        def __init__(self) -> None:
            super().__init__()
            self.judge = judge

        def forward(self, x: Any) -> Any:
            return (self.judge(x) > own).float()

    def candidate() -> Results:
        with torch.no_grad():
            return {"chosen": folded(Chosen().eval(), X)}

    found = detconf.audit(reference, candidate)
    assert cause(found) == "ill-conditioned", str(found)
    assert found.where
    assert "gt" in found.where.name


def test_choice_that_is_no_rounding() -> None:
    """A graph that chooses otherwise by more than rounding is not excused by it."""

    def choose(x: Any) -> Any:
        return (x.exp() > float(x.exp().mean())).float()

    first, second = torch.linspace(-1, 1, 20), torch.linspace(0, 2, 20)

    def candidate() -> Results:
        graph = torch.jit.trace(choose, first)
        return {"first": graph(first), "second": graph(second)}

    assert cause(detconf.audit(lambda: {"first": choose(first), "second": choose(second)}, candidate)) == "mode"


def normalized(grouped: bool) -> Results:
    torch.manual_seed(2)
    layer, norm = torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16)
    x = X.to(memory_format=torch.channels_last) if grouped else X
    torch.tanh(norm(layer(x))).square().mean().backward()
    return {"weight": layer.weight.grad.contiguous(), "bias": layer.bias.grad}


def test_gradient_that_is_zero() -> None:
    """The gradient of a bias in front of a normalisation is nothing but rounding, which all its terms share: benign, not ill."""
    found = detconf.audit(lambda: normalized(False), lambda: normalized(True))
    assert cause(found) in ("rounding", "equal")


def eight_bits() -> Results:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).eval()
    with torch.no_grad():
        return {"y": torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear}, dtype=torch.qint8)(X.reshape(-1, 32))}


def test_quantized() -> None:
    """A side of integers with eight bits: as far off as such rounding of the other side's products is, or not explained by it."""

    def reference(wrong: float = 1.0) -> Results:
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).eval()
        with torch.no_grad():
            return {"y": net(X.reshape(-1, 32) * wrong)}

    assert cause(detconf.audit(reference, eight_bits)) == "dtype"
    assert cause(detconf.audit(lambda: reference(3.0), eight_bits)) == "unknown"


XS = np.random.RandomState(0).randn(6, 8).astype("float32")
WS = np.random.RandomState(1).randn(8, 8).astype("float32")


def dynamic(function: Callable[..., Any]) -> Results:
    return {"y": function(paddle.to_tensor(XS), paddle.to_tensor(WS)).numpy()}


def static(function: Callable[..., Any]) -> Results:
    paddle.enable_static()
    try:
        program = paddle.static.Program()
        with paddle.static.program_guard(program):
            y = function(paddle.static.data("x", XS.shape), paddle.static.data("w", WS.shape))
        return {"y": paddle.static.Executor().run(program, feed={"x": XS, "w": WS}, fetch_list=[y])[0]}
    finally:
        paddle.disable_static()


def product(x: Any, w: Any) -> Any:
    return paddle.tanh(paddle.matmul(x, w))


def transposed(x: Any, w: Any) -> Any:
    return paddle.tanh(paddle.matmul(x, w, transpose_y=True))


def wrong_axis(x: Any, w: Any) -> Any:
    return paddle.nn.functional.softmax(paddle.matmul(x, w), axis=0)


def right_axis(x: Any, w: Any) -> Any:
    return paddle.nn.functional.softmax(paddle.matmul(x, w), axis=1)


def dropping(x: Any, w: Any, training: bool = True) -> Any:
    return paddle.tanh(paddle.nn.functional.dropout(paddle.matmul(x, w), 0.5, training=training))


def noisy(x: Any, w: Any) -> Any:
    return x + paddle.randn([6, 8])


def squared(kind: str) -> Callable[..., Any]:
    return lambda x, w: ((paddle.cast(x * 0 + 70000, kind) * paddle.cast(w[:6] * 0 + 70000, kind)).astype("float64")) + 0


@pytest.mark.parametrize(
    ("expected", "reference", "candidate"),
    [
        ("layout", product, transposed),
        ("semantics", right_axis, wrong_axis),
        ("mode", lambda x, w: dropping(x, w, training=False), dropping),
        ("rng", noisy, noisy),
        ("overflow", squared("int64"), squared("int32")),
    ],
    ids=["layout", "semantics", "mode", "rng", "overflow"],
)
def test_static_programs(expected: str, reference: Callable[..., Any], candidate: Callable[..., Any]) -> None:
    """A program under an Executor cannot be followed: both sides are recorded, and their values say why they differ."""

    def seeded(seed: int, run: Callable[..., Results], function: Callable[..., Any]) -> Callable[[], Results]:
        def side() -> Results:
            paddle.seed(seed)
            return run(function)

        return side

    found = detconf.audit(seeded(1, dynamic, reference), seeded(2, static, candidate))
    assert cause(found) == expected


def test_two_functions_on_a_line() -> None:
    """An experiment that puts other code into a function does not mistake one lambda of a line for the other."""
    found = detconf.audit(lambda: {"y": SMALL * 0.1}, lambda: {"y": torch.where(SMALL > 0, SMALL * 0.1, SMALL * 0.3)})
    assert cause(found) not in ("dtype", "rounding", "equal")


def test_static_program_agrees() -> None:
    """The same in dynamic and static mode: at most rounding."""
    assert cause(detconf.audit(lambda: dynamic(right_axis), lambda: static(right_axis))) in ("equal", "rounding")


def test_recording_of_results_left_out() -> None:
    """An operation of a static program may leave a result out; a recorder must not raise into the program."""
    found = detconf.audit(lambda: static(lambda x, w: dropping(x, w, training=False)), lambda: static(dropping))
    assert cause(found) == "mode"
