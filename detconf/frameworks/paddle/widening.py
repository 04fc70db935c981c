"""A program run whole in float64: what it makes of Paddle's tensors in less is made in float64, what it is given is widened where used.

Dynamic graphs only. It listens where shadows do (`listening`); there is no second run beside the program's own.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import paddle

from detconf.frameworks.base import Widened
from detconf.frameworks.paddle import kinds
from detconf.frameworks.paddle.contents import collect
from detconf.frameworks.paddle.filling import Filling
from detconf.frameworks.paddle.listening import listen
from detconf.frameworks.paddle.operations import Operation
from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.twins import dtype_of, floating
from detconf.frameworks.replaced import giving, replaced

_WIDE = {getattr(paddle, name): paddle.float64 for name in ("float32", "float16", "bfloat16")} | {paddle.complex64: paddle.complex128}
_LEAVING = ("item", "tolist", "__float__", "__int__", "__bool__", "__nonzero__", "__index__")
"""Methods of tensors that give Python's numbers."""
_CHOICES = ("bool", "int16", "int32", "int64")
"""Dtypes of choices; what kernels keep for their gradients is uint8."""
_cast = vars(paddle._C_ops)["cast"]


@contextmanager
def widening(seen: Widened, roots: Sequence[Any] = ()) -> Iterator[None]:  # noqa: ARG001  # tensors are widened where they are used
    """Inside the block what user code computes is float64."""
    references, wide = References(), Wide(seen)
    with ExitStack() as stack:
        stack.callback(references.back)
        stack.callback(listen(wide, references))
        methods = vars(paddle.Tensor)
        for name in _LEAVING:
            if name in methods:
                references.put_attribute(paddle.Tensor, name, wide.leaving(methods[name]))
        references.put_attribute(paddle.Tensor, "numpy", giving(methods["numpy"], seen.takers))
        Filling(wide).put(references)
        yield


