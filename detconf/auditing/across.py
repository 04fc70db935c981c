"""`audit` of two recordings with values, made anywhere: what their operations computed says why the results differ.

There are no shadows: the values of both sides carry their own rounding. So values are found in the other recording to
single precision's tolerance, and each operation is judged on its own recorded inputs (`recomputing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from detconf import facts
from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import COARSE
from detconf.auditing.question import Finding, pool
from detconf.auditing.recomputing import Again, again, contracts, explained
from detconf.auditing.recorded import observed
from detconf.auditing.result import Audit, Evidence, Fix, Proof
from detconf.comparison import Divergence, diverge
from detconf.errors import TargetError
from detconf.shadows.formats import ROUNDINGS, round_to
from detconf.shadows.regions import Region, ancestors, plain, region
from detconf.shadows.study import Operation, Value
from detconf.values import Cause

_TOLERANCE = 1e-5
"""At which values of two machines count as the same."""


@dataclass(slots=True)
class _Pair:
    """Both recordings.

    Attributes:
        a, b: reference and candidate.
        differing: results whose bytes differ.
        unexamined: what could not be looked at.
    """

    a: Observation
    b: Observation
    differing: list[str]
    unexamined: list[str]


def audit_recordings(a: str, b: str) -> Audit:
    """Say why the results of two recordings differ.

    Args:
        a, b: paths of recordings made with values.

    Raises:
        DetconfError: one cannot be read.
        TargetError: one holds no values, or they have no results in common.
    """
    ours, theirs = observed(a), observed(b)
    names = [name for name in ours.arrays if name in theirs.arrays]
    if not names:
        msg = f"nothing was compared: {a} holds {sorted(ours.arrays)}, {b} holds {sorted(theirs.arrays)}. Publish the same names in both."
        raise TargetError(msg)
    pair = _Pair(ours, theirs, [name for name in names if ours.arrays[name] != theirs.arrays[name]], [])
    finding = _find(pair) if pair.differing else _equal(names)
    return Audit(
        reference=a,
        candidate=b,
        cause=finding.cause,
        summary=finding.summary,
        where=_where(pair, finding),
        evidence=tuple(finding.evidence),
        proof=finding.proof,
        fixes=tuple(finding.fixes),
        unexamined=tuple(dict.fromkeys(pair.unexamined)),
        environment=facts.gather().to_dict(),
    )


def _equal(names: list[str]) -> Finding:
    words = f"{len(names)} results, every byte equal"
    return Finding(Cause.EQUAL, words, Proof("bounded", "bytes compared", 1.0), [Evidence(words, len(names))])


def _find(pair: _Pair) -> Finding:
    for attempt in (_drawn, _entered, _imprecise, _parted, _rounded):
        found = attempt(pair)
        if found is not None:
            return found
    return Finding(Cause.UNKNOWN, "the recorded values do not show a cause", None, [], [])


def _region(pair: _Pair) -> Region:
    """The candidate's operations, towards the differing results, whose results the reference has nowhere."""
    return region(pair.b.study, [pair.b.known[name] for name in pair.differing if name in pair.b.known], pool(pair.a, _TOLERANCE))


def _leading(observation: Observation, names: list[str]) -> Iterator[Operation]:
    """The operations that the results were computed by, in order."""
    _, operations = ancestors(observation.study, [observation.known[name].value for name in names if name in observation.known])
    yield from (observation.study.operations[index] for index in sorted(operations))


def _drawn(pair: _Pair) -> Finding | None:
    first = next((each for each in _region(pair).sources if each.random), None)
    if first is None:
        return None
    words = f"{first.name} drew other numbers than anything in the reference"
    fix = Fix("give both sides the same generator state, or the same numbers")
    return Finding(
        Cause.RNG, words, Proof("bounded", "what it read is equal, and what it drew is not"), [Evidence(words)], [fix], operation=first
    )


def _entered(pair: _Pair) -> Finding | None:
    """What went in differs."""
    ours = pool(pair.a, _TOLERANCE)
    leaves = [value for value in _region(pair).leaves if value.shadow is not None and not plain(value.shadow)]
    values = {value.index: value for value in pair.a.study.values}
    for leaf in leaves:
        for other in ours.find(leaf.shadow, ordered=False):
            if values[other.index].shadow is not None and not ours.find(leaf.shadow):
                words = f"an input of shape {list(leaf.shape)} holds the reference's elements in another order"
                return Finding(
                    Cause.LAYOUT, words, Proof("bounded", "its elements, sorted, are those of the reference"), [Evidence(words)], []
                )
        form = _rounding(leaf, pair)
        if form:
            words = f"an input of shape {list(leaf.shape)} is the reference's, rounded to {form}"
            return Finding(Cause.DTYPE, words, Proof("re-created", "rounding gives it bit for bit", 1.0), [Evidence(words)], [])
    if leaves:
        pair.unexamined.append(
            f"what goes in differs: {len(leaves)} inputs of the candidate are nowhere in the reference, to {_TOLERANCE:g}"
        )
        return Finding(Cause.UNKNOWN, "the inputs differ, so that the results say nothing of the computation", None, [], [])
    return None


