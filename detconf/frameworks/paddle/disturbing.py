"""A program whose results are off by roundings: which of its choices are then made otherwise?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_char
from typing import Any

import numpy as np
import paddle

from detconf.frameworks.paddle.contents import collect
from detconf.frameworks.paddle.kinds import VIEWS
from detconf.frameworks.paddle.operations import SLOTS, describe
from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.trace import is_operation, named_as
from detconf.shadows.formats import unit
from detconf.shadows.normals import Normals

_WIDTHS = {paddle.float32: "float32", paddle.float64: "float64"}
_EXACT = frozenset(("assign", "full", "full_like", "getitem", "setitem_", "concat", "stack", "cast", "gather", "where"))


@contextmanager
def disturbing(seed: int, units: float) -> Iterator[None]:
    """Inside, what an operation computes is multiplied by 1 + `units` u N: u the unit roundoff of its dtype, N standard normal.

    Forward passes only: the others run in C++. What only moves or draws numbers, and what comes from outside, is left as
    it is. The program's generators are not used.
    """
    references, normals = References(), Normals(seed)

    def wrapped(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        operation = describe(name)
        if operation.moves or operation.random or operation.empty or operation.name in VIEWS or name in _EXACT:
            return plain

        def disturbed(*args: Any, **kwargs: Any) -> Any:
            result = plain(*args, **kwargs)
            made: list[Any] = []
            given: list[Any] = []
            collect(result, made)
            collect((*args, *kwargs.values()), given)
            kept = {each.data_ptr() for each in given if each.is_dense()}  # running statistics, which the program keeps
            for each in made:
                if each.is_dense() and each.data_ptr() not in kept:
                    _disturb(each, normals, units)
            return result

        return named_as(disturbed, plain)

    operations = {id(each): (each, wrapped(name, each)) for name, each in vars(paddle._C_ops).items() if is_operation(each)}
    references.put(operations)
    for slot, name in SLOTS.items():
        if slot in vars(paddle.Tensor):
            references.put_attribute(paddle.Tensor, slot, wrapped(name, vars(paddle.Tensor)[slot]))
    try:
        yield
    finally:
        references.back()


def _disturb(tensor: Any, normals: Normals, units: float) -> None:
    """In its own memory: neither the graph nor the version of the tensor is to know."""
    name = _WIDTHS.get(tensor.dtype, "")
    if not (name and tensor.is_contiguous() and tensor.place.is_cpu_place() and tensor.data_ptr()):
        return
    count = int(np.prod(tensor.shape, dtype=np.int64))
    elements = np.frombuffer((c_char * (count * np.dtype(name).itemsize)).from_address(tensor.data_ptr()), dtype=name)
    elements *= (1.0 + units * unit(name) * normals.stretch(count)).astype(name)