class Wide:
    """Runs operations in float64.

    Args:
        seen: what cannot be widened, drawn, or is decided.
    """

    def __init__(self, seen: Widened) -> None:
        self.seen = seen
        self._thread = threading.local()

    @property
    def quiet(self) -> bool:
        """This thread is at work for us."""
        return getattr(self._thread, "quiet", False)

    def silence(self) -> AbstractContextManager[None]:
        """What this thread does is ours."""
        return replaced(self._thread, "quiet", True)

    def lose(self, words: str) -> None:
        """Something stays in its own dtype."""
        self.seen.lost = self.seen.lost or words

    def leaving(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A method that gives Python's numbers."""

        @functools.wraps(plain)
        def leave(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            self.seen.decides = self.seen.decides or floating(tensor)
            return plain(tensor, *args, **kwargs)

        return leave

    def call(self, operation: Operation, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operation of the program; a draw as the program draws, its numbers in float64 afterwards."""
        name = operation.name.removeprefix("paddle.")
        if name in kinds.VIEWS:
            return plain(*args, **kwargs)
        tensors: list[Any] = []
        collect((args, tuple(kwargs.values())), tensors)
        if kinds.draws(name, args, kwargs):
            self.seen.draws += 1
            if name not in kinds.REPLAYED:
                declared = [each for each in tensors[:1] if not _filled(each)]
                return self._drawn(operation, plain(*args, **kwargs), tensors, declared)
        if operation.in_place and tensors and all(map(_narrow, filter(_filled, filter(floating, tensors)))):
            return self._as_it_is(operation, plain, args, kwargs, tensors)
        wide: dict[int, Any] = {}
        result = plain(*[self._taken(each, wide) for each in args], **{key: self._taken(each, wide) for key, each in kwargs.items()})
        if operation.in_place or name in kinds.UNDECLARED:
            result = self._written(operation, result, args, [each for each in tensors if id(each) in wide], wide)
        self._look(name, result, tensors, in_place=operation.in_place)
        return result

    def _as_it_is(self, operation: Operation, plain: Callable[..., Any], args: Any, kwargs: Any, tensors: list[Any]) -> Any:
        """An operation in place on tensors from outside alone, or that fills what is only declared: in float64, then."""
        if any(_narrow(each) and _filled(each) for each in tensors):
            self.lose(f"{operation.name} writes to a tensor from outside")
            return plain(*args, **kwargs)
        return plain(*[self._taken(each, {}) for each in args], **{key: self._taken(each, {}) for key, each in kwargs.items()})

    def _taken(self, value: Any, wide: dict[int, Any]) -> Any:
        """An argument in float64."""
        if isinstance(value, paddle.Tensor):
            if not (_narrow(value) and _filled(value)):
                return value
            if id(value) not in wide:
                if not value.stop_gradient and value.is_leaf:
                    self.lose("gradients of a tensor from outside have its dtype")
                wide[id(value)] = _cast(value, _WIDE[value.dtype])
            return wide[id(value)]
        if isinstance(value, (list, tuple)):
            return type(value)(self._taken(each, wide) for each in value)
        return _WIDE.get(value, value) if type(value).__name__ in ("DataType", "VarType") else value

    def _written(self, operation: Operation, result: Any, args: Sequence[Any], narrow: Sequence[Any], wide: Mapping[int, Any]) -> Any:
        """What was written in float64 for tensors from outside, rounded into them; the result, with them in it."""
        made: list[Any] = []
        collect(result, made)
        undeclared = {id(args[at]) for at in kinds.UNDECLARED.get(operation.name.removeprefix("paddle."), ()) if at < len(args)}
        back: dict[int, Any] = {}
        for tensor in narrow:
            ours = wide[id(tensor)]
            found = [each for each in made if each is ours or each._is_shared_buffer_with(ours)]
            if found or id(tensor) in undeclared:
                self.lose(f"{operation.name} writes to a tensor from outside")
                self.put(ours, tensor)
                back |= dict.fromkeys(map(id, found), tensor)
        return _exchanged(result, back)

    def _drawn(self, operation: Operation, result: Any, tensors: Sequence[Any], declared: Sequence[Any]) -> Any:
        """Numbers that were drawn, in float64: in the same tensor where that was only declared before."""
        made: list[Any] = []
        collect(result, made)
        if not operation.in_place:
            return _exchanged(result, {id(each): _cast(each, _WIDE[each.dtype]) for each in made if each.dtype in _WIDE})
        for tensor in filter(_narrow, tensors[:1]):
            if declared:
                self.become(tensor, _cast(tensor.detach(), _WIDE[tensor.dtype]))
            else:
                self.lose(f"{operation.name} writes to a tensor from outside")
        return result

    def put(self, wide: Any, tensor: Any) -> None:
        """The elements of another tensor, in the dtype of this one, in its memory."""
        with self.silence(), paddle.no_grad():
            tensor.detach().copy_(_cast(wide.detach(), tensor.dtype), True)

    def become(self, tensor: Any, wide: Any) -> None:
        """`tensor` is this one from now on."""
        with self.silence():
            wide._share_underline_tensor_to(tensor)

    def _look(self, name: str, result: Any, tensors: Sequence[Any], *, in_place: bool) -> None:
        """Does the result depend on floats, and is none?"""
        if self.seen.decides or not any(map(floating, tensors)):
            return
        made: list[Any] = []
        collect(result, made)
        self.seen.decides = name in kinds.DECISIONS or any(dtype_of(each) in _CHOICES for each in made) or not (made or in_place)


def _narrow(tensor: Any) -> bool:
    return tensor.dtype in _WIDE


def _filled(tensor: Any) -> bool:
    return bool(tensor._is_initialized())


def _exchanged(value: Any, by: Mapping[int, Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_exchanged(each, by) for each in value)
    return by.get(id(value), value)
