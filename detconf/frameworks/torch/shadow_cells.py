"""What is known of one storage: its buffer, and the values that were written to it."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch

from detconf.frameworks.torch.shadow_tensors import extent, geometry_of, length_of, whole_of
from detconf.shadows.study import Known, Value

_PARTS = 64
"""Values of parts of a storage that are remembered."""


class Written(NamedTuple):
    """A value, and where in its storage it lies."""

    value: Value
    geometry: tuple[Any, ...]
    low: int
    high: int


class Cell:
    """What is known of a storage.

    Attributes:
        component: (holds floats, bytes of one).
        buffer: float64, one element per component; None for integers, and before the first read or write.
        lent: others hold arrays that share the buffer: it is not written any more, but replaced.
        written: what was written, the last one last; nothing from before the whole was written.
        origin: where it came from, of one that has been written by nobody.
        views: copies of what was read since the last write, by geometry.
        lost: why the next value is no more than the real one.
        bits: of integers that were computed from the bits of floats: those floats.
        crossed: (array outside that shares the memory, what the storage held when we last looked).
    """

    __slots__ = ("__weakref__", "bits", "buffer", "component", "crossed", "lent", "lost", "origin", "storage", "views", "written")

    def __init__(self, storage: Any, component: tuple[bool, int], origin: str) -> None:
        self.storage = weakref.ref(storage)
        self.component = component
        self.origin = origin
        self.buffer: Any = None
        self.lent = False
        self.written: list[Written] = []
        self.views: dict[Any, Any] = {}
        self.lost = ""
        self.crossed: Any = None
        self.bits: Known | None = None

    def view(self, tensor: Any) -> Any:
        """The elements of a float tensor of this storage, in the buffer."""
        buffer = self._filled(tensor)
        if tensor.is_complex():
            buffer = torch.view_as_complex(buffer[: buffer.numel() // 2 * 2].view(-1, 2))
        found = buffer.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        if tensor.is_conj():
            found = found.conj()
        return torch._neg_view(found) if tensor.is_neg() else found

    def put(self, tensor: Any, shadow: Any, *, whole: bool) -> None:
        """Write what a float tensor of this storage shows.

        Args:
            tensor: the real one.
            shadow: float64 of its shape. It becomes the buffer where it fits: nobody may write to it.
            whole: nothing of what was there is left.
        """
        if whole:
            self.buffer = None
        fits = whole and tensor.stride() == shadow.stride() and not (tensor.is_complex() or tensor.is_neg())
        if fits and shadow.dtype is torch.float64 and shadow.untyped_storage().nbytes() == 8 * tensor.numel() and not shadow.is_neg():
            self.buffer, self.lent = shadow.as_strided((shadow.numel(),), (1,), 0), True
            return
        if whole:
            length = tensor.untyped_storage().nbytes() // self.component[1]
            self.buffer = torch.empty(length, dtype=torch.float64, device=tensor.device)
        elif self.lent and self.buffer is not None:
            self.buffer = self.buffer.clone()
        self.lent = False
        self.view(tensor).copy_(shadow)

    def lend(self, tensor: Any) -> Any:
        """What a float tensor of this storage shows, for good: whoever gets it may keep it."""
        shown = self.view(tensor)
        if 2 * shown.numel() < self.buffer.numel() and not self.lent:
            return shown.clone()
        self.lent = True
        return shown

    def _filled(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        length = storage.nbytes() // self.component[1]
        if self.buffer is None or self.buffer.numel() < length:
            seeded = whole_of(tensor, storage).to(torch.float64, copy=True)
            if self.buffer is not None:
                seeded[: self.buffer.numel()] = self.buffer
            self.buffer = seeded
        return self.buffer

    def note(self, tensor: Any, value: Value) -> bool:
        """`value` was written to `tensor`, and hides what it covers. Was that the whole storage?"""
        storage = tensor.untyped_storage()
        low, high = extent(tensor)
        whole = bool(high - low == tensor.numel() * (2 if tensor.is_complex() else 1) == length_of(storage, tensor.dtype))
        if whole:
            self.written.clear()
        if len(self.written) >= _PARTS:
            del self.written[0]
        self.written.append(Written(value, geometry_of(tensor), low, high))
        self.views.clear()
        self.lost = ""
        return whole

    def found(self, tensor: Any) -> Written:
        """The last value that was written where `tensor` reads."""
        low, high = extent(tensor)
        return next((each for each in reversed(self.written) if low < each.high and each.low < high), self.written[-1])
