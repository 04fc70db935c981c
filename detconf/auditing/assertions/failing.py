"""`audit` of a failing test: an unmodified command, and the first comparison in it that fails."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from detconf import facts
from detconf.auditing.assertions.commanding import CommandLaboratory, Operand, Run
from detconf.auditing.assertions.comparisons import Comparison
from detconf.auditing.assertions.pairs import require
from detconf.auditing.assertions.wording import labels, told
from detconf.auditing.elsewhere import conditions
from detconf.auditing.elsewhere.requests import Request
from detconf.auditing.entry import examined
from detconf.auditing.laboratory import Observation, Side
from detconf.auditing.result import Audit, Evidence, Proof
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
        return _told(found, first.comparison, first.whole, laboratory)


@contextmanager
def _laboratory(command: Sequence[str]) -> Iterator[CommandLaboratory]:
    with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
        laboratory = CommandLaboratory(command=list(command), folder=folder)
        with conditions.elsewhere(laboratory):
            yield laboratory


def _sides(laboratory: CommandLaboratory, met: Comparison) -> tuple[Side, Side]:
    reference, candidate = labels(met)
    return Side(reference, Operand("desired", laboratory)), Side(candidate, Operand("actual", laboratory))


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


def _told(found: Audit, met: Comparison, whole: Observation, laboratory: CommandLaboratory) -> Audit:
    """The verdict, with what is known of the comparison and of other runs."""
    verdict = told(found, met, whole)
    often = _often(laboratory) if verdict.used and found.cause in _BENIGN else []
    start = f"each run started from the same generators; DETCONF_SEED={laboratory.seed} repeats this audit"
    evidence = (*verdict.evidence, *often, Evidence(start))
    return replace(verdict, unexamined=(*found.unexamined, *_disturbed(laboratory, whole)), evidence=evidence)


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
