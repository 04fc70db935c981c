"""Training and evaluation mode while a target runs: watched, or overruled. For experiments of the verifier only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from detconf.frameworks.base import Modes
from detconf.lookup import loaded


@contextmanager
def watch(seen: Modes, *, evaluate: bool) -> Iterator[None]:
    """Note the classes of modules called in training mode, and calls of backward, in `seen`.

    With `evaluate`, each module runs its own forward in evaluation mode and gets its mode back after it.
    """
    torch = loaded("torch")
    hooks = torch.nn.modules.module
    overruled: list[Any] = []

    def before(module: Any, _inputs: Any) -> None:
        if module.training and seen.called(type(module).__name__) and evaluate:
            module.training = False
            overruled.append(module)

    def after(module: Any, _inputs: Any, _output: Any) -> None:
        if overruled and overruled[-1] is module:
            overruled.pop().training = True

    handles = [hooks.register_module_forward_pre_hook(before), hooks.register_module_forward_hook(after, always_call=True)]
    try:
        with _backward_noted(torch.autograd, seen):
            yield
    finally:
        for handle in handles:
            handle.remove()
        for module in overruled:
            module.training = True


@contextmanager
def _backward_noted(autograd: Any, seen: Modes) -> Iterator[None]:
    plain = {name: getattr(autograd, name) for name in ("backward", "grad")}

    def noting(function: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            seen.went_backward()
            return function(*args, **kwargs)

        return called

    for name, function in plain.items():
        setattr(autograd, name, noting(function))
    try:
        yield
    finally:
        for name, function in plain.items():
            setattr(autograd, name, function)
