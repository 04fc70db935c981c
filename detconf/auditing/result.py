"""What an audit found. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from detconf.comparison import Divergence
from detconf.values import Cause, Printable


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was measured.

    Attributes:
        statement: in words, figures included.
        figure: the number it rests on; None where there is none.
    """

    statement: str
    figure: float | int | str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"statement": self.statement, "figure": _finite(self.figure)}


@dataclass(frozen=True, slots=True)
class Proof:
    """How a cause was shown.

    Attributes:
        kind: "re-created" (the other side's results came out), "removed" (a repair made the difference go away) or
            "bounded" (each side's error lies within what its arithmetic allows).
        what: what was done.
        share: of the elements for which it holds bit for bit; None where that is no question.
    """

    kind: str
    what: str
    share: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "what": self.what, "share": self.share}


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do.

    Attributes:
        text: in words.
        verified: it was applied here and the difference went away.
        cost: what it costs, where that was measured.
    """

    text: str
    verified: bool = False
    cost: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "verified": self.verified, "cost": self.cost}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a correct program keeps for one array: |a - b| <= atol + rtol |a|.

    Attributes:
        name: of the array.
        rtol, atol: the bound, from what rounding noise does to both sides.
        measured: the largest |a - b| / (atol + rtol |a|); below 1 where the two sides keep it.
    """

    name: str
    rtol: float
    atol: float
    measured: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "rtol": _finite(self.rtol), "atol": _finite(self.atol), "measured": _finite(self.measured)}


@dataclass(frozen=True, slots=True)
class Rung:
    """One graph mode of a ladder.

    Attributes:
        name: of the mode.
        status: "equal", "differs", "failed" or "absent".
        note: why, or how much.
    """

    name: str
    status: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "status": self.status, "note": self.note}


@dataclass(frozen=True, kw_only=True)
class Audit(Printable):
    """Why two sides differ.

    Attributes:
        reference, candidate: what was run, in words.
        cause: `unknown` where nothing was proved.
        summary: one sentence.
        where: the result that differs, named after the operation where the sides part if one was found.
        evidence: what was measured.
        proof: how the cause was shown; None for `unknown`.
        fixes: the verified ones first.
        unexamined: what could not be looked at, and how it can be.
        tried: experiments that showed nothing.
        tolerance: per array.
        used: one sentence on a tolerance that someone used; empty for none.
        rungs: graph modes, where a ladder was climbed.
        environment: facts of this process.
    """

    reference: str
    candidate: str
    cause: Cause
    summary: str = ""
    where: Divergence | None = None
    evidence: tuple[Evidence, ...] = ()
    proof: Proof | None = None
    fixes: tuple[Fix, ...] = ()
    unexamined: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    tolerance: tuple[Tolerance, ...] = ()
    used: str = ""
    rungs: tuple[Rung, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Every byte is."""
        return self.cause is Cause.EQUAL

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "detconf.audit/1",
            "reference": self.reference,
            "candidate": self.candidate,
            "equal": self.equal,
            "cause": str(self.cause),
            "summary": self.summary,
            "where": self.where and self.where.to_dict(),
            "evidence": [each.to_dict() for each in self.evidence],
            "proof": self.proof and self.proof.to_dict(),
            "fixes": [each.to_dict() for each in self.fixes],
            "unexamined": list(self.unexamined),
            "tried": list(self.tried),
            "tolerance": {"arrays": [each.to_dict() for each in self.tolerance], "used": self.used},
            "rungs": [each.to_dict() for each in self.rungs],
            "environment": dict(self.environment),
        }


def _finite(number: float | str | None) -> float | int | str | None:
    """JSON has no infinity and no NaN."""
    return str(number) if isinstance(number, float) and number - number != 0 else number
