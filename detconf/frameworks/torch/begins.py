"""When a program that has made a step begins the next one. For runs that end there only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detconf.lookup import loaded


def watch(callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback()` before a forward in training mode with gradients, a backward, or an optimizer's step.

    Returns what ends that.
    """
    torch = loaded("torch")
    autograd, plain = torch.autograd, torch.autograd.backward

    def forward(module: Any, _inputs: Any) -> None:
        if module.training and torch.is_grad_enabled():
            callback()

    def step(*_: Any) -> None:
        callback()

    def backward(*args: Any, **kwargs: Any) -> Any:
        if autograd.backward is backward:
            callback()
        return plain(*args, **kwargs)

    hooks: tuple[Any, ...] = (forward, step, backward)
    for each in hooks:
        each._torchdynamo_disable = True  # as in `steps`
    ends = (
        torch.nn.modules.module.register_module_forward_pre_hook(forward).remove,
        loaded("torch.optim.optimizer").register_optimizer_step_pre_hook(step).remove,
    )
    autograd.backward = backward

    def end() -> None:
        for each in ends:
            each()
        if autograd.backward is backward:
            autograd.backward = plain

    return end
