"""A training step of dynamic mode as a program: the same Python function builds it in static mode.

Operators of static mode hand each dynamic tensor among their arguments to a hook, with which `to_static` makes parameters
of them (`paddle.pir.core.static_op_arg_cast_guard`); here it does so for a whole step. `loss.backward()` becomes
`paddle.static.append_backward`, and `step()` what that optimizer does in static mode, at the learning rate of that moment.
Numbers of tensors do not exist while the program is built: `numpy()` gives a promise of them, to be returned, and what
needs them at once is refused.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import paddle

from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.steps import kinds
from detconf.frameworks.rungs import Missing, Refused

_STEPPING = ("Optimizer", "Adam", "AdamW")
"""Classes of `paddle.optimizer` whose `step` collects gradients and hands them on, and no more."""
_NUMBERS = ("__float__", "__int__", "__bool__", "__index__", "__array__", "__complex__")
_PROMISED = ("numpy", "item", "tolist")


@dataclass(frozen=True, slots=True)
class Later:
    """Numbers that a program will give.

    Attributes:
        value: in the program.
        method: of `numpy.ndarray`, that makes of them what the step asked for; empty for the array.
    """

    value: Any
    method: str = ""

    def copy(self) -> Later:
        return self

    def numpy(self) -> Later:
        return self

    def item(self) -> Later:
        return Later(self.value, "item")

    def tolist(self) -> Later:
        return Later(self.value, "tolist")

    def __array__(self, *_args: Any, **_options: Any) -> Any:
        raise _unknown("NumPy")

    def __float__(self) -> float:
        raise _unknown("float()")

    def __bool__(self) -> bool:
        raise _unknown("a branch")


def _unknown(what: str) -> Refused:
    return Refused(f"{what} needs the numbers of a tensor while the program is built: return the tensor, or its numpy()")


@dataclass(slots=True)
class Built:
    """A program under construction.

    Attributes:
        main, start: the program, and the one that fills its parameters.
        tensors: id of a dynamic tensor -> (it, its value in the program).
        gradients: name of a parameter -> (it, its gradient), both in the program, since they were last cleared.
        optimizers: id of an optimizer -> (it, its copy in the program).
    """

    main: Any = field(default_factory=paddle.static.Program)
    start: Any = field(default_factory=paddle.static.Program)
    tensors: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    gradients: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    optimizers: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def value(self, tensor: Any) -> Any:
        """What stands for a tensor in the program; anything else as it is."""
        if not isinstance(tensor, paddle.Tensor):
            return tensor
        if id(tensor) not in self.tensors:
            self.tensors[id(tensor)] = tensor, self._parameter(tensor)
        return self.tensors[id(tensor)][1]

    def _parameter(self, tensor: Any) -> Any:
        about = {name: getattr(tensor, name) for name in ("optimize_attr", "regularizer", "need_clip") if hasattr(tensor, name)}
        place = paddle.pir.get_current_insertion_point()
        paddle.pir.set_insertion_point_to_block_end(self.main.global_block())
        try:
            return paddle.pir.core.create_parameter(
                dtype=tensor.dtype,
                shape=tensor.shape,
                name=tensor.name,
                initializer=paddle.nn.initializer.Constant(0.0),
                trainable=not tensor.stop_gradient,
                **about,
            )
        finally:
            paddle.pir.set_insertion_point(place)

    def backward(self, loss: Any, grad_tensor: Any = None, retain_graph: bool = False, **_options: Any) -> None:  # noqa: ARG002
        """Gradients of all parameters, added to those that are there."""
        trained = [value for tensor, value in self.tensors.values() if not tensor.stop_gradient]
        known = {each.name for each in trained}
        trained += [each for each in self.main.global_block().all_parameters() if each.trainable and each.name not in known]
        if grad_tensor is None:
            pairs = paddle.static.append_backward(loss, parameter_list=trained)
        else:
            pairs = zip(trained, paddle.static.gradients([loss], trained, [self.value(grad_tensor)]), strict=True)
        for parameter, gradient in pairs:
            if gradient is not None:
                before = self.gradients.get(parameter.name)
                self.gradients[parameter.name] = parameter, gradient if before is None else before[1] + gradient

    def gradient(self, tensor: Any) -> Any:
        found = self.gradients.get(self.value(tensor).name)
        return None if found is None else found[1]

    def clear(self, tensor: Any, *_args: Any, **_options: Any) -> None:
        """Forget the gradient of a tensor."""
        self.gradients.pop(self.value(tensor).name, None)

    def cleared(self, optimizer: Any, *_args: Any, **_options: Any) -> None:
        """Forget the gradients of an optimizer's parameters."""
        for parameters, _ in _groups(optimizer):
            for each in parameters:
                self.clear(each)

    def step(self, optimizer: Any) -> None:
        """Append what the optimizer does in static mode."""
        mine = self._copy(optimizer)
        mine._learning_rate, mine._learning_rate_map = float(optimizer.get_lr()), {}
        for index, (parameters, options) in enumerate(_groups(optimizer)):
            values = [self.value(each) for each in parameters if not each.stop_gradient]
            pairs = [self.gradients[each.name] for each in values if each.name in self.gradients]
            if pairs:
                both = pairs if options is None else defaultdict(list, {**options, "params": pairs})
                mine._apply_optimize(loss=None, startup_program=None, params_grads=both, param_group_idx=index)

    def _copy(self, optimizer: Any) -> Any:
        """An optimizer like that one, with nothing of another program in it."""
        if id(optimizer) not in self.optimizers:
            mine = copy.copy(optimizer)
            mine._accumulators, mine._already_create_accumulator = defaultdict(dict), set()
            mine._opti_name_list, mine._accumulators_holder, mine._master_weights = [], {}, {}
            self.optimizers[id(optimizer)] = optimizer, mine
        return self.optimizers[id(optimizer)][1]

    def minimize(self, optimizer: Any, *_args: Any, **_options: Any) -> tuple[None, list[Any]]:
        """As in dynamic mode, where the gradients are there already."""
        self.step(optimizer)
        return None, list(self.gradients.values())

    def write(self, tensor: Any, plain: Callable[..., Any], *args: Any) -> Any:
        """Python writes a tensor: before the program reads it, that is its value at the start."""
        if id(tensor) in self.tensors:
            msg = "the step writes a tensor from Python after the program has read it"
            raise Refused(msg)
        return plain(tensor, *args)


