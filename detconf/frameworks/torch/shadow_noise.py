"""Noise for shadows of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from detconf.frameworks.torch.shadow_tensors import extent, from_numpy, on_numbers
from detconf.shadows.normals import Normals


class Noise:
    """The noise of one study."""

    def __init__(self, seed: int) -> None:
        self._normals = Normals(seed)

    def on(self, shadow: Any, scale: float) -> Any:
        """A copy, each element times (1 + scale N)."""
        if shadow.layout is not torch.strided or shadow.is_nested:
            return on_numbers(shadow, lambda each: self.on(each, scale))
        noise = from_numpy(self._normals.stretch(shadow.numel())).to(shadow.device)
        if shadow.is_contiguous():
            noise = noise.view(shadow.shape)
        else:  # in the order of the memory where that has no gaps: one pass over both
            low, high = extent(shadow)
            dense = high - low == shadow.numel()
            noise = noise.as_strided(shadow.shape, shadow.stride()) if dense else noise.view(shadow.shape)
        return shadow * (1.0 + scale * noise) if shadow.is_complex() else torch.addcmul(shadow, shadow, noise, value=scale)


def noise_of(seed: int | None) -> Callable[[Any, float], Any] | None:
    """`Noise.on` with a seed; None for none."""
    return None if seed is None else Noise(seed).on
