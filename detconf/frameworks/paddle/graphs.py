"""Functions under `to_static`: each call of a graph is one operation, and a call that ran no graph is noted.

"paddle.to_static" reads the inputs and parameters of the graph and writes its outputs, after the parameters (running
statistics) that it changed. Its inside is not recorded, as its flag COMPILED says. "paddle.to_static.eager" has no
outputs: the function named by its scope was called, and it ran without a graph (few operations, a break, or
`enable_to_static(False)`); its operations were recorded one by one.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import paddle

from detconf.digests import NOTHING, Flag
from detconf.frameworks.paddle import contents
from detconf.frameworks.paddle.contents import collect, describe
from detconf.frameworks.paddle.gradients import Gradients
from detconf.frameworks.paddle.references import References
from detconf.lookup import loaded

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder

_PARTIAL, _STATIC = "paddle.jit.dy2static.pir_partial_program", "paddle.jit.dy2static.program_translator"


def watch(recorder: Recorder, gradients: Gradients) -> Callable[[], None]:
    """Report the calls of graphs. Returns what ends that."""
    try:
        partial, function = loaded(_PARTIAL), loaded(_STATIC).StaticFunction
        layer = partial.PartialProgramLayer
        before = layer.HOOKED_RUN_IMPL
    except Exception:  # noqa: BLE001  # private parts of another version: graphs run unseen
        return lambda: None
    graphs = Graphs(recorder, gradients, before)
    references = References()
    references.put_attribute(layer, "HOOKED_RUN_IMPL", graphs.run)
    references.put_attribute(function, "__call__", graphs.calling(vars(function)["__call__"]))
    return references.back


class Graphs:
    """Observes graphs.

    Args:
        recorder: takes their calls.
        gradients: follows their outputs backwards.
        before: a hook that someone had set before us.
    """

    def __init__(self, recorder: Recorder, gradients: Gradients, before: Callable[..., Any] | None) -> None:
        self.recorder, self.gradients, self.before = recorder, gradients, before
        self._local = threading.local()
        # Paddle takes the hook from a class: a bound method would do, a plain function would not be told from one.
        self.run: Callable[..., Any] = self._run

    def _count(self) -> int:
        return getattr(self._local, "count", 0)

    def calling(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """What takes the place of a call of a function under `to_static`."""

        @functools.wraps(plain)
        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._count()
            result = plain(function, *args, **kwargs)
            if self.recorder.active and self._count() == before and paddle.in_dynamic_mode():
                name = getattr(getattr(function, "dygraph_function", None), "__qualname__", type(function).__name__)
                self.recorder.operation("paddle.to_static.eager", (), (), (), scope=name)
            return result

        return call

    def _run(self, run: Callable[..., Any], inputs: Any, parameters: Any, attributes: Any) -> Any:
        plain = functools.partial(self.before, run) if self.before else run
        self._local.count = self._count() + 1
        recorder = self.recorder
        if not recorder.active:
            return plain(inputs, parameters, attributes)
        read: list[Any] = []
        collect((inputs, parameters), read)
        fixed = [tensor for tensor in parameters if isinstance(tensor, paddle.Tensor) and tensor.stop_gradient]
        witnesses, old = [contents.digest(tensor) for tensor in read], [contents.digest(tensor) for tensor in fixed]
        random = contents.generator_state()
        before = [contents.array(tensor) for tensor in read] if recorder.keeping else None
        result = plain(inputs, parameters, attributes)
        if random == contents.generator_state():
            random = b""
        changed = [tensor for tensor, digest in zip(fixed, old, strict=True) if contents.digest(tensor) != digest]
        made: list[Any] = []
        collect(result, made)
        outputs = self._record(witnesses, [*changed, *made], random, before, changed=bool(changed))
        self.gradients.follow("paddle.to_static", read, made, (*witnesses, *outputs, random), ("", ""))
        return result

    def _record(
        self, witnesses: list[bytes], written: Sequence[Any], random: bytes, before: list[Any] | None, *, changed: bool
    ) -> list[bytes]:
        described = [describe(tensor) for tensor in written]
        outputs = [digest for digest, _ in described]
        flags = Flag.COMPILED | (Flag.IN_PLACE if changed else 0) | (Flag.SKIPPED if NOTHING in outputs else 0)
        kept = None if before is None else (before, [contents.array(tensor) for tensor in written])
        layouts = tuple([layout for _, layout in described])
        self.recorder.operation("paddle.to_static", witnesses, outputs, layouts, random=random, flags=flags, values=kept)
        return outputs
