"""The shadow engine of Paddle: no real bit changes, shadows are those of a float64 run, gradients too, all is put back."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detconf.shadows.formats import round_to
from detconf.shadows.number import Number
from detconf.shadows.study import Known, Study

paddle = pytest.importorskip("paddle")
from detconf.frameworks.paddle import apart, shadow  # noqa: E402  # after the skip

nn, F = paddle.nn, paddle.nn.functional
R = np.random.RandomState(1)
IMAGES, ROWS, CLASSES = R.randn(8, 3, 8, 8), R.randn(4, 5, 8), R.randint(0, 2, (8,))
Program = Callable[[], dict[str, Any]]


@pytest.fixture(autouse=True)
def _raising(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be noted as lost because of an error of ours fails the test."""
    monkeypatch.setattr(apart, "RAISES", True)


class Arrays:
    """A small stand-in for NumPy's engine: arrays that were handed out are known, by identity."""

    def __init__(self) -> None:
        self.handed: dict[int, tuple[Any, Known]] = {}

    def known(self, thing: Any) -> Known | None:
        found = self.handed.get(id(thing))
        return found[1] if found is not None and found[0] is thing else None

    def wrap(self, array: Any, known: Known) -> Any:
        self.handed[id(array)] = array, known
        return array


@contextmanager
def followed(study: Study | None = None) -> Iterator[tuple[Study, Any]]:
    """A study with Paddle's engine."""
    study = study or Study()
    engine = shadow.start(study)
    study.engines += [Arrays(), engine]  # type: ignore[list-item]  # as much of an engine as is needed
    try:
        yield study, engine
    finally:
        engine.end()


def run(program: Program, study: Study | None = None) -> tuple[dict[str, Any], dict[str, Any], Study]:
    """(real results, shadows, the study)."""
    with followed(study) as (watching, _):
        result = program()
        known = {name: watching.known(each) for name, each in result.items()}
        return plain(result), {name: None if each is None else each.shadow for name, each in known.items()}, watching


def plain(result: dict[str, Any]) -> dict[str, Any]:
    return {
        name: each.numpy() if isinstance(each, paddle.Tensor) and each._is_initialized() else np.asarray(0) for name, each in result.items()
    }


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(a[name].dtype == b[name].dtype and a[name].tobytes() == b[name].tobytes() for name in a)


def data(array: Any, **options: Any) -> Any:
    """Data of the default dtype whose elements are float32 numbers."""
    return paddle.to_tensor(np.asarray(array, "float32").astype(paddle.get_default_dtype()), **options)


def filled(model: Any) -> Any:
    draw = np.random.RandomState(0)
    for _, each in sorted(model.named_parameters()):
        each.set_value(np.array(draw.randn(*each.shape) * 0.3, "float32").astype(paddle.get_default_dtype()))
    return model


def train(model: Any, loss_of: Callable[[Any], Any], steps: int = 2, optimizer: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    filled(model)
    paddle.seed(5)
    optimizer = optimizer or (lambda parameters: paddle.optimizer.SGD(0.05, parameters=parameters))
    optimizer = optimizer(model.parameters())
    for _ in range(steps):
        loss = loss_of(model)
        loss.backward()
        gradients = {f"gradient {name}": each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
        optimizer.step()
        optimizer.clear_grad()
    return {"loss": loss, **gradients, **dict(model.named_parameters()), **{f"buffer {name}": each for name, each in model.named_buffers()}}


def mean_square(model: Any) -> Any:
    out = model(data(ROWS))
    return ((out[0] if isinstance(out, tuple) else out) ** 2).mean()


def mlp() -> dict[str, Any]:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))
    return train(model, mean_square, 5, lambda p: paddle.optimizer.AdamW(0.01, parameters=p, weight_decay=0.1))


def cnn() -> dict[str, Any]:
    model = nn.Sequential(nn.Conv2D(3, 4, 3, padding=1), nn.BatchNorm2D(4), nn.ReLU(), nn.MaxPool2D(2), nn.Flatten(), nn.Linear(64, 2))
    momentum = lambda p: paddle.optimizer.Momentum(0.05, parameters=p)  # noqa: E731  # short
    return train(model, lambda m: F.cross_entropy(m(data(IMAGES)), paddle.to_tensor(CLASSES)), 2, momentum)


def encoder() -> dict[str, Any]:
    return train(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, activation="gelu"), mean_square)


