"""What recording adds to Paddle in dynamic graphs: process time, one process, interleaved, medians.

    python benchmarks/recording_paddle.py [--rounds 9] [--steps 6]

A round makes some steps without and then with a recording, once warm. A ratio is the median of the ratios of the rounds,
with the middle half of them. "forward" runs without gradients, "training" is a whole AdamW step. Exit 1 where a limit
is passed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn

import detconf

LIMITS = {"forward": 1.35, "training": 1.8}


class _Encoder(nn.Layer):  # type: ignore[misc]  # paddle is not typed for us
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1), 2)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(x).mean(1))


def _convolutions() -> Any:
    blocks: list[Any] = []
    for index in range(4):
        blocks += [nn.Conv2D(3 if index == 0 else 32, 32, 3, padding=1), nn.BatchNorm2D(32), nn.ReLU()]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(32, 10))


def _perceptron() -> Any:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


MODELS: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "transformer": (_Encoder, [16, 64, 128]),
    "cnn": (_convolutions, [16, 3, 32, 32]),
    "mlp": (_perceptron, [64, 784]),
}


def programs(name: str, steps: int) -> dict[str, Callable[[], None]]:
    """Two functions that make `steps` steps of a model."""
    paddle.seed(0)
    make, shape = MODELS[name]
    model = make()
    inputs, labels = paddle.rand(shape), paddle.randint(0, 10, [shape[0]])
    optimizer = paddle.optimizer.AdamW(parameters=model.parameters(), learning_rate=1e-6)

    def forward() -> None:
        with paddle.no_grad():
            for _ in range(steps):
                model(inputs)

    def training() -> None:
        for _ in range(steps):
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            optimizer.clear_grad()

    return {"forward": forward, "training": training}


def seconds(program: Callable[[], None]) -> float:
    """Process time of a call."""
    begun = time.process_time()
    program()
    return time.process_time() - begun


def measure(program: Callable[[], None], rounds: int, path: str) -> tuple[list[float], float, int]:
    """(ratio of each round, seconds without, events)."""
    program()
    ratios, plain = [], []
    for _ in range(rounds):
        without = seconds(program)
        with detconf.record(path) as recorder:
            program()
            begun = recorder.index
            ratios.append(seconds(program) / without)
        plain.append(without)
    return ratios, statistics.median(plain), recorder.index - begun


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args(arguments)
    print(
        f"{os.cpu_count()} cores, paddle {paddle.__version__}\n\n| model | | ms | events | ratio | from | to |\n|---|---|---|---|---|---|---|"
    )
    passed = True
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            for kind, program in programs(name, options.steps).items():
                ratios, plain, events = measure(program, options.rounds, os.path.join(folder, "run.det"))
                low, middle, high = statistics.quantiles(ratios, n=4)
                passed &= middle <= LIMITS[kind]
                print(
                    f"| {name} | {kind} | {plain / options.steps * 1e3:.2f} | {events // options.steps} | {middle:.2f} | {low:.2f} | {high:.2f} |"
                )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
