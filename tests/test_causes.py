"""Why reruns differ: each cause found by removing it, on programs that really are unstable here."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import detconf
from detconf.causes.changes import ENTRY, IN_PROCESS, THREADS, Setting
from detconf.causes.reruns import explain, runs_needed
from detconf.frameworks.base import Modes
from detconf.frameworks.paddle.modes import watch as watch_paddle
from detconf.frameworks.torch.modes import watch as watch_torch
from detconf.reseeding import fixed
from detconf.verification import Evidence, Run

TORCH = "import torch\n"
PROGRAMS = {
    # name: (source of `run`, what it must be called in fresh processes)
    "unseeded draw": ("import numpy as np\ndef run():\n    return {'x': np.random.rand(3)}\n", "rng"),
    "unseeded model": (TORCH + "def run():\n    return {'w': torch.nn.Linear(3, 2).weight}\n", "rng"),
    "set of words": ("def run():\n    return {'order': list({'cat', 'dog', 'bird', 'fish', 'horse', 'sheep', 'goat'})}\n", "config"),
    "set of objects": (
        "class P:\n    pass\ndef run():\n    named = {P(): i for i in range(40)}\n    return {'order': [named[p] for p in set(named)]}\n",
        "config",
    ),
    "generator of its own": ("import numpy as np\ndef run():\n    return {'x': np.random.default_rng().random(3)}\n", "rng"),
    "generator made otherwise": ("import numpy as np\ndef run():\n    return {'x': np.random.RandomState().rand(3)}\n", "rng"),
    "seed of the clock": (
        TORCH + "import time\ndef run():\n    torch.manual_seed(time.time_ns())\n    return {'x': torch.rand(3)}\n",
        "rng",
    ),
    "seed of the system": (TORCH + "def run():\n    assert torch.seed() > 0\n    return {'x': torch.rand(3)}\n", "rng"),
    "clock": ("import time\ndef run():\n    return {'t': time.perf_counter_ns()}\n", "unknown"),
}
SLOW = ("unseeded model", "seed of the system")  # torch is imported in each of many processes: one such program is enough


@pytest.fixture
def program(tmp_path: Path) -> Any:
    def write(source: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(source)
        return f"{path}:run"

    return write


@pytest.mark.parametrize(
    ("source", "cause"), [pytest.param(*PROGRAMS[each], id=each, marks=[pytest.mark.long] * (each in SLOW)) for each in PROGRAMS]
)
def test_causes_in_fresh_processes(program: Any, source: str, cause: str) -> None:
    """The cause is named when removing it makes the runs agree, and `unknown` when nothing that was tried does."""
    found = detconf.verify(program(source), runs=4, fresh=True)
    assert (found.stable, str(found.cause)) == (False, cause), found.to_dict()["tried"]
    assert (found.axes[0].restored_by is None) == (cause == "unknown")


def test_a_script_is_explained_too(tmp_path: Path) -> None:
    """A command gets the same experiments as a function."""
    script = tmp_path / "train.py"
    script.write_text("import random, detconf\ndetconf.publish('x', random.random())\n")
    found = detconf.verify([sys.executable, str(script)], runs=3)
    assert str(found.cause) == "rng"
    assert "seed" in str(found.axes[0].restored_by)


@pytest.mark.usefixtures("unchanged_settings")
def test_a_stream_that_goes_on_is_rng() -> None:
    """A function that draws without seeding differs from call to call; starting from the same state removes it."""
    found = detconf.verify(lambda: {"x": torch.rand(3), "y": paddle.rand([3]), "z": np.random.rand(3)}, runs=3)  # noqa: NPY002  # the legacy generator is the subject
    assert str(found.cause) == "rng"


@pytest.mark.usefixtures("unchanged_settings")
@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_dropout_in_inference_is_mode(framework: str) -> None:
    """Layers left in training mode, without a backward: evaluation mode removes it. The layers keep their mode."""
    library: Any = torch if framework == "torch" else paddle
    net = library.nn.Sequential(library.nn.Linear(8, 8), library.nn.Dropout(0.5))
    inputs = library.ones([4, 8])
    found = detconf.verify(lambda: {"scores": net(inputs)}, runs=3)
    assert str(found.cause) == "mode", found.to_dict()["tried"]
    assert net.training
    assert all(layer.training for layer in (net[0], net[1]))


@pytest.mark.usefixtures("unchanged_settings")
def test_dropout_in_training_is_rng() -> None:
    """The same layers, but the function trains: the mode is right, and the stream is what differs."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))

    def train() -> dict[str, Any]:
        net.zero_grad()
        net(torch.ones(4, 8)).sum().backward()
        return {"grad": net[0].weight.grad.clone()}

    assert str(detconf.verify(train, runs=3).cause) == "rng"


