"""Methods of tensors that are written in C++ and are no operations: they share memory, or hold a gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import paddle

from detconf.frameworks.paddle.backward import Backward
from detconf.frameworks.paddle.mirror import Mirror
from detconf.frameworks.paddle.operations import Operation
from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.twins import Record, Twins

_MOVING = ("detach", "_new_shared_tensor", "contiguous", "_copy_to", "detach_")


class Aliases:
    """Follows them.

    Args:
        mirror: follows operations.
        backward: gradients.
    """

    def __init__(self, mirror: Mirror, backward: Backward) -> None:
        self.mirror, self.backward = mirror, backward
        self.twins: Twins = mirror.twins

    def put(self, references: References) -> None:
        """Replace the methods."""
        methods, tensor = vars(paddle.Tensor), paddle.Tensor
        makers = {
            "_set_impl": self.becoming,
            "_share_underline_tensor_to": self.sharing,
            "_share_buffer_to": self.sharing,
            "_grad_ivar": self.grad_method,
        }
        makers |= {"clear_gradient": self.clearing, "_zero_grads": self.clearing, "retain_grads": self.retaining}
        for name in _MOVING:
            if name in methods:
                references.put_attribute(tensor, name, self.moving(name, methods[name]))
        for name, maker in makers.items():
            if name in methods:
                references.put_attribute(tensor, name, maker(methods[name]))
        eager = paddle.base.core.eager
        if hasattr(eager, "tensor_copy"):
            references.put_attribute(eager, "tensor_copy", self.copying(eager.tensor_copy))
        references.put_attribute(tensor, "grad", self.grad(methods["grad"]))
        references.put_attribute(tensor, "data", self.data(methods["data"]))

    def moving(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Methods that give the same elements."""
        operation = Operation(name="paddle.detach", moves=True)

        @functools.wraps(plain)
        def moved(*args: Any, **kwargs: Any) -> Any:
            return plain(*args, **kwargs) if self.twins.quiet else self.mirror.call(operation, plain, args, kwargs)

        moved.__name__ = name
        return moved

    def copying(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`core.eager.tensor_copy`, which makes parameters of tensors."""

        @functools.wraps(plain)
        def copy(source: Any, target: Any, *rest: Any) -> Any:
            result = plain(source, target, *rest)
            if not self.twins.quiet:
                self.twins.do("a copy", lambda: self.twins.replaced(target, self.twins.known(source), "a copy"))
            return result

        return copy

    def sharing(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Methods after which another tensor has the memory of this one."""

        @functools.wraps(plain)
        def share(source: Any, target: Any) -> Any:
            result = plain(source, target)
            if not self.twins.quiet:
                self.twins.do("shared memory", lambda: self.shared(source, target))
            return result

        return share

    def becoming(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`Tensor._set_impl`, after which this tensor has the memory of another."""

        @functools.wraps(plain)
        def become(target: Any, source: Any) -> Any:
            result = plain(target, source)
            if not self.twins.quiet:
                self.twins.do("shared memory", lambda: self.shared(source, target))
            return result

        return become

    def shared(self, source: Any, target: Any) -> None:
        """`target` has the elements of `source` now, in the same memory. Call quietly."""
        found, before = self.twins.followed(source), self.twins.find(target)
        if found is None:
            return
        twin = None if found.twin is None else found.twin.detach()
        if twin is not None:
            twin.stop_gradient = target.stop_gradient
        if before is not None and before.twin is not None and twin is not None:
            vars(paddle.Tensor)["data"].__set__(before.twin, twin)
            twin = before.twin
        self.twins.keep(target, Record(twin, found.store, found.shape))

    def data(self, plain: Any) -> property:
        """`Tensor.data`."""
        get = self.moving("data", plain.__get__)

        def put(tensor: Any, value: Any) -> None:
            plain.__set__(tensor, value)
            if not self.twins.quiet and isinstance(value, paddle.Tensor):
                self.twins.do("Tensor.data", lambda: self.shared(value, tensor))

        return property(get, put)

    # --- gradients

    def grad(self, plain: Any) -> property:
        """`Tensor.grad`."""

        def get(tensor: Any) -> Any:
            return self.backward.looked_at(tensor, plain.__get__(tensor))

        def put(tensor: Any, value: Any) -> None:
            plain.__set__(tensor, value)
            if not self.twins.quiet:
                self.backward.set(tensor, value)

        return property(get, put)

    def grad_method(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`Tensor._grad_ivar`, which optimizers call."""

        @functools.wraps(plain)
        def grad(tensor: Any) -> Any:
            return self.backward.looked_at(tensor, plain(tensor))

        return grad

    def clearing(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Methods that clear a gradient."""

        @functools.wraps(plain)
        def clear(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            result = plain(tensor, *args, **kwargs)
            if not self.twins.quiet:
                self.backward.cleared(tensor, lambda twin: plain(twin, *args, **kwargs))
            return result

        return clear

    def retaining(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`Tensor.retain_grads`."""

        @functools.wraps(plain)
        def retain(tensor: Any) -> Any:
            result = plain(tensor)
            record = None if self.twins.quiet else self.twins.find(tensor)
            if record is not None and record.twin is not None:
                self.twins.do("Tensor.retain_grads", lambda: plain(record.twin))
            return result

        return retain
