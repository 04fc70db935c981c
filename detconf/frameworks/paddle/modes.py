"""Training and evaluation mode while a target runs: watched, or overruled. For experiments of the verifier only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from detconf.frameworks.base import Modes
from detconf.lookup import loaded


@contextmanager
def watch(seen: Modes, *, evaluate: bool) -> Iterator[None]:
    """Note the classes of layers called in training mode, and calls of backward, in `seen`.

    With `evaluate`, each layer runs its own forward in evaluation mode and gets its mode back after it. Paddle has no
    global forward hooks, so the methods are replaced and put back.
    """
    paddle = loaded("paddle")
    layer, tensor = paddle.nn.Layer, paddle.Tensor
    plain_call, plain_backward, plain_grad = layer.__call__, tensor.backward, paddle.grad

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return plain_call(self, *args, **kwargs)
        overruled = seen.called(type(self).__name__) and evaluate
        self.training = not overruled
        try:
            return plain_call(self, *args, **kwargs)
        finally:
            self.training = True

    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.went_backward()
        return plain_backward(self, *args, **kwargs)

    def grad(*args: Any, **kwargs: Any) -> Any:
        seen.went_backward()
        return plain_grad(*args, **kwargs)

    layer.__call__, tensor.backward, paddle.grad = call, backward, grad
    try:
        yield
    finally:
        layer.__call__, tensor.backward, paddle.grad = plain_call, plain_backward, plain_grad
