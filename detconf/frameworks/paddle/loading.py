"""Data loaders without workers, which fetch in a thread of their own, ahead of the program.

While a study runs they fetch when they are asked, in the thread that asks: values are numbered in the order in which the
program makes them, and the shadows of what a data set computes come along with the batch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.twins import Twins

_MODULE, _MARK = "paddle.io.dataloader.dataloader_iter", "_detconf_asked"


class Loading:
    """Loaders that fetch when they are asked.

    Args:
        twins: of the tensors.
    """

    def __init__(self, twins: Twins) -> None:
        self.twins = twins

    def put(self, references: References) -> None:
        """Replace the methods of the iterator; nothing where it is built otherwise."""
        self.module = sys.modules.get(_MODULE)
        kind = getattr(self.module, "_DataLoaderIterSingleProcess", None)
        if kind is None or not all(name in vars(kind) for name in ("_init_thread", "__next__")):
            return
        references.put_attribute(kind, "_init_thread", self._starting(vars(kind)["_init_thread"]))
        references.put_attribute(kind, "__next__", self._next(vars(kind)["__next__"]))

    def _starting(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def start(iterator: Any) -> None:
            if self.twins.quiet or not paddle.in_dynamic_mode():
                plain(iterator)
                return
            iterator._thread = None
            iterator._shutdown = True  # there is nothing to shut down
            setattr(iterator, _MARK, True)

        return start

    def _next(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def following(iterator: Any) -> Any:
            if not hasattr(iterator, _MARK):
                return plain(iterator)
            batch = iterator._dataset_fetcher.fetch(next(iterator._sampler_iter), iterator._thread_done_event)
            if batch is None:
                raise StopIteration
            slots, structure = self.module._flatten_batch(batch)  # type: ignore[union-attr]  # it is there, see `put`
            return self.module._restore_batch([_tensor(each, iterator) for each in slots], structure)  # type: ignore[union-attr]

        return following


def _tensor(slot: Any, iterator: Any) -> Any:
    if isinstance(slot, paddle.Tensor):
        return slot
    place = iterator._places[0] if iterator._places else paddle.framework._current_expected_place()
    if not isinstance(slot, np.ndarray):  # a tensor of C++
        return paddle.Tensor(slot, place=place)
    return paddle.base.core.eager.Tensor(value=slot, place=place, persistable=False, zero_copy=False, name=None, stop_gradient=True)
