"""The shadow engine of PyTorch: the program keeps its bits, and its shadow is what float64 would have given."""

from __future__ import annotations

import copy
import io
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import library as registry
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F  # noqa: N812  # as everybody calls it
from torch.optim import optimizer
from torch.utils.data import DataLoader, Dataset, dataloader

from detconf.frameworks.numpy import shadow as numpy_shadow
from detconf.frameworks.torch import shadow
from detconf.shadows.study import Study

Outputs = Mapping[str, Any]
Program = Callable[[], Outputs]


NET = torch.nn.Linear(2, 2)


def follow(program: Program, **options: Any) -> tuple[dict[str, Any], dict[str, Any], Study]:
    """(outputs, their shadows, the study)."""
    study = Study(**options)
    engine = shadow.start(study)
    study.engines.append(engine)
    engine.adopt([program])
    try:
        outputs = dict(program())
        known = {name: engine.known(each) for name, each in outputs.items()}
    finally:
        engine.end()
    return outputs, {name: None if each is None else each.shadow for name, each in known.items()}, study


def bits(tensor: Any) -> bytes:
    """dtype and bytes."""
    if not isinstance(tensor, torch.Tensor):
        return repr(tensor).encode()
    return str(tensor.dtype).encode() + bytes(tensor.detach().resolve_conj().contiguous().view(-1).view(torch.uint8).tolist())


def distance(one: Any, other: Any) -> float:
    """Largest difference in units of the largest element."""
    one, other = np.asarray(one), np.asarray(other)
    assert one.shape == other.shape
    return float(np.abs(one - other).max(initial=0.0) / (np.abs(other).max(initial=0.0) or 1.0))


def _train(net: Any, descent: Any, batches: Any, loss_of: Callable[[Any, Any], Any]) -> dict[str, Any]:
    losses = []
    for inputs, targets in batches:
        descent.zero_grad()
        loss = loss_of(net(inputs), targets)
        loss.backward()
        descent.step()
        losses.append(loss.detach())
    named = {name: each.detach() for name, each in (*net.named_parameters(), *net.named_buffers())}
    return {"losses": torch.stack(losses), **named, "state": torch.get_rng_state()}


def mlp(kind: Any = torch.optim.Adam, **options: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    data = [(torch.randn(8, 6), torch.randint(0, 3, (8,)))] * 5
    return _train(net, kind(net.parameters(), lr=1e-2, **options), data, F.cross_entropy)


def transformer() -> dict[str, Any]:
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    data = [(torch.randn(3, 5, 8), torch.randn(3, 5, 8))] * 2
    return _train(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), data, F.mse_loss)


def cnn() -> dict[str, Any]:
    torch.manual_seed(2)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(36, 3),
    )
    data = [(torch.randn(4, 2, 6, 6), torch.randint(0, 3, (4,)))] * 3
    found = _train(net, torch.optim.SGD(net.parameters(), lr=0.1), data, F.cross_entropy)
    net.eval()
    with torch.no_grad():
        found["eval"] = net(torch.ones(1, 2, 6, 6))
    with torch.inference_mode():
        found["inference"] = net(torch.ones(1, 2, 6, 6)).clone()
    return found


def recurrent(kind: str) -> dict[str, Any]:
    torch.manual_seed(3)
    net = getattr(torch.nn, kind)(4, 5, num_layers=2, batch_first=True, bidirectional=True)
    inputs = torch.randn(3, 6, 4, requires_grad=True)
    outputs, _ = net(inputs)
    outputs.square().mean().backward()
    return {"outputs": outputs, "inputs": inputs.grad, **{name: each.grad for name, each in net.named_parameters()}}


def embedding() -> dict[str, Any]:
    torch.manual_seed(4)
    net = torch.nn.Sequential(torch.nn.Embedding(7, 4, padding_idx=0), torch.nn.Linear(4, 2))
    net(torch.tensor([[1, 2, 0], [3, 3, 6]])).exp().mean().backward()
    return {name: each.grad for name, each in net.named_parameters()}


def autocast() -> dict[str, Any]:
    torch.manual_seed(5)
    net = torch.nn.Linear(8, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(torch.randn(3, 8)).square().mean()
    loss.backward()
    return {"loss": loss, "grad": net.weight.grad}


def fourier() -> dict[str, Any]:
    found = torch.fft.rfft(torch.linspace(0, 1, 8).sin())
    return {
        "spectrum": found,
        "conj": found.conj() * 2,
        "imag": found.conj().imag + 1,
        "power": (found * found.conj()).real,
        "real": torch.view_as_real(found) * 2,
    }


def sparse() -> dict[str, Any]:
    matrix = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0]), (2, 2))
    return {"product": torch.sparse.mm(matrix, torch.ones(2, 3)), "dense": matrix.to_dense() * 2}


def views() -> dict[str, Any]:
    base = torch.linspace(0, 1, 12).reshape(3, 4)
    base.t()[1].mul_(3.0).add_(0.1)
    base[1:, ::2] = base[:2, 1::2].exp()
    rows = base.unbind(0)
    rows[0].copy_(rows[2])
    flat = torch.empty(4)
    torch.mul(rows[0], 0.3, out=flat)
    base[:, 0] -= flat[:3]
    base.as_strided((2, 2), (5, 1), 1).div_(7)
    return {"base": base, "flat": flat, "column": base[:, 1]}


