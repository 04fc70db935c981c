"""The backward pass over the twins, and the gradients of leaves as values of a study.

Gradient operations never reach Python. What flows between operations is seen by hooks on twins (see `flows`); the gradient
of a leaf becomes a value where the program first looks at it: what the operations that read the leaf made, or, where those
are not known, the result of "paddle.backward", which read the roots of the pass and the leaf. A noise run cannot reach
into a gradient operation: it disturbs what goes in and out, and the noise of the forward pass goes back through the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from detconf.frameworks import adds
from detconf.frameworks.paddle.flows import BACKWARD
from detconf.frameworks.paddle.mirror import Mirror
from detconf.frameworks.paddle.twins import NO_BETTER, Record, dtype_of, floating, readable
from detconf.frameworks.source import line
from detconf.shadows.study import Read


class Backward:
    """Passes over the graph of the twins.

    Args:
        mirror: follows operations.
        foreign: folders of the framework.
    """

    def __init__(self, mirror: Mirror, foreign: tuple[str, ...]) -> None:
        self.mirror, self.twins, self.study = mirror, mirror.twins, mirror.study
        self.flows = mirror.flows
        self.foreign = foreign
        self.roots: list[Read] = []
        self.source = ""

    def running(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """What takes the place of `run_backward`."""

        def run_backward(tensors: Any, gradients: Any, *rest: Any, **options: Any) -> Any:
            twins = self.twins
            if twins.quiet:
                return plain(tensors, gradients, *rest, **options)
            source = line(self.foreign) if self.study.sources else ""

            def follow() -> None:
                roots, before = self._roots(tensors, gradients), self.roots
                self.roots, self.source = roots, source
                with self.flows.passing(tensors):
                    if not self.study.local:
                        plain([self._twin(each) for each in tensors], self._twins(gradients), *rest, **options)
                if nested:
                    self.roots = before

            nested = twins.later("a backward pass", follow)
            result = plain(tensors, gradients, *rest, **options)
            if not nested:
                twins.do("a backward pass", follow)
            return result

        return run_backward

    def _roots(self, tensors: Sequence[Any], gradients: Sequence[Any] | None) -> list[Read]:
        return [read for each in (*tensors, *(gradients or ())) if (read := self._read(each)) is not None]

    def _twins(self, tensors: Sequence[Any] | None) -> list[Any]:
        return [None if each is None else self._twin(each) for each in tensors or ()]

    def _twin(self, tensor: Any) -> Any:
        record = self.twins.followed(tensor)
        return None if record is None else record.twin

    def _read(self, tensor: Any) -> Read | None:
        record = None if tensor is None else self.twins.followed(tensor)
        return None if record is None else self.twins.read(tensor, record)

    def partial(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """What takes the place of `run_partial_grad`, that is of `paddle.grad`."""

        def run_partial_grad(outputs: Any, inputs: Any, gradients: Any, *rest: Any, **options: Any) -> Any:
            if self.twins.quiet:
                return plain(outputs, inputs, gradients, *rest, **options)
            result: list[Any] = []

            def follow() -> None:
                reads, made = self._roots(outputs, gradients), None
                if not self.study.local:
                    ready = [self._twins(part) for part in (outputs, inputs, gradients)]
                    with self.flows.passing(outputs):
                        made = self.twins.do("paddle.grad", lambda: plain(*ready, *rest, **options))
                self._report_partial(inputs, reads, result, made)

            nested = self.twins.later("paddle.grad", follow)
            result += plain(outputs, inputs, gradients, *rest, **options)
            if not nested:
                self.twins.do("paddle.grad", follow)
            return result

        return run_partial_grad

    def _report_partial(self, inputs: Sequence[Any], reads: list[Read], result: Sequence[Any], made: Any) -> None:
        source = line(self.foreign) if self.study.sources else ""
        for at, (leaf, gradient) in enumerate(zip(inputs, result, strict=True)):
            if gradient is not None:
                record, last = self.twins.followed(leaf), self.flows.passes
                name, found, place = self.flows.sources(record.readers if record else (), last - 1, last)
                read = self._read(leaf)
                found = found or [*reads, *([read] if read else [])]
                self._new(name or "paddle.grad", found, gradient, made[at] if made else None, place or source)

    def _new(self, name: str, reads: list[Read], gradient: Any, twin: Any, source: str) -> Record:
        """A gradient is seen for the first time."""
        twins, study = self.twins, self.study
        real = twins.elements(gradient)
        whole = twin is not None and twins.elements(twin).shape == real.shape
        if whole and not gradient.is_selected_rows():
            twin = self.mirror.disturbance.written(gradient, twin, in_place=True)
        lost = "" if whole else f"paddle has no graph of shadows up to a gradient of shape {list(real.shape)}"
        shadow = twins.elements(twin) if whole else real
        lost = lost or (NO_BETTER if dtype_of(gradient) in ("float64", "complex128") else "")
        written = [(shadow, dtype_of(gradient), twins.real(gradient))]
        [(value, kept)] = study.operation(name, reads, written, source=source, adds=adds(name), lost=lost)
        record = twins.made(gradient, kept, value, twin if whole else None)
        if kept is not shadow and record.twin is not None:
            twins.overwrite(record.twin, kept)
        return record

    def _now_or_later(self, work: Callable[[], None]) -> None:
        if not self.twins.later("a gradient", work):
            self.twins.do("a gradient", work)

    # --- gradients of leaves

    def looked_at(self, leaf: Any, gradient: Any) -> Any:
        """The program looks at the gradient of a tensor."""
        if gradient is not None and not self.twins.quiet and self.twins.find(gradient) is None:
            self._now_or_later(lambda: self._gradient(leaf, gradient))
        return gradient

    def _gradient(self, leaf: Any, gradient: Any) -> None:
        record = self.twins.followed(leaf)
        if record is None or not readable(gradient) or not floating(gradient):
            return
        before = record.gradient
        if before is None or record.seen != self.flows.passes:
            name, reads, source = self.flows.sources(record.readers, record.seen, self.flows.passes)
            reads = reads or [*self.roots, self.twins.read(leaf, record)]
            if before is not None:  # it accumulates
                reads.append(Read(before.store.value))
            if record.hooks and record.arrived is not None:
                reads.append(Read(record.arrived))
            twin = None if record.twin is None else self.twins.grad.__get__(record.twin)
            record.gradient = self._new(name or BACKWARD, reads, gradient, twin, source or self.source)
            record.seen = self.flows.passes
            record.readers[:] = [each for each in record.readers if not each.gradients]
            return
        again = Record(before.twin, before.store, before.shape)
        self.twins.keep(gradient, again)

    def set(self, leaf: Any, gradient: Any) -> None:
        """The program sets the gradient of a tensor, or takes it away (None)."""

        def follow() -> None:
            record = self.twins.followed(leaf)
            if record is None:
                return
            given = None if gradient is None else self.twins.followed(gradient)
            record.gradient, record.seen = given, self.flows.passes
            if record.twin is not None:
                self.twins.grad.__set__(record.twin, None if given is None else given.twin)

        self._now_or_later(follow)

    def cleared(self, leaf: Any, clear: Callable[[Any], Any]) -> None:
        """The program clears the gradient of a tensor, or sets it to zero."""

        def follow() -> None:
            record = self.twins.find(leaf)
            if record is not None:
                record.gradient = None
                if record.twin is not None:
                    clear(record.twin)

        self._now_or_later(follow)
