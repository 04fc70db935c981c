"""One Linear(1536, 1536), equal weights, inputs equal to 2.7e-8, and outputs 1.2e-4 apart: torch against paddle on an RTX 3090.

    python examples/linear_torch_vs_paddle.py          the story
    python examples/linear_torch_vs_paddle.py --json   name -> verdict

There is no GPU here. What Paddle gave on it is *emulated*: a float32 product of inputs rounded to TF32, which is what its
tensor cores do with `float32` matrices where TF32 is allowed. detconf is given those numbers as bare arrays, as someone
would who has only a file from that machine, and is told nothing of how they were made. Everything else is run.
"""

import argparse
import json

import numpy as np
import paddle
import torch

import detconf
from detconf.frameworks import catalogue

ROWS, SIZE = 128, 1536
INPUTS_APART = 2.7e-8  # mean absolute difference, as reported

Arrays = dict[str, np.ndarray]


def made() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(inputs, weight as torch has it, bias): unit normal inputs, torch's default initialisation."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(SIZE, SIZE)
    return torch.randn(ROWS, SIZE).numpy(), layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()


def nearly(inputs: np.ndarray) -> np.ndarray:
    """The inputs with as many elements moved to the next float32 as make the reported mean difference."""
    step = np.spacing(np.abs(inputs))
    moved = np.random.default_rng(0).random(inputs.shape) < INPUTS_APART / step.mean()
    return inputs + np.where(moved, step, np.float32(0))


def to_tf32(array: np.ndarray) -> np.ndarray:
    """Float32 rounded to 10 explicit bits of significand, to nearest, ties to even."""
    bits = array.view(np.uint32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


INPUTS, WEIGHT, BIAS = made()
OTHER_INPUTS = nearly(INPUTS)


def torch_on_cpu() -> dict[str, torch.Tensor]:
    """The reference."""
    return {"y": torch.nn.functional.linear(torch.from_numpy(INPUTS), torch.from_numpy(WEIGHT), torch.from_numpy(BIAS))}


def paddle_on_cpu() -> dict[str, paddle.Tensor]:
    """The same layer in Paddle, whose weight is the transpose."""
    weight = paddle.to_tensor(np.ascontiguousarray(WEIGHT.T))
    return {"y": paddle.nn.functional.linear(paddle.to_tensor(INPUTS), weight, paddle.to_tensor(BIAS))}


def paddle_on_gpu_emulated() -> Arrays:
    """What the GPU's arrays look like, with its own nearly equal inputs."""
    return {"y": to_tf32(OTHER_INPUTS) @ to_tf32(WEIGHT).T + BIAS}


def apart(a: np.ndarray, b: np.ndarray) -> float:
    """Mean absolute difference: the figure of the report."""
    return float(np.mean(np.abs(a.astype("float64") - b)))


def propagated() -> float:
    """What the difference of the inputs alone does to the outputs, in float64."""
    weight = WEIGHT.T.astype("float64")
    return apart(OTHER_INPUTS.astype("float64") @ weight, INPUTS.astype("float64") @ weight)


def one_by_one() -> np.ndarray:
    """The same float32 sums in the plainest order: products added one after the other."""
    found = np.zeros((ROWS, SIZE), "float32")
    for column, weights in zip(INPUTS.T, WEIGHT.T, strict=True):
        found += np.outer(column, weights)
    return found + BIAS


def switches() -> dict[str, list[str]]:
    """Framework -> the knobs of detconf's catalogue that turn TF32 off, with the value that does."""
    found: dict[str, list[str]] = {}
    for name, knob in catalogue().items():
        values = knob.serves.get("tf32")
        if isinstance(values, dict) and values.get(False, None) is not None:
            found.setdefault(knob.framework, []).append(f"{name} = {values[False]!r}")
    return found


def tell(audits: dict[str, detconf.Audit]) -> None:
    """Print the story."""
    outputs = torch_on_cpu()["y"].numpy()
    emulated = paddle_on_gpu_emulated()["y"]
    print(f"mean absolute differences of {ROWS} x {SIZE} outputs")
    print(f"  between torch here and the arrays of the GPU (emulated): {apart(outputs, emulated):.2g}   reported: 1.2e-4")
    print(f"  the inputs differ by {apart(INPUTS, OTHER_INPUTS):.2g}, which propagates to    {propagated():.2g}")
    kernel, plainest = apart(outputs, paddle_on_cpu()["y"].numpy()), apart(outputs, one_by_one())
    print(f"  the same float32 sums in another order: by paddle's kernel here {kernel:.2g}, one by one {plainest:.2g}")
    for name, found in audits.items():
        print(f"\n=== {name}\n{found}")
    print("\n=== what turns TF32 off (from detconf's catalogue; `tf32: false` in a profile sets all of these)")
    for framework, lines in switches().items():
        for line in lines:
            print(f"  {framework:8}{line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="verdicts by name")
    options = parser.parse_args()
    audits = {
        "torch on CPU against paddle on GPU (emulated)": detconf.audit(torch_on_cpu, paddle_on_gpu_emulated()),
        "torch on CPU against paddle on CPU": detconf.audit(torch_on_cpu, paddle_on_cpu),
    }
    if options.json:
        print(json.dumps({name: each.to_dict() for name, each in audits.items()}, indent=2))
    else:
        tell(audits)


if __name__ == "__main__":
    main()
