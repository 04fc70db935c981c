"""The two modes of PyTorch that a study puts into every thread: one sees operations, one the numbers that Python passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from detconf.shadows.number import Numbers

_PLAIN = torch.Tensor.__torch_dispatch__
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_Run = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]


class Shadows(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed for us
    """Hands every operation to `run`."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import Dynamo; `shadow_ground` sees to it that nothing here is compiled

    def __init__(self, run: _Run) -> None:
        super().__init__()
        self.run = run

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if types and any(each.__torch_dispatch__ is not _PLAIN for each in types):
            if any(hasattr(each, "_mode_key") for each in types):
                return function(*args, **kwargs or {})  # a program is being captured: nothing is computed
            return NotImplemented  # a subclass takes itself apart first
        if torch._C._get_dispatch_mode(_FAKE) is not None:
            return function(*args, **kwargs or {})
        return self.run(function, args, kwargs or {})


class Passing(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed for us
    """Sees the numbers that are given to functions. When they are dispatched, they are plain floats."""

    def __init__(self, numbers: Numbers) -> None:
        super().__init__()
        self.numbers = numbers

    def __torch_function__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if isinstance(function, torch._ops.OpOverload):  # called by a mode
            return function(*args, **kwargs or {})
        with self.numbers.passing(args, kwargs or {}):
            return function(*args, **kwargs or {})


@contextmanager
def modes(numbers: Numbers, run: _Run) -> Iterator[None]:
    """Both, in this thread."""
    with Passing(numbers), Shadows(run):
        yield
