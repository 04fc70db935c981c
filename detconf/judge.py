"""What became of a wanted setting: looks at a control and at its library, changes neither."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from detconf import facts as facts_of
from detconf.access import Env, Rng
from detconf.attestation import Attestation, Entry
from detconf.frameworks import catalogue, framework, frameworks
from detconf.knob import Knob
from detconf.lookup import Missing, NotLoaded, first_line, is_imported, loaded
from detconf.plan import Step
from detconf.values import Outcome, Reading, Value, same, show

in_time: dict[str, Value] = {}
"""Variables that detconf wrote before the library that reads them was there: what that library then saw."""


@dataclass(slots=True, eq=False)
class Live:
    """One step in a session, and what is needed to judge it and to undo it."""

    step: Step
    before: Reading
    held: bool
    late: bool
    saved: Any = None
    problem: str = ""
    reached: bool = False

    @property
    def knob(self) -> Knob:
        return self.step.knob


def observe(step: Step) -> Live:
    knob = step.knob
    before = knob.read()
    live = Live(step, before, holds(step), late=bool(knob.late and knob.late.passed()))
    if not before.missing and is_loaded(knob):
        live.reached = True
        try:
            live.saved = knob.access.save()
        except Exception as error:  # noqa: BLE001  # a control that cannot be saved is said so and left alone at restore
            live.problem = first_line(error)
    return live


def holds(step: Step) -> bool:
    try:
        return step.knob.access.holds(step.wanted)
    except Exception:  # noqa: BLE001  # unreadable means not shown to be in force
        return False


def is_loaded(knob: Knob) -> bool:
    try:
        return not knob.access.module or bool(loaded(knob.access.module))
    except (NotLoaded, Missing):
        return False


def judge(live: Live, facts: facts_of.Facts, *, applied: bool) -> Entry:
    knob, step = live.knob, live.step
    applies, why_not = _applies(knob, facts)
    now = knob.read()
    outcome, note = _verdict(live, now, applied=applied)
    if why_not and outcome is Outcome.PENDING:
        outcome, note = Outcome.UNSUPPORTED, why_not
    if outcome is Outcome.UNSUPPORTED and not why_not and _moot(step):
        why_not = note = f"{note}: {_moot(step)}"
    applies = applies and not (outcome is Outcome.UNSUPPORTED and why_not)
    if isinstance(knob.access, Rng) and not now.problem and holds(step):
        now = Reading(step.wanted)
    notes = (note, knob.undo and f"restore: {knob.undo}")
    return Entry(
        knob.name,
        knob.framework,
        applies,
        step.wanted,
        live.before,
        now,
        outcome,
        step.because + _contradiction(live),
        "; ".join(filter(None, notes)),
    )


def _verdict(live: Live, now: Reading, *, applied: bool) -> tuple[Outcome, str]:
    """(what became of it, what to do)."""
    knob = live.knob
    if isinstance(knob.access, Env):
        return _env_verdict(live, knob.access, applied=applied)
    if now.missing or live.before.missing:
        return Outcome.UNSUPPORTED, now.problem or live.before.problem
    if not is_loaded(knob):
        return Outcome.PENDING, f"will be set when {missing_part(knob.access.module)} is imported"
    if not holds(live.step):
        if not applied:
            return Outcome.OPEN, ""
        if knob.late and live.late:
            return Outcome.TOO_LATE, f"works only until {knob.late}"
        return Outcome.REJECTED, live.problem or f"written, but reads back {now}"
    winner = next(filter(None, (rule.beats() for rule in knob.outranked_by)), "")
    if winner:
        return Outcome.OVERRIDDEN, f"{winner} in the environment outranks it; unset it before the process starts"
    return (Outcome.ALREADY if live.held or not applied else Outcome.SET), live.problem


def _env_verdict(live: Live, access: Env, *, applied: bool) -> tuple[Outcome, str]:
    """What became of a variable: what counts is what its library saw, not what `os.environ` says."""
    knob, wanted, written = live.knob, live.step.wanted, access.read()
    if not applied and written is not None and knob.objection(written):
        return Outcome.INVALID, f"{access.variable}={written!r} cannot work: {knob.objection(written)}"
    said = access.ask() if applied else access.would_say(wanted)
    possible = same(said, wanted) if said is not None else not live.late or same(_seen(access), wanted)
    if possible and (same(written, wanted) or (live.late and said is not None)):
        return (Outcome.ALREADY if live.held or not applied else Outcome.SET), ""
    if possible:
        return (Outcome.REJECTED, live.problem or f"written, but reads back {show(written)}") if applied else (Outcome.OPEN, "")
    heard = said is not None and (same(facts_of.start_environ().get(access.variable), wanted) or said != (access.default or said))
    if heard:
        return Outcome.REJECTED, f"in time, but the library answers {show(said) or 'nothing'}"
    answer = f"the library answers {show(said) or 'nothing'}; " if said is not None else ""
    return Outcome.TOO_LATE, f"{answer}read when {knob.late}; start the process {_remedy(access.variable, wanted)}"


def _seen(access: Env) -> Value:
    """What the library took when it read the variable, as far as can be known."""
    seen = in_time[access.variable] if access.variable in in_time else facts_of.start_environ().get(access.variable)
    return access.default or None if seen is None else seen


def _remedy(variable: str, wanted: Value) -> str:
    return f"without {variable} in its environment" if wanted is None else f"with {variable}={shlex.quote(str(wanted))} in its environment"


def _contradiction(live: Live) -> str:
    """The user's own value that the profile contradicts, with its source."""
    if not isinstance(live.knob.access, Env) or live.before.value is None or same(live.before.value, live.step.wanted):
        return ""
    value = live.before.value
    origin = "environment" if facts_of.start_environ().get(live.knob.access.variable) == value else "os.environ of this process"
    wrong = " (invalid)" if live.knob.objection(value) else ""
    return f"; the {origin} said {value!r}{wrong}"


