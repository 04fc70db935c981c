"""What is changed in a process for one experiment of the ladder, and put back after it."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from detconf.frameworks.rungs import Settings


@contextmanager
def isolated() -> Iterator[None]:
    """Nothing compiled before is used, nothing stays.

    AOT autograd's cache is keyed without the table of decompositions (seen in 2.13): it would answer with another rung's code.
    """
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    known = importlib.import_module("torch._functorch.config")
    try:
        with known.patch(enable_autograd_cache=False) if hasattr(known, "enable_autograd_cache") else nullcontext():
            yield
    finally:
        torch._dynamo.reset()
        gc.collect()


@contextmanager
def changed(settings: Settings) -> Iterator[dict[str, Any]]:
    """Put in force until the block ends what is no option of one compilation. Gives the other settings.

    Args:
        settings: `optimizers` "eager" (their steps stay outside of compiled graphs), `gradients` "off", `optimized` "off"
            (TorchScript runs graphs as they were made), and others.
    """
    rest = dict(settings)
    with ExitStack() as stack:
        if rest.pop("optimizers", ""):
            stack.enter_context(_optimizers_apart())
        if rest.pop("gradients", ""):
            stack.enter_context(torch.no_grad())
        if rest.pop("optimized", ""):
            stack.enter_context(torch.jit.optimized_execution(False))
        yield rest


@contextmanager
def _optimizers_apart() -> Iterator[None]:
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


@contextmanager
def double() -> Iterator[None]:
    """float64 is the default dtype."""
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(kept)
