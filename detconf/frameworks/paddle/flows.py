"""Gradients inside a graph, as values of a study: hooks on the twins of what operations gave.

"paddle.gelu.grad" made the gradient of a tensor that a gelu read: it read what the gelu read, and the gradients of what
the gelu gave. Where several operations read the tensor it is called "paddle.backward", and read all of that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import paddle

from detconf.frameworks import adds
from detconf.frameworks.paddle.noise import Disturbance
from detconf.frameworks.paddle.sums import CONTRACTIONS
from detconf.frameworks.paddle.twins import Flow, Record, Twins, dtype_of
from detconf.shadows.formats import round_to
from detconf.shadows.study import Read

BACKWARD = "paddle.backward"


class Flows:
    """The hooks of one study.

    Args:
        twins: of the tensors.
        disturbance: noise.
    """

    def __init__(self, twins: Twins, disturbance: Disturbance) -> None:
        self.twins, self.study, self.disturbance = twins, twins.study, disturbance
        self.passes = 0
        self.running = 0
        self._register: Any = vars(paddle.Tensor)["_register_grad_hook"]

    @contextmanager
    def passing(self, roots: Sequence[Any]) -> Iterator[None]:
        """A pass over the graph of the twins is running, perhaps inside another.

        Args:
            roots: the tensors where it starts.
        """
        outer, self.passes = self.running, self.passes + 1
        self.running = self.passes
        for each in roots:
            record = self.twins.find(each)
            if record is not None and record.flow is not None:
                record.flow.gradients.append((self.running, None))
        try:
            yield
        finally:
            self.running = outer

    def follow(self, name: str, reads: Sequence[Read], read: Sequence[Record], made: Sequence[tuple[Any, Record]], source: str) -> None:
        """An operation ran: wait for the gradients of what it gave. Call quietly.

        Args:
            name: of the operation.
            reads: what it read, as values.
            read: the records of that.
            made: (tensor, record) of what it gave.
            source: of the operation.
        """
        followed = [(tensor, record, record.twin) for tensor, record in made if record.twin is not None]
        followed = [each for each in followed if not (each[2].stop_gradient or each[2].is_leaf)]
        if not followed:
            return
        flow = Flow(name, reads, source)
        for record in read:
            if record.twin is not None and not record.twin.stop_gradient:
                record.readers.append(flow)
        for tensor, record, twin in followed:
            record.flow, record.readers = flow, []
            self._register(twin, functools.partial(self._arrived, record, dtype_of(tensor), record.readers, flow))

    def _arrived(self, record: Record, dtype: str, readers: Sequence[Flow], flow: Flow, gradient: Any) -> Any:
        if gradient is None or not self.running:
            return None
        return self.twins.do("a gradient", lambda: self._note(record, dtype, readers, flow, gradient))

    def _note(self, record: Record, dtype: str, readers: Sequence[Flow], flow: Flow, gradient: Any) -> Any:
        name, reads, source = self.sources(readers, self.running - 1, self.running)
        if not name:
            return None  # the root of the pass
        disturbed = self.disturbance.of(gradient, dtype)
        shadow = self.twins.elements(disturbed)
        [(value, kept)] = self.study.operation(name, reads, [(shadow, dtype, None)], source=source, adds=adds(name))
        record.arrived = value
        flow.gradients.append((self.running, value))
        if self.study.rounding and flow.name.removeprefix("paddle.") in CONTRACTIONS:
            return self.twins.tensor(round_to(kept, self.study.rounding), gradient)  # the products of its backward pass read that
        if kept is not shadow:
            return self.twins.tensor(kept, gradient)
        return None if disturbed is gradient else disturbed

    def sources(self, readers: Sequence[Flow], after: int, until: int) -> tuple[str, list[Read], str]:
        """(name, reads, source) of what made the gradient of a tensor that `readers` read; an empty name if none of them did.

        Args:
            readers: operations.
            after: the number of a pass: later ones count.
            until: the last one that does.
        """
        active: list[Flow] = []
        reads: list[Read] = []
        for each in readers:
            arrived = [value for number, value in each.gradients if after < number <= until]
            if arrived:
                active.append(each)
                reads += [*each.reads, *(Read(value) for value in arrived if value is not None)]
        if not active:
            return "", [], ""
        unique = list({(id(read.value), id(read.view)): read for read in reads}.values())
        return (f"{active[0].name}.grad", unique, active[0].source) if len(active) == 1 else (BACKWARD, unique, "")

    def entering(self, record: Record | None, tensor: Any, twin: Any) -> None:
        """The program gets a gradient inside a pass, in a function of its own: `tensor`, of what `record` is. Call quietly."""
        value = None if record is None else record.arrived
        if value is None or value.shape != tuple(tensor.shape):
            name, reads, source = self.sources(() if record is None else record.readers, self.running - 1, self.running)
            shadow, real = self.twins.elements(twin), self.twins.real(tensor)
            written = [(shadow, dtype_of(tensor), real)]
            [(value, _)] = self.study.operation(name or BACKWARD, reads, written, source=source, adds=adds(name))
        self.twins.made(tensor, None, value, twin)

    def leaving(self, flow: Flow | None, results: Sequence[Any]) -> None:
        """It gave other gradients: they go on from here, for the operation `flow`. Call quietly."""
        found = [self.twins.find(each) for each in results if isinstance(each, paddle.Tensor)]
        if flow is not None:
            flow.gradients += [(self.running, each.store.value) for each in found if each is not None]
