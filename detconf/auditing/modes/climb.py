"""The ladder of graph modes: one program on every rung, the rung where its bits change, and why.

Framework-neutral. What a rung is, what can be switched off in it and how to look inside it comes from the framework's
`ladder` module; here the results are compared, the trials made, and the cause is told from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from detconf import facts
from detconf.auditing import progress
from detconf.auditing.modes.climbing import Climb, Row
from detconf.auditing.modes.isolation import Isolated
from detconf.auditing.modes.rungs import judge
from detconf.auditing.modes.verdict import Verdict, worst
from detconf.auditing.result import Audit, Evidence, Rung
from detconf.errors import DetconfError, TargetError
from detconf.frameworks import frameworks
from detconf.frameworks.entry import held
from detconf.frameworks.rungs import Ladder, Status, Subject
from detconf.lookup import is_imported
from detconf.targets import label, load_function
from detconf.values import Cause, suggest

_STATUS = {Status.MISSING: "absent", Status.REFUSED: "absent"}


def climb(
    target: Any,
    modes: Sequence[str] | str | None = None,
    inputs: Any = None,
    *,
    timeout: float | None = None,
    say: Callable[[str], None] | None = None,
) -> Audit:
    """Run one program on the rungs of its framework and say where its bits change, and why.

    Args:
        target: a model; a function of the inputs; a function without arguments that makes a model, or that does everything
            itself (a training step) and returns arrays; or any of these as "file.py:function".
        modes: names of rungs; None for the whole ladder of the framework, without those that are run by name only. The ladder's first rung is what the others are compared with.
        inputs: a tensor, a tuple or list of positional ones, a dict by name, or a list of tuples: the first is what graphs are
            captured with, the others are tried too; or a function without arguments that makes them.
        timeout: seconds for one rung, each then in a process of its own; the target must be found from there.
        say: takes lines about the progress; by default they go to stderr where that is a terminal.

    Raises:
        DetconfError: no such rung.
        TargetError: the target cannot be run, or no other rung could be.
    """
    function = load_function(target) if isinstance(target, str) else target
    made = load_function(inputs) if isinstance(inputs, str) else inputs
    ladder = _ladder(function, made, modes)
    names = _names(ladder, modes)
    say = say or progress.say
    if timeout is not None or ladder.ISOLATED:
        subject: Subject = Isolated(ladder, target, inputs, timeout)
    else:
        subject = ladder.subject(function, made)
    climbed = Climb(subject, names[0], say)
    for name in names[1:]:
        climbed.step(name)
    rows = climbed.rows
    if climbed.race is None and not any(row.outcome.ran for row in rows):
        said = "; ".join(f"{row.name}: {row.outcome.status} ({row.outcome.why})" for row in rows)
        msg = f"{label(function)}: nothing was compared: no rung but {names[0]} ran. {said}"
        raise TargetError(msg)
    return _audit(climbed, ladder, label(target))


def _ladder(target: Any, inputs: Any, modes: Sequence[str] | str | None) -> Ladder:
    """The ladder of the framework that a program belongs to: by the target, by what is about it, by the names of the rungs."""
    known = {each.module: import_module(each.ladder) for each in frameworks() if each.ladder and is_imported(each.module)}
    asked = {modes} if isinstance(modes, str) else set(modes or ())
    stranger = next((name for name in sorted(map(str, asked)) if not any(name in _all(each) for each in known.values())), "")
    if known and stranger:
        msg = f"modes: unknown rung {stranger!r}.{suggest(stranger, [name for each in known.values() for name in _all(each)])}"
        raise DetconfError(msg)
    about = [target, *_values(inputs), *(each for value in (target, inputs) if callable(value) for each in held(value))]
    for values in (about[:1], about):  # the target itself, before anything that it holds
        found = [ladder for module, ladder in known.items() if any(_belongs(each, module, ladder) for each in values)]
        if len(found) == 1:
            return _as_ladder(found[0])
    by_name = [each for each in known.values() if asked & set(_all(each))]
    for each in (list(known.values()), by_name):
        if len(each) == 1:
            return _as_ladder(each[0])
    msg = f"{label(target)}: no telling which framework's graph modes are meant. Pass a model, inputs of its framework, or modes by name."
    raise TargetError(msg)


def _belongs(value: Any, module: str, ladder: Any) -> bool:
    """Is a value the framework's, or one of its modules?"""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] == module
    return bool(ladder.claims(value))


