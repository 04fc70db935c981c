"""Seeds of the `random` module that a program sets, fixed. For experiments of the verifier only."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager

from detconf.frameworks.replaced import seeded_from


def fixed(numbers: Iterator[int]) -> AbstractContextManager[None]:
    """`random.seed` takes its seeds from `numbers`, also where it would take one from the system."""
    return seeded_from(numbers, (random, "seed"))
