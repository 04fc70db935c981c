"""Both sides mean the same: is what is left between them rounding, a problem that amplifies it, or another arithmetic?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from detconf.auditing.attempts.casting import count_casts, inside
from detconf.auditing.attempts.fingerprint import last_product, named
from detconf.auditing.attempts.flushing import subnormals_flushed
from detconf.auditing.attempts.locally import EXPLAINED, Locally
from detconf.auditing.laboratory import Side
from detconf.auditing.meaning import AMPLIFIED, COARSE, SEEN, Part, Split
from detconf.auditing.question import Finding, Question
from detconf.auditing.result import Evidence, Fix, Proof
from detconf.auditing.sums.orders import Sums
from detconf.frameworks.base import PRODUCTS, TERMS
from detconf.shadows.formats import ROUNDINGS, unit
from detconf.shadows.regions import ancestors
from detconf.shadows.study import Operation
from detconf.values import Cause

_SINGLE = unit("float32")
_FORMATS = tuple(name for name in ROUNDINGS if name != "float32")


def rounded(question: Question) -> Finding | None:
    """All differing results mean the same on both sides: say what the rest is."""
    parts = question.complete
    if len(parts) != len(question.differing) or any(each.units > SEEN for each in parts):
        return None
    flushed = subnormals_flushed(question, parts)
    if flushed:
        return flushed
    sums = Sums(question)
    for each in parts:
        count_casts(question, each)
        found = _added_in_less(each, sums) or inside(question, each) or _other_arithmetic(question, each, sums)
        if found:
            return found
    local = Locally(question)
    inherited = [each for each in parts if max(each.roughness) > COARSE and not _long_sums(local, each)]
    if not all(map(local.explains, inherited)):
        question.tried.append("one side's own error is larger than rounding explains, and no arithmetic that was tried re-creates it")
        return None
    worst = max(parts, key=lambda each: max(each.a.condition, each.b.condition))
    condition = max(worst.a.condition, worst.b.condition)
    rough = max(max(each.roughness) for each in parts)
    evidence = [
        _agreement(question, parts),
        Evidence("the largest own error of either side, in units of what rounding noise does to this computation", rough),
    ]
    evidence += [Evidence(f"{each.name}: {EXPLAINED}", max(each.roughness)) for each in inherited]
    proof = Proof("bounded", "each side's own error lies within what rounding noise of its dtypes does to the same operations")
    if condition > AMPLIFIED:
        operation = _amplifier(question)
        at = f" at {operation.name}" if operation else ""
        evidence.append(Evidence(f"{worst.name}: rounding is amplified this many times{at}", condition))
        summary = f"the problem amplifies rounding{at}: neither side's digits mean much"
        fix = Fix("make the problem better conditioned, or compute this part in a higher precision")
        return Finding(Cause.ILL_CONDITIONED, summary, proof, evidence, [fix], worst.name, operation)
    evidence += sums.lines([worst.name, *(each.name for each in parts if each is not worst)])
    fixes = [Fix("nothing to fix, unless the same bits are needed: then run the same kernels in the same order on both sides")]
    return Finding(Cause.ROUNDING, "the same formula, rounded in another order or by other kernels", proof, evidence, fixes, worst.name)


def _agreement(question: Question, parts: list[Split]) -> Evidence:
    for who, side in (("reference", question.a), ("candidate", question.b)):
        if side.function is None:
            return Evidence(f"the {who} is given as arrays: they are held against the other side's float64 shadow")
    return Evidence("in higher precision both sides agree: the largest gap, in units of rounding noise", max(each.units for each in parts))


def _added_in_less(each: Split, sums: Sums) -> Finding | None:
    """Both sides round to less than single precision somewhere, and only one of them what it adds up."""
    coarse = [who for who, own in (("candidate", each.b), ("reference", each.a)) if each.a.floor == each.b.floor and own.floor > _SINGLE]
    told = next(filter(None, (sums.alone(each.name, who) for who in coarse)), None)
    return told and _finding(each, *told)


def _other_arithmetic(question: Question, each: Split, sums: Sums) -> Finding | None:
    """Other dtypes, or one side's own error re-created by another arithmetic of the other side's program."""
    a, b = question.real_a[each.name].dtype, question.real_b[each.name].dtype
    if a != b:
        proof = Proof("bounded", "the shadows agree: nothing but the dtype differs")
        found = _finding(each, f"the results have the dtypes {a} and {b}", proof)
        return _accumulated(found, sums, each.name, "candidate" if unit(b) > unit(a) else "reference")
    for who, own, other, fine in _sides(question, each):
        if own.floor > fine.floor and each.apart(fine) > COARSE:
            words = f"the {who} computes in a dtype of unit roundoff {own.floor:.1e}, the other side in one of {fine.floor:.1e}"
            proof = Proof("bounded", "in higher precision both agree; what is left is the coarser dtype's rounding")
            found = _finding(each, words, proof)
            found.operation = _first_coarser(question, each.name, who, fine.floor)
            return _accumulated(found, sums, each.name, who)
        if float(np.max(own.rough, initial=0.0)) <= COARSE:
            continue
        form, effects = _recreated(question, each.name, own, other)
        if form:
            words = f"the {who}'s error is that of products whose inputs are rounded to {form}"
            what = f"the other side's program, with the inputs of its products rounded to {form}, gives it up to rounding noise"
            found = _finding(each, words, Proof("re-created", what))
            found.evidence += effects
            return found
        less = _in_less(question, each, sums, who)
        if less:
            return less
    return None


def _accumulated(found: Finding, sums: Sums, name: str, who: str) -> Finding:
    """With the way in which a side adds up in less than single precision, where that is shown."""
    told = sums.reduced(name, who)
    if told:
        words, found.proof = told
        found.summary += f"; {words}"
        found.evidence.append(Evidence(words, found.proof.share))
    return found


def _in_less(question: Question, each: Split, sums: Sums, who: str) -> Finding | None:
    """A side adds up in less than its dtype says, by itself or in one operation; or such a product errs more than its dtype explains."""
    told, coarse = sums.reduced(each.name, who), None
    if told is None:
        operations = [one for one in Locally(question).operations(who) if one.adds and one.local is not None and one.local > COARSE]
        shown = ((one, inside) for one in operations if (inside := sums.inside(one, who)))
        coarse, told = next(shown, (next((one for one in operations if one.adds == PRODUCTS), None), None))
    told = told or sums.narrow(each, who)
    if told:
        found = _finding(each, *told)
    elif coarse:
        words = f"the {who}'s {coarse.name} has {coarse.local:.0f} times the error of its dtype"
        found = _finding(each, words, Proof("bounded", "its float64 result on the very same inputs is that far away"))
    else:
        return None
    found.operation = coarse
    return found


def _first_coarser(question: Question, name: str, who: str, floor: float) -> Operation | None:
    """The first operation, towards a result, that writes in a coarser dtype than the other side has anywhere."""
    observation = question.exact_a if who == "reference" else question.exact_b
    if observation is None or name not in observation.known:
        return None
    _, operations = ancestors(observation.study, [observation.known[name].value])
    each = (observation.study.operations[index] for index in sorted(operations))
    return next((operation for operation in each if any(unit(value.dtype) > floor for value in operation.writes)), None)


def _sides(question: Question, each: Split) -> Iterator[tuple[str, Part, Side, Part]]:
    yield "candidate", each.b, question.a, each.a
    yield "reference", each.a, question.b, each.b


def _finding(each: Split, words: str, proof: Proof) -> Finding:
    evidence = [
        Evidence(words),
        Evidence("own errors in units of rounding noise, reference and candidate", f"{each.roughness[0]:.3g}, {each.roughness[1]:.3g}"),
    ]
    fix = Fix("compute and store in the same dtype, with the same precision of products, on both sides")
    return Finding(Cause.DTYPE, words, proof, evidence, [fix], each.name)


def _recreated(question: Question, name: str, own: Part, other: Side) -> tuple[str, list[Evidence]]:
    """The format to which the inputs of the other side's products must be rounded to give this side; empty for none."""
    found: dict[str, float] = {}
    observed = float(np.mean(np.abs(own.real - own.shadow)))
    evidence = [Evidence(f"{name}: mean distance from the float64 shadow", observed)]
    printed, effects = _fingerprint(question, name, own, other)
    if printed:
        return printed, evidence + effects
    for form in _FORMATS:
        observation = question.laboratory.study(other, rounding=form)
        known = observation.known.get(name) if observation else None
        if known is None or known.shadow.size != own.real.size:
            continue
        shadow = known.shadow.reshape(own.real.shape)
        with np.errstate(all="ignore"):
            distance = np.where(own.noise > 0, np.abs(own.real - shadow) / own.noise, 0.0)
        found[form] = _root_mean_square(distance)  # single inputs may have been rounded to the other side
        effect = float(np.mean(np.abs(shadow - own.shadow)))
        evidence.append(
            Evidence(f"inputs of products rounded to {form}: mean effect {effect:.3g}; what is left, in units of noise", found[form])
        )
    least = min(found.values(), default=np.inf)
    fits = least <= COARSE and least < _root_mean_square(own.rough) / 8
    # TF32 and float16 have equally many bits, and only very small elements tell them apart: the first that fits is named.
    return next((form for form, distance in found.items() if fits and distance <= 1.5 * least), ""), evidence


