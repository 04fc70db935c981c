"""PaddlePaddle tensors as bytes."""

from __future__ import annotations

import sys
from typing import Any

from detconf.arrays import Array, raw


def is_tensor(value: Any) -> bool:
    """An eager tensor, parameters included. A value of a static graph has no bytes yet: fetch it."""
    return isinstance(value, sys.modules["paddle"].Tensor)


def components(value: Any) -> Any:
    """The dense tensors that stand for a sparse one, or for the rows of a sparse gradient; None for a dense one."""
    if value.is_selected_rows():
        rows = value.get_selected_rows()
        return {"rows": rows.rows(), "height": rows.height(), "values": sys.modules["numpy"].array(rows.get_tensor())}
    if value.is_sparse_coo():
        return {"indices": value.indices(), "values": value.values(), "size": list(value.shape)}
    if value.is_sparse_csr():
        return {"crows": value.crows(), "cols": value.cols(), "values": value.values(), "size": list(value.shape)}
    return None


def to_array(value: Any) -> Array:
    """Any strides and device. The dtype is the tensor's own: `numpy()` gives uint16 for bfloat16 and int8 for float8."""
    data = value.numpy()
    return Array(str(value.dtype).rpartition(".")[2], data.shape, raw(data))
