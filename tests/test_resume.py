"""The axis `resume`, stopping after so many steps, and the state of an unmodified training that both rest on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import clean_environment

import detconf
from detconf.arrays import Array, Place
from detconf.errors import TargetError
from detconf.recording.reading import Recording
from detconf.resuming import judged

PYTHON = sys.executable
pytestmark = pytest.mark.slow

TORCH = """
import sys, torch
resume, kept, dropout = sys.argv[1] == "resume", sys.argv[2].split(","), float(sys.argv[3])
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
data = torch.linspace(-1, 1, 160).reshape(5, 8, 4)
begin = 0
if resume:
    saved = torch.load("saved.pt")
    for name, each in (("net", net), ("optimizer", optimizer), ("schedule", schedule), ("scaler", scaler)):
        if name in kept:
            each.load_state_dict(saved[name])
    if "generator" in kept:
        torch.set_rng_state(saved["generator"])
    begin = saved["step"] if "step" in kept else 0
for step in range(begin, 5):
    optimizer.zero_grad()
    scaler.scale(net(data[step]).pow(2).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "scaler": scaler.state_dict()}
    torch.save(state | {"generator": torch.get_rng_state(), "step": step + 1}, "saved.pt")
"""
ALL = ("net", "optimizer", "schedule", "scaler", "generator", "step")
FORGOTTEN = {
    # what the resumed run does not restore: (dropout, words of the verdict, kinds that it must not name, first difference,
    # the first operation of that step that gives other results)
    "net": (0.0, "parameters", ("optimizer state", "data order"), "optimizer.0.0", "aten.addmm"),
    "optimizer": (0.0, "optimizer state", ("parameters", "generator", "data order"), "optimizer.0.0.step", "aten.add_.Tensor"),
    "generator": (0.5, "generator state", ("parameters", "optimizer state"), "generator.torch", "aten.bernoulli_.float"),
    "scaler": (
        0.0,
        "scale of a gradient scaler",
        ("parameters", "optimizer state", "generator", "data order"),
        "scaler.scale",
        "aten.mul.Tensor",
    ),
    "step": (0.0, "data order", ("parameters", "optimizer state", "generator"), "loss", "aten.addmm"),
}
SLOW = ("net", "scaler", "step")  # seven runs each


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TORCH)
    return tmp_path


def resumed(kept: tuple[str, ...], dropout: float) -> Any:
    command = [PYTHON, "train.py", "begin", ",".join(kept), str(dropout)]
    found = detconf.verify(command, runs=2, resume_with=[*command[:2], "resume", *command[3:]], stop_at=2)
    return found, found.axes[-1]


def test_a_resume_that_restores_everything_is_invariant() -> None:
    """Stopped after two steps and resumed: the three that follow are those of the run in one go, dropout included."""
    found, axis = resumed(ALL, 0.5)
    assert (axis.axis, axis.invariant, axis.divergence) == ("resume", True, None)
    assert "resumed after 2, 3 steps compared" in axis.note
    assert (found.stable, str(found.cause)) == (True, "equal")


@pytest.mark.parametrize("forgotten", [pytest.param(each, marks=[pytest.mark.long] * (each in SLOW)) for each in FORGOTTEN])
def test_what_a_resume_forgets_is_named(forgotten: str) -> None:
    """The cause is `state`, and the kind of state that was not restored is named, and no other."""
    dropout, words, others, first, operation = FORGOTTEN[forgotten]
    found, axis = resumed(tuple(name for name in ALL if name != forgotten), dropout)
    assert (found.stable, found.distinct, str(found.cause), axis.invariant) == (False, 1, "state", False)
    assert words in axis.note
    assert any(each.startswith(words) for each in axis.evidence)
    assert not [other for other in others if other in axis.note]
    assert (axis.divergence.name, axis.divergence.step) == (first, 2)
    at = axis.operation.finding.divergence
    assert (at.name, at.step) == (operation, 2), axis.operation
    assert at.source.startswith("train.py:"), at
    assert "was not restored" in axis.operation.notes[0]
    assert ("its generator" in axis.operation.notes[0]) is (forgotten == "generator")
    assert words in str(found)


def test_an_older_checkpoint_is_found_out(folder: Path) -> None:
    """A script that saves every second step is resumed where it last saved, and compared from there."""
    (folder / "train.py").write_text(TORCH.replace("    state = {", "    if step % 2 == 0:\n        continue\n    state = {"))
    command = [PYTHON, "train.py", "begin", ",".join(ALL), "0.5"]
    axis = detconf.verify(command, runs=2, resume_with=f"{PYTHON} train.py resume {','.join(ALL)} 0.5", stop_at=3).axes[-1]
    assert axis.invariant
    assert "stopped after 3 steps, resumed after 2, 3 steps compared" in axis.note


PADDLE = """
import os, sys, paddle
paddle.seed(0)
net = paddle.nn.Sequential(paddle.nn.Linear(4, 8), paddle.nn.Linear(8, 1))
optimizer = paddle.optimizer.Adam(0.1, parameters=net.parameters())
begin = 0
if sys.argv[1] != "begin":
    net.set_state_dict(paddle.load("net.pdparams"))
    if sys.argv[1] == "all":
        optimizer.set_state_dict(paddle.load("optimizer.pdopt"))
    begin = int(open("step").read())
