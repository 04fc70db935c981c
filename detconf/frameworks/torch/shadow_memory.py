"""What is in PyTorch's storages, in float64: one buffer per storage, with the same element index, so that views are free.

A buffer holds the real components of its storage: a complex tensor lies in it as pairs. It hangs on the storage object and
dies with it, so that an address that is used again never brings back what is gone.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

from detconf.frameworks.torch.shadow_cells import Cell
from detconf.frameworks.torch.shadow_tensors import (
    array,
    bits_of,
    component_of,
    digest,
    floats,
    followed,
    from_numpy,
    geometry_of,
    name_of,
    real_array,
    whole_of,
)
from detconf.shadows.number import Numbers
from detconf.shadows.study import Known, Read, Study, Value

_SAME_SIZE = {4: torch.float32, 8: torch.float64}
_COARSEST = 2.0**-5
"""What rounding can change at most, in any format that is worth the name."""


class Memory:
    """The cells of one study."""

    def __init__(self, study: Study, numbers: Numbers) -> None:
        self.study, self.numbers = study, numbers
        self._mark = f"_detconf_shadow_{id(study)}"
        self._cells: weakref.WeakSet[Cell] = weakref.WeakSet()
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._left: dict[bytes, Known] = {}

    def end(self) -> None:
        """Take everything off the storages."""
        for cell in list(self._cells):
            storage = cell.storage()
            if storage is not None and getattr(storage, self._mark, None) is cell:
                delattr(storage, self._mark)

    def call(self, tensor: Any, name: str) -> None:
        """A tensor that nobody has used yet has a name."""
        if followed(tensor):
            self._names[tensor.untyped_storage()] = name

    def peek(self, tensor: Any) -> Cell | None:
        """The cell of its storage, if it has one."""
        return getattr(tensor.untyped_storage(), self._mark, None)

    def cell(self, tensor: Any, origin: str = "") -> Cell:
        """The cell of its storage, with a value: a leaf where nobody wrote what it holds."""
        cell = self._typed(tensor, origin)
        if not cell.written:
            self._leaf(cell, tensor)
        elif cell.crossed is not None:
            self._look(cell, tensor)
        return cell

    def allocated(self, tensor: Any) -> None:
        """Its memory has not been written yet."""
        self._new(tensor.untyped_storage(), component_of(tensor.dtype), "uninitialised memory")

    def forget(self, tensor: Any) -> None:
        """What is in it is not known any more."""
        storage = tensor.untyped_storage()
        if hasattr(storage, self._mark):
            delattr(storage, self._mark)

    def view(self, tensor: Any) -> Any:
        """Its elements in the buffer (float), or itself (others); call `cell` before."""
        cell = self.peek(tensor)
        return tensor if cell is None or not floats(tensor.dtype) else cell.view(tensor)

    def read(self, tensor: Any) -> Read:
        """What is read through `tensor`, with the value it belongs to."""
        cell = self.cell(tensor)
        written = cell.found(tensor)
        geometry = geometry_of(tensor)
        if written.geometry == geometry:
            return Read(written.value)
        copy = cell.views.get(geometry)
        if copy is None:
            copy = cell.views[geometry] = array(cell.lend(tensor)) if floats(tensor.dtype) else np.array(array(tensor))
        return Read(written.value, copy)

    def known(self, tensor: Any, origin: str = "") -> Known:
        """Its shadow now."""
        cell = self.cell(tensor, origin)
        return Known(array(cell.lend(tensor)) if floats(tensor.dtype) else np.array(array(tensor)), cell.found(tensor).value)

    def write(self, tensor: Any, shadow: Any, value: Value) -> None:
        """`value` was written to `tensor`.

        Args:
            tensor: the real one.
            shadow: float64 tensor of its shape, to which nobody may write any more; None for integers.
            value: as the study numbers it.
        """
        storage, component = tensor.untyped_storage(), component_of(tensor.dtype)
        cell = getattr(storage, self._mark, None)
        if cell is None or cell.component != component:
            cell = self._new(storage, component, "outside")
        whole = cell.note(tensor, value)
        if shadow is not None:
            cell.put(tensor, shadow, whole=whole)
        if cell.crossed is not None:
            cell.crossed = (cell.crossed[0], np.array(bits_of(tensor, storage)))
            self._tell(cell, tensor)

    def _tell(self, cell: Cell, tensor: Any) -> None:
        """An array shares memory that torch wrote: let its engine know what is there now."""
        outside, geometry = cell.crossed[0][0](), cell.crossed[0][1]
        if outside is not None and geometry[0] is tensor.dtype:
            shown = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage(), geometry[3], geometry[1], geometry[2])
            self.study.wrap(outside, Known(np.array(array(self.view(shown))), cell.written[-1].value))

    def copied(self, target: Any, source: Any) -> bool:
        """Were the bytes of a whole storage copied, whatever they mean? Then what is known of one is known of the other."""
        if source.dtype is not torch.uint8 or target.dtype is not torch.uint8 or target.numel() != source.numel():
            return False
        if any(each.numel() != each.untyped_storage().nbytes() or not each.is_contiguous() for each in (target, source)):
            return False
        cell = self.peek(source)
        if cell is None or not (cell.component[0] or all(each.value.maker < 0 for each in cell.written)):
            return False
        self.forget(target)
        if cell.component[0]:
            twin = self._new(target.untyped_storage(), cell.component, cell.origin)
            twin.buffer = None if cell.buffer is None else cell.buffer.clone()
            twin.written, twin.lost = list(cell.written), cell.lost
        return True

    def leave(self, tensor: Any) -> None:
        """It is being pickled: should its bytes come back, so shall its shadow."""
        if floats(tensor.dtype):
            self._left[digest(tensor)] = self.known(tensor)

    def adopt(self, tensor: Any, shadow: Any, value: Value) -> None:
        """`tensor` is new here, and what it holds is known from elsewhere. `shadow`: NumPy array of its shape."""
        self.forget(tensor)
        self.write(tensor, self.widened(shadow, tensor), value)

    def leaf(self, tensor: Any, shadow: Any, origin: str) -> None:
        """`tensor` comes from outside, and these are the exact numbers that it was made of."""
        real = real_array(tensor) if self.study.keep_real else None
        value, after = self.study.leaf(shadow, name_of(tensor.dtype), origin, real=real)
        self.adopt(tensor, after, value)

    def widened(self, shadow: Any, tensor: Any) -> Any:
        """A NumPy shadow as a tensor for the buffer; None for integers."""
        if not floats(tensor.dtype):
            return None
        given = np.ascontiguousarray(shadow, dtype=np.complex128 if tensor.is_complex() else np.float64)
        return from_numpy(np.array(given, subok=False)).reshape(tensor.shape)

    def cross(self, tensor: Any, outside: Any) -> None:
        """An array shares the tensor's memory from here on: what is written there is looked for."""
        cell = self.cell(tensor)
        cell.crossed = ((weakref.ref(outside), geometry_of(tensor)), np.array(bits_of(tensor, tensor.untyped_storage())))

    def _typed(self, tensor: Any, origin: str) -> Cell:
        storage, component = tensor.untyped_storage(), component_of(tensor.dtype)
        cell: Cell | None = getattr(storage, self._mark, None)
        if cell is not None and cell.component != component and (component[0] or not cell.written):
            # The same bytes in another type.
            made = bool(cell.written) and any(each.value.maker >= 0 for each in cell.written)
            bits = cell.bits
            cell = self._new(storage, component, cell.origin)
            cell.lost = "the bits of numbers were worked on as another type" if made else ""
            cell.bits = bits
        elif cell is None:
            cell = self._new(storage, component, origin or self._names.get(storage, "outside"))
        return cell

    def _new(self, storage: Any, component: tuple[bool, int], origin: str) -> Cell:
        cell = Cell(storage, component, origin)
        setattr(storage, self._mark, cell)
        self._cells.add(cell)
        return cell

    def _leaf(self, cell: Cell, tensor: Any) -> None:
        base = tensor._base if tensor._is_view() else None
        if base is not None and base.dtype is tensor.dtype and base.untyped_storage()._cdata == tensor.untyped_storage()._cdata:
            tensor = base
        returned = self._left.get(digest(tensor)) if self._left and floats(tensor.dtype) else None
        if returned is not None:
            self._return(tensor, returned)
            return
        if cell.bits is not None and self._rounded(tensor, cell.bits):
            return
        literal = self._literal(tensor) if not tensor.dim() and floats(tensor.dtype) else None
        if literal is not None and literal[1] is not None:
            self.write(tensor, self.widened(literal[1].shadow, tensor), literal[1].value)
            return
        if literal is not None:
            cell.put(tensor, torch.full(tensor.shape, literal[0], dtype=torch.float64, device=tensor.device), whole=False)
        given = array(cell.lend(tensor) if floats(tensor.dtype) else tensor)
        real = real_array(tensor) if self.study.keep_real else None
        value, after = self.study.leaf(given, name_of(tensor.dtype), cell.origin, real=real, lost=cell.lost, frozen=floats(tensor.dtype))
        changed = after is not given and floats(tensor.dtype)
        self.write(tensor, self.widened(after, tensor) if changed else None, value)

    def bits(self, tensor: Any) -> Known | None:
        """Of integers: the floats whose bits they are, or were computed from."""
        cell = self.peek(tensor)
        if cell is None or floats(tensor.dtype) or tensor.dtype.itemsize not in _SAME_SIZE:
            return None
        if cell.component == (True, tensor.dtype.itemsize):
            return self.known(tensor.view(_SAME_SIZE[tensor.dtype.itemsize]))
        return cell.bits

    def computed(self, tensor: Any, bits: Known) -> None:
        """Integers were computed from the bits of floats."""
        cell = self.peek(tensor)
        if cell is not None and not cell.component[0]:
            cell.bits = bits

    def _rounded(self, tensor: Any, bits: Known) -> bool:
        """Were floats rounded by way of their bits? Then that was a cast to a format that PyTorch does not have."""
        if tensor.numel() != bits.shadow.size or tensor.is_complex():
            return False
        before = from_numpy(bits.shadow).reshape(tensor.shape)
        if not bool(((tensor.to(torch.float64) - before).abs() <= _COARSEST * before.abs()).all()):
            return False
        real = real_array(tensor) if self.study.keep_real else None
        shadow = bits.shadow.reshape(tuple(tensor.shape)) if self.study.casts == "free" else array(tensor.to(torch.float64))
        written = [(shadow, name_of(tensor.dtype), real)]
        [(value, after)] = self.study.operation("torch.view", [Read(bits.value, bits.shadow)], written, options={"bits": True})
        self.write(tensor, self.widened(after, tensor), value)
        return True

    def _return(self, tensor: Any, returned: Known) -> None:
        """It was pickled, and is back."""
        real = real_array(tensor) if self.study.keep_real else None
        written = [(returned.shadow, name_of(tensor.dtype), real)]
        [(value, after)] = self.study.operation("torch.load", [Read(returned.value, returned.shadow)], written)
        self.write(tensor, self.widened(after, tensor), value)

    def _literal(self, tensor: Any) -> tuple[float, Known | None] | None:
        """Python's number of which PyTorch made this scalar by itself, as for `x[0] = 0.1`."""
        for value, known in self.numbers.literals():
            if bool(torch.scalar_tensor(value, dtype=tensor.dtype) == tensor):
                return value, known
        return None

    def _look(self, cell: Cell, tensor: Any) -> None:
        """Has somebody written to memory that we share with an array?"""
        (reference, geometry), before = cell.crossed
        storage = tensor.untyped_storage()
        now = bits_of(tensor, storage)
        changed = now != before if now.shape == before.shape else np.ones(now.shape, bool)
        if not changed.any():
            return
        cell.crossed = (cell.crossed[0], np.array(now))
        outside = reference()
        known = self.study.known(outside) if outside is not None else None
        whole = whole_of(tensor, storage)
        if known is not None and geometry == geometry_of(tensor):
            self.write(tensor, self.widened(known.shadow, tensor), known.value)
        elif cell.buffer is not None:
            places = from_numpy(changed).to(tensor.device)
            cell.buffer = torch.where(places, whole.to(torch.float64), cell.buffer)
            cell.written.clear()
            cell.origin = "written outside torch"
            self._leaf(cell, tensor)
        else:
            cell.written.clear()
            self._leaf(cell, tensor)
