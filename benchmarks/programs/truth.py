"""Is what was planted true? Each program is run, run in float64, and run on inputs disturbed in their last digits."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from programs.program import Program

_DISTURBANCE = 2.0**-36
_counter = itertools.count()
Results = Mapping[str, Any]


@dataclass(slots=True)
class Measured:
    """What was found about one pair of results, relative to the right side's root mean square.

    Attributes:
        real: largest difference of the two sides.
        wide: the same in float64.
        repaired: the right side against the repaired one (in float64 where that means the same); 0 without.
        noise: what unit roundoff in the data does to the right side.
        own: largest error of either side against its float64 run.
    """

    real: float
    wide: float
    repaired: float
    noise: float
    own: float


@contextlib.contextmanager
def _as_found() -> Iterator[None]:
    """Put back the settings that a program may change."""
    import torch

    paddle = sys.modules.get("paddle")
    default, threads, precision = torch.get_default_dtype(), torch.get_num_threads(), torch.get_float32_matmul_precision()
    paddles = paddle.get_default_dtype() if paddle else None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(default)
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_flush_denormal(False)
        torch.set_grad_enabled(True)
        paddle = sys.modules.get("paddle")
        if paddle:
            paddle.set_default_dtype(paddles or "float32")


def _load(source: str, folder: str) -> Any:
    name = f"planted_{next(_counter)}"
    path = Path(folder, f"{name}.py")
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # a path that ends in .py has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _numbers(results: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.array(value).astype(np.float64) for name, value in results.items()}


def _sides(program: Program, source: str, folder: str, *, wide: bool = False) -> tuple[Results, Results, Results | None]:
    """(right, wrong, repaired) of a text."""
    with _as_found():
        if wide:
            _widen()
        module = _load(source, folder)
        first, second = _numbers(module.reference()), _numbers(module.candidate())
        if any(_gap(one, _numbers(again())) for one, again in ((first, module.reference), (second, module.candidate))):
            msg = "a side does not repeat"  # as where it writes into its own data
            raise ValueError(msg)
        repaired = _numbers(module.repaired()) if program.repaired else None
    return (second, first, repaired) if program.swapped else (first, second, repaired)


def _widen() -> None:
    import torch

    torch.set_default_dtype(torch.float64)
    if "paddle" in sys.modules:
        sys.modules["paddle"].set_default_dtype("float64")


def _noise(program: Program, source: str, folder: str, exact: Results) -> float:
    worst = 0.0
    with _as_found():
        _widen()
        for seed in range(3):
            module = _load(source, folder)
            random = np.random.RandomState(seed)
            for value in vars(module).values():
                if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                    np.multiply(value, 1 + _DISTURBANCE * random.randn(*value.shape), out=value)
            found = _numbers(module.candidate() if program.swapped else module.reference())
            worst = max(worst, _gap(exact, found) * program.unit / _DISTURBANCE)
    return worst


def _gap(a: Results, b: Results) -> float:
    """Largest difference relative to the root mean square of `a`; infinite where shapes or finiteness differ."""
    worst = 0.0
    for name, x in a.items():
        y = b[name]
        if x.shape != y.shape or not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return float("inf")
        finite = np.isfinite(x)
        scale = float(np.sqrt(np.mean(x[finite] ** 2))) if finite.any() else 0.0
        difference = float(np.max(np.abs(x - y)[finite], initial=0.0))
        worst = max(worst, difference / scale if scale else (float("inf") if difference else 0.0))
    return worst


def measure(program: Program) -> tuple[Measured, Results, Results]:
    """See `Measured`; and the results of both sides, right one first."""
    with tempfile.TemporaryDirectory() as folder:
        right, wrong, repaired = _sides(program, program.source, folder)
        real, fixed = _gap(right, wrong), _gap(right, repaired) if repaired else 0.0
        if not program.wide:
            return Measured(real, real, fixed, program.unit, program.unit), right, wrong
        text = program.source.replace("float32", "float64")
        right64, wrong64, repaired64 = _sides(program, text, folder, wide=True)
        noise = max(_noise(program, text, folder, right64), program.unit / 2)
    own = max(_gap(right64, right), _gap(wrong64, wrong))
    narrow = fixed
    fixed = _gap(right64, repaired64) if repaired64 else 0.0
    if program.family in {"dtype", "overflow"}:
        fixed = narrow
    return Measured(real, _gap(right64, wrong64), fixed, noise, own), right, wrong


def refuted(program: Program) -> str:
    """Why the planted cause is not true of this program; empty where it is."""
    try:
        found, right, wrong = measure(program)
    except Exception as error:  # noqa: BLE001  # a draw that does not run is another draw
        return f"does not run: {type(error).__name__}: {error}"[:200]
    if any(not np.isfinite(value).all() for value in right.values()):
        return "the right side is not finite"
    if program.family != "overflow" and any(not np.isfinite(value).all() for value in wrong.values()):
        return "the wrong side is not finite"
    return "" if _RULES.get(program.family, _differs)(program, found) else f"{found}"


def _equal(_: Program, found: Measured) -> bool:
    return found.real == 0.0


def _rounding(program: Program, found: Measured) -> bool:
    small = max(found.noise, found.own) <= 2e3 * program.unit
    return found.wide <= max(1e-11, 1e-2 * found.noise) and small and found.real <= 1e3 * found.noise


def _ill(program: Program, found: Measured) -> bool:
    # By the form as much as by the problem: a stable quotient computed from cancelled differences is amplified as well.
    return found.real > 0 and found.wide <= 1e-4 * found.own and found.own >= 1e5 * program.unit


def _dtype(_: Program, found: Measured) -> bool:
    return found.real >= 600 * found.noise and found.repaired <= 30 * found.noise


def _overflow(_: Program, found: Measured) -> bool:
    return found.real == float("inf") and found.repaired <= 1e-4


def _differs(program: Program, found: Measured) -> bool:
    if not program.wide:
        return found.real >= 1e-3 and found.repaired <= 1e-4
    return found.wide >= 60 * max(found.noise, found.own) and found.repaired <= max(1e-9, found.noise)


def _config(_: Program, found: Measured) -> bool:
    return found.real > 1e-9 and found.repaired == 0.0  # a result of another dtype may differ in its last digits only


_RULES = {"config": _config, "equal": _equal, "rounding": _rounding, "ill-conditioned": _ill, "dtype": _dtype, "overflow": _overflow}
