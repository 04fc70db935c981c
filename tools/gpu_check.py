"""What detconf promises on a GPU, proved from bits on the machine at hand: `make gpu-check`, under eight minutes.

    python tools/gpu_check.py [--output docs/gpu.md]

No flag is believed here. Precision is read off the error against float64, repeatability off the bytes of reruns, cost
off the clock. Every measurement runs in a process of its own, because libraries read their variables once. Without a
CUDA device it exits 2: nothing was checked. Exit 1: something promised was not found. `--device cpu` rehearses the
script where there is no GPU and says so in what it writes; that proves nothing about one.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import detconf
from detconf.access import Env
from detconf.frameworks import catalogue

ROOT = Path(__file__).parents[1]
LIMIT = 7.5 * 60
# What a process puts in force before it imports a framework: profile, exact values beside it.
SETTINGS: dict[str, tuple[str, dict[str, Any]] | None] = {
    "nothing": None,
    "strict": ("strict", {}),
    "strict, its variables aside": ("strict", {"env.NVIDIA_TF32_OVERRIDE": None}),
    "strict, no fill": ("strict", {"uninitialised": "leave"}),
    "fast": ("fast", {}),
}
LATE = ("env.CUBLAS_WORKSPACE_CONFIG", "env.NVIDIA_TF32_OVERRIDE")


# --- precision: what arithmetic made these bits? -------------------------------------------------------------------


def classify(residual: float) -> str:
    """The arithmetic behind a residual in units of float32 rounding of the products.

    Accumulation in any order leaves 0.4 to 80, inputs rounded to TF32 4,900, cut off to TF32 13,000, rounded to bfloat16 39,000.
    """
    return "fp32" if residual < 200 else "unclear" if residual < 1000 else "TF32" if residual < 23000 else "bf16 or lower"


def residual(out: Any, exact: Any, scale: Any) -> float:
    """Root mean square error of `out` in units of 2^-24 times `scale`, the root of the sum of squared products."""
    return float(((out.double() - exact) / (2.0**-24 * scale)).square().mean().sqrt())


def product_residual(torch: Any, device: str, compute: Callable[[Any, Any], Any]) -> float:
    """`compute(a, b)` against a @ b in float64."""
    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(1))
    a, b = draw(64, 1024).to(device), draw(1024, 256).to(device)
    return residual(compute(a, b), a.double() @ b.double(), (a.double() ** 2 @ b.double() ** 2).sqrt())


def convolution_residual(torch: Any, device: str) -> float:
    """A 3x3 convolution of 64 channels against float64."""
    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(2))
    x, w = draw(8, 64, 32, 32).to(device), draw(64, 64, 3, 3).to(device)
    conv = functools.partial(torch.nn.functional.conv2d, padding=1)
    return residual(conv(x, w), conv(x.double(), w.double()), conv(x.double() ** 2, w.double() ** 2).sqrt())


def recurrent_residual(torch: Any, device: str) -> float:
    """One step of a recurrent layer with ReLU from a zero state: a product wherever it is positive."""
    draw = functools.partial(torch.randn, generator=torch.Generator().manual_seed(3))
    layer = torch.nn.RNN(1024, 256, nonlinearity="relu", bias=False).to(device)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(draw(256, 1024))
        x = draw(1, 64, 1024).to(device)
        out, weight = layer(x)[0][0], layer.weight_ih_l0.double().T
    exact = x[0].double() @ weight
    scale = (x[0].double() ** 2 @ weight**2).sqrt()
    return residual(out[exact > 0], exact[exact > 0], scale[exact > 0])


def precision(device: str) -> dict[str, float]:
    """Operation -> residual, in torch."""
    import torch

    return {
        "matmul": product_residual(torch, device, torch.matmul),
        "convolution": convolution_residual(torch, device),
        "recurrent layer": recurrent_residual(torch, device),
    }


def paddle_precision(device: str) -> dict[str, float]:
    """Operation -> residual, in Paddle; empty where it is not installed or drives no GPU."""
    try:
        import paddle
    except ImportError:
        return {}
    if device == "cuda" and not paddle.is_compiled_with_cuda():
        return {}
    paddle.set_device("gpu" if device == "cuda" else "cpu")
    paddle.seed(1)
    a, b = paddle.randn([64, 1024]), paddle.randn([1024, 256])
    x, w = paddle.randn([8, 64, 32, 32]), paddle.randn([64, 64, 3, 3])
    conv = functools.partial(paddle.nn.functional.conv2d, padding=1)

    def error(operation: Callable[[Any, Any], Any], first: Any, second: Any) -> float:
        wide = [tensor.astype("float64") for tensor in (first, second)]
        scale = operation(wide[0] ** 2, wide[1] ** 2).sqrt()
        return float((((operation(first, second).astype("float64") - operation(*wide)) / (2.0**-24 * scale)) ** 2).mean().sqrt().item())

    return {"paddle matmul": error(paddle.matmul, a, b), "paddle convolution": error(conv, x, w)}


# --- repeatability: the bytes of reruns ----------------------------------------------------------------------------


def operations(torch: Any, device: str) -> dict[str, Callable[[], list[Any]]]:
    """Operation -> a function that computes it from fixed inputs and returns all of its results."""
    big = device != "cpu"
    rows = 200_000 if big else 2_000
    generator = torch.Generator().manual_seed(4)

    def draw(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    half = torch.float16 if big else torch.float32
    target = torch.randint(0, 100, (rows,), generator=generator).to(device)
    source, pixels, kernel = draw(rows, 16), draw(8, 32, 32, 32), draw(32, 32, 3, 3)
    long, tall = draw(32, 65536, dtype=half), draw(65536, 32, dtype=half)
    queries = [draw(2, 4, 256, 64, dtype=half) for _ in range(3)]
    grid = draw(8, 32, 32, 2).tanh()

    def gradients(function: Callable[..., Any], *inputs: Any) -> list[Any]:
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        out = function(*leaves)
        return [out, *torch.autograd.grad(out.float().square().sum(), leaves)]

    def streams() -> list[Any]:
        if not big:
            return [long @ tall, long @ tall]
        out, lanes = [], [torch.cuda.Stream() for _ in range(2)]
        for lane in lanes * 2:
            lane.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(lane):
                out.append(long @ tall)
        torch.cuda.synchronize()
        return out

    functional, fresh = torch.nn.functional, torch.zeros(100, 16, device=device)
    return {
        "cuBLAS product": lambda: [long @ tall],
        "cuBLAS product in two streams": streams,
        "convolution, forward": lambda: [functional.conv2d(pixels, kernel)],
        "convolution, backward": lambda: gradients(functional.conv2d, pixels, kernel),
        "index_add": lambda: [fresh.index_add(0, target, source)],
        "scatter_add": lambda: [fresh.scatter_add(0, target[:, None].expand(-1, 16), source)],
        "bilinear interpolation, backward": lambda: gradients(
            lambda x: functional.interpolate(x, scale_factor=2.0, mode="bilinear"), pixels
        ),
        "attention, backward": lambda: gradients(functional.scaled_dot_product_attention, *queries),
        "index_put, accumulating": lambda: [fresh.index_put((target,), source, accumulate=True)],
        "embedding, backward": lambda: gradients(lambda weight: functional.embedding(target, weight), fresh + 1),
        "cumsum": lambda: [source.cumsum(0)],
        "grid_sample, backward": lambda: gradients(lambda x: functional.grid_sample(x, grid, align_corners=False), pixels),
    }


MAY_RAISE = {"cumsum", "grid_sample, backward"}
"""Have no deterministic form: under `strict` an error is as good as equal bytes."""


def digest(tensors: list[Any]) -> str:
    """A digest of the bytes of all tensors."""
    import torch

    hashed = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        hashed.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def repeat(compute: Callable[[], list[Any]], times: int) -> list[str]:
    """The distinct digests of several computations, sorted; or one entry that starts with "raises"."""
    try:
        return sorted({digest(compute()) for _ in range(times)})
    except RuntimeError as error:
        return [f"raises {str(error).splitlines()[0][:120]}"]


def reruns(device: str) -> dict[str, list[str]]:
    """Operation -> what `repeat` says of it in this process."""
    import torch

    return {name: repeat(compute, 20 if device != "cpu" else 5) for name, compute in operations(torch, device).items()}


# --- late variables, restore, cost ---------------------------------------------------------------------------------


def late(device: str) -> dict[str, str]:
    """Outcome of two variables once the device has computed."""
    import torch

    (torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)).sum().item()
    rows = {entry.knob: str(entry.outcome) for entry in detconf.apply("strict").attestation.entries}
    return {name: rows[name] for name in LATE}


def restore(device: str) -> dict[str, Any]:
    """What differs after a session: read-backs of all knobs, and the draws that would have come without it."""
    import torch

    torch.manual_seed(5)
    torch.rand(4, device=device)

    def readings() -> dict[str, str]:
        return {name: str(knob.read()) for name, knob in catalogue().items()}

    states = torch.get_rng_state(), torch.cuda.get_rng_state_all() if device != "cpu" else []
    expected = torch.rand(4, device=device).tolist(), torch.rand(4).tolist()
    torch.set_rng_state(states[0])
    if device != "cpu":
        torch.cuda.set_rng_state_all(states[1])
    before = readings()
    with detconf.apply("strict"):
        torch.rand(8, device=device)
    after = readings()
    drawn = torch.rand(4, device=device).tolist(), torch.rand(4).tolist()
    return {"differ": {name: [before[name], after[name]] for name in before if before[name] != after[name]}, "draws": drawn == expected}


def cost(device: str) -> dict[str, float]:
    """Seconds of a training step of two small models, and of 100 allocations of 16 MiB."""
    import torch

    torch.manual_seed(0)
    big = device != "cpu"
    width, batch = (512, 16) if big else (32, 2)
    layers = {
        "transformer step": (torch.nn.TransformerEncoderLayer(width, 4, batch_first=True), (batch, 128, width)),
        "convolution step": (
            torch.nn.Sequential(
                torch.nn.Conv2d(3, width // 8, 3), torch.nn.BatchNorm2d(width // 8), torch.nn.ReLU(), torch.nn.Conv2d(width // 8, 8, 3)
            ),
            (batch, 3, 64, 64),
        ),
    }

    def clock(work: Callable[[], Any], rounds: int) -> float:
        seconds = []
        for _ in range(rounds + 3):
            start = time.perf_counter()
            work()
            if big:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds[3:])

    found = {}
    for name, (layer, shape) in layers.items():
        model = layer.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        x = torch.randn(*shape, device=device)

        def step(model: Any = model, optimizer: Any = optimizer, x: Any = x) -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        found[name] = clock(step, 50 if big else 2)
    found["100 x torch.empty(16 MiB)"] = clock(lambda: [torch.empty(4 << 20, device=device) for _ in range(100)], 20 if big else 2)
    return found


def about(device: str) -> dict[str, Any]:
    """The card and the versions; `cuda` says whether there is anything to check."""
    import torch

    here = device == "cuda" and torch.cuda.is_available()
    found = {
        "cuda": here,
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if here:
        found |= {
            "card": torch.cuda.get_device_name(0), "capability": list(torch.cuda.get_device_capability(0)),
            "CUDA": torch.version.cuda, "cuDNN": torch.backends.cudnn.version(),
        }  # fmt: skip
    return found


PARTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "about": about, "precision": precision, "paddle": paddle_precision, "reruns": reruns, "late": late, "restore": restore, "cost": cost,
}  # fmt: skip


# --- the plan: which part under which settings, and what must come out ----------------------------------------------


@dataclass(frozen=True)
class Claim:
    """One line of the table."""

    what: str
    under: str
    promised: str
    found: str
    ok: bool


def child(part: str, device: str, under: str, deadline: float) -> dict[str, Any]:
    """The result of one part in a process of its own; `problem` where there is none."""
    known = {knob.access.variable for knob in catalogue().values() if isinstance(knob.access, Env)}
    environment = {key: value for key, value in os.environ.items() if key not in known and not key.startswith("DETCONF_")}
    left = deadline - time.monotonic()
    if left < 5:
        return {"problem": "out of time"}
    command = [sys.executable, __file__, "--part", part, "--device", device, "--under", under]
    try:
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=min(left, 150), check=False)
    except subprocess.TimeoutExpired:
        return {"problem": "out of time"}
    if done.returncode:
        return {"problem": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


Run = Callable[[str, str], dict[str, Any]]


def precision_claims(run: Run, *, tensor_cores: bool) -> list[Claim]:
    """TF32 is off under `strict`, by torch's own settings too, and on under `fast` where the card has it."""
    claims = []
    for part, settings in (("precision", ("strict", "strict, its variables aside", "fast")), ("paddle", ("strict", "fast"))):
        for under in settings:
            expected = "TF32" if under == "fast" and tensor_cores else "fp32"
            for name, value in run(part, under).items():
                found = f"{classify(value)}, residual {value:.3g}" if isinstance(value, float) else str(value)
                claims.append(Claim(f"arithmetic of {name}", under, expected, found, found.startswith(expected + ",")))
    return claims