class _Numbers(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> Any:
        return torch.tensor([float(place), torch.rand(()).item()]), np.float32(place) / 3


def loader(workers: int) -> dict[str, Any]:
    torch.manual_seed(6)
    batches = list(DataLoader(_Numbers(), batch_size=4, num_workers=workers))
    return {"first": torch.cat([each for each, _ in batches]) * 0.1, "second": torch.cat([each for _, each in batches])}


def traced() -> dict[str, Any]:
    def function(x: Any) -> Any:
        return (x * 0.1 + 1).sin() / (x.sum() + 2)

    inputs = torch.linspace(0, 1, 5)
    return {"traced": torch.jit.trace(function, inputs)(inputs), "scripted": torch.jit.script(_scripted)(inputs)}


def _scripted(x: torch.Tensor) -> torch.Tensor:
    y = x * torch.tensor(0.3)
    if float(y.sum()) > 0.1:
        y = y.exp() * math.exp(0.7)
    return y


def transforms() -> dict[str, Any]:
    def loss(w: Any, x: Any) -> Any:
        return (x @ w).tanh().sum()

    w, x = torch.linspace(-1, 1, 4), torch.linspace(0, 1, 12).reshape(3, 4)
    grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x)
    leaf = w.clone().requires_grad_()
    (first,) = torch.autograd.grad((leaf**3 * x[0]).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.sin().sum(), leaf)
    _, tangent = torch.func.jvp(lambda each: each.exp().sum(), (w,), (torch.ones(4),))
    return {"grads": grads, "second": second, "tangent": tangent, "hessian": torch.func.hessian(lambda each: each.pow(3).sum())(w)}


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


def custom() -> dict[str, Any]:
    x = torch.linspace(0, 1, 6, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda each: _Cube.apply(each * 0.3).exp(), x, use_reentrant=False)
    y.sum().backward()
    return {"y": y, "grad": x.grad}


def captured() -> dict[str, Any]:
    torch.manual_seed(8)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    frozen = torch.jit.freeze(torch.jit.trace(net, x))
    return {
        "exported": torch.export.export(net, (x,)).module()(x),
        "frozen": frozen(x),
        "made": make_fx(lambda each: net(each) * 2)(x)(x),
        "cond": torch.cond(x.sum() > 9, torch.sin, torch.cos, (x * 0.3,)),
    }


def fast_path() -> dict[str, Any]:
    torch.manual_seed(9)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 2).eval()
    with torch.no_grad():
        return {"y": net(torch.randn(2, 3, 4), src_key_padding_mask=torch.tensor([[False, False, True], [False, False, False]]))}


def scaled() -> dict[str, Any]:
    torch.manual_seed(10)
    net = torch.nn.Linear(4, 2)
    descent, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    for _ in range(2):
        descent.zero_grad()
        scaler.scale(net(torch.ones(3, 4)).square().mean()).backward()
        scaler.step(descent)
        scaler.update()
    return {"w": net.weight.detach()}


def scheduled() -> dict[str, Any]:
    torch.manual_seed(11)
    net = torch.nn.Linear(4, 2)
    descent = torch.optim.Adam(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(descent, patience=0)
    for _ in range(4):
        descent.zero_grad()
        loss = net(torch.ones(3, 4)).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        descent.step()
        schedule.step(loss.item())
    return {"w": net.weight.detach()}


def packed() -> dict[str, Any]:
    torch.manual_seed(12)
    net = torch.nn.LSTM(4, 3, batch_first=True)
    lengths = torch.tensor([3, 2])
    inputs = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(2, 3, 4), lengths, batch_first=True)
    outputs, _ = torch.nn.utils.rnn.pad_packed_sequence(net(inputs)[0], batch_first=True)
    outputs.sum().backward()
    return {"y": outputs, "grad": net.weight_ih_l0.grad}


def state() -> dict[str, Any]:
    torch.manual_seed(7)
    net = torch.nn.Linear(3, 3)
    net(torch.ones(2, 3)).sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    other = torch.nn.Linear(3, 3)
    other.load_state_dict(copy.deepcopy(net.state_dict()))
    other.bias.data = other.bias.data * 0.1
    twin = copy.deepcopy(other)
    return {"y": twin(torch.ones(2, 3)), "bias": other.bias.detach()}


def conjugated() -> dict[str, Any]:
    """What conjugates lazily inside itself, forward and backward."""
    generator = torch.Generator().manual_seed(7)
    tall = torch.randn(6, 4, dtype=torch.complex64, generator=generator).requires_grad_()
    inverse = torch.linalg.pinv(tall)
    inverse.abs().sum().backward()
    imaginary = torch.linalg.pinv(tall.detach().conj().imag)
    return {
        "inverse": inverse.detach(),
        "gradient": tall.grad,
        "imaginary": imaginary,
        "product": (tall.detach().mH * 2) @ tall.detach().conj(),
    }


