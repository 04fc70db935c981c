"""A test of Paddle's AdamW fails in dynamic mode and passes in static mode: which of the two is wrong? (Paddle#62679)

    python examples/adamw_dynamic_vs_static.py            the story
    python examples/adamw_dynamic_vs_static.py --json     name -> verdict
    python examples/adamw_dynamic_vs_static.py dynamic    one side by itself, its results published, for `detconf record`
    detconf audit -- python examples/adamw_dynamic_vs_static.py test     the failing test as the question

The test trains two layers for five steps, each layer with a learning rate of its own, feeds the gradients to a NumPy
AdamW beside it, and wants `rtol=1e-6` between the parameters. `lr_ratio`, which the original uses, is not implemented on
CPU; a learning rate per parameter is the portable equivalent.
"""

import argparse
import json
import math
import sys
import unittest
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np
import paddle

import detconf

SIZES = (13, 8, 5)
STEPS = 5
BATCH = 2
RTOL = 1e-6
INITIALISATIONS = 200
RATE, DECAY, EPSILON = 0.001, 0.01, 1e-8
BETA1, BETA2 = 0.9, 0.999
RATIOS = (0.8**3, 0.8**2)  # decay_rate ** (n_layers + 1 - layer), as in the original's simple_lr_setting

Arrays = dict[str, np.ndarray]


def start(seed: int) -> tuple[Arrays, np.ndarray]:
    """(weights by name, one batch per step): Paddle's default initialisation of weights, biases of 1."""
    random = np.random.default_rng(seed)
    weights: Arrays = {}
    for layer, (rows, columns) in enumerate(pairwise(SIZES), 1):
        limit = math.sqrt(6 / (rows + columns))
        weights[f"w{layer}"] = random.uniform(-limit, limit, (rows, columns)).astype("float32")
        weights[f"b{layer}"] = np.ones(columns, "float32")
    return weights, random.uniform(-1, 1, (STEPS, BATCH, SIZES[0])).astype("float32")


# --- the three modes ---------------------------------------------------------------------------------------------------


def layers(weights: Arrays) -> list[paddle.nn.Linear]:
    """The two layers, each parameter with the learning rate of its layer."""

    def attribute(name: str, ratio: float) -> paddle.ParamAttr:
        return paddle.ParamAttr(initializer=paddle.nn.initializer.Assign(weights[name]), learning_rate=ratio)

    return [
        paddle.nn.Linear(rows, columns, attribute(f"w{layer}", ratio), attribute(f"b{layer}", ratio))
        for layer, ((rows, columns), ratio) in enumerate(zip(pairwise(SIZES), RATIOS, strict=True), 1)
    ]


def optimizer(parameters: list[paddle.Tensor]) -> paddle.optimizer.AdamW:
    return paddle.optimizer.AdamW(RATE, BETA1, BETA2, EPSILON, parameters, DECAY)


def training(seed: int, *, graph: bool) -> Iterator[tuple[Arrays, Arrays]]:
    """Step by step: (gradients, parameters after the update), in dynamic mode or with the forward pass as a graph."""
    weights, batches = start(seed)
    net = paddle.nn.Sequential(*layers(weights))
    forward = paddle.jit.to_static(net.forward, full_graph=True) if graph else net.forward
    named = {f"{kind}{layer}": getattr(net[layer - 1], which) for layer in (1, 2) for kind, which in (("w", "weight"), ("b", "bias"))}
    update = optimizer(list(named.values()))
    for batch in batches:
        paddle.mean(forward(paddle.to_tensor(batch))).backward()
        gradients = {name: parameter.grad.numpy() for name, parameter in named.items()}
        update.step()
        update.clear_grad()
        yield gradients, {name: parameter.numpy() for name, parameter in named.items()}


def outcome(steps: Iterator[tuple[Arrays, Arrays]]) -> Arrays:
    """The parameters after the last step."""
    *_, (_, parameters) = steps
    return parameters


def dynamic() -> Arrays:
    """Dynamic mode."""
    return outcome(training(seed=2022, graph=False))


def to_static() -> Arrays:
    """The forward pass captured by `to_static`, the optimizer in dynamic mode."""
    return outcome(training(seed=2022, graph=True))


