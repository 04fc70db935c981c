"""Where shadows cross between tensors, NumPy's arrays and Python's numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils.data import dataloader

from detconf.frameworks.torch.shadow_modes import Passing
from detconf.frameworks.torch.shadow_tensors import floats, followed, name_of, real_array, rounded, to_numpy
from detconf.shadows.formats import unit
from detconf.shadows.number import Number
from detconf.shadows.number import read as read_number
from detconf.shadows.study import Known, Read

if TYPE_CHECKING:
    from detconf.frameworks.torch.shadow import TorchEngine

_LISTED = 1 << 16
"""Longer lists come out as plain floats."""
_MISSING = object()
_PLAIN, _DISABLED = torch.Tensor.__torch_function__, torch._C._disabled_torch_function_impl


class Edges:
    """Patches of one study, in place until `end`."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine
        self._put: list[tuple[Any, str, Any, Any]] = []
        for owner, name, after in (*self._patches(), *engine.numbers.patches()):
            self._put.append((owner, name, vars(owner).get(name, _MISSING), after))
            setattr(owner, name, after)
        # Scripts look functions up by identity, those of `math` too, which another engine may have wrapped.
        self._builtins = torch.jit._builtins._get_builtin_table()
        pairs = [(before, after) for _, _, before, after in self._put]
        pairs += [(each.__wrapped__, each) for each in vars(math).values() if hasattr(each, "__wrapped__")]
        self._known = {id(after): self._builtins[id(before)] for before, after in pairs if id(before) in self._builtins}
        self._builtins.update(self._known)

    def end(self) -> None:
        """Take the patches out."""
        for key in self._known:
            self._builtins.pop(key, None)
        for owner, name, before, after in reversed(self._put):
            if vars(owner).get(name) is not after:
                continue  # somebody has wrapped ours meanwhile; it stays below and does nothing
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def _patches(self) -> Iterator[tuple[Any, str, Any]]:
        yield torch.Tensor, "numpy", self._numpy(torch.Tensor.numpy)
        yield torch.Tensor, "__array__", self._array(torch.Tensor.__array__)
        yield torch.Tensor, "item", self._item(torch.Tensor.item)
        yield torch.Tensor, "tolist", self._tolist(torch.Tensor.tolist)
        yield torch.Tensor, "new_tensor", self._made(torch.Tensor.new_tensor, "Tensor.new_tensor", 1)
        yield torch.overrides, "has_torch_function", self._overridden(torch.overrides.has_torch_function)
        yield torch.Tensor, "__reduce_ex__", self._reduce(torch.Tensor.__reduce_ex__)
        yield dataloader._MultiProcessingDataLoaderIter, "_next_data", self._next(dataloader._MultiProcessingDataLoaderIter._next_data)
        for name in ("from_numpy", "tensor", "as_tensor", "asarray"):
            yield torch, name, self._made(getattr(torch, name), f"torch.{name}", 0)

    def _made(self, plain: Callable[..., Any], origin: str, place: int) -> Callable[..., Any]:
        """A function that makes a tensor of what is no tensor."""

        @functools.wraps(plain)
        def make(*args: Any, **kwargs: Any) -> Any:
            engine = self.engine
            data = args[place] if len(args) > place else kwargs.get("data", kwargs.get("obj"))
            if engine.idle() or (isinstance(data, torch.Tensor) and origin in ("torch.as_tensor", "torch.asarray")):
                return plain(*args, **kwargs)
            engine.quiet.on = True
            try:
                result = plain(*args, **kwargs)
            finally:
                engine.quiet.on = False
            engine.guarded(origin, lambda: self._fill(result, data, origin))
            return result

        return make

    def _fill(self, tensor: Any, data: Any, origin: str) -> None:
        """What a new tensor was made of."""
        if not isinstance(tensor, torch.Tensor) or not followed(tensor):
            return
        memory, study = self.engine.memory, self.engine.study
        known = study.known(data) if isinstance(data, np.ndarray) else None
        if known is not None and known.value.dtype == name_of(tensor.dtype):
            memory.adopt(tensor, known.shadow, known.value)
        else:
            reads: list[Read] = []
            shadow = self._exact(data, reads).reshape(tensor.shape)
            if not floats(tensor.dtype):
                shadow = np.array(to_numpy(tensor.cpu()))
            if reads:
                self._operation(tensor, shadow, origin, reads)
            else:
                memory.leaf(tensor, shadow, origin)
        if isinstance(data, np.ndarray) and tensor.device.type == "cpu" and data.size and tensor.data_ptr() == data.ctypes.data:
            memory.cross(tensor, data)

    def _operation(self, tensor: Any, shadow: Any, origin: str, reads: list[Read]) -> None:
        memory, study = self.engine.memory, self.engine.study
        narrows = floats(tensor.dtype) and any(0 < unit(each.value.dtype) < unit(name_of(tensor.dtype)) for each in reads)
        if narrows and study.casts == "kept":
            shadow = to_numpy(rounded(memory.widened(shadow, tensor), name_of(tensor.dtype)))
        real = real_array(tensor) if study.keep_real else None
        source = self.engine.places.here() if study.sources else ""
        written = [(shadow, name_of(tensor.dtype), real)]
        [(value, after)] = study.operation(origin, reads, written, options={"dtype": name_of(tensor.dtype)}, source=source)
        memory.adopt(tensor, after, value)

    def _exact(self, data: Any, reads: list[Read]) -> Any:
        """The numbers of `data` as they are, shadows where there are some; notes what has one."""
        known = self._known_of(data)
        if known is not None:
            reads.append(read_number(known) if isinstance(data, float) else Read(known.value, np.array(known.shadow)))
            return _double(known.shadow)
        if isinstance(data, (list, tuple)):
            if all(type(each) in (float, int, bool) and self.engine.numbers.known(each) is None for each in data):
                return _double(np.array(data))
            return np.array([self._exact(each, reads) for each in data])
        return _double(np.asarray(data))

    def _known_of(self, data: Any) -> Known | None:
        engine = self.engine
        if isinstance(data, torch.Tensor):
            return engine.memory.known(data) if followed(data) else None
        if type(data) in (float, Number):
            return engine.numbers.known(data)
        return engine.study.known(data) if isinstance(data, (np.ndarray, np.generic)) else None

    def _numpy(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def numpy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            return self._out(tensor, plain(tensor, *args, **kwargs))

        return numpy

    def _array(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def array(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            result = plain(tensor, *args, **kwargs)
            dtype = args[0] if args else kwargs.get("dtype")
            return result if dtype is None else self._out(tensor, result)  # `plain` calls `numpy` itself

        return array

    def _out(self, tensor: Any, result: Any) -> Any:
        """An array that a tensor was turned into."""
        engine = self.engine
        if engine.idle() or not followed(tensor):
            return result
        found = [result]

        def cross() -> None:
            known = engine.memory.known(tensor)
            found[0] = engine.study.wrap(result, known)
            if tensor.device.type == "cpu" and result.size and tensor.data_ptr() == result.ctypes.data:
                engine.memory.cross(tensor, found[0])

        engine.guarded("Tensor.numpy", cross)
        return found[0]

    def _overridden(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Layers of transformers ask this, and would take a slower path with other numbers because of a mode of ours."""

        @functools.wraps(plain)
        def overridden(arguments: Any) -> bool:
            if all(isinstance(each, Passing) for each in _get_current_function_mode_stack()):
                return any(getattr(type(each), "__torch_function__", _PLAIN) not in (_PLAIN, _DISABLED) for each in arguments)
            return bool(plain(arguments))

        return overridden

    def _reduce(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def reduce(tensor: Any, protocol: Any) -> Any:
            if self.engine.numbers.active and followed(tensor):
                self.engine.guarded("Tensor.__reduce_ex__", lambda: self.engine.memory.leave(tensor))
            return plain(tensor, protocol)

        return reduce

    def _next(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Batches from the workers of a loader."""

        @functools.wraps(plain)
        def batch(iterator: Any) -> Any:
            data = plain(iterator)
            if self.engine.numbers.active:
                self.engine.study.lose("what DataLoader workers compute has no shadow: their batches are taken as they are")
                self.engine.guarded("DataLoader", lambda: self._arrived(data))
            return data

        return batch

    def _arrived(self, data: Any) -> None:
        if isinstance(data, torch.Tensor):
            if followed(data):
                self.engine.memory.cell(data, "a DataLoader worker")
        elif isinstance(data, (dict, list, tuple)):
            for each in data.values() if isinstance(data, dict) else data:
                self._arrived(each)

    def _item(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def item(tensor: Any) -> Any:
            self.engine.quiet.item = True
            try:
                result = plain(tensor)
            finally:
                self.engine.quiet.item = False
            return self._numbers(tensor, result) if type(result) is float else result

        return item

    def _tolist(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def tolist(tensor: Any) -> Any:
            result = plain(tensor)
            if not tensor.is_floating_point() or not self.engine.numbers.active:
                return result
            if tensor.numel() <= _LISTED:
                return self._numbers(tensor, result)
            self.engine.study.lose("long lists of Tensor.tolist are plain numbers")
            return result

        return tolist

    def _numbers(self, tensor: Any, result: Any) -> Any:
        """A float, or nested lists of floats, that came out of a tensor."""
        engine, found = self.engine, [result]
        if engine.idle() or not followed(tensor):
            return result

        def follow() -> None:
            known = engine.memory.known(tensor)
            shadow = known.shadow if isinstance(result, list) else known.shadow.reshape(())
            found[0] = self._nested(result, shadow, known)

        engine.guarded("Tensor.item", follow)
        return found[0]

    def _nested(self, result: Any, shadow: Any, known: Known) -> Any:
        if isinstance(result, list):
            return [self._nested(each, part, known) for each, part in zip(result, shadow, strict=True)]
        return self.engine.numbers.number(result, Known(np.asarray(shadow), known.value))


def _double(shadow: Any) -> Any:
    shadow = np.asarray(shadow)
    return shadow.astype(np.complex128 if np.iscomplexobj(shadow) else np.float64)
