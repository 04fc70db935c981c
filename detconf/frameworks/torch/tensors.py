"""PyTorch tensors as bytes."""

from __future__ import annotations

import sys
from typing import Any

from detconf.arrays import Array
from detconf.errors import TargetError

_SPARSE: dict[str, tuple[str, ...]] = {
    "torch.sparse_coo": ("_indices", "_values"),  # as stored: coalescing would add up duplicates
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
_PER_TENSOR: tuple[str, ...] = ("q_scale", "q_zero_point")
_PER_CHANNEL = ("q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis")


def is_tensor(value: Any) -> bool:
    """A tensor, parameters and subclasses included."""
    return isinstance(value, sys.modules["torch"].Tensor)


def components(value: Any) -> Any:
    """The dense tensors and numbers that stand for a sparse, quantized, nested or oneDNN tensor; None for a dense one."""
    value = value.detach()
    if value.is_nested:
        return list(value.unbind())
    if value.is_quantized:
        scheme = _PER_CHANNEL if "per_channel" in str(value.qscheme()) else _PER_TENSOR
        return {"int_repr": value.int_repr()} | {name.removeprefix("q_"): getattr(value, name)() for name in scheme}
    if value.is_mkldnn:
        return {"dense": value.to_dense()}
    layout = str(value.layout)
    if layout not in _SPARSE:
        return None
    return {name.strip("_"): getattr(value, name)() for name in _SPARSE[layout]} | {"size": tuple(value.shape)}


def to_array(value: Any) -> Array:
    """Any strides, conjugate and negative views, any device, with or without gradient.

    Raises:
        TargetError: a meta tensor.
    """
    if value.is_meta:
        msg = "a meta tensor has a shape and no values. Accepted: tensors on a real device."
        raise TargetError(msg)
    dense = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
    data = dense.reshape(-1).view(sys.modules["torch"].uint8).numpy()  # as bytes: numpy has no bfloat16 and no float8
    return Array(str(value.dtype).removeprefix("torch."), tuple(value.shape), memoryview(data))
