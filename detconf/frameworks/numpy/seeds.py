"""Seeds that a program sets in NumPy, or lets NumPy take from the system, fixed. For experiments of the verifier only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from detconf.frameworks.replaced import replaced, seeded_from
from detconf.lookup import loaded


@contextmanager
def fixed(numbers: Iterator[int]) -> Iterator[None]:
    """`seed` and `default_rng` take their seeds from `numbers`, and so does every generator that is made without one.

    These ask `randbits` of the module `secrets`, which `numpy.random.bit_generator` keeps under its own name (NumPy 1.17 to 2.4).
    """
    random = loaded("numpy").random
    generators = random.bit_generator
    with seeded_from(numbers, (random, "seed"), (random, "default_rng")):
        if not hasattr(generators, "randbits"):
            yield
            return
        with replaced(generators, "randbits", lambda _bits: next(numbers)):
            yield
