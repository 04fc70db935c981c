"""Operations of Paddle, done a second time on the twins of their arguments.

The real operation runs first, once, with its own arguments; what comes after it cannot change what it gave. Operations
that only move elements are not reported: what is read through them later is a `Read` with a view.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from detconf.frameworks import adds
from detconf.frameworks.paddle import apart, kinds, selections
from detconf.frameworks.paddle.arguments import Arguments, wide
from detconf.frameworks.paddle.calls import Call
from detconf.frameworks.paddle.contents import collect, generator
from detconf.frameworks.paddle.flows import Flows
from detconf.frameworks.paddle.noise import local_error
from detconf.frameworks.paddle.operations import Operation
from detconf.frameworks.paddle.twins import NO_BETTER, Record, Store, Twins, dtype_of, floating, readable
from detconf.frameworks.source import line
from detconf.shadows.formats import ROUNDINGS
from detconf.shadows.study import Read

_FOREIGN = (os.path.join(os.path.dirname(paddle.__file__), ""),)


class Mirror(Arguments):
    """Follows operations.

    Args:
        twins: of the tensors.
    """

    def __init__(self, twins: Twins) -> None:
        super().__init__(twins)
        self.flows = Flows(twins, self.disturbance)
        self._fixed: dict[str, Any] = {}

    @property
    def quiet(self) -> bool:
        """This thread is at work for the study, not for the program."""
        return self.twins.quiet

    def call(self, operation: Operation, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operation of the program, and follow it."""
        call = Call(operation, plain, args, kwargs)
        if kinds.draws(call.name, args, kwargs):
            call.state = self._state()
        made: list[Any] = []
        if self.twins.later(call.name, lambda: self._after(call, made, prepared=self._prepared(call))):
            result = plain(*args, **kwargs)
            collect(result, made)
            return result
        prepared = self._prepared(call)
        result = plain(*args, **kwargs)
        collect(result, made)
        if made or operation.in_place:
            self._after(call, made, prepared=prepared)
        return result

    def _prepared(self, call: Call) -> bool:
        return self._tried(call, self._prepare)

    def _after(self, call: Call, made: list[Any], *, prepared: bool) -> None:
        written = [call.argument(each) for each in made] if call.operation.in_place else made
        if not made and call.operation.in_place:
            written = call.tensors[:1]
        if not (prepared and self._tried(call, lambda call: self._follow(call, written))):
            self._give_up(call, written)
        for tensor, alias in zip(written, made, strict=False):
            record = self.twins.find(tensor)
            if alias is not tensor and record is not None:
                self.twins.keep(alias, record)

    def _state(self) -> Any:
        """Set the generator where the study wants it. Returns its state."""
        drawing = generator()
        asked = self.study.drawing(self._seeded(drawing))
        if asked is not None:
            drawing.set_state(asked)
        return drawing.get_state()

    def _seeded(self, drawing: Any) -> Any:
        """The state after seeding with 0."""
        kind = str(paddle.framework._current_expected_place())
        if kind not in self._fixed:
            before = drawing.get_state()
            drawing.manual_seed(0)
            self._fixed[kind] = drawing.get_state()
            drawing.set_state(before)
        return self._fixed[kind]

    def _tried(self, call: Call, what: Callable[[Call], Any]) -> bool:
        # Whatever goes wrong here, the program goes on; what is lost is said.
        try:
            with self.twins.quietly():
                what(call)
        except Exception as error:
            call.error = f"paddle could not follow {call.name}: {type(error).__name__}"
            if apart.RAISES:
                raise
            return False
        return True

    def _give_up(self, call: Call, made: Sequence[Any]) -> None:
        try:
            with self.twins.quietly():
                self._report(call, made, [None] * len(made), call.error)
        except Exception as error:  # noqa: BLE001
            self.study.lose(f"paddle could not report {call.name}: {type(error).__name__}")

    # --- before

    def _prepare(self, call: Call) -> None:
        for tensor in call.tensors:
            record = self.twins.followed(tensor)
            if record is None:
                if not tensor._is_initialized():
                    call.empty.add(id(tensor))
                continue
            call.records[id(tensor)] = record
            if call.name not in kinds.VIEWS:
                call.reads[id(tensor)] = self.twins.read(tensor, record)
            if self.study.local or (call.operation.in_place and record.twin is None):
                call.copies[id(tensor)] = self.twins.elements(tensor)
        for each in (*call.args, *call.kwargs.values()):
            if isinstance(each, (np.ndarray, np.generic, float)):
                known = self.study.known(each)
                if known is not None:
                    call.known[id(each)] = known
                    call.reads[id(each)] = Read(known.value) if known.value.shadow is known.shadow else Read(known.value, known.shadow)

    # --- after

    def _follow(self, call: Call, made: Sequence[Any]) -> None:
        if call.name in kinds.VIEWS and not self.study.local:
            self._move(call, made)
            return
        if call.name in kinds.VIEWS:
            self._moved(call, made, [None] * len(made))
            return
        if call.operation.picks and made[0]._is_shared_buffer_with(call.args[0]):
            self._move(call, made) if not self.study.local else self._moved(call, made, [None] * len(made))
            return
        if call.operation.empty:
            for each in made:
                self.twins.leaf(each, np.zeros(each.shape), "never filled")
            return
        written = [*made, *(each for each in call.undeclared() if each is not None)]
        call.written = frozenset(map(id, written))
        if call.name in kinds.OPAQUE:
            self._report(call, written, [None] * len(written), f"paddle: {call.name} reads bits as another type")
            return
        if call.state is not None and call.name not in kinds.REPLAYED:
            self._report(call, written, [None] * len(written), "")
            return
        shadows, lost = self._twice(call, written)
        local = local_error(self, call, written, shadows) if self.study.local and not lost else None
        self._report(call, written, shadows, lost, local)

    def _move(self, call: Call, made: Sequence[Any]) -> None:
        self._moved(call, made, self._outputs(call, made))

    def _moved(self, call: Call, made: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Views: of the memory of what they were taken from, or of the value that this held."""
        source = call.records.get(id(call.tensors[0])) if call.tensors else None
        if source is None:
            return
        for tensor, twin in zip(made, outputs, strict=True):
            shares = tensor is call.tensors[0] or tensor._is_shared_buffer_with(call.tensors[0])
            store = source.store if shares else Store(source.store.value, object())
            record = self.twins.keep(tensor, Record(twin if floating(tensor) else None, store, object()))
            record.readers, record.flow = source.readers, source.flow

    def _twice(self, call: Call, made: Sequence[Any]) -> tuple[list[Any], str]:
        """The operation on the twins: one per real output, None for what follows the real side; and what was lost."""
        chosen = None if self.study.altered() else selections.chosen(call.name, call.args, call.kwargs, made)
        if chosen is not None:
            return [chosen(self.argument(call, call.args[0])), *[None] * (len(made) - 1)], ""
        if call.state is None:
            return self._outputs(call, made), ""
        drawing = generator()
        after = drawing.get_state()
        drawing.set_state(call.state)
        try:
            outputs = self._outputs(call, made)
        finally:
            drawing.set_state(after)
        if self.study.altered() or _same_draws(call.name, made[0], outputs[0], self.twins.elements):
            return outputs, ""
        if call.name in kinds.MASKED and not call.operation.in_place:  # kernels that draw by the width of the numbers
            return [self._masked(call, made[0]), *[None] * (len(made) - 1)], ""
        return [None] * len(made), f"paddle could not draw for the shadow of {call.name} what the program drew"

    def _masked(self, call: Call, real: Any) -> Any:
        mask = (real != 0).astype("float64")
        scale = 1.0 / (1.0 - kinds.value(call.name, "p", call.args, call.kwargs))
        upscaled = kinds.value(call.name, "mode", call.args, call.kwargs) == "upscale_in_train"
        return self.argument(call, call.args[0]) * (mask * (scale if upscaled else 1.0))

    def _outputs(self, call: Call, made: Sequence[Any]) -> list[Any]:
        outputs = self.run(call, cast=False)
        filled = [floating(real) and readable(real) for real in made]
        if any(each and not wide(twin) for each, twin in zip(filled, outputs, strict=True)):
            outputs = self.widened(call, outputs)
        if any(each and list(real.shape) != list(twin.shape) for each, real, twin in zip(filled, made, outputs, strict=True)):
            raise ValueError("another shape")
        if call.name == "cast" and filled[0] and self.study.casts == "kept" and dtype_of(made[0]) in ROUNDINGS:
            return [self.rounded(outputs[0] if wide(outputs[0]) else paddle.cast(outputs[0], "float64"), dtype_of(made[0]))]
        return [
            None if not each else twin if wide(twin) else paddle.cast(twin, "float64") for each, twin in zip(filled, outputs, strict=True)
        ]

    # --- the report

    def _report(self, call: Call, made: Sequence[Any], outputs: Sequence[Any], lost: str, local: float | None = None) -> None:
        study, elements = self.study, self.twins.elements
        writes = []
        for tensor, twin in zip(made, outputs, strict=True):
            disturbed = twin is not None and not call.copying and not lost
            located = call.name in kinds.LOCATED
            after = self.disturbance.written(tensor, twin, in_place=id(tensor) in call.records, located=located) if disturbed else twin
            source = tensor if after is None else after
            shadow = elements(source) if readable(source) else np.zeros(0)
            writes.append((shadow, dtype_of(tensor), self.twins.real(tensor), after))
        if not lost and not call.copying and call.state is None and any(name in ("float64", "complex128") for _, name, _, _ in writes):
            lost = NO_BETTER
        reads, source = self._reads(call, made), line(_FOREIGN) if study.sources else ""
        values = study.operation(
            call.operation.name,
            reads,
            [each[:3] for each in writes],
            random=call.state is not None,
            state=call.state,
            options=call.options(),
            source=source,
            local=local,
            decided=call.name in kinds.DECISIONS or all(not floating(each) for each in made),
            adds=adds(call.operation.name),
            lost=lost,
        )
        for tensor, (shadow, _, _, twin), (value, kept) in zip(made, writes, values, strict=True):
            self._wrote(call, tensor, twin, value, shadow, kept)
        records = [(each, record) for each in made if (record := self.twins.find(each)) is not None]
        self.flows.follow(call.operation.name, reads, list(call.records.values()), records, source)

    def _reads(self, call: Call, made: Sequence[Any]) -> list[Read]:
        unread = {id(each) for each in made} if call.operation.blind else ()
        return [read for key, read in call.reads.items() if key not in unread]

    def _wrote(self, call: Call, tensor: Any, twin: Any, value: Any, shadow: Any, kept: Any) -> None:  # noqa: PLR0913, PLR0917
        record = call.records.get(id(tensor))
        if record is None:
            if readable(tensor):
                self.twins.made(tensor, kept, value, None if self.study.local else twin)
            record = self.twins.find(tensor)
        else:
            if record.twin is not None and twin is None:
                self.twins.overwrite(record.twin, kept)
            record.store.write(value, record.shape)
            record.met(tensor)
        if record is not None and record.twin is not None and kept is not shadow:
            self.twins.overwrite(record.twin, kept)


def _same_draws(name: str, real: Any, twin: Any, elements: Callable[[Any], Any]) -> bool:
    real, twin = elements(real), elements(twin)
    if name in ("dropout", "dropout_"):
        return bool(np.array_equal(real == 0, twin == 0) or np.mean((real == 0) != (twin == 0)) < 1e-3)
    return bool(np.max(np.abs(real - twin), initial=0.0) <= 0.1 * np.max(np.abs(real), initial=0.0) + 1e-3)
