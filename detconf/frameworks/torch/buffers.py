"""Buffers of modules, such as running statistics: state that a training changes and that no optimizer knows of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.nn.parameter import is_lazy

from detconf.digests import BUFFER

_Seen = dict[str, tuple[int, int]]
"""Per buffer, which object it was and how often that had been written."""


class Buffers:
    """Follows the modules that are made from now on. Only registration is watched: a hook on calls would break compiled code up.

    A module is called by its class and its place among those of that class: "buffer.BatchNorm2d.3.running_mean".
    """

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._seen: WeakKeyDictionary[Any, _Seen] = WeakKeyDictionary()
        self._counts: Counter[str] = Counter()
        self.end: Callable[[], None] = register_module_buffer_registration_hook(self._registered).remove

    def _registered(self, module: Any, name: str, buffer: Any) -> None:
        if module not in self._names:
            kind = type(module).__name__
            self._names[module], self._seen[module] = f"{BUFFER}{kind}.{self._counts[kind]}", {}
            self._counts[kind] += 1
        if buffer is not None:
            self._seen[module][name] = _mark(buffer)

    def moved(self) -> Iterator[tuple[str, Any]]:
        """(name, tensor) of every buffer that is saved, in modules of which one was written or replaced since the last call.

        Batch normalization counts its batches in one buffer and writes the others without counting that as a write.
        """
        for module, title in list(self._names.items()):
            buffers = {name: each for name, each in module._buffers.items() if each is not None and not is_lazy(each)}
            marks = {name: _mark(each) for name, each in buffers.items()}
            if marks != self._seen[module]:
                self._seen[module] = marks
                yield from ((f"{title}.{name}", each) for name, each in buffers.items() if name not in module._non_persistent_buffers_set)


def _mark(buffer: torch.Tensor) -> tuple[int, int]:
    """A lazy buffer has nothing in it yet, and a tensor made in inference mode no version."""
    return id(buffer), -1 if is_lazy(buffer) or buffer.is_inference() else buffer._version
