"""What the Python process says of itself."""

from __future__ import annotations

import random
import sys
from array import array
from hashlib import blake2b
from typing import Any

from detconf.facts import start_environ


def hash_seed() -> str | None:
    """The hash seed in force, in the words of PYTHONHASHSEED; None when it is random.

    The interpreter reads the variable once. `-E` and `-I` make it ignore the variable, `-R` has no effect on a fixed
    seed; `sys.flags.hash_randomization` is 0 only for seed 0 (measured on 3.11).
    """
    seed = start_environ().get("PYTHONHASHSEED", "")
    if sys.flags.ignore_environment or seed in ("", "random"):
        return "random"
    return seed


class Generator:
    """The global generator of the `random` module."""

    def seed(self, seed: int) -> None:
        random.seed(seed)

    def state(self) -> Any:
        return random.getstate()

    def restore(self, state: Any) -> None:
        random.setstate(state)

    def fresh(self, seed: int) -> bool:
        return random.getstate() == random.Random(seed).getstate()

    def digest(self) -> str:
        version, words, following = random.getstate()
        return blake2b(array("L", words).tobytes() + repr((version, following)).encode(), digest_size=8).hexdigest()

    def glance(self) -> object:
        """The state itself: compared faster than it is hashed."""
        return random.getstate()


GENERATOR = Generator()