def lstm() -> dict[str, Any]:
    return train(nn.LSTM(8, 6, num_layers=2, direction="bidirect", dropout=0.2), mean_square)


def gru() -> dict[str, Any]:
    return train(nn.GRU(8, 6), mean_square)


def cell() -> dict[str, Any]:
    return train(nn.LSTMCell(8, 6), lambda m: (m(data(ROWS)[:, 0])[0] ** 2).mean())


def embedding() -> dict[str, Any]:
    model = nn.Sequential(nn.Embedding(7, 5, padding_idx=0), nn.LayerNorm(5), nn.Linear(5, 3))
    tokens = paddle.to_tensor([[1, 4, 0, 0], [6, 2, 3, 0]])
    adam = lambda p: paddle.optimizer.Adam(0.01, parameters=p, grad_clip=nn.ClipGradByGlobalNorm(0.5))  # noqa: E731
    return train(model, lambda m: m(tokens).tanh().sum(), 2, adam)


def mixed() -> dict[str, Any]:
    def loss(model: Any) -> Any:
        with paddle.amp.auto_cast(dtype="bfloat16"):
            return mean_square(model)

    return train(nn.Linear(8, 4), loss)


def _body(x: Any) -> Any:
    return F.gelu(x) * 2 + x.sum()


def captured() -> dict[str, Any]:
    model = nn.Linear(8, 4)
    function = paddle.jit.to_static(_body, full_graph=True)
    return train(model, lambda m: function(m(data(ROWS))).mean())


def captured_by_tracing() -> dict[str, Any]:
    model = nn.Linear(8, 4)
    function = paddle.jit.to_static(_body, full_graph=False)
    return train(model, lambda m: function(m(data(ROWS))).mean())


class Cube(paddle.autograd.PyLayer):
    """x³, with a backward pass of its own."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        Cube.calls += 1
        (x,) = ctx.saved_tensor()
        return gradient * 3 * x * x


def own_function() -> dict[str, Any]:
    return train(nn.Linear(8, 4), lambda m: Cube.apply(m(data(ROWS))).mean())


def recomputed() -> dict[str, Any]:
    from paddle.distributed.fleet.utils import recompute

    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.GELU())
    return train(model, lambda m: (recompute(m, data(ROWS, stop_gradient=False)) ** 2).mean())


def hooked() -> dict[str, Any]:
    def loss(model: Any) -> Any:
        out = model(data(ROWS))
        out.register_hook(lambda gradient: gradient * 2)
        return (out**2).mean()

    model = nn.Linear(8, 4)
    model.weight.register_hook(lambda gradient: gradient.clip(-0.1, 0.1))
    return train(model, loss)


def accumulated() -> dict[str, Any]:
    def loss(model: Any) -> Any:
        mean_square(model).backward()
        with paddle.no_grad():
            model.weight.grad.scale_(2.0)
        return model(data(ROWS)).exp().mean()

    return train(nn.Linear(8, 4), loss)


def saved() -> dict[str, Any]:
    def loss(model: Any) -> Any:
        with paddle.autograd.saved_tensors_hooks(lambda tensor: tensor.numpy(), paddle.to_tensor):
            return model(data(ROWS)).exp().mean()

    return train(nn.Linear(8, 4), loss)


def views() -> dict[str, Any]:
    x = data(np.arange(6).reshape(2, 3))
    flat = x.flatten()
    flat[1] = 7.0
    turned = x.transpose([1, 0])
    x[0].add_(data([1.0, 2.0, 3.0]))
    piece = paddle.concat([x, x]).split(2)[0]
    piece.scale_(0.1)
    x.detach().exp_()
    return {"x": x, "flat": flat, "turned": turned, "piece": piece, "T": x.T, "copy": copy.deepcopy(turned), "data": x.data * 1}


def derivatives() -> dict[str, Any]:
    x = data(ROWS, stop_gradient=False)
    (first,) = paddle.grad((x**3).sum(), x, create_graph=True)
    (second,) = paddle.grad((first**2).mean(), x)
    return {"first": first, "second": second}


def selections() -> dict[str, Any]:
    x = data(ROWS)
    top, places = paddle.topk(x, 2)
    pooled, where = F.max_pool2d(data(IMAGES), 2, return_mask=True)
    found = {"top": top, "places": places, "pooled": pooled, "where": where, "sorted": paddle.sort(x), "argmax": x.argmax(-1)}
    found |= {"third": paddle.kthvalue(x, 3)[0], "median": paddle.median(x), "most": paddle.cummax(x, 1)[0]}
    return found | {"unique": paddle.unique(x.round()), "picked": paddle.masked_select(x, x > 0), "positive": x[x > 0]}


def several() -> dict[str, Any]:
    x, y = data(ROWS), data(ROWS).clone()
    y[0], y[1, 2] = 0.5, x[0, 0] * 3
    found = {"power": x.abs() ** 0.37, "exp2": 2.0**x, "rest": 1 - x, "quotient": x // 0.3, "logsumexp": paddle.logsumexp(x), "set": y}
    found |= {"einsum": paddle.einsum("bij,bkj->bik", x, x), "fft": paddle.fft.fft(x).abs(), "inverse": paddle.linalg.inv(x[:, :4, :4])}
    found |= {"scatter": paddle.scatter(x, paddle.to_tensor([1]), x[:1] * 2), "norm": x.norm(), "std": x.std(), "softmax": F.softmax(x)}
    found |= {
        "pad": F.pad(data(IMAGES), [1, 1, 1, 1], mode="reflect"),
        "zoom": F.interpolate(data(IMAGES), scale_factor=2, mode="bilinear"),
    }
    found |= {"one hot": F.one_hot(paddle.to_tensor([0, 2]), 4), "gather": paddle.gather(x, paddle.to_tensor([0, 2])), "erf": paddle.erf(x)}
    return found | {"attention": F.scaled_dot_product_attention(*[x[:, :, None]] * 3), "groups": nn.GroupNorm(3, 3)(data(IMAGES))}


def sparse() -> dict[str, Any]:
    embedding = filled(nn.Embedding(7, 5, sparse=True))
    for kind, options in ((paddle.optimizer.Adam, {"lazy_mode": True}), (paddle.optimizer.SGD, {})):
        optimizer = kind(0.01, parameters=embedding.parameters(), **options)
        (embedding(paddle.to_tensor([[1, 2], [2, 3]])) ** 2).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    return {"weight": embedding.weight}


class Rows(paddle.io.Dataset):
    """Rows that are computed when they are asked for, with NumPy and with Paddle."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return {
            "row": ROWS[index % 4, 0].astype("float32").astype(paddle.get_default_dtype()),
            "twice": data(ROWS[index % 4, 1]) * 2,
            "label": index % 2,
        }


