"""`verify`: run something several times and compare what it gives, bit for bit."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from detconf import facts
from detconf.errors import DetconfWarning, TargetError
from detconf.lookup import first_line
from detconf.outputs import Outputs
from detconf.publishing import FOLDER, collecting, read_published
from detconf.supervise import supervise
from detconf.targets import Target, call, label, load_function, locate
from detconf.values import Cause
from detconf.verification import Axis, Evidence, Run, Verification

__all__ = ["Verification", "causes_of", "verify"]

AXES = ("rerun", "process")
"""What can be varied: the run in one process, or the process."""
_TIMEOUT = 1800.0


def verify(  # noqa: PLR0913  # the contract of the design, keyword-only
    target: Callable[[], Any] | str | Sequence[str | os.PathLike[str]],
    *,
    runs: int = 3,
    fresh: bool = False,
    vary: Sequence[str] = (),
    profile: str | None = None,
    timeout: float | None = None,
    outputs: Sequence[str] = (),
    seed: int | None = None,
) -> Verification:
    """Run `target` several times and compare what it gives, bit for bit.

    Compared are what a function returns, what is published with `detconf.publish`, and the files named by `outputs`.

    Args:
        target: a function without arguments, "file.py:function", or a command as a list of words.
        runs: how often, 2 or more.
        fresh: each run in a process of its own; always so for a command. A run may then crash or hang.
        vary: ("rerun",) or ("process",): the same choice as `fresh`, in the words of the result.
        profile: put in force anew for each run, so that each starts from the same seeds. None leaves everything alone.
        timeout: seconds for one run in a process of its own; default 1800.
        outputs: globs of files that each run writes.
        seed: in place of the profile's.

    Raises:
        TargetError: the target cannot be found or run, every run failed, or there was nothing to compare.
        ProfileError: the profile cannot be used.
    """
    wanted = _normal(target)
    axis = _axis(wanted, vary, fresh=fresh)
    _check(axis, runs, profile, timeout, seed)
    files = Outputs(outputs)
    if axis == "process":
        source = _in_children(_command(wanted), runs, _environment(profile, seed), timeout or _TIMEOUT, files)
    else:
        source = _in_process(wanted, runs, profile, seed, files)
    with closing(source):
        evidence = _gather(source)
    _require(evidence, label(wanted), files)
    return _verdict(evidence, axis, label(wanted), profile)


def _normal(target: Any) -> Target:
    if callable(target) or (isinstance(target, str) and target):
        known: Target = target
        return known
    if isinstance(target, (list, tuple)) and target and all(isinstance(word, (str, os.PathLike)) for word in target):
        return [os.fspath(word) for word in target]
    msg = f"{target!r} is no target. Accepted: a function without arguments, 'file.py:function', or the list of a command's words."
    raise TargetError(msg)


def _axis(target: Target, vary: Sequence[str], *, fresh: bool) -> str:
    named = (vary,) if isinstance(vary, str) else tuple(vary)
    fresh = fresh or isinstance(target, list)
    if named in ((), ("process",)):
        return "process" if fresh or named else "rerun"
    if named != ("rerun",):
        msg = f"vary: {named!r} is not accepted. Accepted for now: one of {', '.join(map(repr, AXES))}."
        raise TargetError(msg)
    if fresh:
        msg = "vary: 'rerun' repeats in one process, and this target runs in processes of its own. Accepted here: 'process'."
        raise TargetError(msg)
    return "rerun"


def _check(axis: str, runs: int, profile: str | None, timeout: float | None, seed: int | None) -> None:
    """Refuse what cannot work before anything runs."""
    if type(runs) is not int or runs < 2:
        msg = f"runs: {runs!r} is not accepted. Accepted: an integer of 2 or more."
        raise TargetError(msg)
    if timeout is not None and (axis == "rerun" or not timeout > 0):
        msg = f"timeout: {timeout!r} is not accepted. Accepted: seconds above 0, for runs in processes of their own (fresh=True)."
        raise TargetError(msg)
    if seed is not None and profile is None:
        msg = f"seed: {seed!r} has no effect without a profile. Accepted: a profile beside it, such as profile='strict'."
        raise TargetError(msg)


def _in_process(target: Target, runs: int, profile: str | None, seed: int | None, files: Outputs) -> Generator[Run, None, None]:
    with _in_force(profile, seed):  # around loading too: some settings must come before a framework is imported
        function = load_function(target) if isinstance(target, str) else target
        for _ in range(runs):
            files.begin()
            with collecting() as results, _in_force(profile, seed, quiet=True):
                _call(function)
            yield Run(results | files.written())


@contextmanager
def _in_force(profile: str | None, seed: int | None, *, quiet: bool = False) -> Iterator[None]:
    """The profile, and its seeds anew; nothing for None. `quiet`: what is not in force has been said."""
    if profile is None:
        yield
        return
    from detconf.session import apply  # only where a profile is asked for

    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore", DetconfWarning)
        session = apply(profile, seed=seed)
    with session:
        yield


def _call(function: Any) -> None:
    try:
        call(function)
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        msg = f"{label(function)} raised {first_line(error)}"
        raise TargetError(msg) from error


def _command(target: Target) -> list[str]:
    if isinstance(target, list):
        return target
    file, _, function = (target if isinstance(target, str) else locate(target)).rpartition(":")
    if not os.path.isfile(file):
        load_function(f"{file}:{function}")  # says what is wrong, once and not in every run
    return [sys.executable, "-m", "detconf.runner", file, function]


def _environment(profile: str | None, seed: int | None) -> dict[str, str]:
    from detconf.launch import child_environment  # only where children are started

    environment = child_environment(profile, os.environ) | ({} if seed is None else {"DETCONF_SEED": str(seed)})
    environment.pop("DETCONF_SEEDED", None)  # each run is the first process of its command
    return environment


def _in_children(command: list[str], runs: int, environment: dict[str, str], timeout: float, files: Outputs) -> Generator[Run, None, None]:
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
            published = os.path.join(folder, "published")
            os.mkdir(published)
            files.begin()
            ending = supervise(command, environment | {FOLDER: published}, folder, timeout)
            run = Run(read_published(published) | files.written(), ending)
        yield run


def _gather(source: Iterable[Run]) -> Evidence:
    """Compare every run with the first that did not fail, and then failed ones, where nothing else differs."""
    evidence, failed = Evidence(), []
    for run in source:
        evidence.add(run)
        if run.ending.reason:
            failed.append(run.results)
        elif evidence.reference is None:
            evidence.reference = run.results
        else:
            evidence.compare(run.results)
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


def causes_of(evidence: Evidence) -> Cause:
    """Why the runs differ. The place for proofs of race, rng, mode, state and config; until there are any: unknown."""
    return Cause.EQUAL if evidence.distinct == 1 else Cause.UNKNOWN


def _verdict(evidence: Evidence, axis: str, what: str, profile: str | None) -> Verification:
    return Verification(
        target=what,
        profile=profile,
        runs=len(evidence.endings),
        distinct=evidence.distinct,
        cause=causes_of(evidence),
        divergence=evidence.divergence,
        axes=(Axis(axis, evidence.distinct == 1, evidence.divergence),),
        observed=evidence.observed,
        digests={"runs": evidence.combined(), "arrays": evidence.table()},
        failures=evidence.failures,
        environment=facts.gather().to_dict(),
    )
