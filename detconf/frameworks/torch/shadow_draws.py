"""Random operations: the states of their generators, noted and set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from detconf.frameworks.torch.operations import collect
from detconf.frameworks.torch.shadow_tensors import from_numpy, to_numpy
from detconf.shadows.study import Study

_QUIET = ("dropout_p", "train", "training", "dropout")
"""Arguments by which an operation that can draw draws nothing."""


def idle(bound: Mapping[Any, Any]) -> bool:
    """Does an operation that can draw draw nothing with these arguments?"""
    return any(bound.get(name) is not None and not bound[name] for name in _QUIET)


class Draws:
    """The draws of one study."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._fixed: dict[str, bytes] = {}

    def begin(self, arguments: Iterable[Any], device: Any) -> bytes:
        """Before a random operation: its generator's state, set to another one where that was asked for.

        Args:
            arguments: the operation's.
            device: where its results will be, if that is an argument.
        """
        given = list(arguments)
        generator = next((each for each in given if isinstance(each, torch.Generator)), None) or _default(given, device)
        kind = str(generator.device)
        if kind not in self._fixed:
            self._fixed[kind] = to_numpy(torch.Generator(device=generator.device).manual_seed(0).get_state()).tobytes()
        state: bytes = to_numpy(generator.get_state()).tobytes()
        wanted = self.study.drawing(self._fixed[kind])
        if wanted is None:
            return state
        generator.set_state(from_numpy(np.frombuffer(bytes(wanted), np.uint8).copy()))
        return bytes(wanted)


def _default(arguments: list[Any], device: Any) -> Any:
    tensors: list[Any] = []
    collect(arguments, tensors)
    place = tensors[0].device if tensors else torch.device(device or "cpu")
    if place.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device() if place.index is None else place.index]
    return torch.default_generator