PROGRAMS: dict[str, Program] = {
    "mlp": mlp,
    "adamw single": lambda: mlp(torch.optim.AdamW, foreach=False),
    "adamw foreach": lambda: mlp(torch.optim.AdamW, foreach=True),
    "adamw fused": lambda: mlp(torch.optim.AdamW, fused=True),
    "sgd": lambda: mlp(torch.optim.SGD, momentum=0.9, weight_decay=0.1, nesterov=True),
    "transformer": transformer,
    "cnn": cnn,
    "lstm": lambda: recurrent("LSTM"),
    "gru": lambda: recurrent("GRU"),
    "rnn": lambda: recurrent("RNN"),
    "embedding": embedding,
    "autocast": autocast,
    "fourier": fourier,
    "conjugated": conjugated,
    "sparse": sparse,
    "views": views,
    "loader": lambda: loader(0),
    "traced": traced,
    "transforms": transforms,
    "custom": custom,
    "state": state,
    "captured": captured,
    "fast path": fast_path,
    "scaled": scaled,
    "scheduled": scheduled,
    "packed": packed,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("options", [{}, {"noise": 3}, {"local": True, "keep_real": True}, {"casts": "kept", "rounding": "tf32"}], ids=str)
def test_the_program_keeps_its_bits(name: str, options: dict[str, Any]) -> None:
    """Outputs and generators are the same with a study, whatever kind it is."""
    plain = PROGRAMS[name]()
    outputs, _, _ = follow(PROGRAMS[name], **options)
    assert {key: bits(each) for key, each in plain.items()} == {key: bits(each) for key, each in outputs.items()}


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "sparse"])
def test_nothing_is_lost(name: str) -> None:
    """All of these have faithful shadows, near the real results and not equal to them."""
    outputs, shadows, study = follow(PROGRAMS[name])
    assert not study.losses
    for key, each in outputs.items():
        if isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex()):
            assert distance(shadows[key], each.detach().to(torch.complex128 if each.is_complex() else torch.float64)) < (
                2e-2 if name == "autocast" else 1e-4
            ), key
    exact = all(distance(shadows[key], each.detach().double()) == 0 for key, each in outputs.items() if each.is_floating_point())
    assert not exact


def in_double(program: Program) -> dict[str, Any]:
    """The same program with float64 as its default."""
    torch.set_default_dtype(torch.float64)
    try:
        return dict(program())
    finally:
        torch.set_default_dtype(torch.float32)


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "mul": lambda x, y: x * y,
    "add": lambda x, y: x + 0.1 * y,
    "sub": lambda x, y: torch.sub(x, y, alpha=0.3),
    "div": lambda x, y: x / (y * y + 1.7),
    "matmul": lambda x, y: x @ y.t() / 3,
    "exp": lambda x, _: (x * 0.1).exp(),
    "tanh": lambda x, _: torch.tanh(x),
    "sum": lambda x, _: x - x.sum(0, keepdim=True) * 0.2,
    "mean": lambda x, _: x * x.mean(),
    "std": lambda x, _: x / (x.std() + 0.3),
    "softmax": lambda x, _: torch.softmax(x, 1),
    "logsumexp": lambda x, _: x - torch.logsumexp(x, 1, keepdim=True),
    "layer_norm": lambda x, _: F.layer_norm(x, (4,), eps=1e-3),
    "gelu": lambda x, _: F.gelu(x, approximate="tanh"),
    "getitem": lambda x, _: x[[3, 1, 2, 0]],
    "transpose": lambda x, _: x.t(),
    "reshape": lambda x, _: x.reshape(2, 8).flip(1).reshape(4, 4),
    "cat": lambda x, y: torch.cat([x[:2], y[1:3]]),
    "stack": lambda x, y: torch.stack([x, y])[1] + x,
    "where": lambda x, y: torch.where(torch.arange(4) > 1, x, y * 0.7),
    "item": lambda x, y: x * (x[0, 0].item() * 0.3 + 1) + math.exp(-abs(y[1, 1].item())),
    "list": lambda x, y: x + torch.tensor(y[0].tolist()),
    "linspace": lambda x, _: x + torch.linspace(0, 1, 4) + torch.arange(4) / 7 + torch.full((4,), 0.3),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y) * 0.3,
    "chosen": lambda x, y: torch.where(y > 0, 0.3, x) + F.pad(x, (1, 0), value=0.1)[:, :4],
    "cumsum": lambda x, _: x.cumsum(1) * 0.5,
    "norm": lambda x, _: x / torch.linalg.vector_norm(x + 2),
    "in place": lambda x, y: x.clone().add_(y, alpha=0.1).mul_(0.9),
}
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "row": lambda x, y: x[1].copy_(y[2]),
    "column": lambda x, _: x.t()[2].mul_(0.3),
    "setitem": lambda x, y: x.__setitem__((slice(None), [0, 2]), y[:, :2] * 0.7),
    "literal": lambda x, _: x.__setitem__(0, 0.3),
    "literals": lambda x, y: x.__setitem__(y > 0, 0.7),
    "number": lambda x, y: x.__setitem__((1, 1), y.sum().item() * 0.3 + 0.1),
    "aliased": lambda x, _: torch.mul(x, 0.3, out=x),
    "masked": lambda x, _: x.masked_fill_(torch.eye(4, dtype=torch.bool), 0.1),
    "out": lambda x, y: torch.add(y, 0.7, out=x),
    "scatter": lambda x, y: x.scatter_add_(0, torch.tensor([[0, 1, 2, 3]] * 4), y),
}


