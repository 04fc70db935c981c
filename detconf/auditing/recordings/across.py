"""`audit` of two recordings with values, made anywhere: what their operations computed says why the results differ.

There are no shadows: the values of both sides carry their own rounding. So values are found in the other recording to
single precision's tolerance, and each operation is judged on its own recorded inputs (`recomputing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from detconf import facts
from detconf.auditing import tolerances
from detconf.auditing.laboratory import Observation
from detconf.auditing.meaning import AMPLIFIED, COARSE
from detconf.auditing.question import Finding
from detconf.auditing.recordings.drops import drawn
from detconf.auditing.recordings.narrow import coarser, overflowed
from detconf.auditing.recordings.rearranged import overran, rearranged
from detconf.auditing.recordings.recomputing import Again, again, explained, reading, result
from detconf.auditing.recordings.recorded import last, observed
from detconf.auditing.recordings.recorded_pair import TOLERANCE, RecordedPair, near
from detconf.auditing.recordings.reforming import reformed
from detconf.auditing.recordings.sampling import sampled
from detconf.auditing.recordings.undropping import undropped
from detconf.auditing.result import Audit, Evidence, Fix, Proof
from detconf.auditing.sums.orders import recorded
from detconf.comparison import Divergence, diverge
from detconf.errors import TargetError
from detconf.frameworks.base import PRODUCTS
from detconf.lookup import first_line
from detconf.shadows.formats import ROUNDINGS, round_to
from detconf.shadows.regions import plain
from detconf.shadows.study import Operation, Study, Value
from detconf.values import Cause


def audit_recordings(a: str, b: str) -> Audit:
    """Say why the results of two recordings differ.

    Args:
        a, b: paths of recordings made with values.

    Raises:
        DetconfError: one cannot be read.
        TargetError: one holds no values, or they have no results in common.
    """
    ours, theirs = observed(a), observed(b)
    if not ours.arrays.keys() & theirs.arrays.keys():  # one counts steps where the other does not
        ours, theirs = last(ours), last(theirs)
    names = [name for name in ours.arrays if name in theirs.arrays]
    if not names:
        msg = f"nothing was compared: {a} holds {sorted(ours.arrays)}, {b} holds {sorted(theirs.arrays)}. Publish the same names in both."
        raise TargetError(msg)
    return judged(a, b, ours, theirs, names)


def judged(reference: str, candidate: str, a: Observation, b: Observation, names: Sequence[str]) -> Audit:
    """The verdict on two observations.

    Args:
        reference, candidate: in words.
        a, b: of them.
        names: of the results that both have.
    """
    pair = RecordedPair(a, b, [name for name in names if a.arrays[name] != b.arrays[name]])
    finding = _find(pair) if pair.differing else _equal(names)
    tolerance = tuple(map(tolerances.tolerance, pair.splits.values()))
    return Audit(
        reference=reference,
        candidate=candidate,
        cause=finding.cause,
        summary=finding.summary,
        where=_where(pair, finding),
        evidence=tuple(finding.evidence),
        proof=finding.proof,
        fixes=tuple(finding.fixes),
        unexamined=tuple(dict.fromkeys(pair.unexamined)),
        tried=tuple(pair.tried),
        tolerance=tolerance,
        environment=facts.gather().to_dict(),
    )


def _equal(names: Sequence[str]) -> Finding:
    words = f"{len(names)} results, every byte equal"
    return Finding(Cause.EQUAL, words, Proof("bounded", "bytes compared", 1.0), [Evidence(words, len(names))])


def _find(pair: RecordedPair) -> Finding:
    for attempt in (overflowed, _hosted, undropped, drawn, _entered, _imprecise, overran, rearranged, _parted, _ahead, _rounded):
        found = attempt(pair)
        if found is not None:
            return found
    return Finding(Cause.UNKNOWN, "the recorded values do not show a cause", None, [], [])


def _hosted(pair: RecordedPair) -> Finding | None:
    """Numbers that one side formed in float64."""
    try:
        return reformed(pair.a, pair.b, pair.differing)
    except Exception as error:  # noqa: BLE001  # as above: the other experiments go on
        pair.tried.append(f"numbers formed in float64: it failed: {type(error).__name__}: {first_line(error)}")
        return None


def _entered(pair: RecordedPair) -> Finding | None:
    """What went in differs."""
    ours = pair.ours
    leaves = [value for value in pair.region.leaves if value.shadow is not None and not plain(value.shadow)]
    values = {value.index: value for value in pair.a.study.values}
    for leaf in leaves:
        for other in ours.find(leaf.shadow, ordered=False):
            if _reordered(values[other.index].shadow, leaf.shadow) and not ours.find(leaf.shadow):
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
            f"what goes in differs: {len(leaves)} inputs of the candidate are nowhere in the reference, to {TOLERANCE:g}"
        )
        return Finding(Cause.UNKNOWN, "the inputs differ, so that the results say nothing of the computation", None, [], [])
    return None


def _reordered(a: Any, b: Any) -> bool:
    """Are these the same elements, whatever their order? Sums of them hardly tell numbers from rounded ones."""
    return a is not None and a.size == b.size and a.dtype == b.dtype and bool(np.array_equal(np.sort(a, axis=None), np.sort(b, axis=None)))


def _rounding(leaf: Value, pair: RecordedPair) -> str:
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


def _imprecise(pair: RecordedPair) -> Finding | None:
    """An operation whose error, on its own inputs, is that of another arithmetic."""
    for who, observation in (("candidate", pair.b), ("reference", pair.a)):
        for operation in pair.leading(observation):
            found = (again(operation) or sampled(operation, observation.study)) if operation.adds == PRODUCTS else None
            if found is not None and found.ratio > COARSE:
                return _coarse(who, operation, found, observation.study)
    return None


def _coarse(who: str, operation: Operation, found: Again, study: Study) -> Finding:
    left = found.left if found.left is not None else explained(operation, found.form) if found.form else found.ratio
    words = f"the {who}'s {operation.name} is {found.ratio:.3g} units of rounding noise away from its float64 result on the same inputs"
    evidence = [Evidence(words, found.ratio)]
    if left <= COARSE and left < found.ratio / 8:
        what = f"with its recorded inputs rounded to {found.form}, the same product gives its result to {left:.3g} units of rounding noise"
        summary = f"the {who}'s {operation.name} rounds its inputs to {found.form}"
        evidence.append(Evidence(what, left))
        fix = Fix("turn reduced-precision products off on that machine (detconf's profile strict does), and record again")
        return Finding(Cause.DTYPE, summary, Proof("re-created", what), evidence, [fix], operation=operation)
    told = recorded(operation, study, who)
    if told:
        evidence.append(Evidence(told[1].what, told[1].share))
        fix = Fix("accumulate in float32 on that machine (detconf's profile strict does), and record again")
        return Finding(Cause.DTYPE, told[0], told[1], evidence, [fix], operation=operation)
    what = "its float64 result on the very same inputs is that far away"
    return Finding(Cause.DTYPE, words, Proof("bounded", what), evidence, [Fix("compute it in a higher precision")], operation=operation)


def _ahead(pair: RecordedPair) -> Finding | None:
    """The candidate gives what the reference has on the way to its result: an operation of the reference alone.

    Not where the candidate computes by an operation of which a recording does not say what is in it, such as a captured graph.
    """
    if pair.region.operations or all(map(pair.near, pair.differing)):
        return None
    if any(each.reads and reading(each) < 0 for each in pair.leading(pair.b)):
        return None
    return _parted(RecordedPair(pair.b, pair.a, pair.differing, pair.unexamined, pair.tried), other="candidate")


def _parted(pair: RecordedPair, other: str = "reference") -> Finding | None:
    """An operation that reads what the other side has, is right by itself, and gives what the other side has nowhere."""
    if pair.whole and pair.agree:
        return None
    for operation in pair.region.sources:
        alone = again(operation)
        if alone is None:
            pair.unexamined.append(
                f"{operation.name} ({operation.source or 'line unknown'}): detconf cannot compute it again from a recording"
            )
            continue
        if alone.ratio <= COARSE and not _amplifies(pair, operation):
            words = f"{operation.name} reads what the {other} has as well, and computes something that the {other} never has"
            right = Evidence("its error, in units of rounding noise, on its own recorded inputs", alone.ratio)
            proof = Proof("bounded", f"it is right by itself, and its result is nowhere in the {other} to {TOLERANCE:g}")
            summary = f"the sides compute different formulas from {operation.name} on"
            return Finding(Cause.SEMANTICS, summary, proof, [Evidence(words), right], [], operation=operation)
    return None


def _amplifies(pair: RecordedPair, operation: Operation) -> bool:
    """Of the reference's inputs, which are not quite its own, would the operation give something else than it did?"""
    found = [
        next((each.shadow for each in pair.ours.find(read.shadow) if each.shape == read.shadow.shape), read.shadow)
        for read in operation.reads
    ]
    given = result(operation, reading(operation), found)
    return given is None or not near(operation.writes[0].shadow, given)


