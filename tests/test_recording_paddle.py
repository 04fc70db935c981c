"""Recording of Paddle: every operation seen, no bit changed, everything put back."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import detconf
from detconf.arrays import Array
from detconf.digests import NOTHING, Flag
from detconf.recording.event import Event
from detconf.recording.reading import Recording
from detconf.results import flatten
from tests.conftest import run_python

paddle = pytest.importorskip("paddle")

Model = Callable[[], tuple[Any, list[int]]]


def events(path: Path) -> list[Event]:
    with Recording(path) as recording:
        return list(recording.events())


def perceptron() -> tuple[Any, list[int]]:
    nn = paddle.nn
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)), [5, 6]


def convolutional() -> tuple[Any, list[int]]:
    nn = paddle.nn
    return nn.Sequential(nn.Conv2D(2, 4, 3), nn.BatchNorm2D(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)), [5, 2, 6, 6]


class _Recurrent(paddle.nn.Layer):  # type: ignore[misc, name-defined]  # paddle is not typed for us
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = paddle.nn.LSTM(6, 8), paddle.nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.cell(x)[0][:, -1])


def recurrent() -> tuple[Any, list[int]]:
    return _Recurrent(), [5, 4, 6]


class _Mixed(paddle.nn.Layer):  # type: ignore[misc, name-defined]  # as above
    """Lists of tensors, writes by index, advanced indexing, two readers of one tensor, a function with its own backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = paddle.nn.Linear(6, 8), paddle.nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        h = paddle.concat([self.inner(x), self.inner(x) * 2.0], axis=0)
        h[0, 0] = 1.0
        h = _Double.apply(h)
        a, b = paddle.split(h, 2)
        return self.head(a + b) + h[paddle.to_tensor([0, 1])].sum()


