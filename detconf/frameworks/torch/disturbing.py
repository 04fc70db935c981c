"""A program whose results are off by roundings: which of its choices are then made otherwise?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from detconf.frameworks.torch import whole
from detconf.frameworks.torch.operations import collect, results, written
from detconf.frameworks.torch.shadow_noise import Noise
from detconf.frameworks.torch.shadow_plans import Plan, plan
from detconf.frameworks.torch.shadow_tensors import floats, name_of
from detconf.shadows.formats import unit

_INPUT, _OUTPUT = 0.6, 0.4
"""Shares of what is read and of what is computed, as in noise runs of a study."""


@contextmanager
def disturbing(seed: int, units: float) -> Iterator[None]:
    """Inside, what an operation reads and computes is multiplied by 1 + `units` u N: u the unit roundoff of its dtype, N normal.

    What only moves or draws numbers, and what comes from outside, is left as it is. The program's generators are not used.
    """
    with _Disturbing(Noise(seed), units):
        yield


class _Disturbing(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed for us
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import Dynamo

    def __init__(self, noise: Noise, units: float) -> None:
        super().__init__()
        self._noise, self._units = noise.on, units
        self._plans: dict[Any, Plan] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        found = self._plans.get(function)
        if found is None:
            found = self._plans[function] = plan(function)
        kwargs, operation = kwargs or {}, found.operation
        tensors: list[Any] = []
        collect((*args, *kwargs.values()), tensors)
        if found.view or found.moves or operation.random or operation.empty or not any(floats(each.dtype) for each in tensors):
            return whole.run(function, tensors, args, kwargs)
        targets = [each for each in written(operation, args, kwargs) if self._disturbs(each)]
        before, kept = [each.clone() for each in targets], {id(each) for each in targets}
        args = tuple(self._off(each, kept) for each in args)
        result = whole.run(function, tensors, args, {name: self._off(each, kept) for name, each in kwargs.items()})
        # Running statistics are declared as written, and are not in evaluation mode: what the program keeps must stay.
        changed = [each for each, was in zip(targets, before, strict=True) if not torch.equal(each, was)]
        for each in (*changed, *(each for each in results(operation, result) if self._disturbs(each))):
            each.copy_(self._disturbed(each, _OUTPUT))
        return result

    def _off(self, value: Any, kept: set[int]) -> Any:
        """An argument that is read, off by roundings too: what cancels inside an operation shows there."""
        if type(value) in (list, tuple):
            return type(value)(self._off(each, kept) for each in value)
        return self._disturbed(value, _INPUT) if id(value) not in kept and self._disturbs(value) else value

    def _disturbs(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and floats(value.dtype) and value.layout is torch.strided and not value.is_quantized

    def _disturbed(self, tensor: Any, share: float) -> Any:
        wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
        return self._noise(wide, share * self._units * unit(name_of(tensor.dtype))).to(tensor.dtype)