def static(*, moments: bool = False) -> Arrays:
    """Forward, backward and update in one static Program."""
    weights, batches = start(seed=2022)
    paddle.enable_static()
    try:
        program, startup, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
        with paddle.utils.unique_name.guard(), paddle.static.scope_guard(scope), paddle.static.program_guard(program, startup):
            inputs = paddle.static.data("inputs", [BATCH, SIZES[0]], "float32")
            first, second = layers(weights)
            named = {"w1": first.weight, "b1": first.bias, "w2": second.weight, "b2": second.bias}
            update = optimizer(list(named.values()))
            update.minimize(paddle.mean(second(first(inputs))))
            if moments:
                kept = partial(update._get_accumulator, "moment2")  # noqa: SLF001  # there is no other way to fetch it
                named |= {f"second moment of {name}": kept(each) for name, each in named.items()}
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(startup)
            for batch in batches:
                found = executor.run(program, feed={"inputs": batch}, fetch_list=list(named.values()))
    finally:
        paddle.disable_static()
    return dict(zip(named, found, strict=True))


def static_with_moments() -> Arrays:
    """The same, and what AdamW keeps between the steps."""
    return static(moments=True)


# --- the references ----------------------------------------------------------------------------------------------------


def adamw_as_tested(state: list[np.ndarray], gradient: np.ndarray, ratio: float, step: int) -> list[np.ndarray]:
    """One update, as the test's reference has it: hyper-parameters are Python floats, arrays are float32."""
    parameter, first, second = state
    rate = np.float32(RATE * ratio)
    power1, power2 = np.float32(BETA1**step), np.float32(BETA2**step)
    parameter = parameter * (1.0 - rate * DECAY)
    first = BETA1 * first + (1 - BETA1) * gradient
    second = BETA2 * second + (1 - BETA2) * np.square(gradient)
    root = np.sqrt(second) / np.sqrt(1.0 - power2) + EPSILON
    return [parameter + (first / root) * -(rate / (1.0 - power1)), first, second]


def fused(x: np.ndarray, factor: np.float32, addend: np.ndarray) -> np.ndarray:
    """x * factor + addend with one rounding to float32, as kernels compute it where the processor has FMA."""
    return (x.astype("float64") * factor + addend).astype("float32")


def adamw_as_computed(state: list[np.ndarray], gradient: np.ndarray, ratio: float, step: int) -> list[np.ndarray]:
    """One update in float32 throughout and in the order of Paddle's CPU kernel; powers of beta are running products."""
    parameter, first, second = state
    one, beta1, beta2, epsilon, decay = map(np.float32, (1, BETA1, BETA2, EPSILON, DECAY))
    rate = np.float32(RATE) * np.float32(ratio)
    power1, power2 = one, one
    for _ in range(step):
        power1, power2 = power1 * beta1, power2 * beta2
    root = np.sqrt(one - power2)
    first = fused(first, beta1, (one - beta1) * gradient)
    second = fused(second, beta2, (one - beta2) * (gradient * gradient))
    parameter = parameter - rate * decay * parameter
    return [fused(first / (np.sqrt(second) + epsilon * root), -(rate * (root / (one - power1))), parameter), first, second]


Update = Callable[[list[np.ndarray], np.ndarray, float, int], list[np.ndarray]]


def followed(update: Update, seed: int, *, moments: bool = False) -> Iterator[tuple[Arrays, Arrays]]:
    """Step by step: (Paddle's parameters, the reference's), which is given Paddle's gradients as in the test."""
    weights, _ = start(seed)
    state = {name: [array, np.zeros_like(array), np.zeros_like(array)] for name, array in weights.items()}
    for step, (gradients, parameters) in enumerate(training(seed, graph=False), 1):
        for name, gradient in gradients.items():
            state[name] = update(state[name], gradient, RATIOS[int(name[1]) - 1], step)
        seconds = {f"second moment of {name}": each[2] for name, each in state.items()} if moments else {}
        yield parameters, {name: each[0] for name, each in state.items()} | seconds