def rerun_claims(run: Run) -> list[Claim]:
    """Every operation repeats under `strict`, in one process and in a second one; what does not without it is told."""
    first, second, without = run("reruns", "strict"), run("reruns", "strict"), run("reruns", "nothing")
    if any("problem" in each for each in (first, second, without)):
        return [
            Claim("reruns", "strict", "bitwise", str(first.get("problem") or second.get("problem") or without.get("problem")), ok=False)
        ]
    claims = []
    for name, digests in first.items():
        raised = digests[0].startswith("raises")
        equal = not raised and len(digests) == 1 and digests == second[name]
        loose = f"{len(without[name])} distinct without a profile" if not without[name][0].startswith("raises") else without[name][0]
        found = (
            digests[0] if raised else f"{'one result in two processes' if equal else f'{len({*digests, *second[name]})} distinct'}; {loose}"
        )
        claims.append(
            Claim(
                name, "strict", "bitwise, or an error" if name in MAY_RAISE else "bitwise", found, equal or (raised and name in MAY_RAISE)
            )
        )
    return claims


def state_claims(run: Run, device: str) -> list[Claim]:
    """Late variables are recognised, early ones are set, and everything comes back."""
    found = run("late", "nothing")
    expected = "set" if device == "cpu" else "too-late"
    claims = [
        Claim(f"{name} after the first product", "strict", expected, str(found.get(name, found)), found.get(name) == expected)
        for name in LATE
    ]
    found = run("restore", "nothing")
    exact = found.get("differ") == {} and found.get("draws") is True
    return [*claims, Claim("restore, generators included", "strict", "exact", "exact" if exact else str(found)[:300], exact)]


