"""Seeds that a program sets in PyTorch, or lets it take from the system, fixed. For experiments of the verifier only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from detconf.frameworks.replaced import replaced, seeded_from
from detconf.lookup import loaded


@contextmanager
def fixed(numbers: Iterator[int]) -> Iterator[None]:
    """`manual_seed` takes its seeds from `numbers`, and so does `seed`, which returns what it took."""
    torch = loaded("torch")
    plain = torch.manual_seed

    def seed() -> int:
        number = next(numbers)
        plain(number)
        return number

    with ExitStack() as stack:
        for owner in (torch, torch.random):
            stack.enter_context(seeded_from(numbers, (owner, "manual_seed")))
            stack.enter_context(replaced(owner, "seed", seed))
        yield
