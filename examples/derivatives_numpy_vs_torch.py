"""First and second derivatives through sigmoid layers, written in NumPy and in torch, all in float64: reported 10 % apart.

    python examples/derivatives_numpy_vs_torch.py          the story
    python examples/derivatives_numpy_vs_torch.py --json   name -> verdict

Is it rounding? The honest pair says how far apart two correct programs are. The advice that the reporter was given is
tried, each piece by itself, and its effect measured. Then faults of the kinds that can make 10 % are planted on the torch
side, one at a time, and detconf has to find them; it is told nothing but the two functions.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import torch

import detconf

POINTS, SIZES = 32, (3, 24, 24, 24, 1)
REPORTED = 0.1

Tensors = dict[str, torch.Tensor]

_random = np.random.default_rng(0)
WEIGHTS = [_random.normal(0, 3 / np.sqrt(rows), (rows, columns)) for rows, columns in pairwise(SIZES)]
POSITIONS = _random.uniform(-1, 1, (POINTS, SIZES[0]))
DIRECTION = np.broadcast_to(np.eye(SIZES[0])[0], POSITIONS.shape).copy()  # derivatives by the first coordinate


def with_numpy() -> dict[str, np.ndarray]:
    """The value, its first and its second derivative."""
    x, dx, ddx = POSITIONS, DIRECTION, np.zeros_like(POSITIONS)
    for weight in WEIGHTS:
        z, dz, ddz = x @ weight, dx @ weight, ddx @ weight
        s = 1 / (1 + np.exp(-z))
        slope = s * (1 - s)
        curve = slope * (1 - 2 * s)
        x, dx, ddx = s, slope * dz, curve * dz**2 + slope * ddz
    return {"value": x, "first": dx, "second": ddx}


def own_sigmoid(z: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-z))


def with_torch(
    *,
    sigmoid: Callable[[torch.Tensor], torch.Tensor] = torch.sigmoid,
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.mm,
    split: bool = False,
) -> Tensors:
    """The same in torch; options are pieces of advice."""
    x, dx, ddx = torch.from_numpy(POSITIONS), torch.from_numpy(DIRECTION), torch.zeros(POSITIONS.shape, dtype=torch.float64)
    for weight in map(torch.from_numpy, WEIGHTS):
        z, dz, ddz = product(x, weight), product(dx, weight), product(ddx, weight)
        s = sigmoid(z)
        slope = s * (1 - s)
        curve = slope * (1 - 2 * s)
        if split:
            curved = curve * dz
            curved *= dz
            straight = slope * ddz
            x, dx, ddx = s, slope * dz, curved + straight
        else:
            x, dx, ddx = s, slope * dz, curve * dz**2 + slope * ddz
    return {"value": x, "first": dx, "second": ddx}


def with_default_float64() -> Tensors:
    """Under `torch.set_default_dtype(torch.float64)`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return with_torch()
    finally:
        torch.set_default_dtype(before)


def on_cpu() -> Tensors:
    """Under a device context that puts everything on the CPU."""
    with torch.device("cpu"):
        return {name: tensor.cpu() for name, tensor in with_torch().items()}


# --- faults ------------------------------------------------------------------------------------------------------------


def float32_in_one_product() -> Tensors:
    """The first derivative goes through float32 in the second layer."""
    x, dx, ddx = torch.from_numpy(POSITIONS), torch.from_numpy(DIRECTION), torch.zeros(POSITIONS.shape, dtype=torch.float64)
    for number, weight in enumerate(map(torch.from_numpy, WEIGHTS)):
        z, ddz = x @ weight, ddx @ weight
        dz = (dx.float() @ weight.float()).double() if number == 1 else dx @ weight
        s = torch.sigmoid(z)
        slope = s * (1 - s)
        curve = slope * (1 - 2 * s)
        x, dx, ddx = s, slope * dz, curve * dz**2 + slope * ddz
    return {"value": x, "first": dx, "second": ddx}


def not_squared() -> Tensors:
    """`dz` where `dz**2` belongs, in every layer."""
    x, dx, ddx = torch.from_numpy(POSITIONS), torch.from_numpy(DIRECTION), torch.zeros(POSITIONS.shape, dtype=torch.float64)
    for weight in map(torch.from_numpy, WEIGHTS):
        z, dz, ddz = x @ weight, dx @ weight, ddx @ weight
        s = torch.sigmoid(z)
        slope = s * (1 - s)
        curve = slope * (1 - 2 * s)
        x, dx, ddx = s, slope * dz, curve * dz + slope * ddz
    return {"value": x, "first": dx, "second": ddx}


