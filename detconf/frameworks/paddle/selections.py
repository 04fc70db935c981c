"""Operations that select elements: the shadow is what stands where the *real* side chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from detconf.frameworks.paddle.kinds import PICKS


def chosen(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], made: Sequence[Any]) -> Callable[[Any], Any] | None:
    """What makes the first result of the twin of the first argument; None for operations that do not select so.

    Args:
        made: the real results, tensors.
    """
    if name in PICKS and len(made) == 2 and args:
        option, position = PICKS[name]
        axis = args[position] if len(args) > position else kwargs.get(option)
        return lambda source: _along(source, made[1], -1 if axis is None else int(axis))
    if name == "max_pool2d_with_index" and len(made) == 2:
        return lambda source: _pooled(source, made[1])
    if name == "unique" and args and made and made[0].ndim == 1 and args[0].size:
        return lambda source: _first(source, args[0], made[0])
    return None


def _along(source: Any, places: Any, axis: int) -> Any:
    places = places.astype("int64")
    if places.ndim < source.ndim:
        return paddle.take_along_axis(source, places.unsqueeze(axis), axis).squeeze(axis)
    return paddle.take_along_axis(source, places, axis, broadcast=False)


def _pooled(source: Any, places: Any) -> Any:
    batch, channels = source.shape[:2]
    flat = paddle.take_along_axis(
        source.reshape([batch, channels, -1]), places.reshape([batch, channels, -1]).astype("int64"), 2, broadcast=False
    )
    return flat.reshape(places.shape)


def _first(source: Any, real: Any, values: Any) -> Any:
    elements = real.numpy().reshape(-1)
    order = np.argsort(elements, kind="stable")
    places = order[np.searchsorted(elements, values.numpy(), sorter=order)]
    return paddle.gather(source.reshape([-1]), paddle.to_tensor(places), 0)