def reference() -> Arrays:
    """The test's reference after five steps."""
    return outcome(followed(adamw_as_tested, seed=2022))


def reference_with_moments() -> Arrays:
    """The same, and its second moments."""
    return outcome(followed(adamw_as_tested, seed=2022, moments=True))


def corrected() -> Arrays:
    """The reference that forms its scalars in float32."""
    return outcome(followed(adamw_as_computed, seed=2022))


class LayerwiseAdamW(unittest.TestCase):
    """The test, in the shape of Paddle's own TestAdamWOpLayerwiseLR."""

    def test_dynamic(self) -> None:
        """The parameters after every step, against NumPy."""
        for parameters, expected in followed(adamw_as_tested, seed=2022):
            for name, array in parameters.items():
                np.testing.assert_allclose(array, expected[name], rtol=RTOL)


# --- the story ---------------------------------------------------------------------------------------------------------

SIDES = {each.__name__: each for each in (dynamic, to_static, static, static_with_moments, reference, reference_with_moments, corrected)}
PAIRS = {
    "static against dynamic": (dynamic, static),
    "to_static against dynamic": (dynamic, to_static),
    "dynamic against the test's reference": (reference, dynamic),
    "to_static against the test's reference": (reference, to_static),
    "static against the test's reference": (reference_with_moments, static_with_moments),
    "dynamic against a float32 reference": (corrected, dynamic),
}
RECORDING = """\
  on that device, one command:      detconf record --values --sources -o device.det -- python {file} dynamic
  the audit, anywhere, one command: detconf audit {file}:reference device.det
  or the failing test recorded:     detconf record --values --sources -o test.det -- python {file} test
  and audited anywhere:             detconf audit test.det
  or the reference recorded too:    detconf record --values --sources -o reference.det -- python {file} reference
  and audited without running it:   detconf audit reference.det device.det"""


def trips(update: Update, seed: int) -> bool:
    """Would the test fail from this initialisation?"""
    return any(
        not np.allclose(array, expected[name], rtol=RTOL, atol=0)
        for parameters, expected in followed(update, seed)
        for name, array in parameters.items()
    )


def chance(update: Update) -> str:
    """How often the test fails, over many initialisations, with a 95 % interval (Wilson)."""
    count = sum(trips(update, seed) for seed in range(INITIALISATIONS))
    share, z = count / INITIALISATIONS, 1.96
    middle = (share + z**2 / (2 * INITIALISATIONS)) / (1 + z**2 / INITIALISATIONS)
    half = z * math.sqrt(share * (1 - share) / INITIALISATIONS + z**2 / (4 * INITIALISATIONS**2)) / (1 + z**2 / INITIALISATIONS)
    return f"{count} of {INITIALISATIONS} initialisations fail ({share:.0%}; 95 % interval {middle - half:.0%} to {middle + half:.0%})"


def tell(audits: dict[str, detconf.Audit]) -> None:
    """Print the story."""
    for name, found in audits.items():
        print(f"\n=== {name}\n{found}")
    print(f"\n=== how often rtol={RTOL:g} fails, with Paddle's own kernel in dynamic mode; no static mode is involved")
    print(f"  against the test's reference:    {chance(adamw_as_tested)}")
    print(f"  against the float32 reference:   {chance(adamw_as_computed)}")
    print("\n=== not examined: the Hygon DCU of the report. What can be said of it without being there:")
    print(RECORDING.format(file="examples/adamw_dynamic_vs_static.py"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", nargs="?", choices=[*SIDES, "test"], help="run that side alone and publish its results, or the test")
    parser.add_argument("--json", action="store_true", help="verdicts by name")
    options = parser.parse_args()
    if options.side == "test":
        unittest.main(argv=[__file__])
    if options.side:
        for name, array in SIDES[options.side]().items():
            detconf.publish(name, array)
        return
    audits = {name: detconf.audit(*sides) for name, sides in PAIRS.items()}
    audits["the failing test itself"] = detconf.audit([sys.executable, __file__, "test"])
    if options.json:
        print(json.dumps({name: each.to_dict() for name, each in audits.items()}, indent=2))
    else:
        tell(audits)


if __name__ == "__main__":
    main()
