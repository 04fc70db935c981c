"""Noise for shadows, from one block of normal numbers: drawing them anew for every operation costs more than all the rest."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from detconf.frameworks.torch.shadow_tensors import extent, on_numbers

_BLOCK = 1 << 18
"""Numbers of the first block: two megabytes, which stay in the cache of a processor."""


class Noise:
    """The noise of one study. Each call takes a stretch of the block that begins at a place drawn at random.

    Args:
        seed: of the block and of the places.
    """

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._places = random.Random(seed)
        self._block = torch.empty(0, dtype=torch.float64)

    def on(self, shadow: Any, scale: float) -> Any:
        """A copy, each element times (1 + scale N)."""
        if shadow.layout is not torch.strided or shadow.is_nested:
            return on_numbers(shadow, lambda each: self.on(each, scale))
        noise = self._normal(shadow.numel()).to(shadow.device)
        if shadow.is_contiguous():
            noise = noise.view(shadow.shape)
        else:  # in the order of the memory where that has no gaps: one pass over both
            low, high = extent(shadow)
            dense = high - low == shadow.numel()
            noise = noise.as_strided(shadow.shape, shadow.stride(), noise.storage_offset()) if dense else noise.view(shadow.shape)
        return shadow * (1.0 + scale * noise) if shadow.is_complex() else torch.addcmul(shadow, shadow, noise, value=scale)

    def _normal(self, count: int) -> Any:
        if 2 * count > self._block.numel():
            # Float32 is drawn four times as fast, and its digits are enough.
            size = max(_BLOCK, 1 << (2 * count - 1).bit_length())
            self._block = torch.randn(size, generator=self._generator).to(torch.float64)
        place = self._places.randrange(self._block.numel() - count + 1)
        return self._block[place : place + count]


def noise_of(seed: int | None) -> Callable[[Any, float], Any] | None:
    """`Noise.on` with a seed; None for none."""
    return None if seed is None else Noise(seed).on
