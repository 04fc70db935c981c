"""`audit`: why two sides differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from detconf import facts
from detconf.arrays import Array
from detconf.auditing.attempts.besides import besides
from detconf.auditing.attempts.capturing import captured
from detconf.auditing.attempts.constants import constants
from detconf.auditing.attempts.culprits import parted, repaired
from detconf.auditing.attempts.drawing import drawn, evaluated, evaluated_anyway
from detconf.auditing.attempts.dropping import undropped
from detconf.auditing.attempts.guessing import guessed
from detconf.auditing.attempts.hosting import hosted
from detconf.auditing.attempts.infinite import overflowed
from detconf.auditing.attempts.opaque import opaque
from detconf.auditing.attempts.precision import rounded
from detconf.auditing.devices import unexamined
from detconf.auditing.laboratory import Laboratory, Side
from detconf.auditing.modes.climb import climb
from detconf.auditing.progress import say
from detconf.auditing.question import Attempt, Finding, Question, watching
from detconf.auditing.recordings.instead import recorded_instead
from detconf.auditing.result import Audit, Evidence, Fix, Proof
from detconf.auditing.sides import arranged, audited_elsewhere
from detconf.auditing.sums.everywhere import added_in_less
from detconf.auditing.tolerances import tolerances
from detconf.auditing.widened import first_pass
from detconf.comparison import Divergence, diverge
from detconf.errors import TargetError
from detconf.frameworks.base import Captured
from detconf.lookup import first_line
from detconf.values import Cause

ATTEMPTS: tuple[Attempt, ...] = (
    overflowed,
    captured,
    hosted,
    constants,
    rounded,
    drawn,
    evaluated,
    undropped,
    repaired,
    evaluated_anyway,
    parted,
    besides,
    guessed,
    added_in_less,
    opaque,
    recorded_instead,
)
"""In this order: the first that shows a cause names it."""
MEANINGS: tuple[Attempt, ...] = (drawn, evaluated, undropped, repaired, evaluated_anyway, parted, besides, guessed)
"""Those that look for another formula, other draws or another mode."""


def audit(  # noqa: PLR0913  # ways to say what is compared
    reference: Any,
    candidate: Any = None,
    *,
    modes: Any = None,
    inputs: Any = None,
    python_a: str | None = None,
    python_b: str | None = None,
) -> Audit:
    """Say why `reference` and `candidate` differ, with a proof made here.

    Each function runs many times, some ten at least: what it leaves behind (files, a counter of its own) is there the next
    time. What it prints is printed each time; generators are put back at the end.

    Args:
        reference: a function without arguments, "file.py:function", a file of arrays, arrays by name, or a recording with
            values. Alone: the words of a test command, or a recording of one with values; the operands of the first
            comparison that fails in it are the sides.
        candidate: the same.
        modes: graph modes, for one model; None with no candidate takes all of its framework. See `auditing.modes.climb`.
        inputs: of that model, or of the functions: arrays by name, or text such as "x=in.npz:x,W=w.npy".
        python_a, python_b: interpreters of the reference and of the candidate, where the two cannot live together. Where
            one is given, each side runs in a process of its own.

    Raises:
        TargetError: a side cannot be found or run, or there is nothing to compare.
    """
    if modes is None:
        elsewhere = audited_elsewhere(reference, candidate, inputs, apart=python_a is not None or python_b is not None)
        if elsewhere is not None:
            return elsewhere
    if modes is not None or (candidate is None and (callable(reference) or isinstance(reference, str))):
        return climb(reference, modes, inputs)
    with arranged(reference, candidate, inputs=inputs, python_a=python_a, python_b=python_b) as (laboratory, a, b):
        try:
            return examined(laboratory, a, b)
        finally:
            laboratory.enter()


def examined(laboratory: Laboratory, a: Side, b: Side) -> Audit:
    """What an audit of two sides finds.

    Raises:
        TargetError: a side cannot be run, or there is nothing to compare.
    """
    seen = Captured(), Captured()
    first = _run(laboratory, a, seen[0], put_back=True), _run(laboratory, b, seen[1], put_back=False)
    _require(*first)
    again = laboratory.plain(a), laboratory.plain(b)
    unstable = None if again == first else _unstable(laboratory, a, b, again)
    question = Question(laboratory, a, b, again[0], again[1], seen)
    if unstable is not None:
        return _result(question, unstable)
    if not question.differing and not _structure(question):
        return _equal(question) if again == first else _result(question, _entry())
    if not question.differing:
        words = "what both sides give is equal; results are missing, or there are more"
        return _result(question, Finding(Cause.UNKNOWN, words))
    return _result(question, _found(question) or Finding(Cause.UNKNOWN, "nothing that was tried shows a cause"))


def _found(question: Question) -> Finding | None:
    """What the attempts show. Where the sides agree in float64, what looks for another formula is not tried."""
    first = first_pass(question)
    finding = None
    for attempt in ATTEMPTS:
        if attempt in MEANINGS and first and first.settles(question):
            words = f"run whole in float64 both sides agree ({first.scaled:.1g} of the results): no other formula was looked for"
            question.tried.extend([] if words in question.tried else [words])
            continue
        finding = _attempted(attempt, question)
        if finding:
            break
    if finding and first and first.agrees and not first.contradicted(question):
        finding.evidence.append(first.evidence())
    return finding


def _attempted(attempt: Attempt, question: Question) -> Finding | None:
    """An experiment that fails shows nothing, and says so: the others go on."""
    say((attempt.__doc__ or attempt.__name__).strip().partition("\n")[0])
    try:
        return attempt(question)
    except Exception as error:  # noqa: BLE001  # whatever a program, a framework or we did in it
        question.tried.append(f"{attempt.__name__}: it failed: {type(error).__name__}: {first_line(error)}")
        return None


def _run(laboratory: Laboratory, side: Side, seen: Captured, *, put_back: bool) -> dict[str, Array]:
    return laboratory.plain(side, put_back=put_back, inside=watching(seen))


def _require(a: Mapping[str, Array], b: Mapping[str, Array]) -> None:
    if not a or not b or not set(a) & set(b):
        msg = (
            f"nothing was compared: the reference gave {sorted(a) or 'nothing'}, the candidate {sorted(b) or 'nothing'}. "
            "Return a mapping of name to array with the same names on both sides."
        )
        raise TargetError(msg)


def _unstable(laboratory: Laboratory, a: Side, b: Side, again: tuple[Mapping[str, Array], Mapping[str, Array]]) -> Finding | None:
    """Each side against itself, from the same generator states: why not, where one does not repeat."""
    for side, results in ((a, again[0]), (b, again[1])):
        if side.function is not None and (third := laboratory.plain(side)) != results:
            return _disagrees(side, results, third)
    return None


def _disagrees(side: Side, x: Mapping[str, Array], y: Mapping[str, Array]) -> Finding:
    from detconf.rerun import verify  # only where a side is unstable

    assert side.function is not None  # noqa: S101  # arrays agree with themselves
    elsewhere = getattr(side.function, "verified", None)  # of a side that runs in another process
    found: Any = elsewhere() if elsewhere else verify(side.function, runs=5)
    name = next(iter(name for name in x if x[name] != y.get(name)), "")
    cause = found.cause if found.cause not in (Cause.EQUAL, Cause.UNKNOWN) else Cause.UNKNOWN
    tried = [each for each in found.axes if each.restored_by]
    words = f"{side.label} does not repeat: it disagrees with itself from the same generator states ({name})"
    proof = Proof("removed", f"it repeats with: {tried[0].restored_by}") if tried and cause is not Cause.UNKNOWN else None
    fixes = [Fix(str(each.restored_by), verified=True) for each in tried]
    return Finding(cause, words, proof, [Evidence(words, found.distinct)], fixes, name)


def _entry() -> Finding:
    words = "the sides draw random numbers, and enter from different generator states: from the same state they agree bit for bit"
    return Finding(Cause.RNG, words, Proof("removed", words, 1.0), [Evidence(words)], [Fix("seed before each side", verified=True)])


def _structure(question: Question) -> list[str]:
    """Results that one side alone has, or of another shape."""
    a, b = question.real_a, question.real_b
    found = [f"{name}: only the reference has it" for name in a if name not in b]
    found += [f"{name}: only the candidate has it" for name in b if name not in a]
    return found + [f"{name}: shapes {a[name].shape} and {b[name].shape}" for name in question.differing if a[name].shape != b[name].shape]


def _equal(question: Question) -> Audit:
    evidence = (Evidence(f"{len(question.real_a)} results, every byte equal", len(question.real_a)),)
    proof = Proof("bounded", "bytes compared", 1.0)
    return Audit(
        reference=question.a.label,
        candidate=question.b.label,
        cause=Cause.EQUAL,
        summary="every byte is equal",
        evidence=evidence,
        proof=proof,
        unexamined=tuple(_devices(question, Cause.EQUAL)),
        environment=facts.gather().to_dict(),
    )


def _devices(question: Question, cause: Cause) -> list[str]:
    """Of two sides that ran here."""
    return unexamined(cause) if question.a.function and question.b.function else []


def _result(question: Question, finding: Finding) -> Audit:
    problems = [f"{side}: {why}" for side, why in question.laboratory.problems.items()]
    lost = [
        each
        for observation in (question.__dict__.get("exact_a"), question.__dict__.get("exact_b"))
        if observation
        for each in observation.study.losses
    ]
    return Audit(
        reference=question.a.label,
        candidate=question.b.label,
        cause=finding.cause,
        summary=finding.summary,
        where=_where(question, finding),
        evidence=(*finding.evidence, *(Evidence(each) for each in _structure(question))),
        proof=finding.proof,
        fixes=tuple(sorted(finding.fixes, key=lambda fix: not fix.verified)),
        unexamined=tuple(dict.fromkeys([*question.unexamined, *problems, *lost, *_devices(question, finding.cause)])),
        tried=tuple(question.tried),
        tolerance=tolerances(question),
        environment=facts.gather().to_dict(),
    )


def _where(question: Question, finding: Finding) -> Divergence | None:
    name = finding.output or next(iter(question.differing), "")
    if not name:
        return None
    found = diverge(name, question.real_a[name], question.real_b[name])
    if found is None or finding.operation is None:
        return found
    at = finding.operation
    return replace(found, name=at.name, scope=name, source=at.source, step=at.step)
