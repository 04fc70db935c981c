"""What is changed in a process, for one experiment of the ladder: constants, views, mixed precision, the executor's order."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import paddle

from detconf.frameworks.paddle.references import References
from detconf.lookup import loaded

_OPERATORS: Mapping[str, tuple[str, ...]] = {
    "add": ("__add__", "__radd__", "__iadd__"),
    "subtract": ("__sub__", "__rsub__", "__isub__"),
    "multiply": ("__mul__", "__rmul__", "__imul__"),
    "divide": ("__truediv__", "__rtruediv__", "__div__", "__rdiv__"),
    "power": ("__pow__", "__rpow__"),
}
OPTIMIZER = "optimizer"
_HYPER = ("_beta1", "_beta2", "_epsilon")
_VIEWS = (
    *("__getitem__", "flatten", "reshape", "transpose", "squeeze", "unsqueeze", "view", "view_as", "slice", "strided_slice"),
    *("split", "chunk", "unbind", "diagonal", "as_strided", "unfold", "detach", "real", "imag", "expand", "expand_as"),
    *("broadcast_to", "swapaxes", "moveaxis", "t", "unflatten", "tensor_split", "reshape_as", "ravel"),
)


def apply(settings: Mapping[str, Any], stack: ExitStack) -> None:
    """Put settings in force until the stack ends.

    Args:
        settings: `sequential` (the executor keeps the program's order), `exact` (operators whose Python constants become
            tensors of the other operand's dtype; "optimizer" for the numbers of an optimizer in static mode), `views` "copied"
            (in dynamic mode a view is a copy).
    """
    if settings.get("sequential"):
        stack.enter_context(_flag("FLAGS_new_executor_sequential_run", value=True))
    if settings.get("exact"):
        stack.enter_context(_exact(settings["exact"]))
    if settings.get("views") == "copied":
        stack.enter_context(_copied())


@contextmanager
def _flag(name: str, *, value: Any) -> Iterator[None]:
    kept = paddle.get_flags([name])
    paddle.set_flags({name: value})
    try:
        yield
    finally:
        paddle.set_flags(kept)


@contextmanager
def _exact(groups: Sequence[str]) -> Iterator[None]:
    references = References()
    if OPTIMIZER in groups:
        kind = paddle.optimizer.Optimizer
        references.put_attribute(kind, "_apply_optimize", _with_tensors(vars(kind)["_apply_optimize"]))
    for kind in (paddle.pir.Value, paddle.Tensor):
        for group in _OPERATORS.keys() & groups:
            for name in _OPERATORS[group]:
                if hasattr(kind, name):
                    references.put_attribute(kind, name, _with_tensor(getattr(kind, name), divides=group == "divide"))
    try:
        yield
    finally:
        references.back()


def _with_tensors(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A step of an optimizer in static mode, for which its numbers are tensors of its parameters' dtype.

    Its accumulators are made before that: powers of a beta that is a tensor start from 0.9 or 0.999, whatever it is (3.3).
    """

    @functools.wraps(plain)
    def apply(self: Any, *args: Any, params_grads: Any, **kwargs: Any) -> Any:
        own = [name for name in _HYPER if hasattr(self, name)]
        if paddle.in_dynamic_mode() or not own:
            return plain(self, *args, params_grads=params_grads, **kwargs)
        group = dict(params_grads) if isinstance(params_grads, dict) else {"params": params_grads}
        made = [parameter for parameter, _ in group["params"]]
        block = paddle.static.default_main_program().global_block()
        grouped = len(group) > 1  # a group of parameters has numbers of its own
        self._create_accumulators(block, {**group, "params": made} if grouped else made)
        for name in own:
            number = group.get(name[1:], getattr(self, name))
            group[name[1:]] = paddle.full([1], number, self._dtype) if isinstance(number, float) else number
            setattr(self, name, group[name[1:]])
        return plain(self, *args, params_grads=group if grouped else params_grads, **kwargs)

    return apply


def _with_tensor(plain: Callable[..., Any], *, divides: bool) -> Callable[..., Any]:
    """An operator of tensors or static values whose Python constant becomes a tensor of its operand's dtype."""

    @functools.wraps(plain)
    def operator(self: Any, other: Any) -> Any:
        if isinstance(other, (int, float)) and not isinstance(other, bool):
            kind = str(self.dtype).rpartition(".")[2].lower()
            floating = "float" in kind
            if floating or divides or isinstance(other, int):
                dtype = self.dtype if floating or not divides else paddle.get_default_dtype()
                other = paddle.full([], other, dtype)
        return plain(self, other)

    return operator


@contextmanager
def _copied() -> Iterator[None]:
    """Functions and methods of dynamic tensors that may return views return copies."""
    references = References()
    table = {}
    for name in _VIEWS:
        method = getattr(paddle.Tensor, name, None)
        if method is not None:
            references.put_attribute(paddle.Tensor, name, _copying(method))
        function = getattr(paddle, name, None)
        if callable(function) and not name.startswith("__"):
            table[id(function)] = (function, _copying(function))
    references.put(table)
    try:
        yield
    finally:
        references.back()


_inside = [False]


def _copying(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def copying(*args: Any, **kwargs: Any) -> Any:
        if _inside[0] or not paddle.in_dynamic_mode():
            return plain(*args, **kwargs)
        _inside[0] = True
        try:
            found = plain(*args, **kwargs)
            if isinstance(found, (list, tuple)):
                return type(found)(paddle.assign(each) if isinstance(each, paddle.Tensor) else each for each in found)
            return paddle.assign(found) if isinstance(found, paddle.Tensor) else found
        finally:
            _inside[0] = False

    return copying


@contextmanager
def graphs() -> Iterator[list[int]]:
    """One entry for each graph of `to_static` that runs inside the block."""
    found: list[int] = []

    def hook(run: Callable[..., Any], inputs: Any, parameters: Any, attributes: Any) -> Any:
        found.append(1)
        return run(inputs, parameters, attributes)

    with loaded("paddle.jit.dy2static.pir_partial_program").replace_run_impl_guard(hook):
        yield found


@contextmanager
def amp(*, off: bool) -> Iterator[list[str]]:
    """What `auto_cast` is asked for inside the block; with `off` it does nothing."""
    found: list[str] = []
    module: Any = sys.modules["paddle.amp.auto_cast"]  # the function of that name hides the module from attribute access
    plain = module.amp_guard  # what every spelling of auto_cast enters

    def guard(enable: bool = True, *args: Any, **kwargs: Any) -> Any:
        if enable:
            found.append(
                ", ".join(map(str, [*args[2:], *(f"{key}={value}" for key, value in kwargs.items() if key in ("level", "dtype"))]))
                or "default"
            )
        return nullcontext() if off else plain(enable, *args, **kwargs)

    module.amp_guard = guard
    try:
        yield found
    finally:
        module.amp_guard = plain


@contextmanager
def double() -> Iterator[None]:
    """float64 is the default dtype."""
    kept = paddle.get_default_dtype()
    paddle.set_default_dtype("float64")
    try:
        yield
    finally:
        paddle.set_default_dtype(kept)
