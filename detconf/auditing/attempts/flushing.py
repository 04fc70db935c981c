"""Are subnormal numbers set to zero on one side? A mode of the processor that a program sets for the whole process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from detconf.auditing.meaning import COARSE, Split, close, numbers
from detconf.auditing.question import Finding, Question
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.shadows.formats import unit
from detconf.shadows.study import Value
from detconf.values import Cause

_SMALLEST = {"float32": 2.0**-126, "float64": 2.0**-1022, "bfloat16": 2.0**-126, "float16": 2.0**-14}
"""The smallest normal number by dtype."""


def subnormals_flushed(question: Question, parts: list[Split]) -> Finding | None:
    """One side has zeros where the other has numbers below the smallest normal one, and is otherwise the same."""
    for who, ours, theirs in (("candidate", question.real_a, question.real_b), ("reference", question.real_b, question.real_a)):
        pairs = [(numbers(ours[each.name]), numbers(theirs[each.name]), ours[each.name].dtype) for each in parts]
        if all(
            np.isrealobj(x) and x.shape == y.shape and np.array_equal(np.where(np.abs(x) < _SMALLEST.get(kind, 0.0), 0.0, x), y)
            for x, y, kind in pairs
        ):
            words = f"the {who} has zeros where the other side has subnormal numbers"
            proof = Proof("re-created", "the other side's results with their subnormal numbers set to zero are these, bit for bit", 1.0)
            fix = Fix("set torch.set_flush_denormal, or what else flushes subnormal numbers to zero, alike on both sides")
            return Finding(Cause.CONFIG, f"{words}: they are flushed to zero there", proof, [Evidence(words)], [fix], parts[0].name)
    return _flushed_inside(question, parts)


def _flushed_inside(question: Question, parts: list[Split]) -> Finding | None:
    """The same, of intermediate values: with them set to zero, the shadows give that side."""
    for who, side in (("candidate", question.b), ("reference", question.a)):
        own = [each.b if who == "candidate" else each.a for each in parts]
        if max((float(np.max(each.rough, initial=0.0)) for each in own), default=0.0) <= COARSE:
            continue
        observation = question.laboratory.study(side, keep_real=True)
        flushed = [value for value in (observation.study.values if observation else ()) if _lost_subnormals(value)]
        if not flushed:
            continue
        found = question.laboratory.study(side, amendments={value.index: _flush(value.dtype) for value in flushed})
        shadows = [found.known.get(each.name) for each in parts] if found else []
        if shadows and all(
            known is not None and close(part.real, known.shadow, part.noise) for part, known in zip(own, shadows, strict=True)
        ):
            words = f"the {who} has zeros where its values are subnormal numbers"
            proof = Proof("re-created", f"with {len(flushed)} intermediate values flushed to zero, the float64 shadows give the {who}")
            fix = Fix("set torch.set_flush_denormal, or what else flushes subnormal numbers to zero, alike on both sides")
            return Finding(Cause.CONFIG, words, proof, [Evidence(words, len(flushed))], [fix], parts[0].name)
    return None


def _lost_subnormals(value: Value) -> bool:
    """Zeros where the shadow is a number that the dtype holds, if only as a subnormal one."""
    smallest = _SMALLEST.get(value.dtype)
    if smallest is None or value.real is None or value.shadow is None or value.real.shape != value.shadow.shape:
        return False
    size = np.abs(value.shadow)
    return bool(np.any((np.asarray(value.real) == 0) & (size < smallest) & (size >= 4 * unit(value.dtype) * smallest)))


def _flush(dtype: str) -> Callable[[Any], Any]:
    return lambda shadow: np.where(np.abs(shadow) < _SMALLEST[dtype], 0.0, shadow)