def _rounding(leaf: Value, pair: _Pair) -> str:
    for value in pair.a.study.values:
        if (
            value.shadow is not None
            and value.shadow.shape == leaf.shadow.shape
            and value.shadow.dtype.kind == leaf.shadow.dtype.kind == "f"
        ):
            for form in ROUNDINGS:
                if np.array_equal(round_to(value.shadow, form), leaf.shadow) and not np.array_equal(value.shadow, leaf.shadow):
                    return form
    return ""


def _imprecise(pair: _Pair) -> Finding | None:
    """An operation whose error, on its own inputs, is that of another arithmetic."""
    for who, observation in (("candidate", pair.b), ("reference", pair.a)):
        for operation in _leading(observation, pair.differing):
            found = again(operation) if contracts(operation.name) else None
            if found is not None and found.ratio > COARSE:
                return _coarse(who, operation, found)
    return None


def _coarse(who: str, operation: Operation, found: Again) -> Finding:
    left = explained(operation, found.form) if found.form else found.ratio
    words = f"the {who}'s {operation.name} is {found.ratio:.3g} units of rounding noise away from its float64 result on the same inputs"
    evidence = [Evidence(words, found.ratio)]
    if left <= COARSE and left < found.ratio / 8:
        what = f"with its recorded inputs rounded to {found.form}, the same product gives its result to {left:.3g} units of rounding noise"
        summary = f"the {who}'s {operation.name} rounds its inputs to {found.form}"
        evidence.append(Evidence(what, left))
        fix = Fix("turn reduced-precision products off on that machine (detconf's profile strict does), and record again")
        return Finding(Cause.DTYPE, summary, Proof("re-created", what), evidence, [fix], operation=operation)
    what = "its float64 result on the very same inputs is that far away"
    return Finding(Cause.DTYPE, words, Proof("bounded", what), evidence, [Fix("compute it in a higher precision")], operation=operation)


def _parted(pair: _Pair) -> Finding | None:
    """An operation that reads what the reference has, is right by itself, and gives what the reference has nowhere."""
    found = _region(pair)
    for operation in found.sources:
        alone = again(operation)
        if alone is None:
            pair.unexamined.append(
                f"{operation.name} ({operation.source or 'line unknown'}): detconf cannot compute it again from a recording"
            )
            continue
        if alone.ratio <= COARSE:
            words = f"{operation.name} reads what the reference has as well, and computes something that the reference never has"
            right = Evidence("its error, in units of rounding noise, on its own recorded inputs", alone.ratio)
            proof = Proof("bounded", f"it is right by itself, and its result is nowhere in the reference to {_TOLERANCE:g}")
            summary = f"the sides compute different formulas from {operation.name} on"
            return Finding(Cause.SEMANTICS, summary, proof, [Evidence(words), right], [], operation=operation)
    return None


def _rounded(pair: _Pair) -> Finding | None:
    """Every value of the candidate is one of the reference's, and every known operation of both is as good as its dtype allows."""
    if _region(pair).operations:
        return None
    worst, known, unknown = 0.0, 0, 0
    for observation in (pair.a, pair.b):
        for operation in _leading(observation, pair.differing):
            found = again(operation)
            known += found is not None
            unknown += found is None
            worst = max(worst, found.ratio if found else 0.0)
    if worst > COARSE or not known:
        return None
    if unknown:
        pair.unexamined.append(f"{unknown} operations cannot be computed again from a recording; their results agree to {_TOLERANCE:g}")
    evidence = [
        Evidence("largest own error of an operation on its recorded inputs, in units of rounding noise", worst),
        Evidence(f"operations computed again in float64: {known}", known),
    ]
    proof = Proof(
        "bounded", f"every value of the candidate is in the reference to {_TOLERANCE:g}, and no operation errs by more than rounding does"
    )
    return Finding(Cause.ROUNDING, "the same values, rounded in another order or by other kernels", proof, evidence, [])


def _where(pair: _Pair, finding: Finding) -> Divergence | None:
    if not pair.differing:
        return None
    name = pair.differing[0]
    found = diverge(name, pair.a.arrays[name], pair.b.arrays[name])
    at: Any = finding.operation
    return found if found is None or at is None else replace(found, name=at.name, scope=name, source=at.source, step=at.step)
