"""How each rung runs a program: one function per rung, and the inputs that they take."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle

from detconf.frameworks.entry import Back
from detconf.frameworks.rungs import Missing, Refused

if TYPE_CHECKING:
    from detconf.frameworks.paddle.ladder import Paddle

_NAMED = "pass a layer, or a function that makes one, and inputs"


@dataclass(frozen=True, slots=True)
class Form:
    """A program on one rung.

    Attributes:
        call: inputs -> named results.
        back: brings parameters and buffers back to the entry state.
    """

    call: Callable[[Given], dict[str, Any]]
    back: Back


@dataclass(frozen=True, slots=True)
class Given:
    """Inputs of one call: positional and by name."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None

    def fresh(self, *, double: bool = False) -> tuple[list[Any], dict[str, Any]]:
        """Copies, leaves of their own graph."""
        return [_copy(each, double=double) for each in self.args], {
            name: _copy(each, double=double) for name, each in (self.kwargs or {}).items()
        }

    def times(self, factor: float) -> Given:
        """All float tensors times a factor."""
        if factor == 1.0:
            return self
        return Given(
            tuple(_times(each, factor) for each in self.args), {key: _times(each, factor) for key, each in (self.kwargs or {}).items()}
        )


def _floating(value: Any) -> bool:
    return isinstance(value, paddle.Tensor) and value.is_floating_point()


def _times(value: Any, factor: float) -> Any:
    if not _floating(value):
        return value
    found = value.detach() * factor
    found.stop_gradient = value.stop_gradient
    return found


def _copy(value: Any, *, double: bool) -> Any:
    if not isinstance(value, paddle.Tensor):
        return copy.deepcopy(value)
    kept = value.detach().clone()
    kept = kept.astype("float64") if double and _floating(kept) else kept
    kept.stop_gradient = value.stop_gradient
    return kept


def given(inputs: Any) -> list[Given]:
    """The inputs of every case: see `auditing.modes.climb`. NumPy arrays become tensors."""
    if inputs is None:
        return []
    if callable(inputs) and not isinstance(inputs, paddle.Tensor):
        return [*given(inputs()), *given(inputs())]
    if isinstance(inputs, dict):
        return [Given((), {name: _tensor(each) for name, each in inputs.items()})]
    if isinstance(inputs, list) and inputs and all(isinstance(each, (tuple, list, dict)) for each in inputs):
        return [case for each in inputs for case in given(each if isinstance(each, dict) else tuple(each))]
    return [Given(tuple(map(_tensor, inputs)) if isinstance(inputs, (tuple, list)) else (_tensor(inputs),))]


def _tensor(value: Any) -> Any:
    return paddle.to_tensor(value) if isinstance(value, np.ndarray) else value


