"""What a verdict says of the comparison that it answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from detconf.auditing.assertions.comparisons import Comparison
from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import numbers
from detconf.auditing.result import Audit, Evidence, Tolerance
from detconf.values import Cause


def labels(met: Comparison) -> tuple[str, str]:
    """(reference, candidate) in words."""
    reference, candidate = met.desired or "the desired operand", met.actual or "the actual operand"
    if reference == candidate:
        reference, candidate = f"{reference} (desired)", f"{candidate} (actual)"
    return f"{reference} at {met.place}", f"{candidate} at {met.place}"


def told(found: Audit, met: Comparison, whole: Observation) -> Audit:
    """A verdict on the operands, with what is known of the comparison.

    Args:
        found: the verdict.
        met: that fails.
        whole: both operands.
    """
    words = f"{met.place}: {met.text} fails"
    words = words if not met.message else f"{words}: {met.message}"
    cause, summary, proof = found.cause, found.summary, found.proof
    if found.equal:  # types, devices or NaN are compared too
        cause, summary, proof = Cause.UNKNOWN, "the operands are equal in every byte: the comparison fails by something else", None
    evidence = (Evidence(words), *found.evidence)
    return replace(found, cause=cause, summary=summary, proof=proof, evidence=evidence, used=_used(met, found, whole))


def _used(met: Comparison, found: Audit, whole: Observation) -> str:
    """One sentence on the tolerance of the comparison."""
    rtol, atol = met.rtol, met.atol
    if rtol is None or atol is None:
        return ""
    for each in found.tolerance:
        words = _against(each, rtol, atol, whole)
        if words:
            return f"{met.function} at {met.place} uses rtol={rtol:g} atol={atol:g}: {words}"
    return ""


def _against(each: Tolerance, rtol: float, atol: float, whole: Observation) -> str:
    array = whole.arrays.get(f"desired/{each.name}")
    size: Any = numbers(array) if array is not None else None
    if size is None or not size.size:
        return ""
    size = np.abs(size).astype(np.float64)
    short = int(np.sum(atol + rtol * size < each.atol + each.rtol * size))
    bound = f"the bound of a correct computation (rtol={each.rtol:.1e} atol={each.atol:.1e})"
    if short:
        return f"under {bound} for {short:,} of {size.size:,} elements, so that a correct program may fail it by rounding alone"
    return f"above {bound}: rounding alone does not fail it"