def _root_mean_square(array: Any) -> float:
    return float(np.sqrt(np.mean(np.asarray(array, dtype=np.float64) ** 2))) if np.size(array) else 0.0


def _fingerprint(question: Question, name: str, own: Part, other: Side) -> tuple[str, list[Evidence]]:
    """The same without running anything, where the other side's result is a single product: from sampled elements."""
    observation = question.exact_a if other is question.a else question.exact_b
    known = observation.known.get(name) if observation else None
    product = last_product(observation.study, known) if observation and known else None
    if product is None or own.real.shape != own.shadow.shape or not np.isrealobj(own.real):
        return "", []
    tried = product.tried(np.asarray(own.real - own.shadow, np.float64))
    return named(tried), [
        Evidence(f"inputs of products rounded to {form}: mean effect {effect:.3g}; what is left, in units of accumulation", residual)
        for form, (residual, effect) in tried.items()
    ]


def _long_sums(local: Locally, each: Split) -> bool:
    """Is the error that of sums of very many terms, which grows with their number where they are added one by one?"""
    for who, own in (("candidate", each.b), ("reference", each.a)):
        if float(np.max(own.rough, initial=0.0)) <= COARSE:
            continue
        coarse = [operation for operation in local.operations(who) if operation.local is not None and operation.local > COARSE]
        if not coarse or not all(
            operation.adds == TERMS and operation.local <= _terms(operation) for operation in coarse if operation.local
        ):
            return False
    return True


