"""Where tensors get elements of other things, in a program that runs whole in float64: arrays, Python's numbers, generators."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle.base.data_feeder import convert_dtype

from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.twins import dtype_of

if TYPE_CHECKING:
    from detconf.frameworks.paddle.widening import Wide

_CREATION = "paddle.tensor.creation"
_NARROW = ("float16", "float32", "bfloat16", "uint16", "complex64")
"""As `convert_dtype` spells what is widened; bfloat16 is stored as uint16."""


class Filling:
    """Replaces what fills tensors.

    Args:
        wide: runs operations.
    """

    def __init__(self, wide: Wide) -> None:
        self.wide = wide

    def put(self, references: References) -> None:
        """Until `references` puts back."""
        creation, tensor = sys.modules[_CREATION], paddle.Tensor
        references.put_attribute(creation, "_to_tensor_non_static", self._to_tensor(creation._to_tensor_non_static))
        references.put_attribute(tensor, "set_value", self._set_value(vars(tensor)["set_value"]))
        references.put_attribute(tensor, "__init__", self._init(vars(tensor)["__init__"]))
        initializer = next(each for each in paddle.nn.initializer.Assign.__mro__ if "forward" in vars(each))
        references.put_attribute(initializer, "forward", self._initializing(vars(initializer)["forward"]))

    def _to_tensor(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """What `paddle.to_tensor` does in a dynamic graph."""

        @functools.wraps(plain)
        def to_tensor(data: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
            if self.wide.quiet or isinstance(data, (paddle.Tensor, paddle.base.core.DenseTensor)) or _holds_tensors(data):
                return plain(data, dtype, *args, **kwargs)
            array = _elements(data)
            asked = convert_dtype(dtype) if dtype else "float32" if array.dtype.kind in "fc" else ""
            if asked not in _NARROW:
                return plain(data, dtype, *args, **kwargs)
            return plain(array, "complex128" if array.dtype.kind == "c" else "float64", *args, **kwargs)

        return to_tensor

    def _set_value(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`Tensor.set_value`: a tensor of the program's own becomes float64, another one is rounded into."""

        @functools.wraps(plain)
        def set_value(tensor: Any, data: Any) -> Any:
            if self.wide.quiet or not isinstance(data, (np.ndarray, paddle.Tensor)):
                return plain(tensor, data)
            if tensor._is_initialized() and dtype_of(tensor) in _NARROW:
                self.wide.lose("Tensor.set_value writes to a tensor from outside")
            dtype = dtype_of(tensor)
            with self.wide.silence():
                if isinstance(data, paddle.Tensor):
                    return plain(tensor, data if data.dtype == tensor.dtype else paddle.cast(data, dtype))
                return plain(tensor, data.astype(dtype) if dtype != "bfloat16" and data.dtype.kind in "fc" else data)

        return set_value

    def _init(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`paddle.Tensor(...)`: data from outside."""

        @functools.wraps(plain)
        def init(tensor: Any, *args: Any, **kwargs: Any) -> None:
            if not self.wide.quiet and args and isinstance(args[0], np.ndarray):
                args = (_elements(args[0]), *args[1:])
            elif not self.wide.quiet and isinstance(kwargs.get("value"), np.ndarray):
                kwargs["value"] = _elements(kwargs["value"])
            plain(tensor, *args, **kwargs) if kwargs else plain(tensor, *args)  # Paddle 2.6 tells empty ones from none

        return init

    def _initializing(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`paddle.nn.initializer.Assign`."""

        @functools.wraps(plain)
        def forward(initializer: Any, tensor: Any, *rest: Any) -> Any:
            result = plain(initializer, tensor, *rest)
            data = getattr(initializer, "_value", None)
            if not self.wide.quiet and isinstance(tensor, paddle.Tensor) and isinstance(data, (np.ndarray, list, tuple)):
                self.wide.become(tensor, paddle.to_tensor(_elements(data), dtype="float64").reshape(tensor.shape))
            return result

        return forward


def _elements(data: Any) -> Any:
    """Arrays and Python's numbers as an array, float64 where they round."""
    array = np.asarray(data)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64) if array.dtype.kind in "fc" else array


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(each, paddle.Tensor) or _holds_tensors(each) for each in value)
