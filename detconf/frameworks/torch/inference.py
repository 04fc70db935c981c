"""Rungs for models in evaluation mode, of which parameters become constants of the graph and are computed with beforehand.

`freezing` is inductor's (`torch._inductor.config.freezing`); it is read while dynamo traces and only without gradients, so
that it is in force around the calls: as an option of `torch.compile` it does nothing (2.13). `optimize_for_inference` is
TorchScript's. Both fold arithmetic with constants into the weights of convolutions and linear layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

import torch

from detconf.frameworks.replaced import replaced
from detconf.frameworks.rungs import Missing, Refused, Settings

INFERENCE = ("freezing", "optimize_for_inference")
"""The rungs of this module: they compute no gradients."""
Around = Callable[[], AbstractContextManager[Any]]


class Inference:
    """A module as a graph of constants.

    Args:
        graph: what is called.
        module: what it was made of. Buffers are the graph's own where it kept them, because it writes them, else the module's.
        around: what is in force during a call.
    """

    def __init__(self, graph: Any, module: Any, around: Around = nullcontext) -> None:
        self.graph, self._module, self._around = graph, module, around

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._around():
            return self.graph(*args, **kwargs)

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Of the module."""
        yield from self._module.named_parameters()

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        """See the class."""
        yield from {**dict(self._module.named_buffers()), **dict(self.graph.named_buffers())}.items()


def require_evaluation(rung: str, function: Any, given: tuple[Sequence[Any], Mapping[str, Any]] | None) -> None:
    """Such a rung takes a module, in evaluation mode, and nothing that asks for gradients.

    Raises:
        Refused: it is something else.
    """
    if not isinstance(function, torch.nn.Module) or given is None:
        msg = f"{rung} makes constants of parameters: pass a module in evaluation mode, and inputs"
        raise Refused(msg)
    training = next((name or type(each).__name__ for name, each in function.named_modules() if each.training), "")
    if training:
        msg = f"{rung} is for evaluation mode, and {training} is in training mode: call eval() on the model"
        raise Refused(msg)
    args, kwargs = given
    if any(isinstance(each, torch.Tensor) and each.requires_grad for each in (*args, *kwargs.values())):
        msg = f"{rung} computes no gradients, and an input has requires_grad set"
        raise Refused(msg)


def frozen(module: Any, *, folds: bool) -> Any:
    """A scripted module with its attributes as constants. `folds`: batch normalization and the like go into weights too.

    `torch.jit.freeze` calls that `optimize_numerics`.
    """
    return torch.jit.freeze(module, optimize_numerics=folds)


@contextmanager
def freezing(settings: Settings) -> Iterator[None]:
    """Inductor freezes what is compiled inside the block; with `folding` "off" it folds nothing.

    Raises:
        Missing: this build cannot do that.
    """
    config = import_module("torch._inductor.config")
    if not hasattr(config, "freezing"):
        msg = "there is no torch._inductor.config.freezing"
        raise Missing(msg)
    own = {name: value for name, value in (("freezing", True), ("freezing_discard_parameters", False)) if hasattr(config, name)}
    with torch.no_grad(), config.patch(own), folding(None) if settings.get("folding") == "off" else nullcontext():
        yield


@contextmanager
def folding(instead: Callable[[Any], Any] | None) -> Iterator[None]:
    """In place of inductor's folding pass, `instead` gets it and gives what has its place; None for nothing.

    Raises:
        Missing: the pass is not where it was in 2.13.
    """
    passes = import_module("torch._inductor.fx_passes.freezing_patterns")
    if not (hasattr(passes, "binary_folding_pass") and hasattr(passes, "lazy_init")):
        msg = "the folding pass of torch._inductor cannot be found"
        raise Missing(msg)
    passes.lazy_init()  # it fills the pass, once in a process: not one that is gone afterwards
    plain = passes.binary_folding_pass
    with replaced(passes, "binary_folding_pass", type(plain)() if instead is None else instead(plain)):
        yield
