"""What is in a tensor: its digest, and a cheap witness of what an operation reads.

The witness of a tensor is the digest of its content; but where the storage's whole history is known, it is the *chain*
of the writes, mixed with the geometry of the view. The chain hangs on the storage object, so that it dies with the
storage: a table by address would mistake a new storage for the dead one whose address it got. It is trusted only while the
version counter says that nothing else has written there.
"""

from __future__ import annotations

import math
from ctypes import c_char
from typing import Any, NamedTuple

import torch
from xxhash import xxh3_128

from detconf.arrays import Array
from detconf.digests import NOTHING, mix, prefix
from detconf.frameworks.torch import tensors

_KINDS = 1 << 13
_SCRATCH = 1 << 24
_strided = torch.strided
_NAMES = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "complex128", "complex64", "complex32", "bool", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
)  # fmt: skip
_dtypes = {getattr(torch, name): name for name in _NAMES if hasattr(torch, name)}

Layout = tuple[str, tuple[int, ...]]


class Kind(NamedTuple):
    """What tensors of one dtype and shape have in common. One object each, compared by identity.

    Attributes:
        head: what a digest starts with.
        buffer: makes a ctypes array of its bytes from an address; None where there are none.
        nbytes: how many.
        layout: dtype and shape as they are recorded.
        plain: its elements are bytes as they lie there; quantized and complex ones must be looked at.
    """

    head: bytes
    buffer: Any
    nbytes: int
    layout: Layout
    plain: bool


Chain = tuple[bytes, Any, int]
"""What is in a storage; the kind of the plain tensor whose digest that is, or None; the version counter with it."""


