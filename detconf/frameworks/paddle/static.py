"""A program built in static mode, under an Executor, with the parameters of the dynamic one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle

from detconf.frameworks.paddle.forms import Form, Given, inputs_of, leaves, weights

if TYPE_CHECKING:
    from detconf.frameworks.paddle.ladder import Paddle


def static(program: Paddle, captured: Given, *, double: bool) -> Form:
    """Build the program once, on placeholders like the captured inputs; each call runs it.

    Gradients come from `paddle.static.gradients`, with the weights of the sum as one more input for each output.
    """
    layer = program.target if isinstance(program.target, paddle.nn.Layer) else None
    if double and layer is not None:
        layer.to(dtype="float64")
    parameters = {} if layer is None else {name: each.numpy() for name, each in layer.state_dict().items()}
    trained = set() if layer is None or not layer.training else {name for name, each in layer.named_parameters() if not each.stop_gradient}
    training = layer is None or layer.training
    buffers = [] if layer is None else [name for name, each in layer.named_buffers() if each is not None]
    args, kwargs = captured.fresh(double=double)
    main, start = paddle.static.Program(), paddle.static.Program()
    with static_mode(), paddle.static.program_guard(main, start):
        placed = {name: _placeholder(name, each) for name, each in inputs_of(args, kwargs)}
        own: Any = program.target if program.factory is None else program.factory()
        if layer is not None and not training:
            own.eval()
        result = own(*[placed[f"input[{index}]"] for index in range(len(args))], **{name: placed[f"input.{name}"] for name in kwargs})
        outputs = list(leaves(result))
        wanted = {name: each for name, each in placed.items() if isinstance(each, paddle.pir.Value) and not each.stop_gradient}
        held = {} if layer is None else dict(own.state_dict())
        wanted |= {name: held[name] for name in trained}
        gradients, feeds = _gradients(outputs, wanted)
    states = {name: (each.name, parameters[name]) for name, each in held.items()}
    built = _Built(main, start, result, gradients, feeds, states, buffers)
    return built.form(double=double)


@contextmanager
def static_mode() -> Iterator[None]:
    """Static mode inside the block only: tensors of inputs and states are dynamic."""
    paddle.enable_static()
    try:
        yield
    finally:
        paddle.disable_static()


def _placeholder(name: str, value: Any) -> Any:
    if not isinstance(value, paddle.Tensor):
        return value
    found = paddle.static.data(_spelled(name), list(value.shape), str(value.dtype).rpartition(".")[2])
    found.stop_gradient = value.stop_gradient
    return found


def _spelled(name: str) -> str:
    return name.replace("[", "_").replace("]", "").replace(".", "_")


def _gradients(outputs: list[Any], wanted: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(name -> gradient, what is fed for the weights of the sum)."""
    outputs = [
        each for each in outputs if isinstance(each, paddle.pir.Value) and not each.stop_gradient and "float" in str(each.dtype).lower()
    ]
    if not (outputs and wanted):
        return {}, {}
    feeds, wide = {}, []
    for index, each in enumerate(outputs):
        dtype = str(each.dtype).rpartition(".")[2].lower()
        wide.append(paddle.static.data(f"weights_{index}", list(each.shape), dtype))
        feeds[f"weights_{index}"] = weights(each).astype(dtype)
    found = paddle.static.gradients(outputs, list(wanted.values()), wide)
    return {name: each for name, each in zip(wanted, found, strict=True) if each is not None}, feeds


@dataclass(frozen=True, slots=True)
class _Built:
    """A program, and what belongs to it.

    Attributes:
        main, start: the program, and the one that makes its parameters.
        result: what the user's function returned, with static values in it.
        gradients: name -> static value.
        feeds: name of a placeholder -> what is fed at every call.
        states: name -> (variable, array) of parameters and buffers at the start.
        buffers: names of those that are results too.
    """

    main: Any
    start: Any
    result: Any
    gradients: Mapping[str, Any]
    feeds: Mapping[str, Any]
    states: Mapping[str, tuple[str, Any]]
    buffers: Sequence[str]

    def form(self, *, double: bool) -> Form:
        """An executor of the program, started."""
        executor, scope = paddle.static.Executor(paddle.CPUPlace()), paddle.static.Scope()
        with static_mode(), paddle.static.scope_guard(scope):
            executor.run(self.start)
        outputs = [each for each in leaves(self.result) if isinstance(each, paddle.pir.Value)]

        def back() -> None:
            for variable, array in self.states.values():
                found = scope.find_var(variable)
                if found is not None:
                    found.get_tensor().set(array, paddle.CPUPlace())

        def call(inputs: Given) -> dict[str, Any]:
            args, kwargs = inputs.fresh(double=double)
            fed = {_spelled(name): each.numpy() for name, each in inputs_of(args, kwargs) if isinstance(each, paddle.Tensor)}
            with static_mode(), paddle.static.scope_guard(scope):
                fetched = executor.run(self.main, feed={**fed, **self.feeds}, fetch_list=[*outputs, *self.gradients.values()])
            return self._results(iter(fetched), scope)

        return Form(call, back)

    def _results(self, values: Iterator[Any], scope: Any) -> dict[str, Any]:
        found = {"": _filled(self.result, values)}
        gradients = {name: next(values) for name in self.gradients}
        left = {name: np.array(scope.find_var(self.states[name][0]).get_tensor()) for name in self.buffers}
        return {**found, **({"grad": gradients} if gradients else {}), **({"buffer": left} if left else {})}


def _filled(value: Any, fetched: Any) -> Any:
    """The structure of a result with what was fetched in the place of each static value."""
    if isinstance(value, paddle.pir.Value):
        return next(fetched)
    if isinstance(value, Mapping):
        return {name: _filled(each, fetched) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(each, fetched) for each in value]
    return value