def chain(steps: list[str], writes: list[str]) -> dict[str, Any]:
    torch.manual_seed(0)
    dtype = torch.get_default_dtype()
    start = (torch.arange(16).reshape(4, 4) % 7 - 3).to(dtype) / 4
    x, y = start.clone().requires_grad_(), start.flip(0).contiguous()
    out = x
    for step in steps:
        out = STEPS[step](out, y)
    held = out.detach().clone()
    for write in writes:
        WRITES[write](held, y)
    loss = (out * out).sum()
    (grad,) = torch.autograd.grad(loss, x)
    return {"out": out, "held": held, "grad": grad}


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6), st.lists(st.sampled_from(sorted(WRITES)), max_size=3))
@hypothesis_settings(max_examples=60)
def test_a_shadow_is_what_float64_gives(steps: list[str], writes: list[str]) -> None:
    """The shadow of a float32 program with exact inputs is the program in float64; its bits stay."""
    plain = chain(steps, writes)
    outputs, shadows, study = follow(lambda: chain(steps, writes))
    assert not study.losses
    truth = in_double(lambda: chain(steps, writes))
    for name, each in truth.items():
        assert bits(plain[name]) == bits(outputs[name])
        assert distance(shadows[name], each.detach()) < 1e-12


@pytest.mark.parametrize("name", ["mlp", "adamw foreach", "adamw fused", "transformer", "cnn", "lstm", "gru", "fourier", "transforms"])
def test_noise_is_as_large_as_rounding(name: str) -> None:
    """What noise does to the shadow is of the size of what rounding did to the real results."""
    outputs, exact, _ = follow(PROGRAMS[name])
    noisy = [follow(PROGRAMS[name], noise=seed)[1] for seed in range(3)]
    assert not all(np.array_equal(noisy[0][key], noisy[1][key]) for key in exact)
    for key, each in outputs.items():
        if each.is_floating_point() or each.is_complex():
            own = distance(each.detach().to(torch.complex128 if each.is_complex() else torch.float64), exact[key])
            bound = max(distance(other[key], exact[key]) for other in noisy)
            if own:
                assert 0.02 < own / bound < 50, (key, own, bound)


def test_numbers_are_the_same_in_each_run() -> None:
    """Operations, values and shadows are numbered alike in two runs, and in a noise run."""
    runs = [follow(transformer, **options)[2] for options in ({}, {}, {"noise": 1}, {"local": True})]
    told = [
        [(each.name, [read.value.index for read in each.reads], [value.index for value in each.writes]) for each in run.operations]
        for run in runs
    ]
    assert told[0] == told[1] == told[2] == told[3]
    assert [each.shape for each in runs[0].values] == [each.shape for each in runs[3].values]


def _casting() -> dict[str, Any]:
    x = torch.tensor([1 / 3, 2 / 3])
    half = x.to(torch.bfloat16)
    held = torch.zeros(2, dtype=torch.float16)
    held.copy_(x)
    return {"half": half, "back": half.float() * 1, "held": held, "plain": x}


def test_casts() -> None:
    """Casts pass a shadow as it is, or round it; literals are exact."""
    outputs, free, _ = follow(_casting)
    _, kept, _ = follow(_casting, casts="kept")
    exact = np.array([1 / 3, 2 / 3])
    assert all(np.array_equal(each, exact) for each in free.values())
    assert np.array_equal(kept["half"], outputs["half"].double())
    assert np.array_equal(kept["back"], outputs["half"].double())
    assert np.array_equal(kept["held"], outputs["held"].double())
    assert np.array_equal(kept["plain"], exact)


def test_a_cast_to_float32_rounds_by_itself() -> None:
    """Where float64 becomes float32, noise is as large as that rounding."""

    def program() -> dict[str, Any]:
        return {"y": torch.linspace(0, 1, 50, dtype=torch.float64).sin().float()}

    outputs, exact, _ = follow(program)
    bound = distance(follow(program, noise=1)[1]["y"], exact["y"])
    assert 0.1 < distance(outputs["y"].double(), exact["y"]) / bound < 10


def _drawing() -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.ones(64)
    own = torch.Generator().manual_seed(3)
    return {
        "first": F.dropout(x, 0.5),
        "second": F.dropout(x, 0.5),
        "order": torch.randperm(9),
        "again": torch.randperm(9),
        "normal": torch.randn(3),
        "own": torch.randn(3, generator=own),
        "other": torch.randn(3, generator=own),
    }


def test_frozen_draws() -> None:
    """With frozen draws an operation draws the same whenever it is called."""
    outputs, _, _ = follow(_drawing, draws="frozen")
    assert torch.equal(outputs["first"], outputs["second"])
    assert torch.equal(outputs["order"], outputs["again"])
    assert torch.equal(outputs["normal"], outputs["own"])
    assert torch.equal(outputs["own"], outputs["other"])