def loaded() -> dict[str, Any]:
    np.random.seed(0)  # noqa: NPY002  # what Paddle's loader draws from
    model = filled(nn.Linear(8, 2))
    losses = [
        F.cross_entropy(model(each["row"] + each["twice"]), each["label"])
        for each in paddle.io.DataLoader(Rows(), batch_size=4, shuffle=True)
    ]
    return {"losses": paddle.stack(losses)}


EXACT = (
    mlp, cnn, encoder, lstm, gru, cell, embedding, mixed, sparse, loaded, captured, captured_by_tracing, own_function, recomputed, hooked, accumulated, saved,
    views, derivatives, selections, several,
)  # fmt: skip


def optimizers() -> dict[str, Any]:
    kinds = paddle.optimizer
    found = {}
    for kind in (kinds.RMSProp, kinds.Adagrad, kinds.Adadelta, kinds.Adamax, kinds.Lamb, kinds.NAdam, kinds.RAdam, kinds.Rprop):
        found[kind.__name__] = train(nn.Linear(8, 4), mean_square, 3, lambda p, kind=kind: kind(learning_rate=0.01, parameters=p))["weight"]
    rate = kinds.lr.CosineAnnealingDecay(0.1, 10)

    def loss(model: Any) -> Any:
        rate.step()
        return mean_square(model)

    decay = paddle.regularizer.L2Decay(0.01)
    found["rate"] = train(nn.Linear(8, 4), loss, 3, lambda p: kinds.SGD(learning_rate=rate, parameters=p, weight_decay=decay))["weight"]
    return found


def draws() -> dict[str, Any]:
    paddle.seed(3)
    a, b = paddle.rand([5]), paddle.randn([5])
    found = {"a": a, "b": b, "order": paddle.randperm(5), "coins": paddle.bernoulli(a), "classes": paddle.multinomial(a, 2)}
    found |= {"dropped": F.dropout(b, 0.5), "in place": paddle.empty([3]).uniform_(), "waits": paddle.empty([3]).exponential_()}
    return found | {"slopes": F.rrelu(b), "gumbel": F.gumbel_softmax(b), "xavier": nn.Linear(3, 2).weight}


