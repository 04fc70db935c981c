"""A side that computes with integers of eight bits in the place of floats: does that explain how far it is from the other side?

What happens inside such operations is not known. But the other side can be told to round the inputs of its products so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import numbers
from detconf.auditing.question import Finding, Question, Results
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.frameworks.base import PRODUCTS
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Operation
from detconf.values import Cause

_NAMED = "quantiz"
"""In the name of every operation that makes or takes such integers, in all frameworks."""
_LARGEST = 127.0
_AWAY = 8.0
"""Times the effect of that rounding. Scales are per tensor or per channel, symmetric or not, with seven bits or eight."""


def quantized(question: Question, names: Sequence[str]) -> Finding | None:
    """Is one side off by what rounding the inputs of the other side's products to eight bits does to it?"""
    for who, own, real, other, side in (
        ("candidate", question.exact_b, question.real_b, question.exact_a, question.a),
        ("reference", question.exact_a, question.real_a, question.exact_b, question.b),
    ):
        first = _first(own)
        if first is None or other is None or _first(other) is not None:
            continue
        rounded = question.laboratory.study(side, amendments=_amendments(other, names))
        shares = [_share(name, real, other, rounded) for name in names] if rounded else []
        if shares and all(share is not None and 1 / _AWAY**2 <= share <= _AWAY for share in shares):
            words = f"the {who} computes with integers of 8 bits ({first.name}), the other side with floats"
            worst = max(share for share in shares if share is not None)
            what = f"rounding the inputs of the other side's products to 8 bits moves it as far: the {who} is {worst:.2g} times that away"
            fix = Fix("compare with a tolerance for 8 bits, or both sides before quantization")
            return Finding(Cause.DTYPE, words, Proof("bounded", what), [Evidence(what, worst)], [fix], names[0], first)
    return None


def _first(observation: Observation | None) -> Operation | None:
    operations = observation.study.operations if observation else []
    return next((each for each in operations if _NAMED in each.name), None)


def _amendments(observation: Observation, names: Sequence[str]) -> dict[int, Callable[[Any], Any]]:
    """Of what the products towards results read: number of a value -> it rounded. A bias is added, and stays."""
    _, found = ancestors(observation.study, [observation.known[name].value for name in names if name in observation.known])
    products = (observation.study.operations[index] for index in found)
    return {
        read.value.index: _in_eight_bits for each in products if each.adds == PRODUCTS for read in each.reads if len(read.value.shape) > 1
    }


def _in_eight_bits(shadow: Any) -> Any:
    scale = float(np.max(np.abs(shadow), initial=0.0)) / _LARGEST
    return np.rint(shadow / scale) * scale if scale else shadow


def _share(name: str, real: Results, other: Observation, rounded: Observation) -> float | None:
    """How far a result is from the other side's shadow, in units of what the rounding does to that."""
    values = numbers(real[name])
    if values is None or name not in other.known or name not in rounded.known or other.known[name].shadow.size != values.size:
        return None
    shadow = other.known[name].shadow.reshape(values.shape)
    effect = _rms(rounded.known[name].shadow.reshape(values.shape) - shadow)
    return _rms(values - shadow) / effect if effect else None


def _rms(array: Any) -> float:
    return float(np.sqrt(np.mean(np.abs(array).astype(np.float64) ** 2)))
