"""The tensors that a program's functions see already, with the names that they have there."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch


def named(roots: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """(name, tensor) of what functions see by their globals, closures and defaults, and the functions among that."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        function = waiting.pop(0)
        if not isinstance(function, types.FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        for name, value in _visible(function):
            if isinstance(value, types.FunctionType) and value.__module__ == function.__module__:
                waiting.append(value)
            yield from _tensors(name, value)


def _visible(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with suppress(ValueError):  # not assigned yet
            yield name, cell.cell_contents
    count = function.__code__.co_argcount
    defaults = function.__defaults__ or ()
    yield from zip(function.__code__.co_varnames[count - len(defaults) : count], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        for part, each in (*value.named_parameters(), *value.named_buffers()):
            yield f"{name}.{part}", each
    elif isinstance(value, (list, tuple, dict)) and len(value) < 100:
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(each, (torch.Tensor, torch.nn.Module)):
                yield from _tensors(f"{name}[{key!r}]", each)
