"""The state at the end of each optimizer step of Paddle, reported to a recorder.

The loss that backward started from, parameters, their gradients, what the optimizer keeps, and its learning rate; before
the first step of an optimizer, what it was given and had kept.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import paddle

from detconf.arrays import Array
from detconf.digests import ENTRY, NOTHING, Flag
from detconf.frameworks.paddle import contents
from detconf.frameworks.paddle.contents import collect, describe
from detconf.frameworks.paddle.references import References
from detconf.frameworks.paddle.steps import watch_optimizers

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder


def watch(recorder: Recorder) -> Callable[[], None]:
    """Report the state after each step of any optimizer. Returns what ends that.

    Names: "optimizer.3.grad" is the gradient of the fourth parameter of the first optimizer that made a step, "optimizer1"
    the second; Paddle's own names count up from one model to the next, so that a rerun would have others. "entry.optimizer.3"
    is the parameter before the optimizer's first step.
    """
    numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def report(optimizer: Any, prefix: str = "") -> None:
        number = numbers.setdefault(optimizer, len(numbers))
        for name, tensor in _state(f"optimizer{number or ''}", optimizer):
            if not (prefix and name.endswith(".grad")):
                _report(recorder, prefix + name, tensor)

    def entered(optimizer: Any) -> None:
        if optimizer not in numbers:
            report(optimizer, ENTRY)

    references = References()
    plain = vars(paddle.Tensor)["backward"]

    @functools.wraps(plain)
    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        _report(recorder, "loss", self)
        return plain(self, *args, **kwargs)

    references.put_attribute(paddle.Tensor, "backward", backward)
    undo = watch_optimizers(report, entered)

    def end() -> None:
        undo()
        references.back()

    return end


def _report(recorder: Recorder, name: str, tensor: Any) -> None:
    if not recorder.active:
        return
    if isinstance(tensor, float):
        recorder.state(name, Array("float64", (), struct.pack("=d", tensor)))
        return
    digest, layout = describe(tensor)
    flags = Flag.STATE | (Flag.SKIPPED if digest == NOTHING else 0)
    kept = ((), (contents.array(tensor),)) if recorder.keeping else None
    recorder.operation(name, (), (digest,), (layout,), flags=flags, values=kept)


def _state(title: str, optimizer: Any) -> Iterator[tuple[str, Any]]:
    optimizer = getattr(optimizer, "inner_opt", None) or optimizer  # LookAhead and other wrappers
    parameters = list(_parameters(optimizer))
    named = {parameter.name: f"{title}.{index}" for index, parameter in enumerate(parameters)}
    for parameter in parameters:
        name = named[parameter.name]
        yield name, parameter
        if parameter.grad is not None:
            yield f"{name}.grad", parameter.grad
    for kind, kept in sorted(getattr(optimizer, "_accumulators", {}).items()):
        for owner, tensor in kept.items():
            if isinstance(tensor, paddle.Tensor):
                yield f"{named.get(owner, f'{title}.{owner}')}.{kind}", tensor
    for owner, tensor in getattr(optimizer, "_master_weights", {}).items():
        yield f"{named.get(owner, f'{title}.{owner}')}.master", tensor
    rate = getattr(optimizer, "_learning_rate", None)
    if rate is not None:
        yield f"{title}.lr", float(rate() if callable(rate) else rate)


def _parameters(optimizer: Any) -> Iterator[Any]:
    for each in getattr(optimizer, "_parameter_list", None) or ():
        found: list[Any] = []
        collect(each["params"] if isinstance(each, dict) else each, found)
        yield from found