def test_draws_are_replayed() -> None:
    """The states that a run noted give another run the same draws, though it was seeded otherwise."""
    outputs, _, study = follow(_drawing)
    noted = [each.state for each in study.operations if each.random]
    assert study.drawn == len(noted) == 7

    def otherwise() -> dict[str, Any]:
        found = torch.manual_seed
        torch.manual_seed = lambda _: found(99)
        try:
            return _drawing()
        finally:
            torch.manual_seed = found

    assert not torch.equal(otherwise()["first"], outputs["first"])
    again, _, _ = follow(otherwise, draws="replay", states=dict(enumerate(noted)))
    assert {key: bits(each) for key, each in outputs.items()} == {key: bits(each) for key, each in again.items()}


def test_draws_keep_their_history() -> None:
    """What is drawn is exact, and the shadow of what it is applied to goes on."""

    def program() -> dict[str, Any]:
        torch.manual_seed(0)
        x = torch.tensor([0.1] * 8)
        return {"kept": F.dropout(x, 0.25), "native": torch.native_dropout(x, 0.25, True)[0], "drawn": torch.randn(3)}

    outputs, shadows, _ = follow(program)
    for name in ("kept", "native"):
        mask = outputs[name].numpy() != 0
        assert distance(shadows[name], mask * (0.1 / 0.75)) < 1e-15
    assert np.array_equal(shadows["drawn"], outputs["drawn"].double())


def _layered() -> dict[str, Any]:
    x = torch.tensor([[0.1, 0.4, -0.3, 0.9]])
    return {"y": F.layer_norm(x * 0.3, (4,), eps=1e-2) * 2}


def test_amendments_and_alterations_change_the_shadow_only() -> None:
    """An amended value, an amended leaf, another option: the shadow follows, the program does not notice."""
    outputs, exact, study = follow(_layered)
    [norm] = [each for each in study.operations if each.name == "aten.native_layer_norm"]
    [leaf] = [each for each in study.values if each.maker < 0]
    assert norm.options["eps"] == 1e-2
    assert leaf.origin == "torch.tensor"
    found = {
        "altered": follow(_layered, alterations={norm.index: {"eps": 0.3}}),
        "amended": follow(_layered, amendments={norm.reads[0].value.index: lambda each: each[:, ::-1]}),
        "leaf": follow(_layered, amendments={leaf.index: lambda each: each[:, ::-1]}),
    }
    x = np.array([[0.1, 0.4, -0.3, 0.9]]) * 0.3
    assert distance(found["altered"][1]["y"], (x - x.mean()) / np.sqrt(x.var() + 0.3) * 2) < 1e-14
    for name in ("amended", "leaf"):
        assert distance(found[name][1]["y"], exact["y"][:, ::-1]) < 1e-14
    assert all(bits(each[0]["y"]) == bits(outputs["y"]) for each in found.values())


def test_a_write_to_a_part_can_be_amended() -> None:
    """The amended part of a tensor is what the rest of the program reads."""

    def program() -> dict[str, Any]:
        x = torch.zeros(3)
        x[1] = torch.ones(()) * 2
        return {"x": x, "y": x * 3}

    _, _, study = follow(program)
    [write] = [each for each in study.operations if each.name == "aten.copy_"]
    _, shadows, _ = follow(program, amendments={write.writes[0].index: lambda each: each * 5})
    assert shadows["y"].tolist() == [0, 30, 0]


def test_rounding_of_products() -> None:
    """The inputs of products are rounded in the shadow, as a tensor core would."""
    torch.manual_seed(0)
    x, w = torch.randn(4, 32), torch.randn(8, 32)

    def program() -> dict[str, Any]:
        return {"y": F.linear(x, w)}

    outputs, exact, _ = follow(program)
    again, rounded, _ = follow(program, rounding="tf32")
    assert bits(outputs["y"]) == bits(again["y"])
    assert 1e-6 < distance(rounded["y"], exact["y"]) < 1e-2
    cut = [(each.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32).double() for each in (x, w)]
    assert distance(rounded["y"], cut[0] @ cut[1].t()) < 1e-12


def test_local_errors() -> None:
    """An operation's own error is small in a sound one, and large in one that has less precision than its dtype says."""

    def program() -> dict[str, Any]:
        torch.manual_seed(0)
        y = torch.randn(16, 64) @ torch.randn(64, 16)
        return {"y": y.to(torch.bfloat16).float() @ y.exp().to(torch.bfloat16).float(), "z": torch.cat([y, y])}

    _, _, study = follow(program, local=True)
    found = {each.name: each.local for each in study.operations}
    assert found["aten.mm"] is not None
    assert 0 < found["aten.mm"] < 20
    assert found["aten.cat"] is None


def test_everything_is_put_back() -> None:
    """Attributes are the same objects as before, and nothing hangs on a tensor."""
    torch.compile(lambda each: each, backend="eager")  # imports Dynamo, which replaces functions of torch for good
    owners = [torch, torch.Tensor, math, threading.Thread, DataLoader, dataloader._MultiProcessingDataLoaderIter]
    before = [dict(vars(owner)) for owner in owners]
    hooks = dict(optimizer._global_optimizer_post_hooks)
    builtins = {key: each for key, each in torch.jit._builtins._get_builtin_table().items() if "tensor" in each}
    x = torch.ones(3)
    follow(lambda: {"x": x * 2, "y": torch.compile(lambda each: each + 1, backend="eager")(x), "n": torch.tensor(x[0].item())})
    for owner, each in zip(owners, before, strict=True):
        now = dict(vars(owner))
        assert {name for name in each if now.get(name, 0) is not each[name]} == set()
        assert {name for name in set(now) - set(each) if not name.startswith("_")} <= {"compiler"}
    assert hooks == dict(optimizer._global_optimizer_post_hooks)
    assert builtins == {key: each for key, each in torch.jit._builtins._get_builtin_table().items() if "tensor" in each}
    assert not vars(x.untyped_storage())
    assert torch._dynamo.eval_frame._stance.stance == "default"
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    assert type(torch.ones(1).item()) is float


