"""Configurations of the compiler that may make it agree with eager, cheapest first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from detconf.frameworks.rungs import Survey, Trial

_RANDOM: dict[str, Any] = {"fallback_random": True}
_CASTS: dict[str, Any] = {"emulate_precision_casts": True}
_FALLBACK: dict[str, Any] = {"fallback_by_default": True}
_WHOLE: dict[str, Any] = {"decompositions": {}}
_APART: dict[str, Any] = {"optimizers": "eager"}
_UNDECOMPOSED = (
    "no decompositions: torch.compile(…, backend=functools.partial(torch._inductor.compile_fx.compile_fx, decompositions={})) "
    "with torch._functorch.config.enable_autograd_cache = False"
)
_UNLOWERED = "torch._inductor.config.fallback_by_default = True"


def trials(rung: str, survey: Survey, *, whole: bool) -> Iterator[Trial]:
    """Cheapest first. A compiled step of an optimizer takes its host scalars as tensors, so a training step keeps that out."""
    base: dict[str, Any] = _APART if whole and rung not in ("export", "trace") else {}
    tail = " and torch.compiler.disable on the optimizer's step" if base else ""
    if base:
        yield Trial("torch.compiler.disable on the optimizer's step", _APART, "dtype")
    for settings, words, shows in _options(rung, survey):
        if base:
            yield Trial(words, settings, shows)
        yield Trial(words + tail, settings | base, shows if not base else "")
    if rung == "trace":
        yield Trial("torch.jit.script(…) in place of trace", {}, rung="script")
    random = _RANDOM if survey.random else {}
    tail = f"{' with fallback_random = True' if random else ''}{tail}"
    if rung in ("decomposed", "inductor"):
        yield Trial(_UNDECOMPOSED + tail, random | base | _WHOLE, ablation="no decompositions")
    if rung == "inductor":
        yield Trial(_UNLOWERED + tail, random | base | _FALLBACK, ablation="no lowerings")
        yield Trial(f"{_UNDECOMPOSED}, and {_UNLOWERED}{tail}", random | base | _WHOLE | _FALLBACK, ablation="neither")
        yield Trial(f'torch.compile(…, mode="lite"){tail}', random | base, rung="lite")


def _options(rung: str, survey: Survey) -> Iterator[tuple[dict[str, Any], str, str]]:
    if survey.random and rung in ("decomposed", "inductor", "lite"):
        yield _RANDOM, "torch._inductor.config.fallback_random = True", "rng"
    if survey.low and rung in ("inductor", "lite"):
        yield _CASTS, "torch._inductor.config.emulate_precision_casts = True", "dtype"
        if survey.random:
            yield _RANDOM | _CASTS, "fallback_random = True and emulate_precision_casts = True in torch._inductor.config", "dtype"


@contextmanager
def optimizers_apart() -> Iterator[None]:
    """Steps of optimizers stay outside of compiled graphs."""
    kept, waiting = [], [torch.optim.Optimizer]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if "step" in vars(kind):
            kept.append((kind, vars(kind)["step"]))
    for kind, step in kept:
        kind.step = torch.compiler.disable(step)
    try:
        yield
    finally:
        for kind, step in kept:
            kind.step = step
