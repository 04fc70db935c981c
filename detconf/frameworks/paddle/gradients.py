"""The backward pass of Paddle, which never reaches Python: hooks on the outputs of operations, and on leaves.

"paddle.matmul.grad" is the gradient of the *output* of a matmul, summed over all that read it; "paddle.leaf.grad" that
of a parameter. It is a function of what those readers read and wrote, and of the gradients of what they wrote: that is
its input, one witness per reader. Hooks on the nodes of the graph would name the gradient operations themselves, but
they make backward fail wherever a node has a list of tensors (concat, stack, LSTM).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from detconf.digests import NOTHING, Flag, mix
from detconf.frameworks.paddle import contents

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder

_PRUNE = 64


class _Reader:
    """An operation that read tensors: a witness of it, then the gradients of its outputs as they arrive."""

    __slots__ = ("__weakref__", "parts")

    def __init__(self, witness: bytes) -> None:
        self.parts = [witness]


class _Hook:
    """What waits for the gradient of one tensor. Holds no tensor."""

    __slots__ = ("fired", "gradients", "limit", "name", "place", "readers", "writer")

    def __init__(self, gradients: Gradients, name: str, writer: _Reader | None, place: tuple[str, str]) -> None:
        self.gradients, self.name, self.writer, self.place = gradients, name, writer, place
        self.readers: list[tuple[Any, list[bytes]]] = []
        self.fired, self.limit = False, _PRUNE

    def read_by(self, reader: _Reader) -> None:
        if self.fired and self.writer is None:  # a leaf, in the next forward pass
            self.readers, self.fired = [], False
        self.readers.append((ref(reader), reader.parts))
        if len(self.readers) > self.limit:  # forward passes without a backward pass
            self.readers = [(alive, parts) for alive, parts in self.readers if alive() is not None or len(parts) > 1]
            self.limit = max(_PRUNE, 2 * len(self.readers))

    def __call__(self, gradient: Any) -> None:
        # Paddle calls with None where there is no gradient; raising here would break the user's backward pass.
        if gradient is None or not self.gradients.on:
            return
        self.fired = True
        try:
            self.gradients.arrived(self, gradient)
        except Exception as error:  # noqa: BLE001
            self.gradients.failed(error)


class Gradients:
    """The hooks of one recording.

    Args:
        recorder: takes the gradients.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.on = True
        self._mark = f"_detconf_gradient_{id(self)}"
        self._leaves: list[Any] = []

    def end(self) -> None:
        """Take the hooks off the leaves; the others go with the graph, and do nothing from now on."""
        self.on = False
        for tensor, handle in self._leaves:
            handle.remove()
            tensor.__dict__.pop(self._mark, None)
        self._leaves.clear()

    def moved(self, read: Sequence[Any], made: Sequence[Any]) -> None:
        """`made` are views of `read`: what reads them reads that."""
        hook = self._hook_of(read[0]) if read else None
        if hook is not None:
            for tensor in made:
                if not tensor.stop_gradient:
                    tensor.__dict__[self._mark] = hook

    def follow(self, name: str, read: Sequence[Any], made: Sequence[Any], parts: Sequence[bytes], place: tuple[str, str]) -> None:
        """An operation ran: wait for the gradients of what it made.

        Args:
            name: of the operation.
            read: its inputs.
            made: its outputs.
            parts: witnesses and digests of them all.
            place: scope and source.
        """
        followed = [tensor for tensor in made if not (tensor.stop_gradient or tensor.is_leaf)]
        if not followed:
            return
        reader = _Reader(mix(*parts))
        for tensor in read:
            hook = self._hook_of(tensor)
            if hook is not None:
                hook.read_by(reader)
        for tensor in followed:
            hook = _Hook(self, f"{name}.grad", reader, place)
            tensor.__dict__[self._mark] = hook
            tensor.register_hook(hook)

    def _hook_of(self, tensor: Any) -> _Hook | None:
        if tensor.stop_gradient:
            return None
        found: _Hook | None = tensor.__dict__.get(self._mark)
        if found is None and tensor.is_leaf:
            found = _Hook(self, "paddle.leaf.grad", None, (tensor.name, "") if self.recorder.sources else ("", ""))
            tensor.__dict__[self._mark] = found
            self._leaves.append((tensor, tensor.register_hook(found)))
        return found

    def arrived(self, hook: _Hook, gradient: Any) -> None:
        """Record a gradient."""
        recorder = self.recorder
        digest, layout = contents.describe(gradient)
        if hook.writer is not None:
            hook.writer.parts.append(digest)
        kept = ((), (contents.array(gradient),)) if recorder.keeping else None
        recorder.operation(
            hook.name,
            [mix(*parts) for _, parts in hook.readers],
            (digest,),
            (layout,),
            flags=0 if digest != NOTHING else Flag.SKIPPED,
            scope=hook.place[0],
            source=hook.place[1],
            values=kept,
        )

    def failed(self, error: Exception) -> None:
        """A gradient could not be recorded: leave a mark."""
        self.recorder.operation("paddle.grad", (), (), (), flags=Flag.SKIPPED, scope=type(error).__name__)
