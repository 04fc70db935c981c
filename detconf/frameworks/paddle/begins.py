"""When a program that has made a step begins the next one. For runs that end there only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detconf.frameworks.paddle.steps import watch_optimizers
from detconf.lookup import loaded


def watch(callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback()` before a forward in training mode with gradients, a backward, or an optimizer's step.

    Paddle has no global hooks, so methods are replaced and put back. A static program has none of these: it is stopped
    after its next step. Returns what ends that.
    """
    paddle = loaded("paddle")
    layer, tensor = paddle.nn.Layer, paddle.Tensor
    plain_call, plain_backward = layer.__call__, tensor.backward

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.training and paddle.is_grad_enabled():
            callback()
        return plain_call(self, *args, **kwargs)

    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        callback()
        return plain_backward(self, *args, **kwargs)

    undo = watch_optimizers(lambda _optimizer: None, lambda _optimizer: callback())
    layer.__call__, tensor.backward = call, backward

    def end() -> None:
        undo()
        if layer.__call__ is call:
            layer.__call__ = plain_call
        if tensor.backward is backward:
            tensor.backward = plain_backward

    return end
