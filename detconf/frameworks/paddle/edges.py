"""Where other things are made of tensors of Paddle: NumPy's arrays and Python's numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.twins import Twins, dtype_of
from detconf.shadows.number import Numbers
from detconf.shadows.study import Known


class Edges:
    """Follows what leaves.

    Args:
        twins: of the tensors.
        numbers: floats that left.
    """

    def __init__(self, twins: Twins, numbers: Numbers) -> None:
        self.twins, self.study, self.numbers = twins, twins.study, numbers

    def put(self, references: References) -> None:
        """Replace the methods of tensors."""
        methods = vars(paddle.Tensor)
        for name, maker in (
            ("numpy", self.numpy),
            ("item", self.item),
            ("__float__", functools.partial(self.item, plainly=True)),
            ("tolist", self.tolist),
        ):
            if name in methods:
                references.put_attribute(paddle.Tensor, name, maker(methods[name]))

    def numpy(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`Tensor.numpy`."""

        @functools.wraps(plain)
        def numpy(tensor: Any, *args: Any) -> Any:
            array = plain(tensor, *args)
            if self.twins.quiet:
                return array
            known = self.twins.do("Tensor.numpy", lambda: self.twins.known(tensor))
            if known is None or np.shape(array) != np.shape(known.shadow) or dtype_of(tensor) != str(array.dtype):
                return array
            return self.study.wrap(array, known)

        return numpy

    def item(self, plain: Callable[..., Any], *, plainly: bool = False) -> Callable[..., Any]:
        """`Tensor.item`, `Tensor.__float__`: a float that is followed.

        Args:
            plainly: it has to be a float and nothing else: it is known by its value only.
        """

        @functools.wraps(plain)
        def item(tensor: Any, *args: Any) -> Any:
            if self.twins.quiet:
                return plain(tensor, *args)
            with self.twins.silently():
                value = plain(tensor, *args)
            if not isinstance(value, float):
                return value
            known = self.twins.do("Tensor.item", lambda: self.twins.known(tensor))
            if known is None:
                return value
            shadow = np.asarray(known.shadow)
            one = shadow.reshape(()) if shadow.size == 1 else self.twins.do("Tensor.item", lambda: np.asarray(shadow.item(*args)))
            if one is None:
                return value
            number = _number(float(value), Known(one, known.value), self.numbers)
            return value if plainly else number

        return item

    def tolist(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """`Tensor.tolist`: floats that are followed by their values."""

        @functools.wraps(plain)
        def tolist(tensor: Any) -> Any:
            if self.twins.quiet:
                return plain(tensor)
            with self.twins.silently():
                values = plain(tensor)
            if dtype_of(tensor) in ("float16", "float32", "float64"):
                known = self.twins.do("Tensor.tolist", lambda: self.twins.known(tensor))
                if known is not None and known.shadow.shape == tuple(tensor.shape):
                    return _numbers(values, known.shadow, known.value, self.numbers)
            return values

        return tolist


def _numbers(values: Any, shadow: Any, value: Any, numbers: Numbers) -> Any:
    if isinstance(values, list):
        return [_numbers(each, part, value, numbers) for each, part in zip(values, shadow, strict=True)]
    return _number(values, Known(np.asarray(shadow), value), numbers)


def _number(value: float, known: Known, numbers: Numbers) -> float:
    # Paddle's functions take the float out of a number before an operation is called: it is known by its value as well.
    numbers.escape(value, known)
    return numbers.number(value, known)
