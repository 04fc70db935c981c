"""Normal numbers for noise, from one block for all: drawing them anew for every operation costs more than all the rest of a noise run."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

_BLOCK = 1 << 18
"""Numbers of the smallest block: two megabytes, which stay in the cache of a processor."""
_PERIOD = (1 << 21) - 9
"""After so many, they come again. A prime, so that the rows of no array get the same noise."""


class Normals:
    """Standard normal numbers. Each call gives a stretch of the block that begins at a place drawn at random.

    Args:
        seed: of the places.
    """

    def __init__(self, seed: int) -> None:
        self._places = random.Random(seed)

    def stretch(self, count: int) -> Any:
        """`count` numbers, float64; they belong to all, and nobody may write to them."""
        if count > _PERIOD:
            return np.resize(self.stretch(_PERIOD), count)
        block = _block(max(_BLOCK, 1 << max(2 * count - 1, 0).bit_length()))
        place = self._places.randrange(block.size - count + 1)
        return block[place : place + count]

    def standard_normal(self, shape: int | Sequence[int]) -> Any:
        """As `numpy.random.Generator` gives them."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        return self.stretch(math.prod(sizes)).reshape(sizes)


_drawn: list[Any] = [np.empty(0)]


def _block(size: int) -> Any:
    """The block; a longer one begins with the same numbers."""
    if _drawn[0].size < size:
        _drawn[0] = np.random.Generator(np.random.PCG64(0)).standard_normal(size)
    return _drawn[0][:size]
