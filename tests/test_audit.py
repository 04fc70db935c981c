"""Audits of pairs with a known cause: the cause, how it is proved, where, and what a wrong use is told."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
import torch._inductor.config  # the first optimizer would: there is one import less to explain afterwards
import torch.nn.functional as F  # noqa: N812  # its customary name

import detconf
from detconf.cli import main

torch.set_num_threads(torch.get_num_threads())  # torch sets MKL's dynamic adjustment when it first uses threads
Results = dict[str, Any]
Program = Callable[[], Results]


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product(*, order: str) -> Program:
    def run() -> Results:
        x, w = torch.from_numpy(normal(8, 300)), torch.from_numpy(normal(300, 16, seed=1))
        parts = [x[:, at : at + 50] @ w[at : at + 50] for at in range(0, 300, 50)]
        return {"y": x @ w if order == "at once" else sum(parts[1:], parts[0])}

    return run


def inverse(*, last: float) -> Program:
    def run() -> Results:
        x = normal(6, 6, seed=3).astype(np.float64)
        left, _, right = np.linalg.svd(x)
        matrix = torch.from_numpy((left * [1, 1, 1, 1, 1, 1e-7] @ right).astype(np.float32)) * last
        return {"inverse": torch.linalg.inv(matrix) * last}

    return run


def layer(*, train: bool) -> Program:
    def run() -> Results:
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)).train(train)
        return {"y": net(torch.from_numpy(normal(5, 8))).detach()}

    return run


def attention(*, scale: float) -> Program:
    def run() -> Results:
        q, k, v = (torch.from_numpy(normal(1, 2, 5, 4, seed=seed)) for seed in range(3))
        return {"y": torch.softmax(q @ k.transpose(-1, -2) * scale, -1) @ v}

    return run


def colours(*, order: slice) -> Program:
    def run() -> Results:
        image = normal(2, 3, 6, 6)[:, order]
        return {"y": F.conv2d(torch.from_numpy(np.ascontiguousarray(image)), torch.from_numpy(normal(4, 3, 3, 3, seed=1)))}

    return run


def noise(*, draws: int) -> Program:
    def run() -> Results:
        torch.manual_seed(3)
        for _ in range(draws):
            torch.rand(1)
        return {"y": torch.from_numpy(normal(4, 4)) + torch.randn(4, 4)}

    return run


def unseeded() -> Results:
    return {"y": torch.rand(7)}


def half(*, kind: Any) -> Program:
    def run() -> Results:
        x, w = torch.from_numpy(normal(8, 64)), torch.from_numpy(normal(64, 8, seed=1))
        return {"y": (x.to(kind) @ w.to(kind)).float()}

    return run


def exponential(*, stable: bool) -> Program:
    def run() -> Results:
        x = normal(3, 5) * 200
        x = x - x.max(-1, keepdims=True) if stable else x
        with np.errstate(all="ignore"):
            e = np.exp(x)
            return {"p": e / e.sum(-1, keepdims=True)}

    return run


def momentum(*, keep: bool) -> Program:
    """Two steps, then two more: with the buffer of the first, or a new one."""

    def run() -> Results:
        w = torch.nn.Parameter(torch.from_numpy(normal(4)))
        x = torch.from_numpy(normal(6, 4, seed=1))
        optimizer = torch.optim.SGD([w], lr=0.05, momentum=0.9)
        for step in range(4):
            if step == 2 and not keep:
                optimizer = torch.optim.SGD([w], lr=0.05, momentum=0.9)
            optimizer.zero_grad()
            (x @ w).pow(2).mean().backward()
            optimizer.step()
        return {"w": w.detach()}

    return run


def paddle_layer(*, axis: int) -> Program:
    def run() -> Results:
        x = paddle.to_tensor(normal(4, 4))
        return {"y": paddle.nn.functional.softmax(paddle.matmul(x, x), axis=axis).numpy()}

    return run


def torch_layer() -> Results:
    x = torch.from_numpy(normal(4, 4))
    return {"y": torch.softmax(x @ x, -1)}


def pixels(*, wide: bool) -> Program:
    image = np.random.default_rng(0).integers(0, 256, (4, 5)).astype(np.uint8)
    return lambda: {"y": ((image.astype(np.int32) if wide else image) * np.uint8(2)) / 510.0}


def subnormal(*, flushed: bool) -> Program:
    def run() -> Results:
        torch.set_flush_denormal(flushed)
        try:
            return {"y": torch.from_numpy(normal(4, 4)) * 1e-30 * 1e-10 * 1e25}
        finally:
            torch.set_flush_denormal(False)

    return run


def two_layers(*, order: tuple[int, int]) -> Program:
    def run() -> Results:
        weights = [normal(6, 6, seed=seed) * np.float32(0.3) for seed in (1, 2)]
        return {"y": np.tanh(np.tanh(normal(3, 6) @ weights[order[0]]) @ weights[order[1]])}

    return run


def torch_dropout() -> Results:
    torch.manual_seed(0)
    return {"y": F.dropout(torch.from_numpy(normal(8, 8)), 0.5, training=True)}


def paddle_dropout() -> Results:
    paddle.seed(0)
    return {"y": paddle.nn.functional.dropout(paddle.to_tensor(normal(8, 8)), 0.5, training=True)}


def schedule(*, keep: bool) -> Program:
    def run() -> Results:
        w = torch.nn.Parameter(torch.from_numpy(normal(4)))
        optimizer = torch.optim.SGD([w], lr=0.1)
        plan = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
        for step in range(6):
            if step == 3 and not keep:
                optimizer.param_groups[0]["lr"] = 0.1
                plan = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
            optimizer.zero_grad()
            (torch.from_numpy(normal(6, 4, seed=1)) @ w).pow(2).mean().backward()
            optimizer.step()
            plan.step()
        return {"w": w.detach()}

    return run


def resumed(*kept: str) -> Program:
    """Three steps, then two more from what was saved: weights, and of the rest what is `kept`."""

    def begun() -> tuple[Any, Any, Any]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.3)

    def run() -> Results:
        net, optimizer, plan = begun()
        for step in range(5):
            if step == 3:
                saved = {"optimizer": optimizer.state_dict(), "plan": plan.state_dict(), "buffers": net.state_dict()}
                before, (net, optimizer, plan) = net, begun()
                for new, old in zip(net.parameters(), before.parameters(), strict=True):
                    new.data.copy_(old.data)
                for name, each in (("optimizer", optimizer), ("plan", plan), ("buffers", net)):
                    if name in kept:
                        each.load_state_dict(saved[name])
            optimizer.zero_grad()
            (net(torch.from_numpy(normal(6, 4))) - 1).pow(2).mean().backward()
            optimizer.step()
            plan.step()
        return {"w": net[0].weight.detach(), "y": net.eval()(torch.from_numpy(normal(6, 4))).detach()}

    return run


def predicted(*, evaluate: bool) -> Program:
    """Trained for two steps, then asked: in training mode still, or not."""

    def run() -> Results:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.from_numpy(normal(6, 4))).pow(2).mean().backward()
            optimizer.step()
        net.train(not evaluate)
        return {"y": net(torch.from_numpy(normal(5, 4, seed=1))).detach()}

    return run


PAIRS: dict[str, tuple[Program, Program, str, str]] = {
    "sum in another order": (product(order="at once"), product(order="in parts"), "rounding", ""),
    "almost singular": (inverse(last=1.0), inverse(last=3.0), "ill-conditioned", "linalg_inv"),
    "batch norm in training": (layer(train=False), layer(train=True), "mode", ""),
    "forgotten scale": (attention(scale=0.5), attention(scale=1.0), "semantics", "mul"),
    "colours reversed": (colours(order=slice(None)), colours(order=slice(None, None, -1)), "layout", ""),
    "one draw more": (noise(draws=0), noise(draws=1), "rng", ""),
    "not seeded": (unseeded, unseeded, "rng", ""),
    "half precision": (half(kind=torch.float32), half(kind=torch.bfloat16), "dtype", ""),
    "both in half precision": (half(kind=torch.bfloat16), half(kind=torch.bfloat16), "equal", ""),
    "exponential overflows": (exponential(stable=True), exponential(stable=False), "overflow", "exp"),
    "momentum forgotten": (momentum(keep=True), momentum(keep=False), "state", ""),
    "bytes wrap around": (pixels(wide=True), pixels(wide=False), "overflow", "multiply"),
    "subnormal numbers flushed": (subnormal(flushed=False), subnormal(flushed=True), "config", ""),
    "layers exchanged": (two_layers(order=(0, 1)), two_layers(order=(1, 0)), "layout", "matmul"),
    "dropout of two frameworks": (torch_dropout, paddle_dropout, "rng", "dropout"),
    "schedule forgotten": (schedule(keep=True), schedule(keep=False), "state", ""),
    "all but the weights forgotten": (resumed("optimizer", "plan", "buffers"), resumed(), "state", ""),
    "momentum and schedule forgotten": (resumed("optimizer", "plan", "buffers"), resumed("buffers"), "state", "add_"),
    "schedule and statistics forgotten": (resumed("optimizer", "plan", "buffers"), resumed("optimizer"), "state", ""),
    "asked in training mode": (predicted(evaluate=True), predicted(evaluate=False), "mode", ""),
    "torch and paddle": (torch_layer, paddle_layer(axis=-1), "rounding", ""),
    "torch and paddle, other axis": (torch_layer, paddle_layer(axis=0), "semantics", "softmax"),
}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", PAIRS)
def test_the_cause_is_named_and_proved(name: str) -> None:
    """The planted cause is found, with a proof; the operation is named where there is one; everything is as before."""
    reference, candidate, cause, operation = PAIRS[name]
    found = detconf.audit(reference, candidate)
    accepted = {cause, "equal"} if cause == "rounding" else {cause}
    assert str(found.cause) in accepted, str(found)
    assert found.proof is not None
    assert found.proof.kind in {"re-created", "removed", "bounded"}
    if operation:
        assert found.where is not None
        assert operation in found.where.name, str(found)
    said = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert said["cause"] == str(found.cause)
    assert {"schema", "equal", "cause", "where", "evidence", "proof", "fixes", "unexamined", "environment", "tolerance"} <= set(said)
    assert said["equal"] is (found.cause is detconf.Cause.EQUAL)


def test_all_that_was_forgotten_is_named() -> None:
    """Momentum and learning rates are put back together, and the fix asks for both."""
    found = detconf.audit(resumed("optimizer", "plan", "buffers"), resumed("buffers"))
    assert found.proof is not None
    assert found.proof.what.endswith("the sides agree in w, y"), str(found)
    assert any("other numbers" in each.statement for each in found.evidence)
    assert any("schedule" in fix.text for fix in found.fixes)


def test_the_option_is_named() -> None:
    """Another epsilon: the value that makes the sides agree is found and said to be tried."""
    x = normal(4, 32) * 0.01

    def run(eps: float) -> Program:
        return lambda: {"y": F.layer_norm(torch.from_numpy(x), (32,), eps=eps)}

    found = detconf.audit(run(1e-3), run(1e-5))
    assert str(found.cause) == "semantics"
    assert any(fix.verified and "0.001" in fix.text for fix in found.fixes), str(found)


def test_arrays_that_fit_tf32() -> None:
    """A candidate of which only the arrays are there: its residual fits products with inputs rounded to TF32."""
    from detconf.shadows.formats import round_to

    x, w = normal(32, 256), normal(256, 32, seed=1)
    there = round_to(x.astype(np.float64), "tf32").astype(np.float32) @ round_to(w.astype(np.float64), "tf32").astype(np.float32)
    found = detconf.audit(lambda: {"y": torch.from_numpy(x) @ torch.from_numpy(w)}, {"y": there})
    assert str(found.cause) == "dtype"
    assert found.proof is not None
    assert found.proof.kind == "re-created"
    assert "tf32" in found.summary
    benign = detconf.audit(lambda: {"y": torch.from_numpy(x) @ torch.from_numpy(w)}, {"y": x.astype(np.float64) @ w.astype(np.float64)})
    assert str(benign.cause) == "dtype"  # float64 results


def test_arrays_that_are_rounding() -> None:
    """The same, summed in another order."""
    x, w = normal(32, 256), normal(256, 32, seed=1)
    there = sum((x[:, at : at + 8] @ w[at : at + 8] for at in range(0, 256, 8)), np.zeros((32, 32), np.float32))
    found = detconf.audit(lambda: {"y": torch.from_numpy(x) @ torch.from_numpy(w)}, {"y": there})
    assert str(found.cause) == "rounding", str(found)


def test_the_tolerance_holds_for_benign_sides() -> None:
    """Both sides keep the tolerance that is given for a benign difference, and it is not a hundred times too wide."""
    found = detconf.audit(product(order="at once"), product(order="in parts"))
    (bound,) = found.tolerance
    assert bound.measured is not None
    assert 0.005 < bound.measured <= 1


def test_two_sets_of_arrays() -> None:
    """Without functions there is less evidence: transposed, rounded, and a last digit are still told apart."""
    x = normal(5, 5)
    assert str(detconf.audit({"x": x}, {"x": x.copy()}).cause) == "equal"
    assert str(detconf.audit({"x": x}, {"x": np.ascontiguousarray(x.T)}).cause) == "layout"
    assert str(detconf.audit({"x": x}, {"x": np.nextafter(x, np.float32(math.inf))}).cause) == "rounding"
    assert str(detconf.audit({"x": x}, {"x": x.astype(np.float16).astype(np.float32)}).cause) == "dtype"
    assert str(detconf.audit({"x": x}, {"x": x + normal(5, 5, seed=1)}).cause) == "unknown"


def test_structure_is_reported() -> None:
    """Results that only one side has, and other shapes, are said and do not hide the rest."""
    found = detconf.audit({"x": normal(3), "only": normal(2)}, {"x": normal(3), "extra": normal(2)})
    said = [each.statement for each in found.evidence]
    assert any("only: only the reference" in each for each in said)
    assert any("extra: only the candidate" in each for each in said)
    assert not found.equal


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (dict, "nothing"),
        (lambda: None, "nothing"),
        (lambda: {"z": normal(2)}, "same names"),
        (lambda: {"y": object()}, "cannot be compared"),
        (lambda: 1 / 0, "ZeroDivisionError"),
        (5, "is no side"),
        ("nowhere.py:f", "no such file"),
    ],
)
def test_what_cannot_be_audited(candidate: Any, words: str) -> None:
    """A side that gives nothing, other names, no arrays, raises, or is no side: an error that says so."""
    with pytest.raises(detconf.DetconfError, match=words):
        detconf.audit(lambda: {"y": normal(2)}, candidate)


def test_a_side_that_does_not_repeat_is_not_explained() -> None:
    """First each side against itself."""
    count = iter(range(1000))

    def counting() -> Results:
        return {"y": normal(3) + next(count)}

    found = detconf.audit(lambda: {"y": normal(3)}, counting)
    assert str(found.cause) in {"unknown", "state"}
    assert "does not repeat" in found.summary


def test_an_experiment_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours, or of an engine, ends no audit: what failed is said, and the rest goes on, by recordings if need be."""
    from detconf.auditing import entry
    from detconf.frameworks.torch import shadow

    def failing(_question: Any) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(entry, "ATTEMPTS", (failing, *entry.ATTEMPTS))
    found = detconf.audit(product(order="at once"), product(order="in parts"))
    assert str(found.cause) == "rounding"
    assert any("failing: it failed: RuntimeError: " in each for each in found.tried)
    monkeypatch.setattr(shadow, "start", failing)
    found = detconf.audit(product(order="at once"), product(order="in parts"))
    assert str(found.cause) == "rounding"
    assert found.proof is not None
    assert "computed again" in found.proof.what
    assert any("could not be followed: RuntimeError" in each for each in found.unexamined)


def test_command_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`detconf audit FILE:ref FILE:cand`: exit 0 equal, 1 differs, 2 could not run; JSON on stdout alone."""
    file = tmp_path / "pair.py"
    file.write_text(
        "import numpy as np\nx = np.arange(12.0).reshape(3, 4)\n"
        "def reference():\n    print('noise')\n    return {'y': x.std(0)}\n"
        "def candidate():\n    return {'y': x.std(0, ddof=1)}\n"
    )
    assert main(["audit", f"{file}:reference", f"{file}:reference", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cause"] == "equal"
    assert main(["audit", f"{file}:reference", f"{file}:candidate"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("semantics: ")
    assert "ddof" in said
    assert "pair.py:" in said
    assert main(["audit", f"{file}:reference", f"{file}:nowhere"]) == 2
    assert "no function 'nowhere'" in capsys.readouterr().err
