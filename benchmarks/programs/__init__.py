"""Small programs with a planted cause, drawn from a seed: `draw` gives one that was seen to be true."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from programs import amplified, benign, formulas, orders, precise, resumed, streams
from programs.program import Plant, Program
from programs.truth import refuted

FAMILIES: dict[str, list[Plant]] = {
    "equal": benign.EQUAL,
    "rounding": benign.ROUNDING,
    "ill-conditioned": amplified.ILL_CONDITIONED,
    "dtype": precise.DTYPE,
    "semantics": formulas.SEMANTICS,
    "layout": orders.LAYOUT,
    "rng": streams.RNG,
    "mode": streams.MODE,
    "state": resumed.STATE,
    "overflow": precise.OVERFLOW,
    "config": resumed.CONFIG,
}
_SWAPS = {"rounding", "ill-conditioned", "dtype", "semantics", "layout", "overflow"}
_ATTEMPTS = 40


def sketch(seed: int, family: str, index: int, attempt: int) -> Program:
    """One draw, not yet examined."""
    rng = Random(f"{seed}/{family}/{index}/{attempt}")
    made = rng.choice(FAMILIES[family])(rng)
    return replace(made, swapped=family in _SWAPS and rng.random() < 0.3)


def draw(seed: int, family: str, index: int) -> tuple[Program, list[tuple[str, str]]]:
    """The first draw that holds, and (name, why not) of those before it.

    Raises:
        RuntimeError: none of many held.
    """
    refused: list[tuple[str, str]] = []
    for attempt in range(_ATTEMPTS):
        program = sketch(seed, family, index, attempt)
        why = refuted(program)
        if not why:
            return program, refused
        refused.append((program.name, why))
    msg = f"{family}, program {index} of seed {seed}: nothing that was drawn holds: {refused}"
    raise RuntimeError(msg)
