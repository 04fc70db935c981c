"""Inputs of a program, and the state of what it holds, so that it can be run again and again from the same start."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from detconf.frameworks.entry import Back


@dataclass(frozen=True, slots=True)
class Given:
    """Inputs of one call: positional and by name."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None

    def fresh(self, *, double: bool = False) -> tuple[list[Any], dict[str, Any]]:
        """Copies, leaves of their own graph."""
        return [_copy(each, double) for each in self.args], {name: _copy(each, double) for name, each in (self.kwargs or {}).items()}

    def times(self, factor: float) -> Given:
        """All float tensors times a factor."""
        return self if factor == 1.0 else Given(_times(self.args, factor), _times(self.kwargs, factor))


def _times(value: Any, factor: float) -> Any:
    def scaled(each: Any) -> Any:
        if not (isinstance(each, torch.Tensor) and each.is_floating_point()):
            return each
        return (each.detach() * factor).requires_grad_(each.requires_grad)

    return tree_map(scaled, value)


def _copy(value: Any, double: bool) -> Any:
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    kept = value.detach().clone(memory_format=torch.preserve_format)
    return (kept.double() if double and kept.is_floating_point() else kept).requires_grad_(value.requires_grad)


def given(inputs: Any) -> list[Given]:
    """The inputs of every case.

    Args:
        inputs: None; a tensor; a tuple or list of positional ones; a dict by name; a list of tuples, lists or dicts, one
            for each case; or a function without arguments that makes any of these, called once more for a second case.
    """
    if inputs is None:
        return []
    if callable(inputs) and not isinstance(inputs, torch.Tensor):
        return [*given(inputs()), *given(inputs())]
    if isinstance(inputs, dict):
        return [Given((), inputs)]
    if isinstance(inputs, list) and inputs and all(isinstance(each, (tuple, list, dict)) for each in inputs):
        return [case for each in inputs for case in given(each if isinstance(each, dict) else tuple(each))]
    return [Given(tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,))]


def tensors(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    owner = getattr(module, "_orig_mod", module)
    yield from owner.named_parameters()
    yield from owner.named_buffers()


def backs(value: Any) -> Iterator[Back]:
    """What puts an object that a function holds back to its present state."""
    if isinstance(value, torch.nn.Module):
        modes = [(each, each.training) for each in value.modules()]
        kept = [(each, each.detach().clone(), each.grad) for _, each in tensors(value)]
        yield lambda: _restore(kept, modes)
    elif isinstance(value, torch.optim.Optimizer):
        state = copy.deepcopy(value.state_dict())
        yield lambda: value.load_state_dict(copy.deepcopy(state))
    elif isinstance(value, torch.Tensor) and (value.is_leaf or not value.requires_grad):
        own = [(value, value.detach().clone(), value.grad if value.is_leaf else None)]
        yield lambda: _restore(own, ())
    elif isinstance(value, torch.Generator):
        seeded = value.get_state()
        yield lambda: value.set_state(seeded) and None


def _restore(tensors: Sequence[tuple[Any, Any, Any]], modes: Sequence[tuple[Any, bool]]) -> None:
    with torch.no_grad():
        for tensor, kept, grad in tensors:
            tensor.copy_(kept)
            if tensor.is_leaf:
                tensor.grad = grad
    for module, training in modes:
        module.training = training
