"""Seeds that a program sets in Paddle, fixed. For experiments of the verifier only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from detconf.frameworks.replaced import seeded_from
from detconf.lookup import loaded


def fixed(numbers: Iterator[int]) -> AbstractContextManager[None]:
    """`paddle.seed` takes its seeds from `numbers`."""
    return seeded_from(numbers, (loaded("paddle"), "seed"))
