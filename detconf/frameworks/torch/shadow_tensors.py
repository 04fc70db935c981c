"""Tensors as the shadows need them: which have a storage to follow, where in it they lie, and what is in them as NumPy sees it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from detconf.shadows.formats import ROUNDINGS, round_to

to_numpy, from_numpy = torch.Tensor.numpy, torch.from_numpy
"""As they are without us: others, and we, may patch them."""
_CODES = {name: np.dtype(f"int{8 * getattr(torch, name).itemsize}") for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def followed(tensor: Any) -> bool:
    """Does it have a storage whose bytes are its elements?"""
    return (
        tensor.layout is torch.strided
        and (tensor.is_cpu or tensor.is_cuda)  # ten times as fast as `tensor.device.type`
        and not (tensor.is_quantized or tensor.is_nested or tensor._is_zerotensor())
    )


def floats(dtype: Any) -> bool:
    """Is it a dtype whose numbers are rounded?"""
    return bool(dtype.is_floating_point or dtype.is_complex)


def wide(dtype: Any) -> Any:
    """The dtype of its shadow."""
    return torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype


def name_of(dtype: Any) -> str:
    """As `arrays.Array` spells it."""
    return str(dtype).removeprefix("torch.")


def array(tensor: Any) -> Any:
    """A plain tensor of a dtype that NumPy has as an array; without a copy where that is possible."""
    if tensor.is_cpu and not (tensor.is_conj() or tensor.is_neg() or tensor.requires_grad):
        return to_numpy(tensor)
    return to_numpy(tensor.detach().resolve_conj().resolve_neg().cpu())


def real_array(tensor: Any) -> Any:
    """The real elements; bfloat16 and float8 as `ml_dtypes` spells them."""
    name = name_of(tensor.dtype)
    if name not in _CODES:
        return array(tensor.to(torch.complex64) if name == "complex32" else tensor)
    import ml_dtypes

    plain = tensor.detach().contiguous()
    return array(plain.view(getattr(torch, _CODES[name].name))).view(getattr(ml_dtypes, name))


def rounded(shadow: Any, form: str) -> Any:
    """A shadow in another format: one of `formats.ROUNDINGS`, or a dtype of PyTorch's."""
    if shadow.is_complex():
        return torch.view_as_complex(rounded(torch.view_as_real(shadow.resolve_conj()), form.replace("complex64", "float32")).contiguous())
    if form in ROUNDINGS:
        return from_numpy(round_to(array(shadow), form)).to(shadow.device).reshape(shadow.shape)
    return shadow.to(getattr(torch, form)).to(torch.float64)


def numbers_of(tensor: Any) -> Any:
    """The tensor whose storage holds its numbers: itself, the values of a sparse one, the buffer of a nested one; or None."""
    if followed(tensor):
        return tensor
    if tensor.layout is torch.sparse_coo:
        return tensor._values()
    if tensor.is_nested and tensor.layout is torch.strided:
        parts = tensor.unbind()
        return parts[0].as_strided((tensor.numel(),), (1,), 0) if parts and tensor.numel() and followed(parts[0]) else None
    return tensor.values() if tensor.layout in _COMPRESSED else None


def on_numbers(tensor: Any, function: Callable[[Any], Any]) -> Any:
    """`tensor` with other numbers: what `function` makes of those that it has."""
    if tensor.is_nested:
        places = tensor._nested_tensor_size(), tensor._nested_tensor_strides(), tensor._nested_tensor_storage_offsets()
        return torch._nested_view_from_buffer(function(numbers_of(tensor)), *places)
    if tensor.layout is torch.strided:
        return function(tensor)
    if tensor.layout is torch.sparse_coo:
        indices, values = tensor._indices(), function(tensor._values())
        return torch.sparse_coo_tensor(indices, values, tensor.size(), is_coalesced=tensor.is_coalesced(), check_invariants=False)
    outer, inner = (getattr(tensor, name)() for name in _COMPRESSED[tensor.layout])
    return torch.sparse_compressed_tensor(
        outer, inner, function(tensor.values()), tensor.size(), layout=tensor.layout, check_invariants=False
    )


def component_of(dtype: Any) -> tuple[bool, int]:
    return (True, dtype.itemsize // 2) if dtype.is_complex else (bool(dtype.is_floating_point), dtype.itemsize)


def geometry_of(tensor: Any) -> tuple[Any, ...]:
    return (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg())


def extent(tensor: Any) -> tuple[int, int]:
    """First and one after the last element of the storage, in components, that may belong to it."""
    scale = 2 if tensor.is_complex() else 1
    low = tensor.storage_offset()
    count = tensor.numel()
    if not count or tensor.is_contiguous():
        return low * scale, (low + count) * scale
    span = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return low * scale, (low + span + 1) * scale


def length_of(storage: Any, dtype: Any) -> int:
    return int(storage.nbytes()) // component_of(dtype)[1]


def whole_of(tensor: Any, storage: Any) -> Any:
    """All of a storage, as components."""
    real = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
    size = storage.nbytes() // real.itemsize
    return torch.empty(0, dtype=real, device=tensor.device).set_(storage, 0, (size,), (1,))


def digest(tensor: Any) -> bytes:
    """Of a tensor's dtype, shape and bytes."""
    content = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().view(-1).view(torch.uint8)
    return blake2b(repr((tensor.dtype, tuple(tensor.shape))).encode() + to_numpy(content).tobytes(), digest_size=16).digest()


def bits_of(tensor: Any, storage: Any) -> Any:
    """All of a storage as integers, one per component, so that not a number equals itself."""
    whole = whole_of(tensor, storage)
    return array(whole.view(getattr(torch, f"int{8 * whole.dtype.itemsize}")))


def told(error: Exception) -> str:
    """The first line of what an exception says."""
    return (str(error).strip().split("\n", maxsplit=1)[0] or type(error).__name__)[:160]