def test_compiled_functions_run_as_they_are_written() -> None:
    """Under a study a compiled function gives the bits of eager mode, warm or cold."""

    def function(x: Any) -> Any:
        return (F.gelu(x).softmax(-1) * 0.3).sum(0)

    x = torch.linspace(-2, 2, 35).reshape(5, 7)
    compiled = torch.compile(function, backend="aot_eager")
    compiled(x)
    outputs, _, study = follow(lambda: {"warm": compiled(x), "cold": torch.compile(function)(x)})
    assert bits(outputs["warm"]) == bits(outputs["cold"]) == bits(function(x))
    assert [each.name for each in study.operations] == ["aten.gelu", "aten._softmax", "aten.mul.Tensor", "aten.sum.dim_IntList"] * 2
    assert not study.losses


def test_workers_of_a_loader() -> None:
    """Batches that workers make are the same as without a study, and leaves."""
    plain = loader(2)
    outputs, _, study = follow(lambda: loader(2))
    assert {key: bits(each) for key, each in plain.items()} == {key: bits(each) for key, each in outputs.items()}
    assert any("worker" in each for each in study.losses)
    assert "a DataLoader worker" in {each.origin for each in study.values}


def test_other_threads_are_followed() -> None:
    """Threads that start during a study have shadows too."""

    def program() -> dict[str, Any]:
        found = {}

        def work() -> None:
            found["y"] = torch.tensor([0.1]) * 3

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found

    _, shadows, _ = follow(program)
    assert shadows["y"].tolist() == [0.1 * 3]


def test_checkpoints_keep_their_shadows() -> None:
    """What is saved and loaded in the same run, or copied, is still known."""

    def program() -> dict[str, Any]:
        x = torch.tensor([0.1, 0.7]) * 3
        file = io.BytesIO()
        torch.save({"x": x}, file)
        file.seek(0)
        return {"loaded": torch.load(file)["x"] * 2, "copied": copy.deepcopy(x) * 2}

    _, shadows, _ = follow(program)
    for each in shadows.values():
        assert distance(each, np.array([0.1, 0.7]) * 6) < 1e-15


def test_numbers_from_tensors() -> None:
    """`item`, `float` and `tolist` and what Python computes with them keep their shadows, and their bits."""

    def program() -> dict[str, Any]:
        x = torch.tensor([0.1, 0.7])
        number = x[0].item()
        total = sum([number * 2, 1.0, -number / 3], start=0.5) ** 2
        return {
            "number": total,
            "again": torch.tensor([total, 0.3]),
            "scaled": torch.ones(2) * total,
            "float": torch.ones(2) * float(x[1]),
            "list": torch.tensor(x.tolist()),
            "math": torch.tensor(math.exp(number)),
        }

    plain, (outputs, shadows, _) = program(), follow(program)
    truth = (0.5 + 0.2 + 1 - 0.1 / 3) ** 2
    assert float(outputs["number"]) == plain["number"]
    assert {key: bits(each) for key, each in plain.items() if key != "number"} == {
        key: bits(each) for key, each in outputs.items() if key != "number"
    }
    assert abs(shadows["number"] - truth) < 1e-14
    assert distance(shadows["again"], [truth, 0.3]) < 1e-14
    assert distance(shadows["scaled"], [truth] * 2) < 1e-14
    assert distance(shadows["float"], [0.7] * 2) < 1e-15
    assert distance(shadows["list"], [0.1, 0.7]) < 1e-15
    assert distance(shadows["math"], math.exp(0.1)) < 1e-15


def test_memory_that_others_write() -> None:
    """What NumPy writes into memory that a tensor shares is seen when the tensor is read next."""

    def program() -> dict[str, Any]:
        plain = np.zeros(3, np.float32)
        x = torch.from_numpy(plain)
        first = x + 0.1
        plain[1] = 5
        y = torch.ones(2) * 0.1
        y.numpy()[0] = 7
        return {"first": first, "second": x * 1, "y": y * 1}

    _, shadows, _ = follow(program)
    assert shadows["first"].tolist() == [0.1] * 3
    assert shadows["second"].tolist() == [0, 5, 0]
    assert shadows["y"].tolist() == [7, 0.1]