def _rounded(pair: RecordedPair) -> Finding | None:
    """Both sides mean the same, and err by no more than rounding does.

    By their operations computed again as a whole; else every value of the candidate is one of the reference's.
    """
    if not pair.agree or (pair.region.operations and not pair.whole):
        return None
    found = [again(operation) for observation in (pair.a, pair.b) for operation in pair.leading(observation)]
    known = [each.ratio for each in found if each is not None]
    worst = max(known, default=0.0)
    if worst > COARSE or not known:
        return None
    unknown = len(found) - len(known)
    if unknown and not pair.whole:
        pair.unexamined.append(f"{unknown} operations cannot be computed again from a recording; their results agree to {TOLERANCE:g}")
    evidence = [
        Evidence("largest own error of an operation on its recorded inputs, in units of rounding noise", worst),
        Evidence(f"operations computed again in float64: {len(known)}", len(known)),
    ]
    if pair.whole:
        what = "computed again in float64 as a whole, the sides agree, and err by no more than rounding noise does to the same operations"
        rough = max(max(each.roughness) for each in pair.splits.values())
        evidence.append(Evidence("largest own error of a result, in units of rounding noise", rough))
    else:
        what = f"every value of the candidate is in the reference to {TOLERANCE:g}, and no operation errs by more than rounding does"
    proof = Proof("bounded", what)
    words = "the same values, rounded in another order or by other kernels"
    return coarser(pair, evidence) or _amplified(pair, evidence, proof) or Finding(Cause.ROUNDING, words, proof, evidence, [])


