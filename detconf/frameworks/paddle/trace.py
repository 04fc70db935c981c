"""Every operation of Paddle, reported to a recorder: dynamic graphs, their backward pass, `to_static`, static programs.

The functions of `paddle._C_ops` are replaced wherever Paddle's modules hold them, and so are the operators of tensors;
all of it is put back at the end. Operations that only move elements (reshape, transpose, slices) are not reported.

Not seen: operations that C++ calls by itself (custom operators, legacy ones, collectives).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import paddle

from detconf.arrays import scalars
from detconf.digests import NOTHING, Flag
from detconf.frameworks.paddle import contents
from detconf.frameworks.paddle.contents import collect, describe
from detconf.frameworks.paddle.gradients import Gradients
from detconf.frameworks.paddle.operations import SLOTS, Operation
from detconf.frameworks.paddle.operations import describe as operation_of
from detconf.frameworks.paddle.references import References
from detconf.frameworks.replaced import giving
from detconf.frameworks.source import line

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder

_IN_PLACE, _UNINITIALISED, _SKIPPED = map(int, (Flag.IN_PLACE, Flag.UNINITIALISED, Flag.SKIPPED))
_FOREIGN = (os.path.join(os.path.dirname(paddle.__file__), ""),)


class Trace:
    """Observes operations.

    Args:
        recorder: takes them.
        gradients: follows their outputs backwards.
    """

    def __init__(self, recorder: Recorder, gradients: Gradients) -> None:
        self.recorder = recorder
        self.gradients = gradients

    def wrapped(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        """What takes the place of an operation."""
        operation, recorder, observe = operation_of(name), self.recorder, self._moved if operation_of(name).moves else self._observe

        def traced(*args: Any, **kwargs: Any) -> Any:
            if not recorder.active:
                return plain(*args, **kwargs)
            return observe(operation, plain, args, kwargs)

        return named_as(traced, plain)

    def _moved(self, _operation: Operation, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = plain(*args, **kwargs)
        made: list[Any] = []
        collect(result, made)
        if made and not made[0].stop_gradient:
            self.gradients.moved([value for value in args[:1] if isinstance(value, paddle.Tensor)], made)
        return result

    def _observe(self, operation: Operation, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        recorder = self.recorder
        read: list[Any] = []
        collect(args, read)
        if kwargs:
            collect(tuple(kwargs.values()), read)
        target = read[:1]
        if operation.blind:
            read = read[1:]
        inputs = [contents.digest(tensor) for tensor in read]
        random = contents.generator_state() if operation.random else b""
        before = [contents.array(tensor) for tensor in read] if recorder.keeping else None
        result = plain(*args, **kwargs)
        made: list[Any] = []
        collect(result, made)
        if operation.in_place and not made:
            made = target
        if not made:  # a value of a static graph, or no tensor at all
            return result
        if operation.picks and made[0]._is_shared_buffer_with(read[0]):
            self.gradients.moved(read, made)
            return result
        flags, outputs, layouts = _written(operation, made)
        place = ("", line(_FOREIGN)) if recorder.sources else ("", "")
        kept = None if before is None else (before, [contents.array(tensor) for tensor in made], scalars(args))
        recorder.operation(
            operation.name, inputs, outputs, layouts, random=random, flags=flags, scope=place[0], source=place[1], values=kept
        )
        self.gradients.follow(operation.name, read, made, (*inputs, *outputs, random), place)
        return result


def _written(operation: Operation, made: Sequence[Any]) -> tuple[int, list[bytes], tuple[Any, ...]]:
    """(flags, digests, layouts) of what an operation wrote."""
    described = [describe(tensor) for tensor in made]
    layouts = tuple([layout for _, layout in described])
    flags = _IN_PLACE if operation.in_place else 0
    if operation.empty:
        return flags | _UNINITIALISED, [NOTHING] * len(made), layouts
    outputs = [digest for digest, _ in described]
    return (flags | _SKIPPED if NOTHING in outputs else flags), outputs, layouts


def named_as(function: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, looking like `plain` to those who go by module and name: `to_static` does."""
    function.__name__ = getattr(plain, "__name__", function.__name__)
    function.__qualname__ = getattr(plain, "__qualname__", function.__qualname__)
    function.__module__ = getattr(plain, "__module__", None) or "paddle"
    function.__doc__ = plain.__doc__
    return function


def start(recorder: Recorder) -> Callable[[], None]:
    """Report to `recorder`: operations, or the state at the end of each optimizer step. Returns what ends that."""
    if recorder.level == "state":
        from detconf.frameworks.paddle.state import watch  # the other level

        return watch(recorder)
    from detconf.frameworks.paddle import graphs, programs  # they replace nothing before `start`

    references, gradients = References(), Gradients(recorder)
    trace = Trace(recorder, gradients)
    ends = [graphs.watch(recorder, gradients), programs.watch(recorder)]
    operations = {id(each): (name, each) for name, each in vars(paddle._C_ops).items() if is_operation(each)}
    references.put({key: (each, trace.wrapped(name, each)) for key, (name, each) in operations.items()})
    for slot, name in SLOTS.items():
        if slot in vars(paddle.Tensor):
            references.put_attribute(paddle.Tensor, slot, trace.wrapped(name, vars(paddle.Tensor)[slot]))
    references.put_attribute(paddle.autograd.PyLayer, "apply", _functions(gradients))
    references.put_attribute(paddle.Tensor, "__init__", _leaves(recorder, vars(paddle.Tensor)["__init__"]))
    references.put_attribute(paddle.Tensor, "numpy", giving(vars(paddle.Tensor)["numpy"], recorder.followers))

    def end() -> None:
        references.back()
        gradients.end()
        for each in reversed(ends):
            each()

    return end


def is_operation(value: Any) -> bool:
    """Is it a function of `paddle._C_ops` that computes?"""
    # `run_program` is what a call of a graph comes down to: `graphs` reports those.
    return type(value) is BuiltinFunctionType and not value.__name__.startswith(("_", "get_core_ops", "run_program"))


def _functions(gradients: Gradients) -> Any:
    """A function with a backward pass of its own: its operations are seen, the way back through it has to be followed."""
    inherited = vars(paddle.base.core.eager.PyLayer)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        read: list[Any] = []
        collect((args, tuple(kwargs.values())), read)
        parts = [contents.digest(tensor) for tensor in read] if gradients.on else []
        result = inherited.__get__(None, cls)(*args, **kwargs)
        if gradients.on:
            made: list[Any] = []
            collect(result, made)
            parts += [contents.digest(tensor) for tensor in made]
            gradients.follow(f"paddle.PyLayer.{cls.__name__}", read, made, parts, ("", ""))
        return result

    paddle.jit.not_to_static(apply)  # the original is a function in C++, where a graph ends as well
    return classmethod(apply)


def _leaves(recorder: Recorder, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Report tensors that are made of data from outside."""

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs) if kwargs else plain(self, *args)  # Paddle 2.6 tells empty ones from none
        source = kwargs.get("value", args[0] if args else None)
        if recorder.active and source is not None and not isinstance(source, (int, str, paddle.Tensor)) and self._is_initialized():
            digest, layout = describe(self)
            kept = ((), (contents.array(self),)) if recorder.keeping else None
            flags = Flag.LEAF | (Flag.SKIPPED if digest == NOTHING else 0)
            recorder.operation("paddle.to_tensor", (), (digest,), (layout,), flags=flags, values=kept)

    return init