def with_weights(weights: list[torch.Tensor]) -> Tensors:
    x, dx, ddx = torch.from_numpy(POSITIONS), torch.from_numpy(DIRECTION), torch.zeros(POSITIONS.shape, dtype=torch.float64)
    for weight in weights:
        z, dz, ddz = x @ weight, dx @ weight, ddx @ weight
        s = torch.sigmoid(z)
        slope = s * (1 - s)
        curve = slope * (1 - 2 * s)
        x, dx, ddx = s, slope * dz, curve * dz**2 + slope * ddz
    return {"value": x, "first": dx, "second": ddx}


def swapped() -> list[torch.Tensor]:
    """The two square weights in each other's place."""
    first, second, third, last = map(torch.from_numpy, WEIGHTS)
    return [first, third, second, last]


def transposed() -> list[torch.Tensor]:
    """One square weight as a torch Linear stores it."""
    first, second, third, last = map(torch.from_numpy, WEIGHTS)
    return [first, second.T, third, last]


def wrong_weight_order() -> Tensors:
    """Weights two and three exchanged."""
    return with_weights(swapped())


def transposed_square_weight() -> Tensors:
    """The second weight transposed, which its shape does not give away."""
    return with_weights(transposed())


# --- the story ---------------------------------------------------------------------------------------------------------

ADVICE: dict[str, Callable[[], Tensors]] = {
    "run it on the CPU": on_cpu,
    "write the sigmoid yourself": partial(with_torch, sigmoid=own_sigmoid),
    "split the products": partial(with_torch, split=True),
    "matmul in place of mm": partial(with_torch, product=torch.matmul),
    "float64 as the default dtype": with_default_float64,
}
FAULTS = (float32_in_one_product, wrong_weight_order, not_squared, transposed_square_weight)


def apart(a: dict[str, np.ndarray], b: Tensors, name: str = "second") -> float:
    """The largest difference relative to the largest element."""
    return float(np.max(np.abs(a[name] - np.asarray(b[name]))) / np.max(np.abs(a[name])))


def share_of_equal_bits(a: Tensors, b: Tensors) -> float:
    """Of all elements of all results."""
    return float(np.mean(np.concatenate([(a[name] == b[name]).numpy().ravel() for name in a])))


def tell(audits: dict[str, detconf.Audit]) -> None:
    """Print the story."""
    reference, plain = with_numpy(), with_torch()
    honest = audits["honest"]
    print(f"=== the honest pair: second derivatives {apart(reference, plain):.1e} apart\n{honest}")
    bound = max((each.rtol for each in honest.tolerance), default=0.0)
    print(f"\n=== can float64 rounding explain {REPORTED:.0%}? A correct program keeps {bound:.1e}: {REPORTED / bound:.0e} times less. No.")
    print("\n=== the advice, tried: distance from NumPy, and from torch as it was")
    for words, function in ADVICE.items():
        found = function()
        print(f"  {words:32}{apart(reference, found):.1e}   {share_of_equal_bits(plain, found):.0%} of the elements bit for bit as before")
    print("  (not examined: a GPU. There is none here; on one, compare recordings of both)")
    for fault in FAULTS:
        print(f"\n=== planted: {fault.__doc__}\nsecond derivatives {apart(reference, fault()):.1e} apart")
        print(audits[fault.__name__])
    print('\n=== "the sum of the weight differences is zero" is no check of weights')
    for words, weights in (("exchanged", swapped()), ("one transposed", transposed())):
        ours = [torch.from_numpy(each) for each in WEIGHTS]
        total = sum(float(each.sum()) for each in ours) - sum(float(each.sum()) for each in weights)
        different = [f"weight {number}" for number, (a, b) in enumerate(zip(ours, weights, strict=True), 1) if not torch.equal(a, b)]
        compared = detconf.compare(named(ours), named(weights))
        print(f"  {words}: sum of all differences {total:.1e}; element by element {', '.join(different)} differ; equal: {compared.equal}")


def named(weights: list[torch.Tensor]) -> Tensors:
    return {f"weight {number}": each for number, each in enumerate(weights, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="verdicts by name")
    options = parser.parse_args()
    audits = {"honest": detconf.audit(with_numpy, with_torch)}
    audits |= {fault.__name__: detconf.audit(with_numpy, fault) for fault in FAULTS}
    if options.json:
        print(json.dumps({name: each.to_dict() for name, each in audits.items()}, indent=2))
    else:
        tell(audits)


if __name__ == "__main__":
    main()