def leaves(value: Any) -> Iterator[Any]:
    """Every value in a nesting of mappings and sequences, in order."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def backs(value: Any) -> Iterator[Back]:
    """What puts an object that a program holds back to its present state."""
    if isinstance(value, paddle.nn.Layer):
        layers = [(each, each.training) for each in value.sublayers(include_self=True)]
        tensors = [(each, each.numpy()) for each in value.state_dict().values()]
        yield lambda: _restore(tensors, layers)
    elif isinstance(value, paddle.optimizer.Optimizer):
        state = {name: each.numpy() if isinstance(each, paddle.Tensor) else each for name, each in value.state_dict().items()}
        if state:
            yield lambda: value.set_state_dict({name: copy.deepcopy(each) for name, each in state.items()})
    elif isinstance(value, paddle.Tensor):
        kept = [(value, value.numpy())]
        yield lambda: _restore(kept, ())


def _restore(tensors: Sequence[tuple[Any, Any]], layers: Sequence[tuple[Any, bool]]) -> None:
    for tensor, array in tensors:
        tensor.set_value(array.astype(tensor.numpy().dtype))  # a layer may have been made float64 since
        if not tensor.stop_gradient:
            tensor.clear_gradient()
    for layer, training in layers:
        layer.training = training


def weights(output: Any) -> Any:
    """Weights of the sum that gradients are of: 0.5 to 1.5, none of them special."""
    steps: Any = np.arange(int(np.prod(output.shape)), dtype="float64")
    return (0.5 + (steps * 0.6180339887498949) % 1.0).reshape(output.shape)


def _dynamic(program: Paddle, captured: Given, *, double: bool) -> Form:  # noqa: ARG001
    if program.whole:
        return Form(lambda _: {"": program.target()}, lambda: None)
    return _called(program, program.target, double=double)


def _called(program: Paddle, function: Any, *, double: bool) -> Form:
    """In dynamic mode, of a layer or a function: results, gradients, and what is left in buffers."""
    layer = program.target if isinstance(program.target, paddle.nn.Layer) else None
    if double and layer is not None:
        layer.to(dtype="float64")

    def call(inputs: Given) -> dict[str, Any]:
        args, kwargs = inputs.fresh(double=double)
        result = function(*args, **kwargs)
        wanted = {name: each for name, each in inputs_of(args, kwargs) if isinstance(each, paddle.Tensor) and not each.stop_gradient}
        if layer is not None and layer.training:
            wanted |= {name: each for name, each in layer.named_parameters() if not each.stop_gradient}
        found: dict[str, Any] = {"": result}
        outputs = [each for each in leaves(result) if _floating(each) and not each.stop_gradient]
        if wanted and outputs:
            paddle.autograd.backward(outputs, [paddle.to_tensor(weights(each), dtype=each.dtype) for each in outputs])
            found["grad"] = {name: each.grad.clone() for name, each in wanted.items() if each.grad is not None}
            for each in wanted.values():
                each.clear_gradient()
        if layer is not None:
            buffers = {name: each.clone() for name, each in layer.named_buffers() if each is not None}
            found |= {"buffer": buffers} if buffers else {}
        return found

    return Form(call, lambda: None)


def inputs_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((f"input[{index}]", each) for index, each in enumerate(args))
    yield from ((f"input.{name}", each) for name, each in kwargs.items())


def _to_static(program: Paddle, captured: Given, *, double: bool, full_graph: bool) -> Form:  # noqa: ARG001
    if program.whole:
        return _step(program, full_graph=full_graph)
    return _called(program, paddle.jit.to_static(program.target, full_graph=full_graph), double=double)


def _step(program: Paddle, *, full_graph: bool) -> Form:
    """A training step: the layers that it calls run under `to_static`."""
    kind = paddle.nn.Layer
    plain = kind.__call__
    deep = [0]

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not deep[0] and "forward" not in vars(self):
            self.forward = paddle.jit.to_static(self.forward, full_graph=full_graph)
        deep[0] += 1
        try:
            return plain(self, *args, **kwargs)
        finally:
            deep[0] -= 1

    def call(_: Given) -> dict[str, Any]:
        kind.__call__ = called
        try:
            return {"": program.target()}
        finally:
            kind.__call__ = plain

    return Form(call, lambda: None)


def _prim(program: Paddle, captured: Given, *, double: bool) -> Form:
    switch = getattr(paddle.base.core, "_set_prim_all_enabled", None)
    if switch is None:
        msg = "there is no paddle.base.core._set_prim_all_enabled"
        raise Missing(msg)
    switch(True)  # the process is ours
    return _to_static(program, captured, double=double, full_graph=True)


def _cinn(program: Paddle, captured: Given, *, double: bool) -> Form:  # noqa: ARG001
    if not paddle.is_compiled_with_cinn():
        msg = "not checked"
        raise Missing(msg)
    if program.whole:
        msg = f"a step that does everything itself is not compiled: {_NAMED}"
        raise Refused(msg)
    return _called(program, paddle.jit.to_static(program.target, full_graph=True, backend="CINN"), double=double)


def _static(program: Paddle, captured: Given, *, double: bool) -> Form:
    from detconf.frameworks.paddle.static import static
    from detconf.frameworks.paddle.training import training

    if program.whole:
        return training(program)
    if program.factory is None and isinstance(program.target, paddle.nn.Layer):
        msg = "a layer was built in dynamic mode: pass a function without arguments that makes it, to be called in static mode"
        raise Refused(msg)
    return static(program, captured, double=double)


FORMS: Mapping[str, Callable[..., Form]] = {
    "dynamic": _dynamic,
    "ast": lambda *args, **kwargs: _to_static(*args, **kwargs, full_graph=True),
    "sot": lambda *args, **kwargs: _to_static(*args, **kwargs, full_graph=False),
    "static": _static,
    "prim": _prim,
    "cinn": _cinn,
}
