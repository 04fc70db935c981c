"""`verify`: run something several times and compare what it gives, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from detconf import batch, facts, locating, ranking, resuming
from detconf.axes import VARIABLES, Variable
from detconf.causes.changes import Setting
from detconf.causes.reruns import Explanation, explain
from detconf.comparison import differences
from detconf.errors import TargetError
from detconf.execution import PLAIN, Execution, InChildren, InProcess
from detconf.locating import Arm
from detconf.outputs import Outputs
from detconf.targets import Target, label
from detconf.values import Cause, suggest
from detconf.verification import Axis, Evidence, Run, Verification, runs_until

__all__ = ["Verification", "verify"]

AXES = ("rerun", "process", *(variable.name for variable in VARIABLES), batch.NAME, ranking.NAME)
"""What can be varied: the run in one process, the process, what `detconf.axes` lists, the rows of a batch, and ranks."""


def verify(  # noqa: PLR0913  # the contract of the design, keyword-only
    target: Callable[..., Any] | str | Sequence[str | os.PathLike[str]],
    *,
    runs: int = 3,
    until: float | None = None,
    most_runs: int = 1000,
    fresh: bool = False,
    vary: Sequence[str] = (),
    profile: str | None = None,
    timeout: float | None = None,
    outputs: Sequence[str] = (),
    seed: int | None = None,
    steps: int | None = None,
    resume_with: str | Sequence[str | os.PathLike[str]] = (),
    stop_at: int | None = None,
) -> Verification:
    """Run `target` several times and compare what it gives, bit for bit.

    Compared are what a function returns, what is published with `detconf.publish`, and the files named by `outputs`.

    Args:
        target: a function without arguments, "file.py:function", or a command as a list of words. A function may take an
            argument `rows`, a slice of the batch that its results follow; the axis "batch" asks for some of them.
        runs: how often, 2 or more.
        until: go on until a difference shows, or until one that shows in this share of reruns would have shown with 95 %
            (0.05: 60 runs). `runs` is then the least. For each way of repeating, "rerun" and "process".
        most_runs: the end of that in any case; the verdict says so.
        fresh: each run in a process of its own; always so for a command. A run may then crash or hang.
        vary: axes of `AXES`, or "all": each is varied by itself against the plain runs.
        profile: put in force anew for each run, so that each starts from the same seeds. None leaves everything alone.
        timeout: seconds for one run in a process of its own; default 1800.
        outputs: globs of files that each run writes.
        seed: in place of the profile's.
        steps: end every process cleanly after so many optimizer steps. For commands.
        resume_with: the command that goes on from a checkpoint which the target writes: words, or one line of them. Judges
            the axis "resume": the target stopped after `stop_at` steps and resumed, against the target in one go.
        stop_at: optimizer steps.

    Raises:
        TargetError: the target cannot be found or run, every run failed, or there was nothing to compare.
        ProfileError: the profile cannot be used.
    """
    wanted = _normal(target)
    axes = _axes(wanted, vary, fresh=fresh)
    _check(axes, runs, profile, timeout, seed)
    count = runs if until is None else runs_until(until, runs, most_runs)
    resume = resuming.wanted(wanted, resume_with, stop_at, steps)
    files = Outputs(outputs)
    children = InChildren(wanted, profile, seed, files, timeout, steps)
    executions: dict[str, Execution] = {"rerun": InProcess(wanted, profile, seed, files), "process": children}
    launched = ranking.launched(wanted)
    if vary in (ranking.NAME, (ranking.NAME,), [ranking.NAME]) and not (resume or isinstance(launched, str)):  # it may run in ranks only
        axes, executions = (ranking.NAME,), {ranking.NAME: replace(children, target=launched)}
    found = [_repeat(axis, executions[axis], (runs, count), wanted, files) for axis in axes if axis in executions]
    main = next((each for each in found if each.evidence.distinct > 1), found[-1])
    variables = [variable for variable in VARIABLES if variable.name in axes]
    varied = _vary(variables, executions["process"], found[-1]) if variables else []
    if batch.NAME in axes:
        varied.append(_vary_rows(wanted, executions["process"], found[-1]))
    if ranking.NAME in axes and ranking.NAME not in executions:
        varied.append(_vary_ranks(launched, children, found[-1]))
    if resume:
        varied.append(_resume(resume, children, found[-1]))
    return _verdict(main, (*(each.axis for each in found), *varied), label(wanted), profile, until)


_ALREADY = "not judged: the plain runs already differ"


def _normal(target: Any) -> Target:
    if callable(target) or (isinstance(target, str) and target):
        known: Target = target
        return known
    if isinstance(target, (list, tuple)) and target and all(isinstance(word, (str, os.PathLike)) for word in target):
        return [os.fspath(word) for word in target]
    msg = f"{target!r} is no target. Accepted: a function without arguments, 'file.py:function', or the list of a command's words."
    raise TargetError(msg)


def _axes(target: Target, vary: Sequence[str], *, fresh: bool) -> tuple[str, ...]:
    """The axes in their order: how runs are repeated first, then what is varied between processes."""
    named = {vary} if isinstance(vary, str) else set(vary)
    if "all" in named:
        named = {*AXES} - ({"rerun"} if isinstance(target, list) else set())
    for name in named - {*AXES}:
        msg = f"vary: unknown axis {name!r}.{suggest(str(name), AXES)}"
        raise TargetError(msg)
    if "rerun" in named and isinstance(target, list):
        msg = (
            "vary: 'rerun' repeats in one process, and a command runs in processes of its own. Accepted here: 'process' and what varies it."
        )
        raise TargetError(msg)
    if "process" not in named and (fresh or isinstance(target, list) or named - {"rerun"}):
        named.add("process")
    return tuple(axis for axis in AXES if axis in (named or {"rerun"}))


def _check(axes: Sequence[str], runs: int, profile: str | None, timeout: float | None, seed: int | None) -> None:
    """Refuse what cannot work before anything runs."""
    if type(runs) is not int or runs < 2:
        msg = f"runs: {runs!r} is not accepted. Accepted: an integer of 2 or more."
        raise TargetError(msg)
    if timeout is not None and ("process" not in axes or not timeout > 0):
        msg = f"timeout: {timeout!r} is not accepted. Accepted: seconds above 0, for runs in processes of their own (fresh=True)."
        raise TargetError(msg)
    if seed is not None and profile is None:
        msg = f"seed: {seed!r} has no effect without a profile. Accepted: a profile beside it, such as profile='strict'."
        raise TargetError(msg)


def _gather(source: Generator[Run, None, None], *, to_the_first: bool = False, least: int | None = None) -> Evidence:
    """Compare every run with the first that did not fail, and then failed ones, where nothing else differs.

    `to_the_first`: end at the first difference; that there is one is then all that counts. `least`: compare that one too,
    and make so many runs in any case.
    """
    evidence, failed, parted = Evidence(), [], False
    with closing(source):
        for run in source:
            evidence.add(run)
            if to_the_first and evidence.distinct > 1:
                break
            if run.ending.reason:
                failed.append(run.results)
            elif evidence.reference is None:
                evidence.reference = run.results
            else:
                evidence.compare(run.results)
            parted = parted or evidence.parted
            if least is not None and len(evidence.endings) >= least and parted:
                break
    if evidence.divergence is None:
        for results in failed:
            evidence.compare(results)
    return evidence


def _require(evidence: Evidence, what: str, files: Outputs) -> None:
    """Refuse to judge where there is nothing to judge by."""
    failures = evidence.failures
    if evidence.reference is None:
        said = "".join(f"\n  {line}" for line in failures[0].lines)
        msg = f"{what}: every run failed ({failures[0].reason}), so nothing was compared.{said}"
        raise TargetError(msg)
    if not evidence.bytes:
        msg = (
            f"{what}: nothing was compared: no run returned, published or wrote a single byte. "
            "Return arrays, call detconf.publish(name, value), or name the files that are written (outputs)."
        )
        raise TargetError(msg)
    if files.unwritten:
        msg = f"outputs: no run of {what} wrote a file that matches {', '.join(map(repr, files.unwritten))}."
        raise TargetError(msg)


def _explain(evidence: Evidence, execution: Execution) -> Explanation:
    """The cause, found by running again. A run that failed explains itself, and is not run again."""
    if evidence.distinct == 1:
        return Explanation(Cause.EQUAL)
    if evidence.failures:
        return Explanation()

    def again(setting: Setting, runs: int) -> Evidence:
        return _gather(execution.runs(runs, setting), to_the_first=True)

    return explain(evidence, execution.changes, again, execution.trained)


@dataclass(frozen=True, slots=True)
class _Repeated:
    """One axis of plain repetition."""

    axis: Axis
    evidence: Evidence
    found: Explanation


def _repeat(axis: str, execution: Execution, runs: tuple[int, int], target: Target, files: Outputs) -> _Repeated:
    """Make at least and at most so many runs, and look for the cause where they differ."""
    evidence = _gather(execution.runs(runs[1]), least=runs[0])
    _require(evidence, label(target), files)
    locating.measure(evidence, execution)
    found = _explain(evidence, execution)
    operation = locating.locate(Arm(execution, PLAIN, evidence)) if evidence.distinct > 1 else None
    return _Repeated(Axis(axis, evidence.distinct == 1, evidence.divergence, found.restored_by, operation=operation), evidence, found)


def _base(execution: Execution, plain: _Repeated) -> Arm | None:
    """What axes are judged against: the plain runs, or where those differ, a run with what restores them."""
    still = Setting(plain.found.changes)
    if plain.axis.invariant:
        return Arm(execution, still, plain.evidence)
    evidence = _gather(execution.runs(1, still)) if still.changes else Evidence()
    return Arm(execution, still, evidence) if evidence.reference is not None else None


def _vary(variables: Sequence[Variable], execution: Execution, plain: _Repeated) -> list[Axis]:
    """Judge each axis."""
    base = _base(execution, plain)
    if base is None:
        return [Axis(variable.name, None, None, note=_ALREADY) for variable in variables]
    return [_vary_one(variable, base) for variable in variables]


def _vary_rows(target: Target, execution: Execution, plain: _Repeated) -> Axis:
    """Judge the axis `batch`."""
    base = _base(execution, plain)
    return Axis(batch.NAME, None, None, note=_ALREADY) if base is None else batch.judge(target, base, partial(_other, base))


def _vary_ranks(launched: list[str] | str, children: InChildren, plain: _Repeated) -> Axis:
    """Judge the axis `ranks`."""
    still = plain.found.changes
    if isinstance(launched, str) or not (plain.axis.invariant or still):
        return Axis(ranking.NAME, None, None, note=launched if isinstance(launched, str) else _ALREADY)
    arm = _other(Arm(replace(children, target=launched), Setting(still), Evidence()), PLAIN)
    axis = ranking.judged(arm.evidence)
    return axis if axis.divergence is None else replace(axis, operation=locating.locate(arm))


def _resume(resume: resuming.Resume, children: InChildren, plain: _Repeated) -> Axis:
    """Judge the axis `resume`; last, because what a whole run leaves behind must not be what is resumed from."""
    base = _base(children, plain)
    if base is None:
        return Axis(resuming.NAME, None, None, note=_ALREADY)
    return resuming.judge(resume, children, base.evidence.reference or {}, plain.found.changes)


def _other(base: Arm, setting: Setting) -> Arm:
    """Two plain runs under another setting as well."""
    both = Setting((*base.setting.changes, *setting.changes))
    return Arm(base.execution, both, _gather(base.execution.runs(2, both)))


def _vary_one(variable: Variable, base: Arm) -> Axis:
    """Run each variant twice. Where it differs from the base but not from itself, holding it is a fix that was tried."""
    labels = []
    for variant in variable.variants(facts.gather()):
        labels.append(variant.label)
        arm = _other(base, variant.setting)
        evidence = arm.evidence
        failed = next((failure.reason for failure in evidence.failures), "")
        divergence = None if evidence.reference is None else next(differences(base.evidence.reference or {}, evidence.reference), None)
        if divergence or failed:
            pin = variant.pin if evidence.distinct == 1 and not failed else None
            operation = locating.locate(base, arm) if divergence and not failed else None
            return Axis(variable.name, False, divergence, pin, f"with {variant.label}{failed and ': ' + failed}", operation=operation)
    return Axis(variable.name, True if labels else None, None, note=", ".join(labels) or "nothing here can be varied")


def _verdict(main: _Repeated, axes: tuple[Axis, ...], what: str, profile: str | None, until: float | None) -> Verification:
    evidence = main.evidence
    return Verification(
        target=what,
        profile=profile,
        runs=len(evidence.endings),
        until=until,
        distinct=evidence.distinct,
        cause=main.found.cause if evidence.distinct > 1 else next((axis.cause for axis in axes if axis.invariant is False), Cause.EQUAL),
        divergence=next((axis.divergence for axis in axes if axis.divergence), None),
        operation=next((axis.operation for axis in axes if axis.operation), None),
        axes=axes,
        observed=evidence.observed,
        digests={"runs": evidence.combined(), "arrays": evidence.table()},
        failures=evidence.failures,
        tried=tuple(main.found.tried),
        environment=facts.gather().to_dict(),
    )
