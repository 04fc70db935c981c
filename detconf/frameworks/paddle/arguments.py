"""What stands for the arguments of an operation where it is done a second time, on twins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from detconf.frameworks.paddle import kinds
from detconf.frameworks.paddle.calls import Call
from detconf.frameworks.paddle.contents import collect
from detconf.frameworks.paddle.noise import Disturbance
from detconf.frameworks.paddle.sums import CONTRACTIONS
from detconf.frameworks.paddle.twins import Twins, dtype_of, floating
from detconf.shadows.formats import round_to

_FLOATS = {paddle.float16, paddle.float32, paddle.bfloat16, paddle.base.core.VarDesc.VarType.FP32, paddle.base.core.VarDesc.VarType.FP16}
_COMPLEX = {paddle.complex64, paddle.base.core.VarDesc.VarType.COMPLEX64}


class Arguments:
    """Runs operations on twins.

    Args:
        twins: of the tensors.
    """

    def __init__(self, twins: Twins) -> None:
        self.twins, self.study = twins, twins.study
        self.disturbance = Disturbance(twins)

    def widened(self, call: Call, outputs: list[Any]) -> list[Any]:
        """The operation once more where only integers came in: Paddle computes with those in float32."""
        try:
            return self.run(call, cast=True)
        except Exception:  # noqa: BLE001  # they are indices or classes, and what comes out is exact
            return outputs

    def run(self, call: Call, *, cast: bool) -> list[Any]:
        """The operation on the twins of its arguments. Returns all tensors that it gave, undeclared ones after them.

        Args:
            cast: integers go in as float64.
        """
        altered = self.study.altered()
        args = [self.argument(call, self._option(call, altered, at, each), cast=cast) for at, each in enumerate(call.args)]
        kwargs = {name: self.argument(call, altered.get(name, each), cast=cast) for name, each in call.kwargs.items()}
        outputs: list[Any] = []
        collect(call.plain(*args, **kwargs), outputs)
        if not outputs and call.operation.in_place:
            collect((args, tuple(kwargs.values())), outputs)
            outputs = outputs[:1]
        for position in kinds.UNDECLARED.get(call.name, ()):
            if call.args[position] is not None:
                outputs.append(args[position])
        return outputs

    def _option(self, call: Call, altered: Mapping[str | int, Any], position: int, value: Any) -> Any:
        if not altered:
            return value
        return altered.get(kinds.option_key(call.name, position), altered.get(position, value))

    def argument(self, call: Call, value: Any, *, cast: bool = False) -> Any:
        """What stands for an argument of the program in the same operation on twins."""
        if isinstance(value, paddle.Tensor):
            return self._twin(call, value, cast=cast)
        if isinstance(value, (list, tuple)):
            return type(value)(self.argument(call, each, cast=cast) for each in value)
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f":
            known = call.known.get(id(value))
            return self.twins.tensor(value if known is None else known.shadow, _anywhere(call))
        if isinstance(value, float) and id(value) in call.known:
            return float(call.known[id(value)].shadow)
        # By hash: types that Paddle cannot compare with its own raise where one asks for equality.
        if type(value).__name__ in ("DataType", "VarType"):
            return paddle.float64 if value in _FLOATS else paddle.complex128 if value in _COMPLEX else value
        return value

    def _twin(self, call: Call, tensor: Any, *, cast: bool) -> Any:
        record = call.records.get(id(tensor))
        if record is None:
            if id(tensor) not in call.empty:
                raise ValueError("a tensor without elements of its own")
            if not floating(tensor):
                return paddle.zeros(tensor.shape, tensor.dtype)
            # Declared, and filled by this very operation. Never the tensor itself: it would become a float64 one.
            return self.twins.tensor(np.zeros(tensor.shape), tensor, stop_gradient=tensor.stop_gradient)
        if not floating(tensor):
            if call.operation.in_place and id(tensor) in call.copies:
                tensor = paddle.to_tensor(call.copies[id(tensor)], dtype=tensor.dtype, place=tensor.place)
            return paddle.cast(tensor, "float64") if cast else tensor
        twin = record.twin
        if self.study.local:
            twin = self.twins.tensor(call.copies[id(tensor)], tensor)
        if call.copying:
            return twin
        if self.study.rounding and call.name in CONTRACTIONS:
            return self.rounded(twin, self.study.rounding)
        return twin if id(tensor) in call.written else self.disturbance.read(tensor, twin)

    def rounded(self, twin: Any, name: str) -> Any:
        """A twin whose elements are rounded to a format; the graph goes on as if they were not."""
        return twin + (self.twins.tensor(round_to(self.twins.elements(twin), name), twin) - twin).detach()


def wide(tensor: Any) -> bool:
    """Is it in the precision of twins?"""
    return dtype_of(tensor) in ("float64", "complex128")


def _anywhere(call: Call) -> Any:
    return call.tensors[0] if call.tensors else paddle.zeros([])
