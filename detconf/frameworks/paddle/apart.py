"""Work for a study, kept apart from the work of the program: its names, its mixed precision, its hooks, its errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import paddle

from detconf.frameworks.replaced import replaced
from detconf.shadows.study import Study

_core = paddle.base.core
RAISES = False
"""For tests: errors of ours are raised."""


class Apart:
    """When who is at work.

    Args:
        study: where losses are noted.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self._thread = threading.local()
        self._tracer = _core.Tracer()
        self._saving: tuple[Callable[[], Any], Callable[[], Any]] | None = None

    @property
    def quiet(self) -> bool:
        """This thread is at work for the study, not for the program."""
        return getattr(self._thread, "quiet", False)

    @contextmanager
    def quietly(self, *, graph: bool = True) -> Iterator[None]:
        """Work for the study: nothing is observed, mixed precision is off, and no names of the program are used up.

        Args:
            graph: keep a graph where the program does.
        """
        # Whether a graph is kept, and at which level precision is mixed, belongs to the thread, not to a tracer.
        tracer, thread = paddle.base.framework._dygraph_tracer(), self._thread
        outer, ours = self.quiet, getattr(thread, "ours", False)
        kept, level = tracer._has_grad, tracer._amp_level
        thread.quiet = thread.ours = True
        if not ours:
            self._tracer._expected_place = tracer._expected_place
            _core._switch_tracer(self._tracer)
        if not graph:
            tracer._has_grad = False
        tracer._amp_level = _core.AmpLevel.O0
        if self._saving is not None and not ours:
            self._saving[1]()
        try:
            with np.errstate(all="ignore"):  # warnings are the program's
                yield
        finally:
            if self._saving is not None and not ours:
                self._saving[0]()
            tracer._has_grad, tracer._amp_level = kept, level
            if not ours:
                _core._switch_tracer(tracer)
            thread.quiet, thread.ours = outer, ours

    def silently(self) -> AbstractContextManager[None]:
        """The program's own work, whose parts are not observed."""
        return replaced(self._thread, "quiet", True)

    def do(self, what: str, work: Callable[[], Any]) -> Any:
        """Work for the study that must not break the program. None where it failed; what is lost is said."""
        try:
            with self.quietly():
                return work()
        except Exception as error:  # whatever it is, the program goes on
            self.study.lose(f"paddle could not follow {what}: {type(error).__name__}")
            if RAISES:
                raise
            return None

    @contextmanager
    def keeping(self) -> Iterator[list[Callable[[], None]]]:
        """What `later` is asked for in this thread is kept, in order, not done."""
        thread = self._thread
        done: list[Callable[[], None]] = []
        outer, thread.done = getattr(thread, "done", None), done
        try:
            yield done
        finally:
            thread.done = outer

    def later(self, what: str, work: Callable[[], Any]) -> bool:
        """Keep work until the pass over the graph of the twins, inside a function that runs in a backward pass.

        Returns whether it was kept: there is nothing to wait for elsewhere.
        """
        done = getattr(self._thread, "done", None)
        if done is None or self.quiet:
            return False
        tracer = paddle.base.framework._dygraph_tracer()
        graph = tracer._has_grad

        def again() -> None:
            before, tracer._has_grad = tracer._has_grad, graph
            try:
                self.do(what, work)
            finally:
                tracer._has_grad = before

        done.append(again)
        return True

    def saving(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Hooks on saved tensors are for the program's own."""

        def change(*hooks: Any) -> Any:
            result = plain(*hooks)
            eager = paddle.base.core.eager
            if not self.quiet:
                self._saving = None
                if hooks:
                    self._saving = (lambda: eager.register_saved_tensors_hooks(*hooks)), eager.reset_saved_tensors_hooks
            return result

        return change
