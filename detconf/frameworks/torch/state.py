"""The state at the end of each optimizer step, reported to a recorder.

The loss that backward starts from and its scale, parameters, gradients, what the optimizer keeps, its learning rates, and the
buffers, such as running statistics, of modules that were made while it is watched, where they are written. Before the
first step of an optimizer, what it was given and what it had kept: there a resumed training shows what it brought along.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from detconf.arrays import Array
from detconf.digests import ENTRY, Flag
from detconf.frameworks.torch.buffers import Buffers
from detconf.frameworks.torch.contents import Contents

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder


class _State:
    """What a recorder gets to know of optimizers and of calls of backward."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.contents = Contents("_detconf_state")
        self.buffers = Buffers()
        self.numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def entered(self, optimizer: Any, *_: Any) -> None:
        """An optimizer begins a step: report what it has, if it is its first."""
        if optimizer not in self.numbers:
            self.numbers[optimizer] = len(self.numbers)
            for name, value in _state(self._title(optimizer), optimizer):
                if not name.endswith(".grad"):
                    self.report(ENTRY + name, value)

    def stepped(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has made a step."""
        for name, value in _state(self._title(optimizer), optimizer):
            self.report(name, value)
        for name, value in self.buffers.moved():
            self.report(name, value)

    def _title(self, optimizer: Any) -> str:
        return f"optimizer{self.numbers.setdefault(optimizer, len(self.numbers)) or ''}"

    def report(self, name: str, value: Any) -> None:
        recorder, contents = self.recorder, self.contents
        if not recorder.active:
            return
        if isinstance(value, torch.Tensor):
            kept = ((), (contents.array(value),)) if recorder.keeping else None
            recorder.operation(name, (), (contents.digest(value),), (contents.kind(value).layout,), flags=Flag.STATE, values=kept)
        elif isinstance(value, (int, float)):
            recorder.state(name, Array("float64", (), struct.pack("=d", value)))


def watch(recorder: Recorder) -> Callable[[], None]:
    """Report the state after each step of any optimizer. Returns what ends that.

    Names: "optimizer.0.3.grad" is the gradient of the fourth parameter in the first group of the first optimizer that
    made a step; parameters that the optimizer was given by name have theirs. "entry.optimizer.0.3" is the parameter
    before the optimizer's first step.
    """
    state = _State(recorder)

    def before(optimizer: Any, *_: Any) -> None:
        state.entered(optimizer)

    def after(optimizer: Any, *_: Any) -> None:
        state.stepped(optimizer)

    for hook in (before, after):
        hook._torchdynamo_disable = True  # type: ignore[attr-defined]  # as in `steps`
    ends = [
        state.buffers.end,
        register_optimizer_step_pre_hook(before).remove,
        register_optimizer_step_post_hook(after).remove,
        _watch_backward(state),
        _watch_scalers(state),
    ]

    def end() -> None:
        for each in reversed(ends):
            each()

    return end


def _watch_backward(state: _State) -> Callable[[], None]:
    """Report what backward starts from. A backward inside another (checkpointing) starts from no loss."""
    plain = torch.autograd.backward
    depth = [0]

    @functools.wraps(plain)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if not depth[0]:
            for each in tensors if isinstance(tensors, (list, tuple)) else (tensors,):
                state.report("loss", each)
        depth[0] += 1
        try:
            return plain(tensors, *args, **kwargs)
        finally:
            depth[0] -= 1

    backward._torchdynamo_disable = True  # type: ignore[attr-defined]  # as in `steps`
    torch.autograd.backward = backward

    def end() -> None:
        depth[0] = 1  # where someone has wrapped ours meanwhile, it stays below and reports nothing
        if torch.autograd.backward is backward:
            torch.autograd.backward = plain

    return end


def _watch_scalers(state: _State) -> Callable[[], None]:
    """Report the scale of the loss where a gradient scaler makes a step."""
    kind: Any = getattr(torch.amp, "GradScaler", None)  # since 2.3
    plain = kind and vars(kind)["step"]
    if plain is None:
        return lambda: None

    @functools.wraps(plain)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        state.report("scaler.scale", getattr(self, "_scale", None))
        return plain(self, *args, **kwargs)

    kind.step = step

    def end() -> None:
        if vars(kind)["step"] is step:
            kind.step = plain

    return end


def _state(title: str, optimizer: Any) -> Iterator[tuple[str, Any]]:
    for place, group in enumerate(optimizer.param_groups):
        names = group.get("param_names") or ()
        for index, parameter in enumerate(group["params"]):
            name = names[index] if index < len(names) else f"{title}.{place}.{index}"
            yield name, parameter
            if parameter.grad is not None:
                yield f"{name}.grad", parameter.grad
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"{name}.{key}", value
        yield f"{title}.{place}.lr", group.get("lr")