def cost_rows(run: Run) -> dict[str, dict[str, float]]:
    """What -> settings -> seconds: the smaller of two processes each, in turn."""
    settings = ("nothing", "strict", "strict, no fill")
    rows: dict[str, dict[str, float]] = {}
    for under in settings * 2:
        for what, seconds in run("cost", under).items():
            if isinstance(seconds, float):
                row = rows.setdefault(what, {})
                row[under] = min(seconds, row.get(under, seconds))
    return {what: row for what, row in rows.items() if len(row) == len(settings)}


def report(facts: dict[str, Any], claims: list[Claim], costs: dict[str, dict[str, float]]) -> str:
    """The page, in Markdown."""
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    machine = ", ".join(f"{key} {value}" for key, value in facts.items() if key != "cuda")
    title = "# What was proved on a GPU" if facts["cuda"] else "# A rehearsal on CPU\n\n**It proves nothing about a GPU.**"
    kept = sum(claim.ok for claim in claims)
    lines = [f"{title}\n\nWritten by `make gpu-check` on {today}; {machine}.\n\n{kept} of {len(claims)} promises kept.\n"]
    lines += ["| what | under | promised | found | kept |", "|---|---|---|---|---|"]
    lines += [
        f"| {each.what} | {each.under} | {each.promised} | {each.found.replace('|', '/')} | {'yes' if each.ok else '**no**'} |"
        for each in claims
    ]
    lines += ["", "| cost | without | strict | ratio | strict, no memory fill | ratio |", "|---|---|---|---|---|---|"]
    for what, row in costs.items():
        base, strict, leave = row["nothing"], row["strict"], row["strict, no fill"]
        lines.append(
            f"| {what} | {base * 1e3:.2f} ms | {strict * 1e3:.2f} ms | {strict / base:.2f} | {leave * 1e3:.2f} ms | {leave / base:.2f} |"
        )
    return "\n".join(lines) + "\n"