# --- real bits


@pytest.mark.parametrize("program", [*EXACT, optimizers, draws], ids=lambda each: each.__name__)
@pytest.mark.parametrize("options", [{}, {"noise": 1}, {"local": True}, {"rounding": "bfloat16", "casts": "kept"}], ids=str)
def test_no_real_bit_changes(program: Program, options: dict[str, Any]) -> None:
    """Whatever a study does, the program computes what it computes without."""
    paddle.seed(0)
    paddle.jit.enable_to_static(False)  # a graph may round otherwise; that is the subject of another test
    try:
        wanted = plain(program())
    finally:
        paddle.jit.enable_to_static(True)
    paddle.seed(0)
    real, _, study = run(program, Study(**options))
    assert same(wanted, real)
    assert study.values


def test_the_generator_is_used_once() -> None:
    """After a study the generator is where the program alone would have left it."""
    draws()
    after = paddle.rand([4]).numpy()
    run(draws, Study(noise=3))
    assert np.array_equal(after, paddle.rand([4]).numpy())


def test_a_backward_pass_of_ones_own_runs_once() -> None:
    """Python inside a backward pass is not run a second time for the shadows."""
    Cube.calls = 0
    run(own_function)
    assert Cube.calls == 2


# --- shadows


@pytest.mark.parametrize("program", [*EXACT, optimizers], ids=lambda each: each.__name__)
def test_shadows_are_those_of_a_run_in_float64(program: Program) -> None:
    """Within 1e-10 of the same program in float64: results, gradients, parameters after steps, running statistics."""
    _, shadows, study = run(program)
    assert not study.losses
    paddle.set_default_dtype("float64")
    try:
        wanted = plain(program())
    finally:
        paddle.set_default_dtype("float32")
    for name, each in shadows.items():
        if each is not None:
            np.testing.assert_allclose(each, wanted[name], rtol=1e-10, atol=1e-10 * np.max(np.abs(wanted[name]), initial=0), err_msg=name)


UNARY = {
    "tanh": paddle.tanh, "exp": lambda x: paddle.exp(x * 0.1), "square": paddle.square, "transpose": lambda x: x.transpose([1, 0]),
    "sigmoid": F.sigmoid, "softmax": F.softmax, "mean": lambda x: x - x.mean(0), "matmul": lambda x: paddle.matmul(x, x.T) @ x,
    "slice": lambda x: paddle.concat([x[:, 1:], x[:, :1]], 1), "scale": lambda x: x * 0.1 + 0.3, "norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "stack": lambda x: paddle.stack([x, x]).sum(0), "where": lambda x: paddle.where(x > 0.0, x, x * 0.2), "cumsum": lambda x: x.cumsum(1),
}  # fmt: skip


@given(st.lists(st.sampled_from(sorted(UNARY)), min_size=1, max_size=6), st.integers(0, 2**16))
@settings(max_examples=25)
def test_chains(names: list[str], seed: int) -> None:
    """Any chain of operations, forward and backward, has the shadows that NumPy's float64 input gives in float64."""
    start = np.random.RandomState(seed).randn(3, 4).astype("float32")

    def program() -> dict[str, Any]:
        x = data(start, stop_gradient=False)
        out = x
        for name in names:
            out = UNARY[name](out)
        (out * out).sum().backward()
        return {"out": out, "gradient": x.grad}

    _, shadows, study = run(program)
    paddle.set_default_dtype("float64")
    try:
        wanted = plain(program())
    finally:
        paddle.set_default_dtype("float32")
    for name, each in shadows.items():
        np.testing.assert_allclose(each, wanted[name], rtol=1e-9, atol=1e-10 * np.max(np.abs(wanted[name])) + 1e-12)
    assert not study.losses


@pytest.mark.parametrize("program", [mlp, cnn, encoder, lstm, embedding], ids=lambda each: each.__name__)
def test_noise_is_of_the_size_of_the_error(program: Program) -> None:
    """The largest of three noise runs explains the rounding error of a float32 run."""
    real, exact, _ = run(program)
    noisy = [run(program, Study(noise=seed))[1] for seed in (1, 2, 3)]
    for name, each in exact.items():
        if each is not None and each.dtype == np.float64:
            noise = max(np.abs(other[name] - each).max() for other in noisy)
            assert np.abs(real[name] - each).max() <= 100 * noise, name
            assert noise < 1e-3 * max(np.abs(each).max(), 1e-3), name


