"""Every operation that PyTorch dispatches, reported to a recorder: forward, backward, optimizers, all threads started.

Views are not reported: they compute nothing, and the geometry of what is read stands in the witness. Compiled code runs
as it would without us; of it, only the library kernels that it calls are seen, marked as such.

Not seen: what an extension or NumPy writes through a raw pointer into memory that PyTorch had written before (its version
counter does not count that), and threads that were running before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode_temporarily

from detconf.arrays import scalars
from detconf.digests import NOTHING, Flag
from detconf.frameworks.replaced import giving, replaced
from detconf.frameworks.torch import whole
from detconf.frameworks.torch.contents import Contents, Layout
from detconf.frameworks.torch.operations import Operation, collect, describe, results, unwritten, written

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder

IN_PLACE, UNINITIALISED, COMPILED, SKIPPED, PROBED = (
    int(Flag[name]) for name in ("IN_PLACE", "UNINITIALISED", "COMPILED", "SKIPPED", "PROBED")
)
"""As integers: operators of an enumeration cost a microsecond."""
Tensor = torch.Tensor
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_NUMBERS = frozenset({float, int, bool, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_OPS = vars(torch._ops)
_COMPILED = "extern_kernels"
"""A global of every module that inductor writes."""
_PLAIN = torch.Tensor.__torch_dispatch__
_Places = Callable[[], tuple[str, str]]


class Trace(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed for us
    """A dispatch mode that reports what it sees. One per thread and recording.

    Args:
        recorder: takes the operations.
        mark: attribute of storages for this recording.
        place: (scope, source) of the operation at hand; None where nobody asked.
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this, PyTorch runs compiled functions eagerly under a mode: the recording would change the bits."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap the method below in a call that imports Dynamo: 821 modules, and 0.9 us per operation.
        return False

    def __init__(self, recorder: Recorder, mark: str, place: _Places | None) -> None:
        super().__init__()
        self.recorder = recorder
        self.contents = Contents(mark)
        self.place = place
        self.known: dict[Any, Operation] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if types and any(each.__torch_dispatch__ is not _PLAIN for each in types):
            # A subclass first takes itself apart; we are called again for its parts.
            return NotImplemented
        operation = self.known.get(function) or self._learn(function)
        if operation.view:
            return function(*args, **kwargs) if kwargs else function(*args)
        if not self.recorder.active:
            tensors: list[Any] = []
            collect([*args, *(kwargs or {}).values()], tensors)
            return whole.run(function, tensors, args, kwargs or {})
        caller = sys._getframe(1)
        compiled = _COMPILED in caller.f_globals or (caller.f_globals is _OPS and _called_by_compiled(caller))
        return self._observe(operation, args, kwargs or {}, compiled=compiled)

    def whole(self, function: Any, parts: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a composite function with this mode off, and report it as one operation.

        Args:
            function: what it is called by.
            parts: runs it.
            args, kwargs: its arguments.
        """
        differentiable = torch.is_grad_enabled()

        def run(*args: Any, **kwargs: Any) -> Any:
            with torch.set_grad_enabled(differentiable):
                return parts(*args, **kwargs)

        with _pop_mode_temporarily(), torch.no_grad():  # here we stand above autograd, which must not see what we read
            return self._observe(replace(self._learn(function), run=run), args, kwargs, compiled=False)

    def _learn(self, function: Any) -> Operation:
        operation = self.known[function] = describe(function)
        return operation

    def _observe(self, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any], *, compiled: bool) -> Any:
        contents, recorder = self.contents, self.recorder
        read: list[Any] = []
        for value in (*args, *kwargs.values()) if kwargs else args:
            kind = type(value)
            if kind in _TENSORS:  # before the function that does it all: half of the cost is Python's
                read.append(value)
            elif kind not in _NUMBERS:
                collect(value, read)
        targets, random = self._prepare(operation, args, kwargs, read) if operation.special else ([], b"")
        inputs = list(map(contents.digest if compiled else contents.witness, read))
        before = [contents.array(tensor) for tensor in read] if recorder.keeping else None
        result = whole.run(operation.run, read, args, kwargs)
        if operation.special or not (operation.in_place or type(result) is Tensor):
            made, outputs, layouts, flags = self._outputs(operation, targets, results(operation, result))
        else:  # nine in ten, and what they cost is counted in fractions of a microsecond
            one = args[0] if operation.in_place else result
            found, layout = contents.write(one, operation.in_place and operation.counted)
            made, outputs, layouts, flags = (one,), (found,), (layout,), IN_PLACE if operation.in_place else 0
        if NOTHING in outputs and not operation.empty:
            flags |= SKIPPED
        if operation.probed is not None and torch.is_grad_enabled() and args[operation.probed].requires_grad:
            flags |= PROBED
        if compiled:  # its own kernels may write there next, unseen
            flags |= COMPILED
            for tensor in made:
                contents.forget(tensor)
        scope, source = self.place() if self.place else ("", "")
        values = None if before is None else (before, [contents.array(tensor) for tensor in made], scalars([*args, *kwargs.values()]))
        recorder.operation(operation.name, inputs, outputs, layouts, random, flags, scope, source, values)
        return result

    def _prepare(self, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any], read: list[Any]) -> tuple[list[Any], bytes]:
        """(tensors that will be written, digest of the generator's state). Takes out of `read` what is not read."""
        targets = written(operation, args, kwargs)
        if operation.blind:
            read[:] = unwritten(operation, args, kwargs)
        return targets, self._generator(kwargs.get("generator"), read or targets) if operation.random else b""

    def _outputs(
        self, operation: Operation, targets: list[Any], fresh: list[Any]
    ) -> tuple[Sequence[Any], Sequence[bytes], tuple[Layout, ...], int]:
        """(tensors written, their digests, their layouts, flags)."""
        contents, made = self.contents, targets + fresh
        flags = IN_PLACE if targets else 0
        if operation.empty:
            for tensor in made:
                contents.forget(tensor)
            return made, [NOTHING] * len(made), tuple([contents.kind(tensor).layout for tensor in made]), flags | UNINITIALISED
        pairs = [contents.write(tensor, operation.counted) for tensor in targets] + list(map(contents.write, fresh))
        return made, [found for found, _ in pairs], tuple([layout for _, layout in pairs]), flags

    def _generator(self, generator: Any, tensors: Sequence[Any]) -> bytes:
        """Digest of the state of the generator that is about to be drawn from."""
        if generator is None:
            device = tensors[0].device if tensors else torch.device("cpu")
            if device.type == "cuda":
                return self.contents.digest(torch.cuda.get_rng_state(device))
            generator = torch.default_generator
        return self.contents.digest(generator.get_state())


def _called_by_compiled(frame: Any) -> bool:
    """Is the caller of `torch.ops` compiled code? At the first call of a compiled function, a mode of PyTorch's stands between."""
    for _ in range(8):
        frame = frame.f_back
        if frame is None or _COMPILED in frame.f_globals:
            return frame is not None
    return False


def start(recorder: Recorder) -> Callable[[], None]:
    """Report to `recorder`: operations, or the state at the end of each optimizer step. Returns what ends that."""
    if recorder.level == "state":
        from detconf.frameworks.torch.state import watch  # the other level

        return watch(recorder)
    from detconf.frameworks.torch.places import Places  # patches nothing before `start`

    places = Places() if recorder.sources else None
    new = partial(Trace, recorder, f"_detconf_{id(recorder)}_{recorder.path}", places.here if places else None)
    mode = new()
    mode.__enter__()
    undo_threads, undo_whole = _in_threads(new), whole.start(Trace)
    given = replaced(torch.Tensor, "numpy", giving(torch.Tensor.numpy, recorder.followers))
    given.__enter__()

    def end() -> None:
        given.__exit__(None, None, None)
        undo_whole()
        undo_threads()
        mode.__exit__(None, None, None)
        if places:
            places.end()

    return end


def _in_threads(new: Callable[[], Any]) -> Callable[[], None]:
    """A mode belongs to one thread: threads that are started from now on get one of their own."""
    plain = threading.Thread.start

    def begin(thread: threading.Thread) -> None:
        run = thread.run

        def traced() -> None:
            with new():
                run()

        thread.run = traced  # type: ignore[method-assign]  # on the thread, so that subclasses with a run() count
        plain(thread)

    threading.Thread.start = begin  # type: ignore[method-assign,assignment]  # self by another name

    def undo() -> None:
        if threading.Thread.start is begin:
            threading.Thread.start = plain  # type: ignore[method-assign]

    return undo
