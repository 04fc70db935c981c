"""Where tensors of Paddle are made of other things: NumPy's and PyTorch's arrays, Python's numbers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.twins import Twins, dtype_of
from detconf.shadows.study import Known, Read

_CREATION = "paddle.tensor.creation"


class Entries:
    """Follows what enters.

    Args:
        twins: of the tensors.
    """

    def __init__(self, twins: Twins) -> None:
        self.twins, self.study = twins, twins.study

    def put(self, references: References) -> None:
        """Replace the methods that fill tensors."""
        methods, tensor = vars(paddle.Tensor), paddle.Tensor
        references.put_attribute(tensor, "set_value", self.set_value(methods["set_value"]))
        references.put_attribute(tensor, "__init__", self.init(methods["__init__"]))
        creation = sys.modules[_CREATION]
        initializer = next(each for each in paddle.nn.initializer.Assign.__mro__ if "forward" in vars(each))
        references.put_attribute(creation, "_to_tensor_non_static", self.to_tensor(creation._to_tensor_non_static))
        references.put_attribute(initializer, "forward", self.initializing(vars(initializer)["forward"]))

    def replacements(self) -> dict[int, tuple[Any, Any]]:
        """Functions that modules hold, and what takes their place, as `References.put` wants them."""
        assign = sys.modules[_CREATION].assign
        return {id(assign): (assign, self.assign(assign))}

    def to_tensor(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """What `paddle.to_tensor` does in a dynamic graph."""

        @functools.wraps(plain)
        def to_tensor(data: Any, *args: Any, **kwargs: Any) -> Any:
            if self.twins.quiet or isinstance(data, paddle.Tensor):
                return plain(data, *args, **kwargs)
            reads: list[Read] = []
            shadow = self.twins.do("paddle.to_tensor", lambda: self.exact(data, reads))
            with self.twins.silently():
                tensor = plain(data, *args, **kwargs)
            self.twins.do("paddle.to_tensor", lambda: self._entered(tensor, data, shadow, reads))
            return tensor

        return to_tensor

    def _entered(self, tensor: Any, data: Any, shadow: Any, reads: Sequence[Read]) -> None:
        known = self.study.known(data)
        if known is not None:
            self.twins.arrived(tensor, known, "paddle.to_tensor")
        elif reads and shadow is not None and shadow.dtype.kind in "fc":
            [(value, kept)] = self.study.operation("paddle.to_tensor", reads, [(shadow, dtype_of(tensor), self.twins.real(tensor))])
            self.twins.made(tensor, kept, value)
        else:
            self.twins.leaf(tensor, shadow, "paddle.to_tensor")

    def exact(self, data: Any, reads: list[Read]) -> Any:
        """The elements of nested lists, arrays and numbers, in float64 where they are no integers. Call quietly."""
        if isinstance(data, (list, tuple)):
            return np.array([self.exact(each, reads) for each in data])
        known = None if isinstance(data, (int, str)) else self.study.known(data)
        if known is not None:
            reads.append(Read(known.value) if known.value.shadow is known.shadow else Read(known.value, known.shadow))
            return np.asarray(known.shadow)
        array = np.asarray(data)
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64) if array.dtype.kind in "fc" else array

    def init(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`paddle.Tensor(...)`: data from outside."""

        @functools.wraps(plain)
        def init(tensor: Any, *args: Any, **kwargs: Any) -> None:
            plain(tensor, *args, **kwargs) if kwargs else plain(tensor, *args)  # Paddle 2.6 tells empty ones from none
            data = kwargs.get("value", args[0] if args else None)
            if isinstance(data, np.ndarray) and not self.twins.quiet:
                self.twins.do("paddle.Tensor", lambda: self._entered(tensor, data, None, ()))

        return init

    def set_value(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`Tensor.set_value`."""

        @functools.wraps(plain)
        def set_value(tensor: Any, data: Any) -> Any:
            if self.twins.quiet:
                return plain(tensor, data)
            known = self.twins.do("Tensor.set_value", lambda: self.study.known(data))
            with self.twins.silently():
                result = plain(tensor, data)
            self.twins.do("Tensor.set_value", lambda: self.twins.replaced(tensor, known, "Tensor.set_value"))
            return result

        return set_value

    def assign(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`paddle.assign` of something that is no tensor."""

        @functools.wraps(plain)
        def assign(x: Any, output: Any = None) -> Any:
            if self.twins.quiet or isinstance(x, paddle.Tensor) or not paddle.in_dynamic_mode() or _holds_tensors(x):
                return plain(x, output)
            reads: list[Read] = []
            shadow = self.twins.do("paddle.assign", lambda: self.exact(x, reads))
            with self.twins.silently():
                result = plain(x, output)
            self.twins.do("paddle.assign", lambda: self._filled(result, x, shadow, "paddle.assign"))
            return result

        return assign

    def initializing(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`paddle.nn.initializer.Assign`."""

        @functools.wraps(plain)
        def forward(initializer: Any, tensor: Any, *rest: Any) -> Any:
            data = getattr(initializer, "_value", None)
            if self.twins.quiet or not isinstance(tensor, paddle.Tensor) or data is None:
                return plain(initializer, tensor, *rest)
            shadow = self.twins.do("initializer.Assign", lambda: self.exact(data, []))
            with self.twins.silently():
                result = plain(initializer, tensor, *rest)
            self.twins.do("initializer.Assign", lambda: self._filled(tensor, data, shadow, "paddle.nn.initializer.Assign"))
            return result

        return forward

    def _filled(self, tensor: Any, data: Any, shadow: Any, origin: str) -> None:
        """A tensor that exists got its elements from outside. Call quietly."""
        known = self.study.known(data)
        if shadow is not None and np.shape(shadow) != tuple(tensor.shape):
            shadow = np.reshape(shadow, tensor.shape)  # a number becomes [1]
            known = None if known is None else Known(shadow, known.value)
        self.twins.replaced(tensor, known, origin, shadow)


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, paddle.Tensor) or (isinstance(value, (list, tuple)) and any(map(_holds_tensors, value)))
