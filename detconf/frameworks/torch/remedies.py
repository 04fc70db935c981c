"""Configurations of the compiler that may make it agree with eager, cheapest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from detconf.frameworks.rungs import Survey, Trial
from detconf.frameworks.torch.compilers import COMPILED, LOWERED

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
_WHOLLY = tuple(each for each in LOWERED if each != "lite")
_UNGRADED = Trial("torch.no_grad() around eager as well", {"gradients": "off"}, against="both")
_UNOPTIMIZED = Trial("torch.jit.optimized_execution(False)", {"optimized": "off"})
_LESS: dict[str, tuple[Trial, ...]] = {
    "trace": (Trial("torch.jit.script(…) in place of trace", {}, rung="script"), _UNOPTIMIZED),
    "script": (_UNOPTIMIZED,),
    "freezing": (Trial("torch._inductor.config.freezing = False", {}, rung="inductor"), _UNGRADED),
    "optimize_for_inference": (
        Trial(
            "torch.jit.freeze(…, optimize_numerics=False) before torch.jit.optimize_for_inference",
            {"folding": "off"},
            ablation="no folding",
        ),
        Trial(
            "torch.jit.freeze(…, optimize_numerics=False) in place of it", {"folding": "off", "inference": "off"}, ablation="frozen only"
        ),
        Trial("torch.jit.script(…) in place of it", {}, rung="script"),
        _UNGRADED,
    ),
    "max-autotune": (Trial("torch.compile(…) without max-autotune", {}, rung="inductor"),),
}
"""rung -> what does less of the same."""


def trials(rung: str, survey: Survey, *, whole: bool) -> Iterator[Trial]:
    """Cheapest first. A compiled step of an optimizer takes its host scalars as tensors, so a training step keeps that out."""
    base: dict[str, Any] = _APART if whole and rung in COMPILED else {}
    tail = " and torch.compiler.disable on the optimizer's step" if base else ""
    if base:
        yield Trial("torch.compiler.disable on the optimizer's step", _APART, "dtype")
    for settings, words, shows in _options(rung, survey):
        if base:
            yield Trial(words, settings, shows)
        yield Trial(words + tail, settings | base, shows if not base else "")
    yield from _LESS.get(rung, ())
    random = _RANDOM if survey.random else {}
    tail = f"{' with fallback_random = True' if random else ''}{tail}"
    if rung in ("decomposed", *_WHOLLY):
        yield Trial(_UNDECOMPOSED + tail, random | base | _WHOLE, ablation="no decompositions")
    if rung in _WHOLLY:
        yield Trial(_UNLOWERED + tail, random | base | _FALLBACK, ablation="no lowerings")
        yield Trial(f"{_UNDECOMPOSED}, and {_UNLOWERED}{tail}", random | base | _WHOLE | _FALLBACK, ablation="neither")
        yield Trial(f'torch.compile(…, mode="lite"){tail}', random | base, rung="lite")


def _options(rung: str, survey: Survey) -> Iterator[tuple[dict[str, Any], str, str]]:
    if survey.random and rung in ("decomposed", *LOWERED):
        yield _RANDOM, "torch._inductor.config.fallback_random = True", "rng"
    if survey.low and rung in LOWERED:
        yield _CASTS, "torch._inductor.config.emulate_precision_casts = True", "dtype"
        if survey.random:
            yield _RANDOM | _CASTS, "fallback_random = True and emulate_precision_casts = True in torch._inductor.config", "dtype"
