"""Each operation of a side by itself: float64 on the very inputs that it had. Errors that it inherited do not count."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import COARSE, Split
from detconf.auditing.question import Question
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Operation, Value

_SINGLE = 2.0**-24
EXPLAINED = "every operation by itself errs by no more than its dtype's rounding; what all elements lost together is left where they cancel"


@dataclass(slots=True)
class Locally:
    """The local run of either side, made when it is first asked for."""

    question: Question
    _runs: dict[str, Observation | None] = field(default_factory=dict)

    def operations(self, who: str) -> list[Operation]:
        """What the side `who` ("reference" or "candidate") computed; nothing where it could not be followed."""
        found = self._run(who)
        return found.study.operations if found else []

    def explains(self, each: Split) -> bool:
        """Does every operation that leads to a result err by no more than its dtype's rounding?

        Then nothing but rounding is in the result, however it adds up on the way. Noise of independent elements does not
        show how much that may be: what a mean or a norm inside an operation has lost, all elements have lost together, and
        where those are summed again to (almost) nothing, that is what is left.
        """
        if max(each.a.floor, each.b.floor) > _SINGLE:  # casts to less may stand in other places
            return False
        sides = (("reference", each.a.rough), ("candidate", each.b.rough))
        return all(self._is_rounded(who, each.name) for who, rough in sides if float(np.max(rough, initial=0.0)) > COARSE)

    def _is_rounded(self, who: str, name: str) -> bool:
        found, real = self._run(who), self.question.real_a if who == "reference" else self.question.real_b
        if found is None or name not in found.known or found.arrays.get(name) != real[name]:  # compiled code runs otherwise there
            return False
        _, operations = ancestors(found.study, [found.known[name].value])
        return all(_is_own(found.study.operations[index]) for index in operations)

    def _run(self, who: str) -> Observation | None:
        if who not in self._runs:
            side = self.question.a if who == "reference" else self.question.b
            self._runs[who] = self.question.laboratory.study(side, local=True, keep_real=True)
        return self._runs[who]


def _is_own(operation: Operation) -> bool:
    """Is an operation's error known, and that of its dtype? One without an error moves, draws or chooses."""
    if any(value.lost for value in operation.writes):
        return False
    if operation.local is not None:
        return operation.local <= COARSE
    return operation.random or all(map(_is_exact, operation.writes))


def _is_exact(value: Value) -> bool:
    if value.shadow is None or value.real is None or value.real.shape != value.shadow.shape:
        return False
    return bool(np.array_equal(value.real, value.shadow.astype(value.real.dtype), equal_nan=value.real.dtype.kind in "fc"))