def check(device: str, output: Path) -> int:
    """Everything; the exit code."""
    deadline = time.monotonic() + LIMIT

    def run(part: str, under: str) -> dict[str, Any]:
        print(f"{part} under {under} ...", file=sys.stderr, flush=True)
        return child(part, device, under, deadline)

    facts = run("about", "nothing")
    if "problem" in facts or (device == "cuda" and not facts["cuda"]):
        print(f"no CUDA device: nothing was checked{' (' + facts['problem'] + ')' if 'problem' in facts else ''}", file=sys.stderr)
        return 2
    cores = device == "cuda" and facts["capability"][0] >= 8
    claims = [*precision_claims(run, tensor_cores=cores), *rerun_claims(run), *state_claims(run, device)]
    page = report(facts, claims, cost_rows(run))
    output.write_text(page, encoding="utf-8")
    print(page)
    return 0 if all(claim.ok for claim in claims) else 1


def main(arguments: list[str] | None = None) -> int:
    """Run everything, or one part for the process that runs everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "gpu.md")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--under", choices=SETTINGS, default="nothing", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.part:
        return check(options.device, options.output)
    setting = SETTINGS[options.under]
    if setting:
        detconf.apply(setting[0], overrides=setting[1])
    print(json.dumps(PARTS[options.part](options.device)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
