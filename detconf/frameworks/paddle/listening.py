"""Paddle's operations, called by the program, handed to whoever listens: a study's shadows, or a run in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import paddle

from detconf.frameworks.paddle.operations import SLOTS, Operation
from detconf.frameworks.paddle.operations import describe as operation_of
from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.trace import is_operation, named_as


class Listener(Protocol):
    """Who listens."""

    @property
    def quiet(self) -> bool:
        """This thread is not at work for the program."""
        ...

    def call(self, operation: Operation, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operation of the program."""
        ...


_listeners: list[Listener] = []
"""The last one is who listens."""


def listen(listener: Listener, references: References, others: Mapping[int, tuple[Any, Any]] | None = None) -> Callable[[], None]:
    """Hand operations over from now on. Returns what ends that, but for what `references` puts back.

    Args:
        listener: who listens.
        references: replaces the operations.
        others: functions to be replaced along with them.
    """
    slots = {slot: name for slot, name in SLOTS.items() if slot in vars(paddle.Tensor)}
    replaced = {slot: _heard(name, vars(paddle.Tensor)[slot]) for slot, name in slots.items()}
    operations = {id(each): (name, each) for name, each in vars(paddle._C_ops).items() if is_operation(each)}
    references.put({**{key: (each, _heard(name, each)) for key, (name, each) in operations.items()}, **(others or {})})
    for slot, each in replaced.items():
        references.put_attribute(paddle.Tensor, slot, each)
    _listeners.append(listener)

    def end() -> None:
        if listener in _listeners:
            _listeners.remove(listener)

    return end


@functools.cache
def _heard(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """One for all: more than a thousand new functions each time would cost more than many a program."""
    operation = operation_of(name)

    def heard(*args: Any, **kwargs: Any) -> Any:
        listener = _listeners[-1] if _listeners else None
        if listener is None or listener.quiet or not paddle.in_dynamic_mode():
            return plain(*args, **kwargs)
        return listener.call(operation, plain, args, kwargs)

    return named_as(heard, plain)