def test_local_errors() -> None:
    """A local run gives each computing operation the ratio of its own error to what noise does to it."""
    _, _, study = run(mlp, Study(local=True))
    ratios = {each.name: each.local for each in study.operations if each.local is not None}
    assert {"paddle.linear", "paddle.gelu"} <= set(ratios)
    assert all(0 < each < 100 for each in ratios.values())


def test_float64_has_nothing_above() -> None:
    """Results in float64 have a shadow that is no better than they are, and say so."""
    _, shadows, study = run(lambda: {"y": paddle.exp(paddle.to_tensor([0.1], dtype="float64")), "x": paddle.to_tensor([0.1])})
    assert "paddle has no more precision than float64" in study.losses
    assert shadows["y"] == np.exp(0.1)


def test_numbering_is_deterministic() -> None:
    """Two runs number values and operations alike."""
    one, other = run(encoder)[2], run(encoder)[2]
    assert [(each.name, [read.value.index for read in each.reads]) for each in one.operations] == [
        (each.name, [read.value.index for read in each.reads]) for each in other.operations
    ]


def test_what_an_operation_says() -> None:
    """Names, reads, options by name, source lines, steps."""

    def program() -> dict[str, Any]:
        w = paddle.create_parameter([2, 2], "float32", default_initializer=nn.initializer.Assign([[0.1, 0.2], [0.3, 0.4]]))
        optimizer = paddle.optimizer.SGD(0.1, parameters=[w])
        for _ in range(2):
            F.layer_norm(paddle.matmul(data([[1.0, 2.0]]), w), 2, epsilon=1e-4).square().sum().backward()
            optimizer.step()
            optimizer.clear_grad()
        return {"w": w}

    _, _, study = run(program)
    by_name = {each.name: each for each in study.operations}
    assert by_name["paddle.layer_norm"].options["epsilon"] == 1e-4
    assert by_name["paddle.matmul"].source.partition(":")[0].endswith("test_shadow_paddle.py")
    assert study.step == 2
    backward = by_name["paddle.matmul.grad"]
    assert backward.step == 1
    assert [each.value.shape for each in backward.reads] == [(1, 2), (2, 2), (1, 2)]
    [gradient] = backward.writes
    assert gradient in [each.value for each in by_name["paddle.sgd_"].reads]
    assert study.values[0].origin == "paddle.nn.initializer.Assign"
    assert study.values[0].shadow[0, 0] == 0.1


def test_gradients_inside_the_graph() -> None:
    """The gradient of what an operation gave is a value: of the operation that read it, or of all that did."""
    x = R.randn(3, 4).astype("float32")

    def program() -> dict[str, Any]:
        start = data(x, stop_gradient=False)
        middle = start.tanh()
        ((middle.transpose([1, 0]) * 0.1).exp().sum() + middle.square().sum()).backward()
        return {"gradient": start.grad}

    _, shadows, study = run(program)
    by_name = {each.name: each for each in study.operations}
    middle = np.tanh(x.astype("float64"))
    flowing = 0.1 * np.exp(0.1 * middle) + 2 * middle
    np.testing.assert_allclose(by_name["paddle.backward"].writes[0].shadow, flowing, rtol=1e-12)
    assert by_name["paddle.backward"].writes[0] in [each.value for each in by_name["paddle.tanh.grad"].reads]
    np.testing.assert_allclose(shadows["gradient"], flowing * (1 - middle**2), rtol=1e-12)


def test_gradients_of_a_function_of_ones_own() -> None:
    """The backward pass of a `PyLayer` reads the gradient that arrived, operation by operation."""
    study = run(own_function)[2]
    names = [each.name for each in study.operations]
    assert "paddle.PyLayer.Cube.grad" in names
    arrived = next(each for each in study.operations if each.name in {"paddle.mean.grad", "paddle.mean_all.grad"})
    [reader] = [
        each for each in study.operations if any(read.value is arrived.writes[0] for read in each.reads) and each.name == "paddle.multiply"
    ]
    assert reader.index > arrived.index


