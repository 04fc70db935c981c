"""What rounding would do to an operation: relative noise on its shadows. With a generator of its own, not Paddle's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from detconf.frameworks.paddle.twins import Twins, dtype_of
from detconf.shadows.formats import unit
from detconf.shadows.normals import Normals

if TYPE_CHECKING:
    from detconf.frameworks.paddle.arguments import Arguments
    from detconf.frameworks.paddle.calls import Call

READ, WRITTEN = 0.6, 0.4
_FLOOR = 0.3


class Disturbance:
    """The noise of one run; none where the study asks for none.

    Args:
        twins: of the tensors.
    """

    def __init__(self, twins: Twins) -> None:
        self.twins = twins
        seed = twins.study.noise
        self.random = None if seed is None else Normals(seed)

    def factor(self, tensor: Any, share: float) -> Any:
        """A tensor of 1 + share · u · N, of the shape of `tensor`, u of its dtype. Call quietly."""
        assert self.random is not None  # noqa: S101  # asked only in a noise run
        return self.twins.tensor(1.0 + share * unit(dtype_of(tensor)) * self.random.standard_normal(tuple(tensor.shape)), tensor)

    def read(self, tensor: Any, twin: Any) -> Any:
        """The twin of a tensor that an operation reads."""
        return twin if self.random is None or tensor.is_selected_rows() else twin * self.factor(tensor, READ)

    def of(self, gradient: Any, dtype: str) -> Any:
        """A gradient inside the graph, which stands for one of `dtype`."""
        if self.random is None:
            return gradient
        return gradient * self.twins.tensor(1.0 + READ * unit(dtype) * self.random.standard_normal(tuple(gradient.shape)), gradient)

    def written(self, tensor: Any, twin: Any, *, in_place: bool, located: bool = False) -> Any:
        """The twin of a tensor that an operation wrote, disturbed; where it wrote in place, in its own memory.

        Args:
            located: the operation finds places by numbers in single precision: what these are off by, it weighs its input by.
        """
        if self.random is None:
            return twin
        factor = self.factor(tensor, WRITTEN)
        if located:  # a coordinate is rounded twice; of one size with either sign, since no draw of it may be tiny by chance
            size = 2 * max(tensor.shape) * unit("float32") * _rms(self.twins.elements(twin))
            signs = np.sign(self.random.standard_normal(tuple(tensor.shape)))
            return twin * factor + self.twins.tensor(size * signs, tensor)
        if not in_place:
            return twin * factor
        self.twins.overwrite(twin, self.twins.elements(twin) * self.twins.elements(factor))
        return twin


def local_error(arguments: Arguments, call: Call, made: Sequence[Any], shadows: Sequence[Any]) -> float | None:
    """rms(real - float64 operation on the real inputs) / rms(what noise of u does to that); None if exact or not to be had."""
    twins = arguments.twins
    pairs = [(at, real, twin) for at, (real, twin) in enumerate(zip(made, shadows, strict=True)) if twin is not None]
    if call.copying or not pairs or call.state is not None:
        return None
    disturbance, arguments.disturbance = arguments.disturbance, Disturbance(twins)
    arguments.disturbance.random = Normals(0)
    try:
        again = arguments.run(call, cast=False)
    except Exception:  # noqa: BLE001  # no second run, no figure
        return None
    finally:
        arguments.disturbance = disturbance
    ratios = [
        _ratio(twins.elements(real), twins.elements(twin), twins.elements(again[at]), unit(dtype_of(real))) for at, real, twin in pairs
    ]
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def _ratio(real: Any, shadow: Any, disturbed: Any, roundoff: float) -> float | None:
    error = _rms(real - shadow)
    if not error:
        return None
    return float(error / max(_rms(disturbed - shadow) + _FLOOR * roundoff * _rms(shadow), np.finfo(np.float64).tiny))


def _rms(array: Any) -> float:
    return float(np.sqrt(np.mean(np.abs(array) ** 2))) if array.size else 0.0
