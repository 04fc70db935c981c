"""What recording costs a training step, beside the recorders of others: ratios of CPU time in one process, one thread.

    python benchmarks/recording.py [--models transformer cnn mlp] [--rounds 9] [--optimizer single]

Each round runs one block of steps bare and one under each recorder, in turn, so that a busy moment of the machine meets
all of them. A ratio is that of one round, starting and closing the recording included; shown are the median and the
middle half. The limits are those of docs/design.md; with --check, exit 1 where one is passed. msprobe (mindstudio-probe) is
measured where this Python can import it, each of its modes beside bare blocks in a process of its own: there is one in a process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import models
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import detconf

STEPS = {"transformer": 3, "cnn": 8, "mlp": 60}
"""Steps of a block: some tenths of a second or more."""
LIMITS = {"operations": {"transformer": 1.12, "cnn": 1.12, "mlp": 1.7}, "state": {"transformer": 1.05, "cnn": 1.05, "mlp": 1.15}}
OPTIMIZERS: dict[str, dict[str, Any]] = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
MSPROBE = {"msprobe, L1 statistics": "statistics", "msprobe, L1 md5": "md5"}
Step = Callable[[], Any]
Recorder = Callable[[Any], AbstractContextManager[Callable[[Step], Step] | Any]]
"""Of a model: a context around a block of steps; where it gives a function, that makes the step that is recorded of a bare one."""


class Nothing(TorchDispatchMode):
    """The floor that every recorder of operations stands on: each is called, and nothing else."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def recorders(folder: str) -> dict[str, Recorder]:
    """Name -> a context around a block of steps of a model."""
    from torch.utils._debug_mode import DebugMode

    path = os.path.join(folder, "run.det")

    @contextmanager
    def debug(hashes: str | None) -> Iterator[None]:
        with DebugMode(), DebugMode.log_tensor_hashes(hash_fn=hashes) if hashes else nullcontext():
            yield

    return {
        "a dispatch mode that does nothing": lambda _: Nothing(),
        "detconf, operations": lambda _: detconf.record(path),
        "detconf, operations and sources": lambda _: detconf.record(path, sources=True),
        "detconf, state": lambda _: detconf.record(path, level="state"),
        "torch DebugMode": lambda _: debug(None),
        "torch DebugMode, hash_tensor": lambda _: debug("hash_tensor"),
        "torch DebugMode, norm": lambda _: debug("norm"),
        "forward hooks, sha256": hooked,
    }


@contextmanager
def hooked(model: Any) -> Iterator[None]:
    """What people write by hand: a hook on every layer that hashes its output."""
    hashes: list[str] = []

    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            hashes.append(hashlib.sha256(output.detach().contiguous().numpy().view("uint8")).hexdigest())

    handles = [each.register_forward_hook(hook) for each in model.modules() if not list(each.children())]
    try:
        yield
    finally:
        for each in handles:
            each.remove()


def msprobe(folder: str, summary: str) -> Recorder:
    """msprobe as its documentation has it: the interfaces that a step calls, from start to stop, into a folder per step."""
    from msprobe.pytorch import PrecisionDebugger

    statistics_of = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": summary}
    config = {"task": "statistics", "dump_path": folder, "rank": [], "step": [], "level": "L1", "statistics": statistics_of}
    path = Path(folder, "config.json")
    path.write_text(json.dumps(config))
    debugger = PrecisionDebugger(config_path=str(path))

    @contextmanager
    def recorded(model: Any) -> Iterator[Callable[[Step], Step]]:
        def recording(step: Step) -> Step:
            def run() -> Any:
                debugger.start(model=model)
                try:
                    return step()
                finally:
                    debugger.stop()
                    debugger.step()

            return run

        yield recording

    return recorded


def of_msprobe(name: str, options: argparse.Namespace, folder: str, summary: str) -> list[float]:
    """A ratio per round, from a process of its own."""
    path = Path(folder, f"{summary}.json")
    words = [sys.executable, __file__, "--msprobe", summary, str(path), "--models", name, "--rounds", str(options.rounds)]
    subprocess.run([*words, "--optimizer", options.optimizer], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return list(json.loads(path.read_text()))


def measure(name: str, optimizer: str, rounds: int, every: dict[str, Recorder]) -> tuple[float, dict[str, list[float]]]:
    """(seconds of a bare step, recorder -> a ratio per round)."""
    step, model = models.training(name, **OPTIMIZERS[optimizer])

    def block(context: AbstractContextManager[Any]) -> float:
        begun = time.process_time()
        with context as made:
            run = made(step) if callable(made) else step
            for _ in range(STEPS[name]):
                run()
        return time.process_time() - begun

    for make in (lambda _: nullcontext(), *every.values()):
        with make(model) as made:
            (made(step) if callable(made) else step)()  # imports and caches
    ratios: dict[str, list[float]] = {each: [] for each in every}
    bare: list[float] = []
    for _ in range(rounds):
        bare.append(block(nullcontext()))
        for each, make in every.items():
            before = block(nullcontext())  # beside each one: the clock of a busy machine drifts
            ratios[each].append(block(make(model)) / ((bare[-1] + before) / 2))
            bare[-1] = before
    return statistics.median(bare) / STEPS[name], ratios


def size(name: str, optimizer: str, folder: str) -> tuple[float, float]:
    """(events, bytes) of a recorded step, of twenty."""
    step, _ = models.training(name, **OPTIMIZERS[optimizer])
    path = os.path.join(folder, "size.det")
    step()
    with detconf.record(path) as made:
        for _ in range(20):
            step()
    return made.index / 20, os.path.getsize(path) / 20


def main() -> int:
    """Measure and print. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=models.NAMES, default=models.NAMES)
    parser.add_argument("--optimizer", choices=tuple(OPTIMIZERS), default="single")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--msprobe", nargs=2, metavar=("SUMMARY", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.msprobe:
        summary, file = options.msprobe
        with tempfile.TemporaryDirectory() as folder:
            every = {summary: msprobe(folder, summary)}
            Path(file).write_text(json.dumps(measure(options.models[0], options.optimizer, options.rounds, every)[1][summary]))
        return 0
    passed = True
    print(
        f"torch {torch.__version__}, 1 thread, CPU time, median of {options.rounds} rounds, AdamW {options.optimizer}, load {os.getloadavg()[0]:.1f}"
    )
    for name in options.models:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            events, written = size(name, options.optimizer, folder)
            bare, ratios = measure(name, options.optimizer, options.rounds, recorders(folder))
            if find_spec("msprobe"):
                ratios |= {label: of_msprobe(name, options, folder, summary) for label, summary in MSPROBE.items()}
        print(f"\n{name}: {bare * 1e3:.1f} ms a step, {events:.0f} events and {written / 1e3:.1f} kB recorded")
        for each, found in ratios.items():
            low, middle, high = statistics.quantiles(found, n=4)
            limit = LIMITS.get(each.removeprefix("detconf, "), {}).get(name)
            verdict = "" if limit is None else f"  limit {limit}: {'kept' if middle <= limit else 'OVER'}"
            passed = passed and (limit is None or middle <= limit)
            print(f"  {each:<33} {middle:5.2f}  ({low:.2f} to {high:.2f}){verdict}")
    if not find_spec("msprobe"):
        print("\nmsprobe: skipped, not installed")
    return 0 if passed or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
