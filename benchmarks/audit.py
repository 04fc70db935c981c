"""What an audit costs: each kind of instrumented run against the plain run, in one process, one thread, CPU time.

    python benchmarks/audit.py [--programs transformer cnn mlp "paddle mlp" "paddle transformer" "numpy lstm"] [--rounds 5] [--json FILE]

Each round runs the program plainly and under each kind of study, in turn, so that a busy moment of the machine meets all
of them. A ratio is that of the fastest round of each; starting and ending the study are included. The limits are those of
docs/design.md; with --check, exit 1 where one is passed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import numpy as np

import detconf
from detconf.auditing.attempts.fingerprint import last_product, named
from detconf.auditing.laboratory import Laboratory, Side
from detconf.auditing.widened import widened
from detconf.shadows.formats import round_to
from detconf.shadows.study import Known, Read, Study

Step = Callable[[], dict[str, Any]]
LIMITS = {
    ("transformer", "float64"): 3.0,
    ("paddle transformer", "float64"): 3.0,
    ("numpy lstm", "float64"): 3.0,
    ("transformer", "exact"): 12.0,
    ("transformer", "noise"): 12.0,
}
PRODUCT_LIMIT = 0.05
"""Seconds for the fingerprint of one product."""
KINDS: dict[str, dict[str, Any]] = {"exact": {}, "noise": {"noise": 0}, "local": {"local": True}}


def of_torch(name: str) -> Callable[[], Step]:
    """A training step of `models`."""

    def make() -> Step:
        import models
        import torch

        torch.set_num_threads(1)
        step, _ = models.training(name, foreach=False)
        return lambda: {"loss": step().detach()}

    return make


def paddle_mlp() -> Step:
    """An AdamW step of a small MLP in Paddle."""
    import paddle

    paddle.seed(0)
    layers = [paddle.nn.Linear(784, 256), paddle.nn.ReLU(), paddle.nn.Linear(256, 256), paddle.nn.ReLU(), paddle.nn.Linear(256, 10)]
    model = paddle.nn.Sequential(*layers)
    adam = paddle.optimizer.AdamW(1e-6, parameters=model.parameters())
    inputs, labels = paddle.randn([64, 784]), paddle.randint(0, 10, [64])

    def step() -> dict[str, Any]:
        loss = paddle.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        adam.step()
        adam.clear_grad()
        return {"loss": loss}

    return step


def paddle_transformer() -> Step:
    """An AdamW step of a transformer of two layers in Paddle."""
    import paddle

    paddle.seed(0)
    model = paddle.nn.TransformerEncoder(paddle.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0), 2)
    head = paddle.nn.Linear(128, 100)
    adam = paddle.optimizer.AdamW(1e-6, parameters=[*model.parameters(), *head.parameters()])
    inputs, labels = paddle.randn([8, 64, 128]), paddle.randint(0, 100, [8 * 64])

    def step() -> dict[str, Any]:
        loss = paddle.nn.functional.cross_entropy(head(model(inputs)).reshape([-1, 100]), labels)
        loss.backward()
        adam.step()
        adam.clear_grad()
        return {"loss": loss}

    return step


def numpy_lstm() -> Step:
    """An LSTM of 256 units over 32 steps of 16 rows, as people write it in NumPy."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((32, 16, 128)).astype(np.float32)
    weights = (generator.standard_normal((384, 1024)) * 0.05).astype(np.float32)

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    def step() -> dict[str, Any]:
        hidden: Any = np.zeros((16, 256), np.float32)
        cell = hidden
        for each in inputs:
            enter, forget, new, leave = np.split(np.concatenate([each, hidden], 1) @ weights, 4, 1)
            cell = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(new)
            hidden = sigmoid(leave) * np.tanh(cell)
        return {"hidden": hidden}

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    "transformer": of_torch("transformer"),
    "cnn": of_torch("cnn"),
    "mlp": of_torch("mlp"),
    "paddle mlp": paddle_mlp,
    "paddle transformer": paddle_transformer,
    "numpy lstm": numpy_lstm,
}


def clock(action: Callable[[], Any]) -> float:
    """CPU seconds."""
    begun = time.process_time()
    action()
    return time.process_time() - begun


