"""A program run whole in float64: what it makes in less is made in float64, what it is given in less is widened where it is used.

There is no bookkeeping beside it, which is what makes it cheap, and what it cannot see it says: a tensor from outside that is
written to keeps its dtype, and a choice that is made of floats may be made otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from detconf.frameworks.base import Widened
from detconf.frameworks.replaced import giving, replaced
from detconf.frameworks.torch import whole
from detconf.frameworks.torch.operations import Operation, collect, describe, results, written

_WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}
"""In which a draw is made that the program makes in its default dtype."""
_INPUTS = ("from_numpy", "as_tensor")
"""Functions that take in an array without an operation."""


@contextmanager
def widening(seen: Widened, roots: Sequence[Any] = ()) -> Iterator[None]:  # noqa: ARG001  # tensors are widened where they are used
    """Inside the block this thread computes in float64."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with ExitStack() as stack:
            for name in _INPUTS:
                stack.enter_context(replaced(torch, name, _taking(getattr(torch, name))))
            stack.enter_context(replaced(torch.Tensor, "numpy", giving(torch.Tensor.numpy, seen.takers)))
            mode = _Widening(seen)
            stack.callback(mode.end)
            stack.enter_context(mode)
            yield
    finally:
        torch.set_default_dtype(default)


class _Widening(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed for us
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import Dynamo

    def __init__(self, seen: Widened) -> None:
        super().__init__()
        self.seen = seen
        self._known: dict[Any, Operation] = {}
        self._outside: dict[int, Any] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        operation = self._known.get(function)
        if operation is None:
            operation = self._known[function] = describe(function)
        if operation.name == "aten.lift_fresh":
            return _wide(args[0])
        if operation.view:
            return function(*args, **kwargs or {})
        if operation.name == "aten._to_copy" and torch._C._current_autograd_node() is not None:
            return function(*args, **kwargs or {})  # a gradient gets the dtype of its tensor
        narrow = [each for each in written(operation, args, kwargs or {}) if each.dtype in _WIDE] if operation.writes else []
        if narrow:
            self.seen.lost = self.seen.lost or f"{operation.name} writes to a tensor from outside"
            return self._written(narrow, function, args, kwargs or {})
        args, kwargs = tuple(map(self._widened, args)), {key: self._widened(value) for key, value in (kwargs or {}).items()}
        if operation.random:
            self.seen.draws += 1
            return _drawn(operation, function, tuple(args), kwargs)
        tensors: list[Any] = []
        collect(args, tensors)
        result = whole.run(function, tensors, args, kwargs)
        self._look(operation, tensors, result)
        return result

    def end(self) -> None:
        """Gradients of tensors from outside have their dtype again, as after any run."""
        for tensor in self._outside.values():
            if tensor.grad is not None and tensor.grad.dtype is not tensor.dtype:
                wide, tensor.grad = tensor.grad, None
                tensor.grad = wide.to(tensor.dtype)

    def _widened(self, value: Any, ready: Mapping[int, Any] = MappingProxyType({})) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) in ready:
                return ready[id(value)]
            if value.dtype in _WIDE and value.is_leaf and value.requires_grad:
                self._outside[id(value)] = value
                self.seen.lost = self.seen.lost or "gradients of a tensor from outside have its dtype"
            return _wide(value)
        if isinstance(value, torch.dtype):
            return _WIDE.get(value, value)
        return type(value)(self._widened(each, ready) for each in value) if type(value) in (list, tuple) else value

    def _written(self, narrow: list[Any], function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Written to in float64, and then rounded into the tensor itself."""
        wide = {id(each): _wide(each) for each in narrow}
        given = {key: self._widened(value, wide) for key, value in kwargs.items()}
        result = function(*self._widened(tuple(args), wide), **given)
        for each in narrow:
            each.copy_(wide[id(each)])
        back = {id(wide[id(each)]): each for each in narrow}
        return _replaced(result, back)

    def _look(self, operation: Operation, tensors: list[Any], result: Any) -> None:
        """Does the result depend on floats, and is none?"""
        if self.seen.decides or not any(each.is_floating_point() or each.is_complex() for each in tensors):
            return
        made: list[Any] = []
        collect(result, made)
        discrete = any(not (each.is_floating_point() or each.is_complex()) for each in made)
        self.seen.decides = discrete or not (made or operation.writes)


def _wide(tensor: Any) -> Any:
    return tensor.to(_WIDE[tensor.dtype]) if tensor.dtype in _WIDE else tensor


def _replaced(value: Any, by: Mapping[int, Any]) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_replaced(each, by) for each in value)
    return by.get(id(value), value)


def _drawn(operation: Operation, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The numbers that the program draws in float32, in float64."""
    if operation.name == "aten.native_dropout":
        kept = function(torch.ones_like(args[0], dtype=torch.float32), *args[1:])
        return args[0] * kept[0].to(args[0].dtype), kept[1]
    if operation.writes == (0,) and args[0].dtype in _NARROW:
        drawn = torch.empty_like(args[0], dtype=_NARROW[args[0].dtype])
        return args[0].copy_(function(drawn, *args[1:], **kwargs))
    if not results(operation, args) and "dtype" in kwargs:  # nothing but sizes
        wanted = kwargs["dtype"] or torch.get_default_dtype()
        return function(*args, **{**kwargs, "dtype": _NARROW.get(wanted, wanted)}).to(wanted)
    return function(*args, **kwargs)


def _taking(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def taking(*args: Any, **kwargs: Any) -> Any:
        return _wide(plain(*args, **kwargs))

    return taking