def _terms(operation: Operation) -> float:
    read = max((np.size(each.shadow) for each in operation.reads if each.shadow is not None), default=0)
    written = max((int(np.prod(each.shape, dtype=np.int64)) for each in operation.writes), default=1)
    return read / max(written, 1)


def _amplifier(question: Question) -> Operation | None:
    """The operation at which noise, relative to the value, grows most."""
    exact = question.exact_b or question.exact_a
    noisy = question.noisy_b or question.noisy_a
    if exact is None or not noisy:
        return None
    other = noisy[0].study
    if len(other.values) != len(exact.study.values):
        return None
    _, wanted = ancestors(exact.study, [exact.known[name].value for name in question.differing if name in exact.known])
    growth: dict[int, float] = {}
    for index in wanted:
        operation = exact.study.operations[index]
        before = max((_spread(each.value.shadow, other.values[each.value.index].shadow) for each in operation.reads), default=0.0)
        after = max((_spread(each.shadow, other.values[each.index].shadow) for each in operation.writes), default=0.0)
        growth[index] = after / max(before, 2.0**-24)
    best = max(growth, key=growth.__getitem__, default=None)
    return None if best is None else exact.study.operations[best]


def _spread(shadow: Any, noisy: Any) -> float:
    """Root mean square of the noise, relative to the value's."""
    if shadow is None or noisy is None or shadow.shape != noisy.shape or not np.issubdtype(shadow.dtype, np.inexact):
        return 0.0
    with np.errstate(all="ignore"):
        size = float(np.sqrt(np.mean(np.abs(shadow).astype(np.float64) ** 2)))
        found = float(np.sqrt(np.mean(np.abs(noisy - shadow).astype(np.float64) ** 2)))
    return found / size if size and np.isfinite(found) and np.isfinite(size) else 0.0
