"""`audit` of a failing test: an unmodified command, and the first comparison in it that fails."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from detconf import facts
from detconf.auditing.assertions.commanding import CommandLaboratory, Operand, Run
from detconf.auditing.assertions.comparisons import Comparison
from detconf.auditing.assertions.pairs import require
from detconf.auditing.elsewhere import conditions
from detconf.auditing.elsewhere.requests import Request
from detconf.auditing.entry import examined
from detconf.auditing.laboratory import Observation, Side
from detconf.auditing.meaning import numbers
from detconf.auditing.result import Audit, Evidence, Proof, Tolerance
from detconf.commandline import switched_off
from detconf.errors import TargetError
from detconf.values import Cause

_BENIGN = (Cause.ROUNDING, Cause.DTYPE, Cause.ILL_CONDITIONED)
_OTHERS = 12


def audit_command(command: Sequence[str]) -> Audit:
    """Say why the first failing comparison of a test command fails.

    Its actual operand is the candidate, its desired one the reference.

    Args:
        command: words, such as python test_x.py CLASS.test, or python -m pytest test_x.py::test.

    Raises:
        TargetError: it cannot be started, or nothing is compared in it.
    """
    notice = switched_off(command)
    if notice:
        raise TargetError(notice)
    with _laboratory(command) as laboratory:
        first = laboratory.run(Request())
        if first.whole is None or first.comparison is None:
            return _passed(command, first)
        laboratory.at, laboratory.comparison = first.number, first.comparison
        require(first.whole)
        found = examined(laboratory, *_sides(laboratory, first.comparison))
        return _told(found, first, first.whole, laboratory)


@contextmanager
def _laboratory(command: Sequence[str]) -> Iterator[CommandLaboratory]:
    with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
        laboratory = CommandLaboratory(command=list(command), folder=folder)
        with conditions.elsewhere(laboratory):
            yield laboratory


def _sides(laboratory: CommandLaboratory, met: Comparison) -> tuple[Side, Side]:
    reference, candidate = met.desired or "the desired operand", met.actual or "the actual operand"
    if reference == candidate:
        reference, candidate = f"{reference} (desired)", f"{candidate} (actual)"
    at = f" at {met.place}"
    return Side(reference + at, Operand("desired", laboratory)), Side(candidate + at, Operand("actual", laboratory))


def _passed(command: Sequence[str], run: Run) -> Audit:
    """No comparison failed.

    Raises:
        TargetError: none was made, or the command failed by something else.
    """
    last = f" Its last words: {' | '.join(run.ending.lines[-3:])}" if run.ending.lines else ""
    if not run.reached:
        why = f"the command ended with {run.ending.reason}" if run.ending.reason else "every test may have been skipped"
        msg = f"nothing was compared: no assertion that detconf knows was reached ({why}).{last}"
        raise TargetError(msg)
    if run.ending.reason:
        msg = f"the command fails ({run.ending.reason}), but each of its {run.reached} comparisons that detconf knows holds.{last}"
        raise TargetError(msg)
    words = f"all {run.reached} comparisons that were reached hold: nothing fails here"
    text = " ".join(command)
    return Audit(
        reference=text,
        candidate=text,
        cause=Cause.EQUAL,
        summary=words,
        evidence=(Evidence(words, run.reached),),
        proof=Proof("bounded", "the command was run, its own comparisons hold"),
        environment=facts.gather().to_dict(),
    )


def _told(found: Audit, run: Run, whole: Observation, laboratory: CommandLaboratory) -> Audit:
    """The verdict, with what is known of the comparison."""
    met = run.comparison
    assert met is not None  # noqa: S101  # it was stopped there
    words = f"{met.place}: {met.text} fails"
    words = words if not met.message else f"{words}: {met.message}"
    start = f"each run started from the same generators; DETCONF_SEED={laboratory.seed} repeats this audit"
    used = _used(met, found, whole)
    often = _often(laboratory) if used and found.cause in _BENIGN else []
    evidence = (Evidence(words), *found.evidence, *often, Evidence(start))
    cause, summary, proof = found.cause, found.summary, found.proof
    if found.equal:  # types, devices or NaN are compared too
        cause, summary, proof = Cause.UNKNOWN, "the operands are equal in every byte: the comparison fails by something else", None
    unexamined = (*found.unexamined, *_disturbed(laboratory, whole))
    return replace(found, unexamined=unexamined, cause=cause, summary=summary, proof=proof, evidence=evidence, used=used)


def _disturbed(laboratory: CommandLaboratory, whole: Observation) -> list[str]:
    """Operands whose bits were others under study: a shadow is one of the source, and engines may be wrong."""
    found = []
    for role, exact in laboratory.exact.items():
        plain = {name: each for name, each in whole.arrays.items() if name.startswith(f"{role}/")}
        if any(exact.arrays.get(name.removeprefix(f"{role}/")) != each for name, each in plain.items()):
            found.append(f"the {role} operand has other bits while the command is followed")
    return found


def _often(laboratory: CommandLaboratory) -> list[Evidence]:
    """How often the command fails, from other random numbers."""
    runs, failing, different = laboratory.trips(_OTHERS)
    if not runs or (failing > 1 and different == 1):
        return []  # it seeds itself
    return [Evidence(f"started from {runs} other random numbers, the command fails in {failing} runs", failing / runs)]


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