def _amplified(pair: RecordedPair, evidence: list[Evidence], proof: Proof) -> Finding | None:
    condition = max((max(each.a.condition, each.b.condition) for each in pair.splits.values()), default=0.0)
    first = next(iter(pair.amplifiers), None)
    if (condition <= AMPLIFIED or not pair.whole) and first is None:
        return None
    shown = [*evidence, Evidence("rounding is amplified this many times", condition)] if condition > AMPLIFIED else evidence
    words = "the problem amplifies rounding: neither side's digits mean much"
    if first is not None:
        words = f"{first.name} amplifies rounding: what it makes of inputs that agree to {TOLERANCE:g} does not"
        shown = [
            *shown,
            Evidence("operations that give the reference's results of the reference's inputs, not of their own", len(pair.amplifiers)),
        ]
    fix = Fix("make the problem better conditioned, or compute this part in a higher precision")
    return Finding(Cause.ILL_CONDITIONED, words, proof, shown, [fix], operation=first)


def _where(pair: RecordedPair, finding: Finding) -> Divergence | None:
    if not pair.differing:
        return None
    name = pair.differing[0]
    found = diverge(name, pair.a.arrays[name], pair.b.arrays[name])
    at: Any = finding.operation
    return found if found is None or at is None else replace(found, name=at.name, scope=name, source=at.source, step=at.step)
