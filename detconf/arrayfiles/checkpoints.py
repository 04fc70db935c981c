"""Checkpoints of torch (zip) and paddle (pickle): their arrays and numbers, without either framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from detconf.arrayfiles.mapped import Member, damaged, members
from detconf.arrayfiles.nodes import Node
from detconf.arrayfiles.pickles import Reader, read_pickle
from detconf.arrayfiles.rebuilt import NUMPY, NUMPY_WORDS, Loader, item_size, loaders, plain_array
from detconf.arrays import Array
from detconf.errors import DetconfError

_LEGACY = 0x1950A86A20F9469CFC6C
"""The first value of a file of torch before its zip format."""
_LONGEST_PICKLE = 1 << 28
_EXPANDED = 1 << 26
"""Bytes that a tensor may have beyond those of its data: an expanded one may pretend to any size."""
_STORAGES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Byte": "uint8", "Char": "int8", "Short": "int16",
    "Int": "int32", "Long": "int64", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip
_TYPES = {
    *_STORAGES.values(), "uint16", "uint32", "uint64", "complex32",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
}  # fmt: skip
_WORDS = (
    NUMPY_WORDS | {f"torch.{name}Storage" for name in _STORAGES} | {"torch.storage.UntypedStorage"} | {f"torch.{name}" for name in _TYPES}
)


def is_checkpoint(names: Mapping[str, Member]) -> bool:
    """Is a zip with these members a file of torch.save?"""
    return any(name.endswith("/data.pkl") or name == "data.pkl" for name in names)


def checkpoint(path: str, data: memoryview) -> Mapping[str, Loader]:
    """The arrays and numbers of a file of torch.save.

    Raises:
        DetconfError: damaged, a program rather than data, or more than arrays and plain data.
    """
    found = members(path, data)
    pickle = next(name for name in found if name.endswith("data.pkl"))
    folder = pickle.removesuffix("data.pkl")
    if f"{folder}constants.pkl" in found:
        msg = f"{path} is a program of torch.jit. Accepted: files of torch.save; save its state_dict()."
        raise DetconfError(msg)
    if f"{folder}byteorder" in found and bytes(found[f"{folder}byteorder"]()) != b"little":
        msg = f"{path} was saved on a big-endian machine. Accepted: little-endian files; load and save it with torch."
        raise DetconfError(msg)
    text = found[pickle]()
    if len(text) > _LONGEST_PICKLE:
        raise damaged(path, f"its pickle has {len(text):,} bytes")
    stored = _Storages(path, folder, found)
    return loaders(read_pickle(path, Reader(text), _TORCH, frozenset(_WORDS), stored))


class _Storage(Node):
    """A storage of torch: bytes, and the dtype of its elements; None for bytes alone."""

    def __init__(self, data: memoryview, dtype: str | None) -> None:
        self.data, self.dtype = data, dtype

    def finish(self) -> Any:
        return Array("uint8", (len(self.data),), self.data)


class _Storages:
    """The storages of one file."""

    def __init__(self, path: str, folder: str, found: Mapping[str, Member]) -> None:
        self.path, self.folder, self.found = path, folder, found

    def __call__(self, key: Any) -> _Storage:
        kind, type_, name, _, number = key
        member = self.found.get(f"{self.folder}data/{name}")
        if kind != "storage" or member is None or type(number) is not int:
            raise damaged(self.path, f"its data {name!r} is missing")
        typed = type_.text.rpartition(".")[2].removesuffix("Storage")
        dtype = _STORAGES.get(typed)
        data = member()
        if len(data) != number * (item_size(dtype) if dtype else 1):
            raise damaged(self.path, f"its data {name!r} has {len(data):,} bytes, not those of {number:,} elements")
        return _Storage(data, dtype)


class _Tensor(Node):
    """A dense tensor: a window on a storage."""

    def __init__(self, storage: _Storage, dtype: str, offset: int, size: Any, stride: Any) -> None:
        self.storage, self.dtype, self.offset = storage, dtype, offset
        self.size, self.stride = tuple(size), tuple(stride)

    def finish(self) -> Any:
        import numpy as np

        numbers = (*self.size, *self.stride, self.offset)
        if (
            len(self.size) != len(self.stride)
            or len(self.size) > 64
            or not all(type(each) is int and 0 <= each < 1 << 62 for each in numbers)
        ):
            raise ValueError("a tensor with another shape than torch gives it")
        # complex32 is in neither NumPy nor ml_dtypes.
        width = 4 if self.dtype == "complex32" else item_size(self.dtype)
        last = self.offset + sum((size - 1) * step for size, step in zip(self.size, self.stride, strict=True))
        if 0 in self.size:
            return Array(self.dtype, self.size, b"")
        if (last + 1) * width > len(self.storage.data):
            raise ValueError("a tensor that reaches beyond its data")
        elements = np.frombuffer(self.storage.data, f"V{width}", len(self.storage.data) // width)
        window = np.lib.stride_tricks.as_strided(
            elements[self.offset :], self.size, tuple(step * width for step in self.stride), writeable=False
        )
        if window.size * width > max(len(self.storage.data), _EXPANDED):
            raise ValueError("a tensor with more elements than its data")
        return Array(self.dtype, self.size, plain_array(window).data)


def _typed(storage: _Storage, offset: int, size: Any, stride: Any, *_: Any) -> _Tensor:
    if storage.dtype is None:
        raise ValueError("a tensor on a storage without a type")
    return _Tensor(storage, storage.dtype, offset, size, stride)


def _untyped(storage: _Storage, offset: int, size: Any, stride: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, dtype.text.removeprefix("torch."), offset, size, stride)


def _first(value: Any, *_: Any) -> Any:
    return value


def _device(*parts: Any) -> str:
    return ":".join(map(str, parts))


_TORCH: Mapping[str, Callable[..., Any]] = {
    **NUMPY,
    "torch._utils._rebuild_tensor_v2": _typed,
    "torch._utils._rebuild_tensor_v3": _untyped,
    "torch._utils._rebuild_parameter": _first,
    "torch.Size": _first,
    "torch.device": _device,
}


def parameters(source: str, data: memoryview) -> Mapping[str, Loader]:
    """The arrays and numbers of a file of paddle.save. Paddle has no uint16: what NumPy calls that is bfloat16.

    Raises:
        DetconfError: damaged, more than arrays and plain data, or torch's format before its zip.
    """
    if _LEGACY.to_bytes(10, "little") in bytes(data[:32]):
        msg = f"{source} is in torch's format of before 1.6. Accepted: its zip format; load it and save it again."
        raise DetconfError(msg)
    value = read_pickle(source, Reader(data), NUMPY, NUMPY_WORDS)
    if isinstance(value, dict) and "UnpackBigParamInfor@@" in value:
        msg = f"{source} holds parameters in slices. Accepted: files of paddle.save(..., protocol=4)."
        raise DetconfError(msg)
    return {name: partial(_as_paddle, loader) for name, loader in loaders(_unnamed(value)).items()}


def _unnamed(value: Any) -> Any:
    """`value` without the names that paddle gives by itself: they count the tensors of a process."""
    if isinstance(value, dict):
        return {key: _unnamed(item) for key, item in value.items() if key != "StructuredToParameterName@@"}
    if isinstance(value, list):
        named = len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], Array)
        return value[1] if named else list(map(_unnamed, value))
    return value


def _as_paddle(loader: Loader) -> Array:
    array = loader()
    return Array("bfloat16", array.shape, array.data) if array.dtype == "uint16" else array