def test_views_are_read_through() -> None:
    """What is read through a view is the value that was written, with the elements as they were read."""

    def program() -> dict[str, Any]:
        x = data([[1.0, 2.0], [3.0, 4.0]]) * 2
        return {"y": x.transpose([1, 0]) * 3}

    study = run(program)[2]
    [read] = study.operations[-1].reads
    assert read.value is study.operations[0].writes[0]
    assert np.array_equal(read.view, [[2, 6], [4, 8]])


# --- experiments


def three() -> dict[str, Any]:
    x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
    w = paddle.to_tensor([[0.1, 0.2], [0.3, 0.4]], stop_gradient=False)
    y = paddle.matmul(x, w)
    z = F.leaky_relu(y - 1, 0.25)
    (z * x).sum().backward()
    return {"y": y, "z": z, "gradient": w.grad}


def test_amendments() -> None:
    """Another shadow for a leaf or a result: what follows, gradients too, follows it, and nothing real does."""
    wanted, exact, study = run(three)
    turned = run(three, Study(amendments={0: np.transpose}))
    assert same(wanted, turned[0])
    np.testing.assert_allclose(turned[1]["y"], np.array([[1, 3], [2, 4]]) @ [[0.1, 0.2], [0.3, 0.4]])
    product = study.operations[0].writes[0].index
    doubled = run(three, Study(amendments={product: lambda each: each * 2}))
    assert same(wanted, doubled[0])
    np.testing.assert_allclose(doubled[1]["y"], exact["y"] * 2)
    np.testing.assert_allclose(doubled[1]["gradient"], _gradient(np.asarray(exact["y"]) * 2))


def _gradient(y: Any) -> Any:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    return x.T @ (x * np.where(y > 1, 1, 0.25))


def test_alterations() -> None:
    """Another option for the shadow of one operation, by name; nothing real changes."""
    wanted, _, study = run(three)
    [place] = [each.index for each in study.operations if each.name == "paddle.leaky_relu"]
    real, shadows, _ = run(three, Study(alterations={place: {"negative_slope": 0.5}}))
    assert same(wanted, real)
    y = shadows["y"] - 1
    np.testing.assert_allclose(shadows["z"], np.where(y > 0, y, 0.5 * y))


def test_rounded_contractions() -> None:
    """Inputs of products are rounded, in the shadow only."""
    x = R.randn(4, 64)
    exact = run(lambda: {"y": paddle.matmul(data(x), data(x), transpose_y=True)})[1]["y"]
    rounded = run(lambda: {"y": paddle.matmul(data(x), data(x), transpose_y=True)}, Study(rounding="bfloat16"))[1]["y"]
    assert 1e-4 < np.abs(rounded - exact).max() / np.abs(exact).max() < 1e-1


def test_rounded_contractions_in_the_backward_pass() -> None:
    """The products that make gradients read rounded gradients, and rounded inputs."""
    x, w, scale = R.randn(4, 8), R.randn(8, 3), R.randn(4, 3)

    def program() -> dict[str, Any]:
        weight = data(w, stop_gradient=False)
        (paddle.matmul(data(x), weight) * data(scale)).sum().backward()
        return {"gradient": weight.grad}

    _, shadows, _ = run(program, Study(rounding="bfloat16"))
    wanted = round_to(x.astype("float32"), "bfloat16").T @ round_to(scale.astype("float32"), "bfloat16")
    np.testing.assert_allclose(shadows["gradient"], wanted, rtol=1e-12, atol=1e-12)


def test_casts_are_free_or_kept() -> None:
    """A cast passes the shadow, or rounds it."""
    program = lambda: {"y": paddle.to_tensor([0.1]).astype("float16").astype("float32")}  # noqa: E731
    assert run(program)[1]["y"] == 0.1
    assert run(program, Study(casts="kept"))[1]["y"] == np.float16(0.1)


def test_frozen_and_replayed_draws() -> None:
    """Frozen: equal draws wherever they are called. Replayed: another run's states."""

    def program(seed: int) -> Program:
        def draw() -> dict[str, Any]:
            paddle.seed(seed)
            return {"a": paddle.rand([3]), "dropped": F.dropout(paddle.ones([64])), "b": paddle.rand([3])}

        return draw

    frozen, _, _ = run(program(1), Study(draws="frozen"))
    assert np.array_equal(frozen["a"], frozen["b"])
    assert same(frozen, run(program(2), Study(draws="frozen"))[0])
    wanted, _, study = run(program(1))
    states = dict(enumerate(each.state for each in study.operations if each.random))
    assert not same(wanted, plain(program(2)()))
    assert same(wanted, run(program(2), Study(draws="replay", states=states))[0])