def measure(name: str, rounds: int) -> dict[str, float]:
    """Seconds of a plain run, and ratios to it by kind of run."""
    step = PROGRAMS[name]()
    laboratory, side = Laboratory(), Side("the program", step)
    runs: dict[str, Callable[[], Any]] = {kind: partial(laboratory.study, side, **options) for kind, options in KINDS.items()}
    runs = {"float64": lambda: widened(laboratory, side), **runs}
    least = dict.fromkeys(["plain", *runs], float("inf"))
    for run in (lambda: laboratory.plain(side), *runs.values()):
        run()  # imports and caches
    for _ in range(rounds):
        for kind, run in runs.items():
            least["plain"] = min(least["plain"], clock(lambda: laboratory.plain(side)))
            least[kind] = min(least[kind], clock(run))
    if laboratory.problems:
        print(f"{name}: {laboratory.problems}", file=sys.stderr)
    return {kind: seconds if kind == "plain" else seconds / least["plain"] for kind, seconds in least.items()}


def pair() -> dict[str, float]:
    """A whole audit of two transformer steps, forward and backward, that differ by the order of a sum."""
    import models
    import torch

    torch.set_num_threads(1)

    def side(*, split: bool) -> Step:
        def run() -> dict[str, Any]:
            torch.manual_seed(0)
            model, inputs, labels = models._transformer(small=False)  # noqa: SLF001  # ours
            losses = [
                torch.nn.functional.cross_entropy(row, label, reduction="sum") for row, label in zip(model(inputs), labels, strict=True)
            ]
            loss = sum(losses[::-1] if split else losses) / labels.numel()
            loss.backward()
            return {"loss": loss.detach(), "gradient": model.head.weight.grad}

        return run

    a, b = side(split=False), side(split=True)
    a(), b()
    plain = clock(a) + clock(b)
    found: list[Any] = []
    whole = clock(lambda: found.append(detconf.audit(a, b)))
    print(f"\nwhole audit of a transformer pair: {whole:.1f} s, {whole / plain:.0f} times the plain pair: {found[0].cause}")
    return {"plain": plain, "audit": whole / plain}


def product() -> float:
    """Seconds for the fingerprint of 512x1536 times 1536x1536."""
    generator = np.random.default_rng(0)
    left, right = generator.standard_normal((512, 1536)), generator.standard_normal((1536, 1536)) * 0.02
    study, exact = Study(), left @ right
    reads = [Read(study.leaf(each, "float32", "made here")[0]) for each in (left, right)]
    [(value, _)] = study.operation("some.matmul", reads, [(exact, "float32", None)])
    error = round_to(left, "tf32") @ round_to(right, "tf32") - exact

    def run() -> None:
        known = last_product(study, Known(exact, value))
        assert known is not None and named(known.tried(error)) == "tf32"  # noqa: PT018

    seconds = min(clock(run) for _ in range(9))
    print(f"fingerprint of a 1536x1536 product: {seconds * 1e3:.1f} ms  limit {PRODUCT_LIMIT * 1e3:.0f} ms")
    return seconds


def machine() -> str:
    """The kind of machine, and when."""
    with Path("/proc/cpuinfo").open(encoding="utf-8") if Path("/proc/cpuinfo").exists() else open(os.devnull, encoding="utf-8") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    kind = names[0] if names else platform.machine()
    return f"{kind}, {os.cpu_count()} cores, {datetime.now(timezone.utc):%Y-%m-%d}, load {os.getloadavg()[0]:.1f}"


def over(found: dict[str, Any]) -> Iterator[str]:
    """The limits that were passed."""
    for (name, kind), limit in LIMITS.items():
        if found["programs"].get(name, {}).get(kind, 0.0) > limit:
            yield f"{name}, {kind}: {found['programs'][name][kind]:.1f} times the plain run, limit {limit:g}"
    if found["product"] > PRODUCT_LIMIT:
        yield f"fingerprint: {found['product'] * 1e3:.0f} ms, limit {PRODUCT_LIMIT * 1e3:.0f} ms"


def main() -> int:
    """Measure and print. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="*", choices=tuple(PROGRAMS), default=tuple(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "programs": {}}
    print(f"{found['machine']}; 1 thread, CPU time, fastest of {options.rounds} rounds, times the plain run")
    for name in options.programs:
        found["programs"][name] = ratios = measure(name, options.rounds)
        cells = "".join(f"  {kind} {ratio:5.1f}" for kind, ratio in ratios.items() if kind != "plain")
        print(f"  {name:<18} {ratios['plain'] * 1e3:7.1f} ms {cells}", flush=True)
    found["pair"] = pair()
    found["product"] = product()
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    passed = list(over(found))
    print("\n".join(passed) or "all limits kept")
    return 1 if passed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