for step in range(begin, 4):
    net(paddle.full([8, 4], step + 1.0)).square().mean().backward()
    optimizer.step()
    optimizer.clear_grad()
    paddle.save(net.state_dict(), "net.pdparams")
    paddle.save(optimizer.state_dict(), "optimizer.pdopt")
    open("step", "w").write(str(step + 1))
"""


@pytest.mark.parametrize(("kept", "invariant"), [("all", True), ("net", False)])
def test_paddle(folder: Path, kept: str, invariant: bool) -> None:
    """The same for Paddle: accumulators that are not restored are optimizer state."""
    (folder / "train.py").write_text(PADDLE)
    axis = detconf.verify([PYTHON, "train.py", "begin"], runs=2, resume_with=[PYTHON, "train.py", kept], stop_at=2).axes[-1]
    assert axis.invariant is invariant
    assert invariant or axis.note.endswith("not restored: optimizer state")


def test_the_command_line(folder: Path) -> None:
    """`--resume-with 'CMD2' --stop-at K -- CMD`: exit 1 and the evidence in JSON where the resume differs."""
    kept = "net,schedule,scaler,generator,step"
    words = [
        "-m",
        "detconf",
        "verify",
        "--json",
        "--runs",
        "2",
        "--resume-with",
        f"{PYTHON} train.py resume {kept} 0",
        "--stop-at",
        "2",
        "--",
    ]
    done = subprocess.run(
        [PYTHON, *words, PYTHON, "train.py", "begin", kept, "0"], env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    axis = found["axes"][-1]
    assert (found["cause"], axis["axis"], axis["cause"], axis["invariant"]) == ("state", "resume", "state", False)
    assert axis["evidence"][0].startswith("optimizer state")


STOPPED = """
import atexit, random, sys, threading, torch
atexit.register(lambda: open("said", "a").write("exit "))
model = torch.nn.Linear(2, 1)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    try:
        for step in range(9):
            model(torch.ones(2)).sum().backward()
            sgd.step()
            open("said", "a").write(f"{step} ")
    finally:
        open("said", "a").write("finally ")
if len(sys.argv) > 1:
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
else:
    train()
open("said", "a").write("after ")
"""


@pytest.mark.parametrize("words", [(), ("thread",)])
def test_a_program_is_ended_cleanly(folder: Path, words: tuple[str, ...]) -> None:
    """After N steps and what follows the last: exit 0, with `finally` and exit handlers, from any thread."""
    (folder / "stop.py").write_text("import torch\ntorch.manual_seed(0)\n" + STOPPED)
    found = detconf.verify([PYTHON, "stop.py", *words], runs=2, steps=3)
    assert (found.stable, found.observed.steps) == (True, 3)
    assert (folder / "said").read_text().split() == ["0", "1", "2", "finally", "exit"] * 2


def test_a_program_that_catches_everything_is_ended_in_the_end(folder: Path) -> None:
    """An `except:` around each step cannot go on for ever: the next step ends the program again."""
    (folder / "stop.py").write_text(
        "import torch\nweight = torch.ones(2, requires_grad=True)\nsgd = torch.optim.SGD([weight], lr=0.1)\n"
        "for step in range(5):\n    try:\n        weight.sum().backward()\n    except BaseException: open('caught', 'a').write('x')\n    sgd.step()\n"
    )
    assert detconf.verify([PYTHON, "stop.py"], runs=2, steps=2).observed.steps == 3
    assert (folder / "caught").read_text() == "xx"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"steps": 0}, "steps: 0 is not accepted"),
    ({"stop_at": 2}, "belong together"),
    ({"resume_with": "python more.py"}, "belong together"),
    ({"resume_with": "python more.py", "stop_at": True}, "stop_at: True is not accepted"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    """What cannot work is refused before anything runs; a function cannot be stopped."""
    with pytest.raises(TargetError, match=words):
        detconf.verify([PYTHON, "missing.py"], **options)
    if "steps" in options:
        with pytest.raises(TargetError, match="for a command"):
            detconf.verify(lambda: 1, steps=3)


def states(*values: float, **entry: float) -> dict[Place, Array]:
    """A run of one parameter `w` with a value per step."""
    found = {}
    for step, value in enumerate(values):
        for name, number in (("loss", value), ("w", value), ("optimizer.0.lr", 1.0)):
            found[Place(name, step, origin="state")] = Array("str", (), str(number).encode())
    for name, number in entry.items():
        found[Place(f"entry.{name}", 0, origin="state")] = Array("str", (), str(number).encode())
    return found


WHOLE = states(1, 2, 3, 4, w=0)


@pytest.mark.parametrize(
    ("stopped", "resumed", "steps", "words"),
    [
        (states(1, 2, w=0), states(3, w=2), 4, "the whole run made 4"),
        (states(1, 2, 3, w=0), states(3, w=2), 2, "stop after 2 optimizer steps made 3"),
        (states(1, 2, w=0), {}, 2, "made no optimizer step"),
        (states(1, 9, w=0), states(3, w=2), 2, "before it was stopped, in loss, step 1"),
    ],
)
def test_runs_that_cannot_be_compared(stopped: Any, resumed: Any, steps: int, words: str) -> None:
    """Stopping that did not work, a resume that trains nothing, a command that does not begin anew: errors, no verdict."""
    with pytest.raises(TargetError, match=words):
        judged(WHOLE, stopped, resumed, steps)


NORM = """
import sys, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.linspace(-1, 1, 160).sin().reshape(5, 8, 4)
begin = 0
if sys.argv[1] == "resume":
    saved = torch.load("saved.pt")
    begin = saved.pop("step")
    net.load_state_dict({**net.state_dict(), **saved})