def test_dropout_by_another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where float64 draws otherwise, the shadow is masked as the program's was, and its history is kept."""
    monkeypatch.setattr("detconf.frameworks.paddle.mirror._same_draws", lambda *_: False)

    def program() -> dict[str, Any]:
        x = paddle.to_tensor([0.1] * 64, stop_gradient=False)
        y = F.dropout(x * 3, 0.25)
        y.sum().backward()
        return {"y": y, "gradient": x.grad}

    real, shadows, study = run(program)
    np.testing.assert_allclose(shadows["y"], np.where(real["y"] != 0, 0.1 * 3 / 0.75, 0), rtol=1e-15)
    np.testing.assert_allclose(shadows["gradient"], np.where(real["y"] != 0, 3 / 0.75, 0), rtol=1e-15)
    assert not study.losses


def test_dropout_that_is_off_draws_nothing() -> None:
    """In evaluation dropout is no random operation."""
    study = run(lambda: {"y": F.dropout(data([1.0, 2.0]), 0.5, training=False)})[2]
    assert not study.drawn
    assert not any(each.random for each in study.operations)


# --- edges


def test_to_numpy_and_back() -> None:
    """The shadow leaves with `numpy()` and comes back with `to_tensor`, `set_value`, `assign` and parameters."""

    def program() -> dict[str, Any]:
        x = paddle.to_tensor([0.1, 0.2]) * 3
        array = x.numpy()
        fixed = paddle.zeros([2])
        fixed.set_value(array)
        parameter = paddle.create_parameter([2], "float32", default_initializer=nn.initializer.Assign(array))
        made = paddle.base.framework.EagerParamBase.from_tensor(x)
        return {
            "made": made,
            "array": array,
            "back": paddle.to_tensor(array),
            "fixed": fixed,
            "assigned": paddle.assign(array),
            "parameter": parameter,
        }

    with followed() as (study, _):
        found = {name: study.known(each) for name, each in program().items()}
    for name, each in found.items():
        np.testing.assert_array_equal(each.shadow, np.array([0.1, 0.2]) * 3, err_msg=name)
        assert each.value is study.operations[0].writes[0], name


def test_through_numpy_and_torch() -> None:
    """With all engines: the shadow of a torch tensor comes along to Paddle and back, and is what float64 gives."""
    torch = pytest.importorskip("torch")
    from detconf.frameworks.numpy import shadow as numpy_shadow
    from detconf.frameworks.torch import shadow as torch_shadow

    x = R.randn(3, 4).astype("float32")
    study = Study()
    with ExitStack() as stack:
        for module in (numpy_shadow, torch_shadow, shadow):
            study.engines.append(module.start(study))
            stack.callback(study.engines[-1].end)
        first = torch.tanh(torch.from_numpy(x))
        second = paddle.exp(paddle.to_tensor((first * 3).numpy() + 1))
        third = torch.from_numpy(second.numpy()) * 2
        found = [study.known(each) for each in (second, third, np.asarray(second), paddle.to_tensor(third.numpy()))]
    wanted = np.exp(np.tanh(x.astype("float64")) * 3 + 1)
    for known, factor in zip(found, (1, 2, 1, 2), strict=True):
        assert known is not None
        np.testing.assert_allclose(np.asarray(known.shadow, "float64"), wanted * factor, rtol=1e-13)


def test_numbers() -> None:
    """`item`, `float` and `tolist` give floats that are known when they come back; literals are exact."""

    def program() -> dict[str, Any]:
        x = paddle.to_tensor([0.1, 0.2]) * 3
        item = x[0].item()
        assert isinstance(item, Number)
        there = [
            paddle.to_tensor(float(x[0])),
            paddle.to_tensor([item, 0.7]),
            paddle.to_tensor(x.tolist()),
            x * item,
            paddle.full([1], item),
        ]
        return dict(enumerate(there))  # type: ignore[arg-type]

    _, found, _ = run(program)
    for name, wanted in enumerate((0.1 * 3, [0.1 * 3, 0.7], [0.1 * 3, 0.2 * 3], [(0.1 * 3) ** 2, 0.1 * 0.2 * 9], [0.1 * 3])):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-15)  # type: ignore[index]