def _as_ladder(module: Any) -> Ladder:
    ladder: Ladder = module
    return ladder


def _values(inputs: Any) -> Iterator[Any]:
    if isinstance(inputs, dict):
        for each in inputs.values():
            yield from _values(each)
    elif isinstance(inputs, (list, tuple)):
        for each in inputs:
            yield from _values(each)
    elif inputs is not None:
        yield inputs


def _all(ladder: Any) -> list[str]:
    return [*ladder.RUNGS, *ladder.BY_NAME]


def _names(ladder: Ladder, modes: Sequence[str] | str | None) -> list[str]:
    """The rungs asked for, in the ladder's order, after the one that they are compared with."""
    asked = list(ladder.RUNGS) if modes is None else [modes] if isinstance(modes, str) else list(modes)
    for name in asked:
        if name not in _all(ladder):
            msg = f"modes: unknown rung {name!r}.{suggest(str(name), _all(ladder))}"
            raise DetconfError(msg)
    base = ladder.RUNGS[0]
    names = [base, *(name for name in _all(ladder) if name in asked and name != base)]
    if len(names) == 1:
        msg = f"modes: {base!r} alone leaves nothing to compare. Accepted beside it: {', '.join(_all(ladder)[1:])}."
        raise DetconfError(msg)
    return names


def _audit(climbed: Climb, ladder: Ladder, what: str) -> Audit:
    verdicts = [judge(climbed, family, ladder.FOCUS) for family in ladder.FAMILIES]
    found = [each for each in verdicts if each is not None]
    if climbed.race is not None:
        found = [climbed.race]
    main = worst(found) if found else _equal(climbed)
    others = [each for each in found if each is not main]
    said = [Evidence(f"{climbed.base}: {note}") for note in climbed.outcome.notes]
    evidence = [*main.evidence, *said, *map(_beside, others)]
    fixes = list({fix.text: fix for fix in (*(fix for each in others for fix in each.fixes), *main.fixes)}.values())
    failed = [f"{row.name}: {row.outcome.status}, {row.outcome.why}" for row in climbed.rows if not row.outcome.ran]
    unexamined = [*failed, *climbed.unexamined, *(each for verdict in found for each in verdict.unexamined)]
    return Audit(
        reference=f"{what} ({climbed.base})",
        candidate=f"{what} ({', '.join(row.name for row in climbed.rows)})",
        cause=main.cause,
        summary=main.summary,
        where=main.where,
        evidence=tuple(evidence),
        proof=main.proof,
        fixes=tuple(sorted(fixes, key=lambda fix: not fix.verified)),
        unexamined=tuple(dict.fromkeys(unexamined)),
        tried=tuple(each for verdict in found for each in verdict.tried),
        tolerance=tuple(main.tolerance),
        rungs=(
            Rung(climbed.base, "equal", ", ".join(("what the others are compared with", *climbed.outcome.notes))),
            *map(_rung, climbed.rows),
        ),
        environment=facts.gather().to_dict(),
    )


def _beside(verdict: Verdict) -> Evidence:
    """Another family's verdict, with its proof."""
    proof = f" ({verdict.proof.kind}: {verdict.proof.what})" if verdict.proof else ""
    return Evidence(f"{verdict.cause}: {verdict.summary}{proof}")


def _equal(climbed: Climb) -> Verdict:
    count = len(climbed.reference)
    ran = [row.name for row in climbed.rows if row.outcome.ran]
    return Verdict(
        Cause.EQUAL, f"{count} results are equal, byte for byte, on {', '.join(ran)}", evidence=[Evidence("results compared", count)]
    )


def _rung(row: Row) -> Rung:
    outcome = row.outcome
    if not outcome.ran:
        return Rung(row.name, _STATUS.get(outcome.status, "failed"), f"{outcome.status}: {outcome.why}")
    distinct = f"does not repeat: {outcome.distinct} different results from one state" if outcome.distinct > 1 else ""
    notes = [row.measured(), distinct, *(["ran eagerly: no graph was made of it"] if outcome.status is Status.EAGER else [])]
    if outcome.graphs:
        notes.append(f"{outcome.graphs} graph{'s' if outcome.graphs > 1 else ''}")
    return Rung(row.name, "equal" if row.equal and outcome.distinct == 1 else "differs", ", ".join(filter(None, (*notes, *outcome.notes))))