def _applies(knob: Knob, facts: facts_of.Facts) -> tuple[bool, str]:
    """(is what the knob governs present, why its framework can never be)."""
    owner = framework(knob.framework)
    if owner.module and not facts_of.installed(owner.module):
        return False, f"{owner.module} is not installed"
    kinds = frozenset(knob.governs.split("|"))
    governed = (kinds & facts.devices) | (kinds - facts_of.DEVICES)
    if governed and owner.module and owner.devices and is_imported(owner.module):
        governed &= owner.devices()
    return bool(governed), ""


def _moot(step: Step) -> str:
    """Why it does not matter that this build lacks the control; empty where it does."""
    if same(step.knob.absent, step.wanted):
        return "without it, everything is as wanted"
    other = next((name for name in step.knob.instead if not catalogue()[name].read().missing), "")
    return f"{other} does it in this build" if other else ""


def missing_part(module: str) -> str:
    """What must be imported next for `module` to be there: its top-level package, then itself; empty for nothing."""
    top = module.partition(".")[0]
    return next((name for name in (top, module) if name and not is_imported(name)), "")


def _strays(known: Collection[str]) -> Iterator[Entry]:
    """Settings that someone asked for in the environment, beside the profile, and that are not in force."""
    own_doing = {pair for owner in frameworks() if is_imported(owner.module) for pair in owner.writes.items()}
    for knob in catalogue().values():
        value = knob.access.read() if isinstance(knob.access, Env) and knob.name not in known else None
        if value is None or (knob.access.variable, value) in own_doing:
            continue
        live = observe(Step(knob, value, "the environment says so"))
        outcome, note = _verdict(live, live.before, applied=False)
        if outcome in (Outcome.INVALID, Outcome.TOO_LATE):
            yield Entry(knob.name, knob.framework, True, value, live.before, live.before, outcome, live.step.because, note)
    for owner in frameworks():
        if owner.strays and is_imported(owner.module):
            for stray in owner.strays():
                reading = Reading(stray.now)
                yield Entry(
                    stray.knob, owner.name, True, stray.asked, reading, reading, Outcome.TOO_LATE, "the environment says so", stray.note
                )


def attest(profile: str, entries: Collection[Entry], facts: facts_of.Facts) -> Attestation:
    devices = [name.upper().replace("ROCM", "ROCm") for name in ("cuda", "rocm") if name not in facts.devices]
    packages = [owner.module for owner in frameworks() if owner.module and not facts_of.installed(owner.module)]
    return Attestation(profile, (*entries, *_strays({entry.knob for entry in entries})), (*devices, *packages), facts.to_dict())