class Contents:
    """Digests and witnesses of one thread in a recording.

    Args:
        mark: attribute of storages that holds their chain. One per recording: chains of another one are not trusted, who
            knows what was written in between.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._kinds: dict[tuple[Any, Any], Kind] = {}
        self._geometries: dict[tuple[Any, ...], bytes] = {}
        self._scratch: Any = None

    def kind(self, tensor: Any) -> Kind:
        """What stands for its dtype and shape; for a nested tensor without a shape, the number of its parts."""
        try:
            key = (tensor.dtype, tensor.shape)
            return self._kinds.get(key) or self._new_kind(*key)
        except RuntimeError:
            return self._new_kind(tensor.dtype, (tensor.size(0),))._replace(plain=False)

    def _new_kind(self, dtype: Any, shape: Any) -> Kind:
        if len(self._kinds) >= _KINDS:  # a program whose shapes never repeat; chains begin anew, and that is all
            self._kinds.clear()
        name = _dtypes.get(dtype) or str(dtype).removeprefix("torch.")
        size = math.prod(shape) * dtype.itemsize if dtype in _dtypes else 0
        plain = dtype in _dtypes and not dtype.is_complex
        buffer = (c_char * size).from_address if size else None
        kind = Kind(prefix(name, tuple(shape)), buffer, size, (name, tuple(shape)), plain)
        self._kinds[dtype, shape] = kind
        return kind

    def digest(self, tensor: Any) -> bytes:
        """Of dtype, shape and bytes in logical order, as `Array.digest`; `NOTHING` for a tensor without bytes.

        Sparse, quantized, nested and oneDNN tensors are digested by their parts.
        """
        return self._digest(tensor, self.kind(tensor))

    def _digest(self, tensor: Any, kind: Kind) -> bytes:
        if not tensor.is_cpu or tensor.layout is not _strided or tensor.is_neg() or not (kind.plain or self._is_plain(tensor)):
            return self._unusual(tensor)
        state = xxh3_128(kind.head)
        if kind.buffer is not None:
            own = tensor if tensor.is_contiguous() else self._dense(tensor, kind.nbytes)
            state.update(kind.buffer(own.data_ptr()))  # `own` keeps the memory alive until here
        return state.digest()

    def _is_plain(self, tensor: Any) -> bool:
        return tensor.dtype in _dtypes and not tensor.is_conj() and not tensor.is_nested

    def _dense(self, tensor: Any, size: int) -> Any:
        """A copy in logical order. In memory that is used again: fresh pages cost more than the copy."""
        with torch._C._DisableTorchDispatch():  # a mode of the user's must not see it
            if size > _SCRATCH:
                return tensor.contiguous()
            if self._scratch is None:
                self._scratch = torch.empty(_SCRATCH, dtype=torch.uint8)
            own = self._scratch[:size].view(tensor.dtype).view(tensor.shape)
            return own.copy_(tensor)

    def _unusual(self, tensor: Any) -> bytes:
        try:
            with torch._C._DisableTorchDispatch():
                parts = tensors.components(tensor)
                return bytes.fromhex(tensors.to_array(tensor).digest) if parts is None else self._parts(parts)
        except Exception:  # noqa: BLE001  # meta, opaque, a subclass without storage: no bytes, and the program must go on
            return NOTHING

    def _parts(self, value: Any) -> bytes:
        if isinstance(value, torch.Tensor):
            return self.digest(value)
        if isinstance(value, dict):
            return mix(*(part for name, item in value.items() for part in (mix(name.encode()), self._parts(item))))
        if isinstance(value, list):
            return mix(*map(self._parts, value))
        return mix(repr(value).encode())

    def witness(self, tensor: Any) -> bytes:
        """16 bytes that are equal in two runs only where the content of the tensor is."""
        try:
            storage = tensor.untyped_storage()
            chain = getattr(storage, self._mark, None)
            if chain is not None and chain[2] == (-1 if tensor.is_inference() else tensor._version):
                known: bytes = chain[0]
                plain = chain[1] is not None and tensor.is_contiguous() and not tensor.storage_offset()
                if plain and chain[1] is self._kinds.get((tensor.dtype, tensor.shape)):
                    return known
                return mix(known, self._geometry(tensor))
        except (NotImplementedError, RuntimeError):  # sparse, or without a storage
            return self.digest(tensor)
        kind = self.kind(tensor)
        found = self._digest(tensor, kind)
        if found is not NOTHING and tensor.nbytes == storage.nbytes():
            self._whole(storage, tensor, kind, found, -1 if tensor.is_inference() else tensor._version)
        return found

    def write(self, tensor: Any, counted: int = False) -> tuple[bytes, Layout]:
        """The digest and the layout of a tensor that was just written. Its storage's chain goes on with that digest.

        Args:
            tensor: any.
            counted: its version is about to be counted up: PyTorch does so after an in-place operation.
        """
        kind = self.kind(tensor)
        found = self._digest(tensor, kind)
        try:
            storage = tensor.untyped_storage()
            version = (-1 if tensor.is_inference() else tensor._version) + counted
            if kind.nbytes == storage.nbytes() or tensor.nbytes == storage.nbytes():
                self._whole(storage, tensor, kind, found, version)
            else:
                self._part(storage, tensor, found, version, counted)
        except (NotImplementedError, RuntimeError):  # sparse, or without a storage
            pass
        return found, kind.layout

    def _whole(self, storage: Any, tensor: Any, kind: Kind, found: bytes, version: int) -> None:
        """Begin a chain: all of the storage is known."""
        chain = (found, kind, version) if tensor.is_contiguous() else (mix(found, self._geometry(tensor)), None, version)
        setattr(storage, self._mark, chain)

    def _part(self, storage: Any, tensor: Any, found: bytes, version: int, counted: int) -> None:
        """Go on with a chain, if there is one: the rest of the storage is what it was."""
        chain = getattr(storage, self._mark, None)
        if chain is not None:
            known = chain[2] == version - counted
            setattr(storage, self._mark, (mix(chain[0], found, self._geometry(tensor)), None, version) if known else None)

    def _geometry(self, tensor: Any) -> bytes:
        """dtype, shape, and where the tensor lies in its storage."""
        stride = tensor.stride()
        about = (tensor.dtype, tensor.shape, stride, tensor.storage_offset(), tensor.is_conj(), tensor.is_neg())
        known = self._geometries.get(about)
        if known is None:
            if len(self._geometries) >= _KINDS:
                self._geometries.clear()
            dtype, shape, *rest = about
            known = self._geometries[about] = repr((dtype, tuple(shape), *rest)).encode()
        return known

    def forget(self, tensor: Any) -> None:
        """What is in the tensor's storage is not known any more."""
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return
        if getattr(storage, self._mark, None) is not None:
            setattr(storage, self._mark, None)

    def array(self, tensor: Any) -> Array:
        """The bytes of a tensor, owned; none for one that has none of its own."""
        with torch._C._DisableTorchDispatch():
            if not tensor.is_meta and tensors.components(tensor) is None:
                return tensors.to_array(tensor).owned()
        return Array("none", (), b"")