for step in range(begin, 5):
    sgd.zero_grad()
    net(data[step]).pow(2).mean().backward()
    sgd.step()
    state = net.state_dict() if sys.argv[2] == "all" else dict(net.named_parameters())
    torch.save({"step": step + 1} | {name: each.detach() for name, each in state.items()}, "saved.pt")
"""


@pytest.mark.parametrize("kept", ["all", "parameters"])
def test_running_statistics_that_are_not_saved_are_named(folder: Path, kept: str) -> None:
    """They have no effect on training, only on what is trained; a resume that begins them anew is told all the same."""
    (folder / "norm.py").write_text(NORM)
    command = [PYTHON, "norm.py"]
    found = detconf.verify([*command, "begin", kept], runs=2, resume_with=[*command, "resume", kept], stop_at=2)
    axis = found.axes[-1]
    if kept == "all":
        assert axis.invariant, axis
        return
    assert axis.invariant is False
    assert "not restored: buffers of the model" in axis.note
    assert axis.divergence is not None
    assert axis.divergence.name == "buffer.BatchNorm1d.0.running_mean"


def test_a_generator_without_effect_is_no_difference() -> None:
    """Where every step agrees, a generator that is elsewhere is a remark."""
    generator = Place("generator.numpy", 2, origin="state")
    whole = WHOLE | {generator: Array("str", (), b"a")}
    axis = judged(whole, states(1, 2, w=0), states(3, 4, w=2), 2)
    assert (axis.invariant, "generator.numpy differs, without an effect" in axis.note) == (True, True)


def test_published_values_count() -> None:
    """A value published once a step is taken on by the steps before the stop, one published at the end is not moved."""

    def published(*values: int, end: int) -> dict[Place, Array]:
        steps = {Place("metric", step, origin="published"): Array("str", (), str(value).encode()) for step, value in enumerate(values)}
        return steps | {Place("end", 0, origin="published"): Array("str", (), str(end).encode())}

    first = states(1, 2, w=0)
    for metrics, end, name in (((7, 8), 0, None), ((7, 9), 0, "metric"), ((7, 8), 1, "end")):
        axis = judged(WHOLE | published(5, 6, 7, 8, end=0), first, states(3, 4, w=2) | published(*metrics, end=end), 2)
        assert (axis.divergence and axis.divergence.name) == name


def test_generators_are_observed_once_they_have_moved(folder: Path) -> None:
    """A generator that nobody drew from or seeded is not compared; others are, at every step, under the names of their libraries."""
    (folder / "draw.py").write_text(
        "import random, numpy, torch\ntorch.manual_seed(0)\nweight = torch.ones(2, requires_grad=True)\nsgd = torch.optim.SGD([weight], lr=0.1)\n"
        "for step in range(2):\n    (weight * torch.rand(2)).sum().backward()\n    sgd.step()\n    numpy.random.seed(step)\n"
    )
    found = detconf.verify([PYTHON, "draw.py"], runs=2)
    assert found.stable
    seen = {(row["name"], row["step"]) for row in found.digests["arrays"] if row["name"].startswith("generator.")}
    assert seen == {("generator.torch", 0), ("generator.torch", 1), ("generator.numpy", 1)}


def test_backward_inside_backward_is_no_loss(tmp_path: Path) -> None:
    """Checkpointing calls backward again from inside; the loss is recorded once, and several tensors are several losses."""
    import torch
    from torch.utils.checkpoint import checkpoint

    plain = (torch.autograd.backward, torch.amp.GradScaler.step)
    layer = torch.nn.Linear(2, 2)
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
    with detconf.record(tmp_path / "run.det", level="state"):
        checkpoint(layer, torch.ones(2, requires_grad=True), use_reentrant=True).sum().backward()
        sgd.step()
        torch.autograd.backward([layer(torch.ones(2)).sum(), layer(torch.zeros(2)).sum()])
        sgd.step()
    with Recording(tmp_path / "run.det") as found:
        assert [event.step for event in found.events() if event.name == "loss"] == [0, 1, 1]
    assert (torch.autograd.backward, torch.amp.GradScaler.step) == plain
