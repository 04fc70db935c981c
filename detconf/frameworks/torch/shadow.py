"""PyTorch's engine for a study: the shadow of every operation that PyTorch dispatches, forward, backward and optimizer.

The operation itself runs first, once, with its own arguments; then its shadow, in float64 and apart from everything that
the program can see. The shadow is one of the source: compiled functions run eagerly while a study is on, so that their
real results here are those of eager mode.

Real results are those of a plain run, but for what PyTorch itself does otherwise under any dispatch mode: `linalg.svdvals`
and `linalg.eigvalsh` compute vectors too (and with them `linalg.cond` and the nuclear norm), and a few gradients, of `prod`
along a dimension and of a tensor that was filled in, are computed by other operations.

Not followed: what an extension or another process computes (its tensors are leaves), higher-order operators such as
`flex_attention`, oneDNN's opaque tensors, and literals that go straight to `torch.FloatTensor`, which are taken in float32.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from detconf.frameworks.torch.shadow_edges import Edges
from detconf.frameworks.torch.shadow_ground import Places, eagerly
from detconf.frameworks.torch.shadow_memory import Memory
from detconf.frameworks.torch.shadow_modes import modes
from detconf.frameworks.torch.shadow_roots import named
from detconf.frameworks.torch.shadow_running import Running
from detconf.frameworks.torch.shadow_tensors import array, numbers_of, on_numbers, told
from detconf.frameworks.torch.steps import watch
from detconf.frameworks.torch.trace import _in_threads
from detconf.shadows.number import Number, Numbers
from detconf.shadows.study import Known, Study


def start(study: Study) -> TorchEngine:
    """Follow PyTorch with `study` until the engine's `end`."""
    engine = TorchEngine(study)
    ends = engine.ends
    ends.callback(engine.memory.end)
    ends.callback(Edges(engine).end)
    ends.callback(watch(engine.step))
    ends.callback(_in_threads(lambda: modes(engine.numbers, engine.running.run)))
    ends.callback(eagerly())
    ends.enter_context(modes(engine.numbers, engine.running.run))
    return engine


class TorchEngine:
    """See `shadows.study.Engine`.

    Attributes:
        quiet: of a thread: `on` while a function of PyTorch's is looked at as a whole, `item` while a number is taken out.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.numbers = Numbers(study)
        self.memory = Memory(study, self.numbers)
        self.places = Places()
        self.quiet = threading.local()
        self.running = Running(self)
        self.ends = ExitStack()
        self._lock = threading.RLock()

    def known(self, thing: Any) -> Known | None:
        """The shadow of a tensor, or of a number that came out of one; None when the study is over."""
        if isinstance(thing, Number):
            return thing.known
        if not isinstance(thing, torch.Tensor) or not self.numbers.active:
            return None
        found: list[Known] = []
        self.guarded("the end", lambda: found.extend(self._known(thing)))
        return found[0] if found else None

    def _known(self, tensor: Any) -> Iterator[Known]:
        holder = numbers_of(tensor)
        if holder is None:
            return
        known = self.memory.known(holder)
        if holder is not tensor and not tensor.is_nested:
            whole = on_numbers(tensor, lambda _: self.memory.view(holder))
            known = Known(array(whole.to_dense()), known.value)
        yield known

    def wrap(self, array: Any, known: Known) -> Any:  # noqa: ARG002  # NumPy's engine does that
        """NumPy's business."""
        return array

    def adopt(self, roots: Sequence[Any]) -> None:
        """Tensors are found when they are first used; these have names until then."""
        for name, tensor in named(roots):
            self.guarded(name, lambda name=name, tensor=tensor: self.memory.call(tensor, name))  # type: ignore[misc]

    def end(self) -> None:
        """Put everything back."""
        self.numbers.active = False
        self.ends.close()

    def step(self) -> None:
        """An optimizer has made a step."""
        self.study.step += 1

    def idle(self) -> bool:
        """Is nobody to look at what runs now?"""
        return not self.numbers.active or getattr(self.quiet, "on", False)

    def guarded(self, name: str, action: Callable[[], None]) -> bool:
        """Do something of our own: apart from the program, which goes on if it fails. Did it not?"""
        try:
            # `apart`, without what it costs to make a context manager in Python for every operation.
            with self._lock, torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch._C._InferenceMode(True):
                action()
        except Exception as error:  # noqa: BLE001  # see above
            self.study.lose(f"{name}: {told(error)}")
            return False
        return True