def _halve(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 + 0.1


def _count(x: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(np.asarray(x.detach().numpy() / 3).tobytes()), dtype=torch.float32)


def test_operations_of_others() -> None:
    """What a custom operation does with PyTorch is followed, once; what it does otherwise is said to be lost."""
    calls: list[int] = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return _halve(x)

    counted.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    with registry._scoped_library("detconf_test", "FRAGMENT"):
        function = registry.custom_op("detconf_test::halve", counted, mutates_args=())
        other = registry.custom_op("detconf_test::count", mutates_args=())(_count)

        _, shadows, study = follow(lambda: {"y": function(torch.tensor([0.1])) * 2})
        assert distance(shadows["y"], [0.3]) < 1e-15
        assert len(calls) == 1
        assert not study.losses
        outputs, shadows, study = follow(lambda: {"y": other(torch.tensor([0.1])) * 3})
    assert study.losses
    assert [each.lost for each in study.values if each.lost]
    assert np.allclose(shadows["y"], outputs["y"], rtol=1e-6)


def test_what_cannot_be_followed_is_said() -> None:
    """An operation that float64 does not have gets the real result as its shadow, and a reason."""

    def program() -> dict[str, Any]:
        x = torch.tensor([[0.1, 0.2]]).to_mkldnn()
        return {"y": (x + x).to_dense() * 2}

    outputs, shadows, study = follow(program)
    assert study.losses
    assert [each.lost for each in study.values if each.lost]
    assert np.allclose(shadows["y"], outputs["y"], rtol=1e-6)


def test_sparse_tensors() -> None:
    """The values of a sparse tensor have shadows like any others."""

    def program() -> dict[str, Any]:
        values = torch.tensor([0.1, 0.7, 0.3])
        matrix = torch.sparse_coo_tensor(torch.tensor([[0, 1, 0], [1, 0, 1]]), values, (2, 2), check_invariants=True)
        net = torch.nn.Embedding(4, 2, sparse=True)
        torch.nn.init.constant_(net.weight, 0.1)
        (net(torch.tensor([1, 1, 3])) ** 2).sum().backward()
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        return {
            "dense": matrix.to_dense() * 3,
            "product": torch.sparse.mm(matrix, torch.tensor([[0.1], [0.2]])),
            "coalesced": matrix.coalesce(),
            "csr": matrix.to_sparse_csr() @ torch.tensor([0.1, 0.2]),
            "weight": net.weight.detach(),
        }

    plain = program()
    outputs, shadows, study = follow(program)
    assert not study.losses
    dense = np.array([[0, 0.4], [0.7, 0]])
    assert distance(shadows["dense"], dense * 3) < 1e-15
    assert distance(shadows["product"], dense @ [[0.1], [0.2]]) < 1e-15
    assert distance(shadows["coalesced"], dense) < 1e-15
    assert distance(shadows["csr"], dense @ [0.1, 0.2]) < 1e-15
    assert distance(shadows["weight"], [[0.1] * 2, [0.06] * 2, [0.1] * 2, [0.08] * 2]) < 1e-14
    assert bits(plain["product"]) == bits(outputs["product"])
    follow(program, noise=1, rounding="tf32")
    follow(program, local=True, keep_real=True)


def test_undeclared_writes_have_shadows() -> None:
    """Running statistics of batch normalisation are written without a word in the schema."""

    def program() -> dict[str, Any]:
        dtype = torch.get_default_dtype()
        net = torch.nn.BatchNorm1d(3, momentum=0.3)
        net((torch.arange(12).reshape(4, 3).to(dtype) / 8) ** 2)
        return {"mean": net.running_mean, "var": net.running_var}

    _, shadows, study = follow(program)
    truth = in_double(program)
    assert all(distance(shadows[name], each) < 1e-14 for name, each in truth.items())
    [norm] = [each for each in study.operations if each.name == "aten.native_batch_norm"]
    again = follow(program, alterations={norm.index: {"momentum": 0.7}})[1]
    assert distance(again["mean"], shadows["mean"] / 0.3 * 0.7) < 1e-14


def test_gradients_of_an_lstm_are_exact() -> None:
    """oneDNN's LSTM exists in float32 only; its shadow, with gradients, is that of a float64 run."""
    torch.manual_seed(0)
    net = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    x = torch.randn(5, 2, 3)

    def program() -> dict[str, Any]:
        net.zero_grad()
        outputs, (hidden, cell) = net(x.to(net.weight_ih_l0.dtype))
        (outputs.exp().sum() + (hidden * cell).sum()).backward()
        return {"outputs": outputs.detach(), **{name: each.grad for name, each in net.named_parameters()}}

    _, shadows, study = follow(program)
    assert not study.losses
    assert any(each.name == "aten.mkldnn_rnn_layer" for each in study.operations)
    net.double()
    assert all(distance(shadows[name], each) < 1e-12 for name, each in program().items())


def test_steps_are_counted() -> None:
    """Operations know after how many optimizer steps they ran."""
    study = follow(mlp)[2]
    assert study.step == 5
    assert {each.step for each in study.operations} == {0, 1, 2, 3, 4, 5} - ({5} if study.operations[-1].step < 5 else set())


def test_lines_of_the_program() -> None:
    """Forward and backward operations say which line of the program they belong to."""
    study = follow(embedding)[2]
    assert all(
        each.source.startswith("tests/test_shadow_torch.py:") or each.source.startswith("test_shadow_torch.py:")
        for each in study.operations
    )
    assert all(not each.source for each in follow(embedding, sources=False)[2].operations)


def test_choices_follow_the_real_side() -> None:
    """Where values come with indices, the real indices choose; comparisons stay what they were."""

    def program() -> dict[str, Any]:
        x = torch.tensor([[0.1 + 0.2, 0.3, 0.7], [0.5, 0.9, -0.4]])
        image = torch.linspace(-1, 1, 64).sin().reshape(1, 1, 8, 8) * 0.3
        return {
            "sorted": x.sort(1).values * 1,
            "max": x.max(0).values * 1,
            "median": x.median(1, keepdim=True)[0] * 1,
            "top": x.topk(2, 1)[0] * 1,
            "pooled": F.max_pool2d(image, 2) * 1,
            "unique": x.unique() * 1,
            "chosen": x[x > 0.3] * 1,
            "order": x.argsort(1),
        }

    outputs, shadows, study = follow(program)
    assert not study.losses
    assert outputs["sorted"][0, 0] == outputs["sorted"][0, 1]  # a tie, for float32
    for name, each in outputs.items():
        assert distance(shadows[name], each.double()) < 1e-7
    assert np.array_equal(shadows["top"][:, 0], shadows["sorted"][:, -1])
    assert np.array_equal(shadows["order"], outputs["order"])
    assert {each.name for each in study.operations if each.decided} >= {"aten.sort", "aten.max.dim", "aten.topk", "aten.gt.Scalar"}


def test_rounding_by_bits_is_a_cast() -> None:
    """Where floats are rounded by masking their bits, the shadow passes; other uses of bits are said to be lost."""

    def program() -> dict[str, Any]:
        x = torch.tensor([0.1, -0.7, 3.3])
        masked = (x.view(torch.int32) + 0xFFF) & ~0x1FFF
        return {"y": masked.view(torch.float32) * 2}

    plain = program()
    outputs, free, study = follow(program)
    assert not study.losses
    assert bits(outputs["y"]) == bits(plain["y"])
    assert distance(free["y"], [0.2, -1.4, 6.6]) < 1e-15
    assert distance(follow(program, casts="kept")[1]["y"], outputs["y"].double()) == 0
    _, shadows, study = follow(lambda: {"y": (torch.tensor([0.1, 4.0]).view(torch.int32) ^ (1 << 31)).view(torch.float32) * 2})
    assert study.losses
    assert distance(shadows["y"], [-0.2, -8.0]) < 1e-7


def test_leaves_have_names() -> None:
    """A tensor that a program holds already is called as the program calls it."""
    x = torch.ones(2)
    _, _, study = follow(lambda: {"y": NET(x)})
    assert {each.origin for each in study.values if each.maker < 0} == {"x", "NET.weight", "NET.bias"}


def test_scripts_are_compiled_as_ever() -> None:
    """`torch.jit.script` finds the functions that engines have wrapped."""
    plain = traced()
    study = Study()
    for module in (numpy_shadow, shadow):
        study.engines.append(module.start(study))
    try:
        outputs = traced()
    finally:
        for engine in reversed(study.engines):
            engine.end()
    assert {key: bits(each) for key, each in plain.items()} == {key: bits(each) for key, each in outputs.items()}
    assert not study.losses


def test_python_numbers_can_be_altered() -> None:
    """The constants of Python's arithmetic are options."""

    def program() -> dict[str, Any]:
        return {"y": torch.ones(1) * (torch.tensor(0.5).item() * 3.0)}

    _, _, study = follow(program)
    [product] = [each for each in study.operations if each.name == "python.mul"]
    assert product.options == {1: 3.0}
    assert follow(program, alterations={product.index: {1: 5.0}})[1]["y"].tolist() == [2.5]


def _mixed() -> dict[str, Any]:
    data = np.array([0.1, 0.7, 0.3], np.float32)
    x = torch.from_numpy(data)
    shown = x.numpy()
    x.mul_(3)
    data[0] = 7
    mean = (shown * 0.1).mean()
    return {
        "x": x * 1,
        "shown": shown * 2,
        "mean": torch.tensor(mean) * torch.ones(1),
        "scalar": torch.ones(1) * mean,
        "stacked": np.stack([torch.tensor([0.1]), torch.tensor([0.2])]) * np.float32(3),
        "log": torch.tensor([x.sum().item() / 3, float(np.log(x.numpy()).sum())]),
    }


def test_shadows_cross_between_frameworks() -> None:
    """From NumPy to PyTorch and back, through shared memory, arrays, scalars and lists."""
    plain = _mixed()
    study = Study()
    for module in (numpy_shadow, shadow):
        study.engines.append(module.start(study))
    try:
        outputs = _mixed()
        known = {name: study.known(each) for name, each in outputs.items()}
    finally:
        for engine in reversed(study.engines):
            engine.end()
    assert all(np.array_equal(np.asarray(each), np.asarray(plain[name])) for name, each in outputs.items())
    x = np.array([7, 2.1, 0.9])
    truth = {"x": x, "shown": x * 2, "mean": [x.mean() / 10], "scalar": [x.mean() / 10], "stacked": [[0.3], [0.6]]}
    truth["log"] = [x.sum() / 3, np.log(x).sum()]
    for name, each in truth.items():
        found = known[name]
        assert found is not None
        assert distance(found.shadow, each) < (1e-7 if name == "log" else 1e-14), name
        assert distance(found.shadow, np.asarray(plain[name], float)) < 1e-6
