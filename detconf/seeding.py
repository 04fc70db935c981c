"""Seeds anew, between two uses of a profile: for tests, each of which starts from the same generators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from detconf.access import Rng
from detconf.judge import is_loaded
from detconf.lookup import Missing
from detconf.plan import Step


def seed(steps: Sequence[Step]) -> None:
    """Seed every generator that `steps` name and that is here; the others are seeded when they are imported."""
    for step in _generators(steps):
        with suppress(Missing, AttributeError):  # the attestation has a row for a generator that this build lacks
            step.knob.access.write(step.wanted)


@contextmanager
def aside(steps: Sequence[Step]) -> Iterator[None]:
    """Generators start from their seeds in the block and are afterwards where they were before it.

    One that is imported inside the block is seeded at its end: nobody had drawn from it before.
    """
    saved = [(step, _save(step)) for step in _generators(steps)]
    seed(steps)
    try:
        yield
    finally:
        known = {step.knob.name for step, _ in saved}
        seed([step for step in steps if step.knob.name not in known])
        for step, state in saved:
            if state is not None:
                step.knob.access.load(state)


def _save(step: Step) -> Any:
    try:
        return step.knob.access.save()
    except (Missing, AttributeError):
        return None


def _generators(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if isinstance(step.knob.access, Rng) and is_loaded(step.knob)]