_NET = """
import sys, detconf
import {module} as library
def main():
    fixed = library.ones([4, 8])
    net = library.nn.Sequential(library.nn.Linear(8, 8), library.nn.Dropout(0.5))
    {fill}
    {train}
    detconf.publish("scores", net(fixed).detach())
main()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("unchanged_settings")
@pytest.mark.parametrize(
    ("module", "train", "cause"),
    [
        ("torch", False, "mode"),
        ("torch", True, "rng"),
        pytest.param("paddle", False, "mode", marks=pytest.mark.long),
        ("paddle", True, "rng"),
    ],
)
def test_dropout_in_a_script_is_mode_unless_it_trains(tmp_path: Path, module: str, train: bool, cause: str) -> None:
    """The same in processes of their own: weights are fixed, dropout is on; evaluation mode removes the difference."""
    fill = "[p.data.fill_(0.1) for p in net.parameters()]" if module == "torch" else "[p.set_value(p * 0 + 0.1) for p in net.parameters()]"
    script = tmp_path / "infer.py"
    script.write_text(_NET.format(module=module, fill=fill, train="net(fixed).sum().backward()" if train else "pass"))
    found = detconf.verify([sys.executable, str(script)], runs=3)
    assert str(found.cause) == cause, found.to_dict()["tried"]
    assert ("evaluation mode" in str(found.axes[0].restored_by)) is (cause == "mode")
    assert found.operation is not None
    assert found.operation.finding is not None
    assert "uniform" in found.operation.finding.divergence.name  # of weights that are then overwritten
    others = [each.divergence for each in found.operation.others]
    assert any("dropout" in each.name or "bernoulli" in each.name for each in others), others


def test_threads_that_race_are_a_race() -> None:
    """Duplicate indices summed by two threads: equal generators do not help, deterministic algorithms do."""
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, 100, (200_000,), generator=generator)
    weights = torch.randn(200_000, 16, generator=generator)

    def gradient() -> dict[str, Any]:
        table = torch.zeros(100, 16, requires_grad=True)
        (table[index] * weights).sum().backward()
        return {"grad": table.grad}

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = detconf.verify(gradient, runs=40)
    finally:
        torch.set_num_threads(threads)
    assert (found.stable, str(found.cause)) == (False, "race"), found.to_dict()["tried"]


@pytest.mark.usefixtures("unchanged_settings")
def test_uninitialised_memory_is_not_called_a_race(program: Any) -> None:
    """Reading new memory differs from process to process: filling it removes that, other determinism does not."""
    source = (
        TORCH
        + "def run():\n    junk = [torch.rand(n) for n in range(1000, 3000, 7)]\n    del junk\n    return {'x': torch.empty(100_000)}\n"
    )
    found = detconf.verify(program(source), runs=4, fresh=True)
    if not found.stable:  # pages fresh from the kernel are zero: then there is nothing to see
        assert str(found.cause) in ("state", "rng"), found.to_dict()["tried"]


STABLE = {
    "seeded model": lambda: (torch.manual_seed(0), {"w": torch.nn.Linear(3, 2).weight})[1],
    "own generator": lambda: {"x": np.random.default_rng(0).random(5)},
    "evaluation": lambda: {"x": torch.nn.Dropout(0.5).eval()(torch.ones(100))},
    "scatter": lambda: {"x": torch.zeros(10).index_add(0, torch.arange(1000) % 10, torch.arange(1000.0))},
    "text": lambda: {"x": sorted({"a", "b", "c"})},
}


@pytest.mark.parametrize("function", STABLE.values(), ids=STABLE)
def test_stable_programs_are_not_flagged(function: Any) -> None:
    """Twenty reruns of programs that are stable here: equal, and nothing was tried."""
    state = torch.get_rng_state()
    found = detconf.verify(function, runs=20)
    torch.set_rng_state(state)
    assert (found.stable, str(found.cause), found.tried) == (True, "equal", ())


EVOLVING = {
    # name: (source of `run`, cause): what a run leaves in the process is read by the next
    "weights": ("w = [1.0]\ndef run():\n    w[0] -= 0.1 * w[0]\n    return {'w': w[0]}\n", "state"),
    "list of drawn numbers": (
        "import numpy as np\nkept = []\ndef run():\n    kept.append(np.random.default_rng().random())\n    return {'n': sum(kept)}\n",
        "rng",
    ),
    "running statistics": (
        TORCH
        + "torch.manual_seed(0)\nnorm, x = torch.nn.BatchNorm1d(2), torch.rand(4, 2)\ndef run():\n"
        + "    return {'mean': norm(x).detach() * 0 + norm.running_mean}\n",
        "mode",
    ),
    "setting": ("digits = [3]\ndef run():\n    found = round(2 / 3, digits[0])\n    digits[0] = 6\n    return {'x': found}\n", "state"),
    "number of the process": ("import os, time\ndef run():\n    return {'n': [os.getpid(), time.time_ns()]}\n", "unknown"),
}


@pytest.mark.parametrize(("source", "cause"), EVOLVING.values(), ids=EVOLVING)
def test_what_a_run_leaves_behind_is_state(program: Any, source: str, cause: str) -> None:
    """Runs of one process differ, runs of processes of their own do not: something is left behind."""
    found = detconf.verify(program(source), runs=3)
    assert (found.stable, str(found.cause)) == (False, cause), found.to_dict()["tried"]
    assert ("process of its own" in str(found.axes[0].restored_by)) == (cause == "state" or "kept" in source)


def test_seeds_of_a_program_that_sets_none_explain_nothing(program: Any) -> None:
    """Fixed seeds do not count where no seed is set: that runs agree with them would be chance."""
    source = "import os\nkept = []\ndef run():\n    kept.append(os.getpid())\n    return {'n': [len(kept), os.getpid()]}\n"
    tried = detconf.verify(program(source), runs=3).tried
    assert any("sets no seed" in each.note for each in tried), tried


@pytest.mark.usefixtures("unchanged_settings")
def test_seeds_are_the_programs_own_again() -> None:
    """What takes a seed is as it was after an experiment, and other things than seeds pass."""
    names = (
        (np.random, "seed"),
        (np.random, "default_rng"),
        (np.random.bit_generator, "randbits"),
        (torch, "manual_seed"),
        (torch, "seed"),
    )
    before = [getattr(owner, name) for owner, name in (*names, (torch.random, "manual_seed"), (paddle, "seed"), (random, "seed"))]
    with fixed():
        generator = np.random.PCG64(3)
        assert np.random.default_rng(generator).bit_generator is generator
        assert torch.seed() == 1
        drawn = np.random.default_rng(seed=None).random(), random.seed("text"), random.random(), paddle.seed(7)
    with fixed():
        assert torch.seed() == 1
        assert (np.random.default_rng().random(), random.seed(), random.random()) == drawn[:3]
    after = [getattr(owner, name) for owner, name in (*names, (torch.random, "manual_seed"), (paddle, "seed"), (random, "seed"))]
    assert after == before


def test_state_that_evolves_is_unknown_in_process() -> None:
    """A function that cannot be run in another process, and remembers its last call: nothing can be removed from outside."""
    calls: list[int] = []

    def count() -> dict[str, int]:
        calls.append(0)
        return {"n": len(calls)}

    found = detconf.verify(count, runs=3)
    assert str(found.cause) == "unknown"
    assert len(found.tried) >= len(IN_PROCESS)  # each but that of the generators, which it does not use, and all


def _evidence(outcomes: list[int]) -> Evidence:
    from detconf.arrays import Array, Place

    found = Evidence()
    for outcome in outcomes:
        found.add(Run({Place("x"): Array("int64", (), outcome.to_bytes(8, "little"))}))
    return found


@pytest.mark.parametrize(("outcomes", "runs"), [([0, 1], 6), ([0, 1, 2, 3], 4), ([0] * 9 + [1], 30), ([0] * 299 + [1], 899)])
def test_experiments_make_enough_runs(outcomes: list[int], runs: int) -> None:
    """As many runs as a difference of the frequency seen needs to show with 95 %: (1 - share) ** (runs - 1) <= 0.05."""
    needed = runs_needed(_evidence(outcomes))
    share = 1 - max(outcomes.count(value) for value in outcomes) / len(outcomes)
    assert (1 - share) ** (needed - 1) <= 0.05
    assert needed == pytest.approx(runs, abs=1)


def test_a_rare_difference_stays_unknown() -> None:
    """Where an experiment would take too many runs, none is made and none is believed."""
    found = explain(_evidence([0] * 999 + [1]), IN_PROCESS, lambda *_: pytest.fail("no experiment"), lambda: None)
    assert str(found.cause) == "unknown"
    assert "too rare" in found.tried[0].note


def test_the_smallest_set_is_found() -> None:
    """Two changes needed at once: neither alone is enough, and a third is dropped. The race is named first."""

    def again(setting: Setting, runs: int) -> Evidence:
        return _evidence([0] * runs if THREADS in setting.changes and ENTRY in setting.changes else [0, 1])

    found = explain(_evidence([0, 1, 2]), IN_PROCESS, again, lambda: None)
    assert str(found.cause) == "race"
    assert found.restored_by == f"{THREADS.words}; {ENTRY.words}"


def test_an_experiment_that_fails_is_a_note() -> None:
    """A change under which the target cannot run is not believed to help."""

    def again(_setting: Setting, _runs: int) -> Evidence:
        raise detconf.TargetError("no deterministic kernel")

    found = explain(_evidence([0, 1]), IN_PROCESS, again, lambda: None)
    assert str(found.cause) == "unknown"
    assert "no deterministic kernel" in found.tried[0].note


@pytest.fixture
def unchanged_settings() -> Any:
    """Experiments leave every control as it was, but for generators, from which the target itself draws."""
    from conftest import readings

    before = {name: value for name, value in readings().items() if not value.startswith("state ")}
    yield
    after = {name: value for name, value in readings().items() if not value.startswith("state ")}
    assert before == after, {name: (before[name], after.get(name)) for name in before if before[name] != after.get(name)}


def test_watching_leaves_the_frameworks_as_they_were() -> None:
    """Hooks and replaced methods are gone afterwards, also when the target raises."""
    hooks = torch.nn.modules.module
    before = (torch.autograd.backward, torch.autograd.grad, paddle.nn.Layer.__call__, paddle.Tensor.backward, paddle.grad)
    seen = Modes()
    with pytest.raises(ZeroDivisionError), watch_torch(seen, evaluate=True), watch_paddle(seen, evaluate=True):  # noqa: PT012  # all of it is the subject
        torch.nn.Dropout(0.5)(torch.ones(2, requires_grad=True)).sum().backward()
        paddle.nn.Dropout(0.5)(paddle.ones([2]))
        raise ZeroDivisionError
    assert (seen.trained, seen.training) == (True, {"Dropout"})
    assert before == (torch.autograd.backward, torch.autograd.grad, paddle.nn.Layer.__call__, paddle.Tensor.backward, paddle.grad)
    assert not hooks._global_forward_pre_hooks
    assert not hooks._global_forward_hooks