class _Double(paddle.autograd.PyLayer):  # type: ignore[misc, name-defined]  # as above
    @staticmethod
    def forward(_context: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(_context: Any, gradient: Any) -> Any:
        return gradient * 2.0


def mixed() -> tuple[Any, list[int]]:
    return _Mixed(), [5, 6]


def train(make: Model, steps: int = 2) -> list[bytes]:
    """Losses, gradients, parameters, buffers, and what the generator gives next."""
    paddle.seed(3)
    draw = np.random.RandomState(0)
    model, shape = make()
    optimizer = paddle.optimizer.AdamW(parameters=model.parameters(), learning_rate=1e-2, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
    found = []
    for _ in range(steps):
        loss = paddle.nn.functional.cross_entropy(
            model(paddle.to_tensor(draw.rand(*shape).astype("float32"))), paddle.to_tensor(draw.randint(0, 3, (5,)))
        )
        loss.backward()
        found += [loss, *(each.grad.clone() for each in model.parameters() if each.grad is not None)]
        optimizer.step()
        optimizer.clear_grad()
    found += [*model.parameters(), *model.buffers(), paddle.rand([2])]
    return [each.numpy().tobytes() for each in found]


@pytest.mark.parametrize("make", [perceptron, convolutional, recurrent, mixed])
@pytest.mark.parametrize("options", [{}, {"values": True, "sources": True}, {"level": "state"}], ids=["digests", "values", "state"])
def test_recording_changes_no_bit(make: Model, options: Any, tmp_path: Path) -> None:
    """Losses, gradients, parameters and generator are the same before, under and after a recording of any kind."""
    before = train(make)
    with detconf.record(tmp_path / "run.det", **options) as recorder:
        under = train(make)
    assert before == under == train(make)
    assert recorder.steps == 2
    assert recorder.index > 10


def _references() -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "paddle":
            found |= {(name, key): id(value) for key, value in vars(module).items() if callable(value)}
    owners = [paddle.Tensor, paddle.autograd.PyLayer, paddle.base.executor.Executor, paddle.jit.dy2static.program_translator.StaticFunction]
    owners.append(paddle.jit.dy2static.pir_partial_program.PartialProgramLayer)
    owners += [paddle.optimizer.AdamW, paddle.optimizer.Optimizer]
    return found | {(owner.__name__, key): id(value) for owner in owners for key, value in vars(owner).items()}


@pytest.mark.parametrize("level", ["operations", "state"])
def test_everything_is_put_back(level: Any, tmp_path: Path) -> None:
    """After a recording that an exception ended, every module and class of Paddle holds what it held before."""
    train(perceptron, 1)
    before = _references()

    def fail() -> None:
        with detconf.record(tmp_path / "run.det", level=level):
            assert _references() != before
            train(perceptron, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert _references() == before


def test_a_failing_operation_raises_as_ever(tmp_path: Path) -> None:
    """An operation that raises does so with its own error, and the recording goes on."""
    with detconf.record(tmp_path / "run.det"):
        with pytest.raises(ValueError, match="matmul"):
            paddle.matmul(paddle.ones([2, 3]), paddle.ones([2, 3]))
        paddle.ones([2]) + paddle.ones([2])
    assert [each.name for each in events(tmp_path / "run.det")][-1] == "paddle.add"


def test_digests_are_those_of_arrays(tmp_path: Path) -> None:
    """A digest is that of the array: strided, 0-d, empty and bfloat16 tensors as well; what is read is what was written."""
    with detconf.record(tmp_path / "run.det"):
        x = paddle.arange(6, dtype="float32").reshape([2, 3])
        made = [x.t() + 0.0, x.sum(), x[:0] * 2.0, x.astype("bfloat16") * 2.0, paddle.exp(x.t())]
    found = events(tmp_path / "run.det")
    digests = [each.outputs[0].digest for each in found]
    shapes = [(each.outputs[0].dtype, each.outputs[0].shape) for each in found]
    for tensor in made:
        assert bytes.fromhex(flatten(tensor)["result"].digest) in digests, tensor
    assert ("bfloat16", (2, 3)) in shapes
    assert ("float32", (0, 3)) in shapes
    assert found[-1].inputs[0] == bytes.fromhex(Array("float32", (3, 2), x.t().numpy().tobytes()).digest)


def test_names_flags_and_steps(tmp_path: Path) -> None:
    """Names are those of the C++ operations; draws carry the generator's state, writes are marked, an optimizer ends a step."""
    with detconf.record(tmp_path / "run.det"):
        train(perceptron, 2)
    found = events(tmp_path / "run.det")
    names = Counter(each.name for each in found)
    assert names["paddle.linear"] == names["paddle.linear.grad"] == 4
    assert names["paddle.dropout"] == 2
    assert names["paddle.adamw_"] == names["paddle.leaf.grad"] == 8
    assert {each.step for each in found if each.name == "paddle.adamw_"} == {0, 1}
    drawn = [each for each in found if each.name in ("paddle.uniform", "paddle.dropout")]
    assert all(each.flags & Flag.RANDOM for each in drawn)
    assert len({each.random for each in drawn}) == len(drawn)
    assert all(each.flags & Flag.IN_PLACE for each in found if each.name == "paddle.adamw_")
    assert all(each.flags & Flag.LEAF for each in found if each.name == "paddle.to_tensor")
    assert not {"paddle.reshape", "paddle.transpose"} & set(names)


def test_in_place_and_views(tmp_path: Path) -> None:
    """What is written through a view, by `set_value` or by an in-place operation is what the next reader is said to read."""
    with detconf.record(tmp_path / "run.det"):
        x = paddle.zeros([2, 2])
        row = x[1]
        row.add_(paddle.ones([2]))
        a = x * 1.0
        x.set_value(np.full((2, 2), 5, "float32"))
        b = x * 1.0
        x[0] = 7.0
        c = x * 1.0
    reads = [each.inputs[0] for each in events(tmp_path / "run.det") if each.name == "paddle.multiply"]
    assert reads == [bytes.fromhex(Array("float32", (2, 2), each.numpy().tobytes()).digest) for each in (a, b, c)]


def test_uninitialised_memory_is_no_result(tmp_path: Path) -> None:
    """`paddle.empty` is recorded without a digest: what is in the memory is chance."""
    with detconf.record(tmp_path / "run.det"):
        paddle.empty([4])
    (event,) = events(tmp_path / "run.det")
    assert event.flags & Flag.UNINITIALISED
    assert event.outputs[0].digest == NOTHING


def test_a_gradient_depends_on_its_readers(tmp_path: Path) -> None:
    """A gradient whose forward data or upstream gradient differs has another input; one that depends on neither has the same."""

    def run(name: str, scale: float) -> list[Event]:
        with detconf.record(tmp_path / name):
            x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
            y = x * 3.0
            (y * paddle.to_tensor([scale, 1.0])).sum().backward()
        return [each for each in events(tmp_path / name) if each.name.endswith(".grad")]

    first, same, other = run("a.det", 2.0), run("b.det", 2.0), run("c.det", 4.0)
    assert [each.to_dict() for each in first] == [each.to_dict() for each in same]
    differs = [a.name for a, b in zip(first, other, strict=True) if a.outputs != b.outputs]
    assert differs == ["paddle.multiply.grad", "paddle.leaf.grad"]
    assert all(a.inputs != b.inputs for a, b in zip(first, other, strict=True) if a.outputs != b.outputs)


def test_hooks_survive_double_backward_and_unused_forward_passes(tmp_path: Path) -> None:
    """Double backward gives the same values, and forward passes without a backward one pile nothing up on the leaves."""

    def run() -> list[bytes]:
        x = paddle.to_tensor([1.5, 2.5], stop_gradient=False)
        for _ in range(300):
            x * x  # on purpose without a reader
        y = x * x * x
        (gradient,) = paddle.grad(y, x, create_graph=True)
        gradient.sum().backward()
        return [gradient.numpy().tobytes(), x.grad.numpy().tobytes()]

    before = run()
    with detconf.record(tmp_path / "run.det"):
        assert run() == before
    assert max(len(each.inputs) for each in events(tmp_path / "run.det") if each.name == "paddle.leaf.grad") < 200


def test_threads_are_seen(tmp_path: Path) -> None:
    """Operations of other threads are recorded, each under the number of its thread."""
    with detconf.record(tmp_path / "run.det"):
        paddle.ones([2]) + paddle.ones([2])
        thread = threading.Thread(target=lambda: paddle.exp(paddle.ones([3])))
        thread.start()
        thread.join()
    found = {each.name: each.thread for each in events(tmp_path / "run.det")}
    assert found["paddle.add"] == 0
    assert found["paddle.exp"] == 1


def test_kept_values(tmp_path: Path) -> None:
    """With `values`, what an operation read and wrote can be had back, from before an in-place operation."""
    with detconf.record(tmp_path / "run.det", values=True):
        x = paddle.to_tensor([1.0, 2.0])
        x.add_(paddle.to_tensor([1.0, 1.0]))
    with Recording(tmp_path / "run.det") as recording:
        index = next(each.index for each in recording.events() if each.name == "paddle.add_")
        kept = {key: np.frombuffer(each.data, "float32").tolist() for key, each in recording.values(index).items()}
    assert sorted(map(str, kept.values())) == ["[1.0, 1.0]", "[1.0, 2.0]", "[2.0, 3.0]"]


def test_state(tmp_path: Path) -> None:
    """The state level holds the loss, parameters, gradients, accumulators and the generator, once per step."""
    with detconf.record(tmp_path / "run.det", level="state"):
        train(perceptron, 2)
    found = events(tmp_path / "run.det")
    assert all(each.flags & Flag.STATE for each in found)
    names = Counter((each.step, each.name) for each in found)
    for step in (0, 1):
        for name in (
            "loss",
            "optimizer.0",
            "optimizer.0.grad",
            "optimizer.3.moment1",
            "optimizer.3.moment2",
            "optimizer.lr",
            "generator.paddle",
        ):
            assert names[step, name] == 1, (name, sorted(names))


_GRAPHS = """
import json, os, sys, numpy as np, paddle, detconf
from collections import Counter
from detconf.recording.reading import Recording
sys.path.insert(0, {root!r})
from tests.test_recording_paddle import train

class Model(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.c, self.b, self.f = paddle.nn.Conv2D(2, 4, 3), paddle.nn.BatchNorm2D(4), paddle.nn.Linear(64, 3)
        self.d = paddle.nn.Dropout(0.3)
    def forward(self, x):
        h = paddle.nn.functional.relu(self.b(self.c(x))) * 1.0 + 0.5
        h = (h.flatten(1) @ self.f.weight).tanh() + h.mean()
        return self.d(h) * 2.0 - 1.0 + h.exp()

def make():
    return paddle.jit.to_static(Model(), **{options}), [5, 2, 6, 6]

def small():
    return paddle.jit.to_static(paddle.nn.Linear(6, 3), **{options}), [5, 6]

found = []
for model in (make, small):
    before = train(model)
    with detconf.record("run.det"):
        under = train(model)
    events = list(Recording("run.det").events())
    graphs = [each for each in events if each.name == "paddle.to_static"]
    found.append([before == under == train(model), Counter(each.name for each in events), [each.flags for each in graphs],
                  [each.scope for each in events if each.name == "paddle.to_static.eager"]])
print(json.dumps(found))
"""


@pytest.mark.parametrize(("options", "eager"), [({"full_graph": True}, 0), ({}, 2)], ids=["AST", "SOT"])
def test_graphs(options: Any, eager: int, tmp_path: Path) -> None:
    """Each call of a graph is one event, in both front ends; a function that ran without one is said to have."""
    code = _GRAPHS.format(root=str(Path(__file__).parents[1]), options=options)
    (tmp_path / "program.py").write_text(code)  # `to_static` wants its source
    (same, names, flags, _), (small_same, small_names, _, scopes) = run_python("import program", cwd=tmp_path)
    assert same
    assert small_same
    assert names["paddle.to_static"] == 2
    assert "paddle.to_static.eager" not in names
    assert names["paddle.to_static.grad"] == 2
    assert all(each == Flag.COMPILED | Flag.RANDOM | Flag.IN_PLACE for each in flags)  # batch norm writes, dropout draws
    assert small_names.get("paddle.to_static", 0) == 2 - eager
    assert small_names.get("paddle.to_static.eager", 0) == len(scopes) == eager
    assert all("forward" in scope for scope in scopes)


_STATIC = """
import json, numpy as np, paddle, detconf
from collections import Counter
from detconf.digests import Flag
from detconf.recording.reading import Recording
paddle.enable_static()

def train():
    paddle.seed(5)
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, start), paddle.static.scope_guard(paddle.static.Scope()):
        x, y = paddle.static.data("x", [5, 2, 6, 6]), paddle.static.data("y", [5], "int64")
        conv, norm, linear = paddle.nn.Conv2D(2, 4, 3), paddle.nn.BatchNorm2D(4), paddle.nn.Linear(64, 3)
        h = paddle.nn.functional.dropout(paddle.nn.functional.relu(norm(conv(x))), 0.2)
        h = paddle.static.nn.cond(h.mean() > 0, lambda: h * 2, lambda: h * 3)
        loss = paddle.nn.functional.cross_entropy(linear(h.flatten(1)), y)
        rate = paddle.optimizer.lr.StepDecay(0.01, 1, 0.5)
        paddle.optimizer.AdamW(rate, parameters=[*conv.parameters(), *linear.parameters()]).minimize(loss)
        executor = paddle.static.Executor()
        executor.run(start)
        draw, found = np.random.RandomState(1), []
        for _ in range(3):
            feed = {"x": draw.rand(5, 2, 6, 6).astype("float32"), "y": draw.randint(0, 3, 5)}
            found += executor.run(main, feed=feed, fetch_list=[loss])
            rate.step()
        found.append(executor.run(main, feed=feed, fetch_list=[loss], return_numpy=False)[0])
        scope = paddle.static.global_scope()
        found += [scope.find_var(each.name).get_tensor() for each in main.global_block().all_parameters()]
        return [(type(each).__name__, np.asarray(each).tobytes()) for each in found]

before = train()
with detconf.record("run.det") as recorder:
    under = train()
events = [each for each in Recording("run.det").events() if each.name.startswith("paddle.")]
chain = [each for each in events if each.name == "paddle.adamw_"]
print(json.dumps({
    "same": [name for name, _ in before] == [name for name, _ in under] and [d for _, d in before] == [d for _, d in under],
    "after": [d for _, d in before] == [d for _, d in train()], "steps": recorder.steps, "names": Counter(each.name for each in events),
    "skipped": sorted({each.name for each in events if each.flags & Flag.SKIPPED}),
    "reads_parameters": chain[0].outputs[0].digest.hex() == chain[4].inputs[0].hex(),
}, default=str))
"""


def test_static_programs(tmp_path: Path) -> None:
    """Every value of a static program is recorded, gradients and optimizer included, and the run gives the same bits.

    Values inside control flow are said to be left out; an optimizer's update reads what its last one wrote.
    """
    found = run_python(_STATIC, cwd=tmp_path)
    assert found["same"]
    assert found["after"]
    assert found["steps"] == 4
    assert found["names"]["paddle.startup_program"] == 1
    assert found["names"]["paddle.conv2d"] == found["names"]["paddle.conv2d_grad"] == 4
    assert found["names"]["paddle.adamw_"] == 16
    assert found["names"]["paddle.data"] == 8
    assert found["skipped"] == ["paddle.if"]
    assert found["reads_parameters"]


def test_a_script_is_recorded_from_its_import_on(tmp_path: Path) -> None:
    """A recording that begins before Paddle is imported sees what is computed afterwards."""
    code = """
import json, detconf
from detconf.recording.reading import Recording
with detconf.record("run.det"):
    import paddle
    paddle.ones([2]) + paddle.ones([2])
print(json.dumps([each.name for each in Recording("run.det").events() if each.name.startswith("paddle.")]))
"""
    assert run_python(code, cwd=tmp_path)[-1] == "paddle.add"


_VALUES = """
import json, numpy as np, paddle, detconf
from detconf.recording.reading import Recording
paddle.enable_static()
main, start = paddle.static.Program(), paddle.static.Program()
with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, start), paddle.static.scope_guard(paddle.static.Scope()):
    x = paddle.static.data("x", [5, 6])
    linear = paddle.nn.Linear(6, 3)
    count = paddle.full([1], 1.0)
    early = count * 3.0
    paddle.increment(count, 2.0)
    paddle.optimizer.SGD(0.5, parameters=linear.parameters()).minimize(paddle.mean(linear(x) * early))
    executor = paddle.static.Executor()
    executor.run(start)
    with detconf.record("run.det", values=True):
        executor.run(main, feed={"x": np.ones((5, 6), "float32")}, fetch_list=[early])
with Recording("run.det") as recording:
    events = [(each, recording.values(each.index)) for each in recording.events()]
array = lambda kept, key: np.frombuffer(kept[key].data, kept[key].dtype).reshape(kept[key].shape)
[product] = [kept for each, kept in events if each.name == "paddle.matmul"]
print(json.dumps({
    "product": bool(np.allclose(array(product, ("input", 0)) @ array(product, ("input", 1)), array(product, ("output", 0)), atol=1e-6)),
    "early": [array(kept, ("output", 0)).tolist() for each, kept in events if each.name == "paddle.scale" and ("output", 0) in kept],
    "overwritten": [[kept["output", 0].dtype, each.outputs[0].digest.hex(), each.flags.name] for each, kept in events
                    if each.name == "paddle.full" and kept["output", 0].dtype == "none"],
}, default=str))
"""


def test_values_of_static_programs(tmp_path: Path) -> None:
    """What an operation read is kept as it was then: parameters are updated in place before everything is fetched.

    A value that was written over is not to be had, and is said to be left out.
    """
    found = run_python(_VALUES, cwd=tmp_path)
    assert found["product"]
    assert [3.0] in found["early"]
    assert found["overwritten"] == [["none", "0" * 32, "SKIPPED"]]
