"""What is in a tensor of Paddle, and in its generator.

Inputs are witnessed by their digest. The chains of writes that the tracer of PyTorch keeps are not to be had: optimizers,
`set_value`, running statistics and zero-copy arrays write into tensors whose `inplace_version` stays what it was.
"""

from __future__ import annotations

from ctypes import c_char
from math import prod
from typing import Any

import paddle
from xxhash import xxh3_128

from detconf.arrays import Array
from detconf.digests import NOTHING, mix, prefix
from detconf.frameworks.paddle import tensors

Layout = tuple[str, tuple[int, ...]]
_TYPES = 1 << 12
_WIDTHS = {
    getattr(paddle, name): (name, width)
    for name, width in {
        "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
        "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
    }.items()
    if hasattr(paddle, name)
}  # fmt: skip
_Tensor = paddle.Tensor
_host_only = not (paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu() or paddle.device.get_all_custom_device_type())
_kinds: dict[int, Any] = {}


def describe(tensor: Any) -> tuple[bytes, Layout]:
    """(digest, (dtype, shape)). The digest is that of `Array`; `NOTHING` for a tensor without bytes.

    Sparse tensors are digested by their parts.
    """
    try:
        name, width = _WIDTHS[tensor.dtype]
        shape = tuple(tensor.shape)
        if not (tensor.is_dense() and tensor.is_contiguous() and (_host_only or tensor.place.is_cpu_place())):
            return _unusual(tensor), (name, shape)
        state = xxh3_128(prefix(name, shape))
        size = prod(shape) * width
        if size:
            pointer = tensor.data_ptr()
            if not pointer:  # declared, never filled
                return NOTHING, (name, shape)
            kind = _kinds.get(size) or _kind(size)
            state.update(kind.from_address(pointer))  # `tensor` keeps the memory alive until here
        return state.digest(), (name, shape)
    except Exception:  # noqa: BLE001  # a tensor of strings, a distributed one: no bytes, and the program must go on
        return NOTHING, ("none", ())


def digest(tensor: Any) -> bytes:
    """The first half of `describe`."""
    return describe(tensor)[0]


def _kind(size: int) -> Any:
    # ctypes makes a type per size and forgets it at the next collection.
    if len(_kinds) >= _TYPES:
        _kinds.clear()
    kind = _kinds[size] = c_char * size
    return kind


def _unusual(tensor: Any) -> bytes:
    parts = tensors.components(tensor)
    if parts is None:
        return bytes.fromhex(tensors.to_array(tensor).digest) if tensor._is_initialized() else NOTHING
    return mix(*(part for name, value in parts.items() for part in (mix(name.encode()), _part(value))))


def _part(value: Any) -> bytes:
    if isinstance(value, _Tensor):
        return digest(value)
    return mix(value.tobytes() if hasattr(value, "tobytes") else repr(value).encode())


def array(tensor: Any) -> Array:
    """The bytes of a tensor, owned; no bytes for one that has none of its own."""
    try:
        if tensors.components(tensor) is None and tensor._is_initialized():
            return tensors.to_array(tensor).owned()
    except Exception:  # noqa: BLE001  # as in `describe`
        return Array("none", (), b"")
    return Array("none", (), b"")


def collect(value: Any, found: list[Any]) -> None:
    """Append the tensors in `value`: one, or a list or tuple of them."""
    if isinstance(value, _Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            collect(item, found)


def generator_state() -> bytes:
    """A witness of the state of the default generator: its seed and the two numbers that it would give next.

    The state itself cannot be read (its text holds an address); the generator is put back.
    """
    default = generator()
    state = default.get_state()
    try:
        following = default.random(), default.random()
    finally:
        default.set_state(state)
    return mix(repr((state.current_seed(), following)).encode())


def generator() -> Any:
    """The default generator of the device at hand."""
    core = paddle.base.core
    place = paddle.framework._current_expected_place()
    if isinstance(place, core.CUDAPlace):  # Paddle 2.6
        return core.default_cuda_generator(place.get_device_id())
    if hasattr(place, "is_gpu_place") and place.is_gpu_place():
        return core.default_cuda_generator(place.gpu_device_id())
    return core.default_cpu_generator()
