"""Why some rungs of a ladder differ: data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from detconf.auditing.result import Evidence, Fix, Proof, Tolerance
from detconf.comparison import Divergence
from detconf.values import Cause

_SERIOUS = (
    Cause.RACE,
    Cause.OVERFLOW,
    Cause.SEMANTICS,
    Cause.MODE,
    Cause.CONFIG,
    Cause.RNG,
    Cause.DTYPE,
    Cause.UNKNOWN,
    Cause.ILL_CONDITIONED,
)


@dataclass(slots=True)
class Verdict:
    """Why some rungs differ.

    Attributes:
        summary: one sentence.
        where: the result that differs, named after the operation where one was found.
        tried: trials that showed nothing.
    """

    cause: Cause
    summary: str
    where: Divergence | None = None
    evidence: list[Evidence] = field(default_factory=list)
    proof: Proof | None = None
    fixes: list[Fix] = field(default_factory=list)
    unexamined: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    tolerance: list[Tolerance] = field(default_factory=list)


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The one that matters most: what is not rounding first."""
    return min(verdicts, key=lambda each: _SERIOUS.index(each.cause) if each.cause in _SERIOUS else len(_SERIOUS))