def _groups(optimizer: Any) -> Iterator[tuple[list[Any], dict[str, Any] | None]]:
    """(parameters, options) of each group; None where the optimizer has none."""
    groups = optimizer._param_groups
    if groups and isinstance(groups[0], dict):
        yield from ((each["params"], {name: value for name, value in each.items() if name != "params"}) for each in groups)
    else:
        yield list(groups or ()), None


@contextmanager
def building(built: Built) -> Iterator[None]:
    """Static mode, in which a step of dynamic mode appends to a program.

    Raises:
        Missing: this build has no such hook.
    """
    guard = getattr(paddle.pir.core, "static_op_arg_cast_guard", None)
    if guard is None:
        msg = "there is no paddle.pir.core.static_op_arg_cast_guard"
        raise Missing(msg)
    references = References()
    paddle.enable_static()
    try:
        _replace(references, built)
        with paddle.static.program_guard(built.main, built.start), guard(built.value):
            yield
    finally:
        references.back()
        paddle.disable_static()


def _replace(references: References, built: Built) -> None:
    tensor, value = paddle.Tensor, paddle.pir.Value
    for kind in (tensor, value):
        methods: dict[str, Callable[..., Any]] = {"backward": built.backward, "clear_gradient": built.clear, "clear_grad": built.clear}
        methods |= {name: _promising(built, name) for name in _PROMISED}
        methods |= {name: _refusing(_unknown(f"{name.strip('_')}()")) for name in _NUMBERS}
        for name, method in methods.items():
            references.put_attribute(kind, name, _method(method))
        references.put_attribute(kind, "grad", property(built.gradient))
    for name in _shared():
        references.put_attribute(tensor, name, _as_value(built, name))
    for name in ("set_value", "copy_"):
        references.put_attribute(tensor, name, _writing(built, getattr(tensor, name)))
    references.put_attribute(import_module("paddle.nn.layer.layers"), "ValueSet", _Seen)
    stepping: dict[str, Callable[..., Any]] = {"step": built.step, "minimize": built.minimize, "clear_grad": built.cleared}
    for kind in dict.fromkeys(kinds(paddle.optimizer.Optimizer)):
        for name in vars(kind).keys() & {*stepping, "state_dict"} if kind.__module__.startswith("paddle.") else ():
            own = stepping.get(name) if kind.__name__ in _STEPPING else None
            refused = Refused(f"{name}() of {kind.__name__} cannot be a part of a program")
            references.put_attribute(kind, name, _method(own or _refusing(refused)))


def _shared() -> list[str]:
    """Methods that dynamic tensors and values of programs both have: those of tensors compute at once, whatever the mode."""
    own, other = vars(paddle.Tensor), vars(paddle.pir.Value)
    left = {"__init__", "__hash__", "__repr__", "__deepcopy__", "backward", "clear_gradient", "clear_grad", *_PROMISED, *_NUMBERS}
    return [name for name in own if callable(own[name]) and name in other and name not in left]


class _Seen:
    """What a layer has named already: its own set for static mode takes values of programs only."""

    def __init__(self) -> None:
        self._ids: set[int] = set()

    def __contains__(self, value: Any) -> bool:
        return id(value) in self._ids

    def add(self, value: Any) -> None:
        self._ids.add(id(value))


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """A bound method as a function, which classes bind again: it gets the object as its argument."""

    def method(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    return method


def _refusing(error: Refused) -> Callable[..., Any]:
    def refuse(*_args: Any, **_options: Any) -> Any:
        raise error

    return refuse


def _promising(built: Built, name: str) -> Callable[..., Any]:
    def promise(self: Any, *args: Any) -> Later:
        if args:
            what = f"{name}() of an element"
            raise _unknown(what)
        return Later(paddle.assign(built.value(self)), name if name != "numpy" else "")

    return promise


def _as_value(built: Built, name: str) -> Callable[..., Any]:
    return lambda self, *args, **options: getattr(built.value(self), name)(*args, **options)


def _writing(built: Built, plain: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: built.write(self, plain, *args)