def test_written_behind_the_back() -> None:
    """Memory that was written without Paddle's operations is a new leaf, not a stale shadow."""

    def program() -> dict[str, Any]:
        x = paddle.to_tensor([1.0, 2.0])
        x.get_tensor().set(np.array([5.0, 6.0], "float32"), paddle.CPUPlace())
        return {"y": x * 2}

    _, shadows, study = run(program)
    assert np.array_equal(shadows["y"], [10.0, 12.0])
    assert study.values[1].origin == "written outside paddle's operations"


def test_an_operation_that_fails_on_shadows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result is what the program got; its shadow is that, and it says that it was lost."""
    monkeypatch.setattr(apart, "RAISES", False)
    monkeypatch.setattr("detconf.frameworks.paddle.mirror.Mirror._outputs", lambda *_: 1 / 0)
    real, shadows, study = run(lambda: {"y": paddle.to_tensor([0.1]) * 3})
    assert np.array_equal(real["y"], shadows["y"].astype("float32"))
    assert study.losses == ["paddle could not follow multiply: ZeroDivisionError"]
    assert study.values[-1].lost


def test_static_programs_are_lost(tmp_path: Any) -> None:
    """What an executor or a loaded graph gives is a leaf without a faithful shadow; saving works."""

    def program() -> dict[str, Any]:
        paddle.enable_static()
        try:
            main = paddle.static.Program()
            with paddle.static.program_guard(main):
                out = paddle.exp(paddle.static.data("x", [2, 3]))
            [y] = paddle.static.Executor().run(main, feed={"x": np.ones((2, 3), "float32")}, fetch_list=[out])
        finally:
            paddle.disable_static()
        layer = paddle.jit.to_static(filled(nn.Linear(3, 2)))
        paddle.jit.save(layer, str(tmp_path / "model"), input_spec=[paddle.static.InputSpec([None, 3])])
        return {"y": y, "z": paddle.jit.load(str(tmp_path / "model"))(paddle.ones([2, 3]))}

    with followed() as (study, _):
        found = {name: study.known(each) for name, each in program().items()}
    assert {each.value.lost for each in found.values()} == {"a static program was run"}


# --- what is left behind


def _state() -> list[Any]:
    held = [
        (name, key, id(each))
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] == "paddle"
        for key, each in sorted(vars(module).items())
        if callable(each)
    ]
    kinds = (
        sys.modules["paddle.jit.dy2static.program_translator"].StaticFunction,
        paddle.Tensor,
        paddle.autograd.PyLayer,
        paddle.autograd.py_layer.PyLayerBackward,
        paddle.static.Executor,
        *_initializers(),
    )
    return held + [(kind.__name__, key, id(each)) for kind in kinds for key, each in sorted(vars(kind).items())]


def _initializers() -> tuple[type, ...]:
    return paddle.nn.initializer.Assign.__mro__[:-1]


def test_everything_is_put_back() -> None:
    """References, methods, properties, the tracer, also after an error of the program."""
    run(mlp)  # what is imported late is there now
    before = _state()
    for program in (views, draws, selections):
        run(program)
    with pytest.raises(ZeroDivisionError):
        run(lambda: 1 / 0)  # type: ignore[return-value, arg-type]
    assert _state() == before
    assert paddle.base.framework._dygraph_tracer()._has_grad


def test_names_are_not_used_up() -> None:
    """Parameters and tensors have the names that they have without a study."""

    def program() -> list[str]:
        with paddle.utils.unique_name.guard():
            model = filled(nn.Linear(2, 2))
            mean = model(data([[1.0, 2.0]])).mean()
            mean.backward()
            return [model.weight.name, paddle.utils.unique_name.generate("x"), copy.deepcopy(model).weight.name]

    def number() -> int:
        return int(paddle.to_tensor([1.0]).name.rpartition("_")[2])

    start = number()
    wanted = program()
    middle = number()
    with followed():
        assert program() == wanted
    assert number() - middle == middle - start


def test_two_studies_in_a_row() -> None:
    """Nothing of one study is found by the next."""
    x = paddle.to_tensor([0.1])
    with followed() as (study, _):
        _ = x * 2
    with followed() as (other, engine):
        _ = x * 3
        assert engine.known(x).value is other.values[0]
    assert study.values[0] is not other.values[0]
