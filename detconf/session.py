"""A plan put in force: write, read back, watch, put back. The only writer of process state."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from detconf import facts as facts_of
from detconf.access import Env, Rng
from detconf.attestation import Attestation, Entry
from detconf.children import Inheritance, Rows, bequeath, coming_up, merged, rows, unseeded
from detconf.errors import DetconfWarning, LateError, ProfileError
from detconf.frameworks import catalogue
from detconf.judge import Live, attest, holds, is_loaded, judge, missing_part, observe
from detconf.lookup import finished, first_line
from detconf.plan import Plan, Step
from detconf.request import planned
from detconf.values import Outcome, Value, same
from detconf.writing import put_back, write

if TYPE_CHECKING:
    from typing_extensions import Self

_lock = threading.RLock()
_stack: list[Session] = []


def current() -> Session | None:
    """The session applied last and not restored."""
    return _stack[-1] if _stack else None


_NOT_BACK = "left behind"


class Session:
    """A profile in force in this process. Made by `apply`; a context manager that restores on exit.

    Sessions nest: restoring one first restores those applied after it.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._lives: list[Live] = []
        self._aside: list[Live] = []
        self._rows: dict[str, Entry] = {}
        self._active = False
        self._awaited: set[str] = set()
        self._thread = threading.current_thread()
        self._report: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.restore()

    def __repr__(self) -> str:
        return f"<detconf session: {self.attestation.headline}>"

    @property
    def attestation(self) -> Attestation:
        """What became of every step, as of `apply` or of the last import of a framework it waited for."""
        return attest(self.plan.profile, [self._rows[step.knob.name] for step in self.plan.steps], facts_of.gather())

    def _begin(self) -> None:
        with _lock:
            _stack.append(self)
            self._active = True
            self._enter(self.plan.steps)
            bequeath([session.plan for session in _stack], inherit)
            if os.environ.get("DETCONF_REPORT"):
                from detconf.reporting import begin  # only where a report is asked for

                self._report = begin(self)

    def _await(self) -> None:
        """Ask to be called when a module that a step waits for is imported: the framework first, then its parts."""
        from wrapt import register_post_import_hook  # only where something is pending: importing it costs milliseconds

        for module in {missing_part(live.knob.access.module) for live in self._lives if not live.reached} - self._awaited:
            if module:
                self._awaited.add(module)
                register_post_import_hook(self._arrive, module)

    def _arrive(self, module: Any) -> None:
        finished(module.__name__)
        with _lock:
            waiting = [live for live in self._lives if not live.reached and is_loaded(live.knob)] if self._active else []
            if self._active:
                self._lives = [live for live in self._lives if live not in waiting]
                self._enter(tuple(live.step for live in waiting))

    def _enter(self, steps: tuple[Step, ...]) -> None:
        """Look at everything before writing anything: writing one knob may change what another reads."""
        fresh = [observe(step) for step in steps]
        self._set_aside(name for live in fresh if live.reached for name in live.knob.touches)
        for live in fresh:
            if live.reached:
                write(live)
        self._lives += fresh
        self._await()
        facts = facts_of.gather()
        for live in self._lives:
            # A variable is judged again at every import: its library may be there now, and say what it made of it.
            if live in fresh or isinstance(live.knob.access, Env):
                self._rows[live.knob.name] = judge(live, facts, applied=True)

    def _set_aside(self, names: Iterable[str]) -> None:
        """Save what writing changes beside the plan, and every generator: they come back although nothing sets them."""
        known = {step.knob.name for step in self.plan.steps} | {live.knob.name for live in self._aside}
        wanted = {*names, *(name for name, knob in catalogue().items() if isinstance(knob.access, Rng))} - known
        self._aside += [observe(Step(knob, None, "")) for name, knob in catalogue().items() if name in wanted and is_loaded(knob)]

    def check(self) -> Attestation:
        """What was in force and no longer is. `ok` when nothing drifted."""
        with _lock:
            facts = facts_of.gather()
            was = {name: entry for name, entry in self._rows.items() if entry.outcome in (Outcome.SET, Outcome.ALREADY)}
            drifted = [
                Entry(
                    live.knob.name, live.knob.framework, was[live.knob.name].applies, live.step.wanted, live.before, live.knob.read(), Outcome.DRIFTED,
                    live.step.because, self._elsewhere(live) or "something changed it after apply(); apply again or remove that call",
                )
                for live in self._lives
                if live.knob.name in was and live.knob.watched and live.reached and not holds(live.step)
            ]  # fmt: skip
            return Attestation(self.plan.profile, tuple(drifted), (), facts.to_dict(), about="drifted")

    def _elsewhere(self, live: Live) -> str:
        """What to do about a knob that every thread keeps for itself, where another thread asks."""
        if live.knob.scope != "thread" or threading.current_thread() is self._thread:
            return ""
        return "each thread keeps its own, and this one does not come from the one that called apply(): set it here too"

    def _forked(self) -> None:
        """In a forked child: never seed what the parent had not seeded yet."""
        pending = {live.knob.name for live in self._lives if not live.reached and isinstance(live.knob.access, Rng)}
        self._lives = [live for live in self._lives if live.knob.name not in pending]
        self.plan = Plan(self.plan.profile, tuple(step for step in self.plan.steps if step.knob.name not in pending))

    def restore(self) -> Attestation:
        """Put back every value that was read before, also what others have changed since, and generator states.

        Goes on past a failure. Returns, and warns of, what could not be put back; a second call does nothing.
        """
        with _lock:
            if not self._active:
                return Attestation(self.plan.profile, (), about=_NOT_BACK)
            while _stack[-1] is not self:
                _stack[-1].restore()
            if self._report:
                self._report()
            _stack.pop()
            self._active = False
            bequeath([session.plan for session in _stack], inherit)
            failed = tuple(self._put_back())
        report = Attestation(self.plan.profile, failed, about=_NOT_BACK)
        if failed:
            names = ", ".join(f"{entry.knob} ({entry.note})" for entry in failed)
            warnings.warn(f"detconf could not put back: {names}", DetconfWarning, stacklevel=2)
        return report

    def _put_back(self) -> Iterator[Entry]:
        order = {name: place for place, name in enumerate(catalogue())}
        lives = sorted((live for live in (*self._lives, *self._aside) if live.reached), key=lambda live: order[live.knob.name])
        problems = {live.knob.name: put_back(live) for live in lives}
        for live in lives:
            now, problem = live.knob.read(), problems[live.knob.name]
            if live.before.problem and now.problem:
                continue
            if not live.held and self._thread.is_alive() and self._elsewhere(live):
                problem = problem or f"put back here, but thread {self._thread.name!r}, which called apply(), keeps its own"
            if problem or now.problem or not same(now.value, live.before.value):
                note = problem or f"reads {now} where it read {live.before}"
                yield Entry(
                    live.knob.name, live.knob.framework, True, live.before.value, live.before, now, Outcome.REJECTED, "restore", note
                )


def apply(
    profile: str | None = None,
    *,
    seed: int | None = None,
    overrides: Mapping[str, Value] | None = None,
    frameworks: Collection[str] | None = None,
    on_late: Literal["warn", "error", "restart"] = "warn",
) -> Session:
    """Put a profile in force in this process and read back what became of it.

    Environment variables are written at once; a framework that is not imported yet is configured when it is, and
    none is imported for it.

    Args:
        profile: a name or path. Default: the variable DETCONF_PROFILE, else "strict".
        seed: seed for every generator, in place of the profile's. Default: DETCONF_SEED, else the profile's.
        overrides: exact values, knob or policy name -> value; they beat the variable DETCONF_SET.
        frameworks: configure only these (of numpy, torch, paddle), beside the process and the native libraries.
        on_late: what to do about settings that came too late. "warn" of all that apply here and are not in force; put
            everything back and raise an "error"; or put everything back and "restart" this interpreter, once, with the
            variables that it lacked. What ran before is then lost, so call it first thing.

    Raises:
        ProfileError: the profile, a value or an argument cannot be used; nothing has been changed.
        LateError: `on_late="error"` and something came too late, or `"restart"` where that would lose or help nothing
            (the text says why); everything has been put back.
    """
    if on_late not in ("warn", "error", "restart"):
        msg = f"on_late: {on_late!r} is not accepted. Accepted: 'warn', 'error', 'restart'."
        raise ProfileError(msg)
    plan = planned(profile, seed=seed, overrides=overrides, frameworks=frameworks)
    session = Session(unseeded(plan) if coming_up() else plan)  # its main module runs again in a spawned child, which is not seeded
    session._begin()  # noqa: SLF001  # a session is made and begun in one place, so that none exists half begun
    bad = [entry for entry in session.attestation.entries if not entry.ok]
    if on_late != "warn" and any(entry.outcome is Outcome.TOO_LATE for entry in bad):
        session.restore()
        refused = f" Not restarted: {_restart(plan)}." if on_late == "restart" else ""
        msg = f"{_complaint(plan.profile, bad)}{refused} Everything has been put back."
        raise LateError(msg)
    if bad:
        try:
            warnings.warn(_complaint(session.plan.profile, bad), DetconfWarning, stacklevel=2)
        except DetconfWarning:  # the caller made warnings errors, and gets no session that could be restored
            session.restore()
            raise
    return session


def _restart(plan: Plan) -> str:
    """Start this interpreter again with the variables of `plan`. Returns only where that is not done: why."""
    from detconf.restart import obstacle, restart  # only where something came too late

    given = {key: value for key, value in os.environ.items() if key not in plan.variables}
    wanted = {key: value for key, value in plan.variables.items() if value is not None}
    return obstacle() or restart({**given, **wanted})


def _complaint(profile: str, bad: Collection[Entry]) -> str:
    rows = "".join(f"\n  {entry.knob}: {entry.outcome} ({entry.note.partition('; restore:')[0]})" for entry in bad)
    return f"{profile} is not fully in force:{rows}\n"


def start(*, seeded: bool) -> Session:
    """Apply DETCONF_PROFILE for the life of this process, without warnings: for a command that detconf started.

    Args:
        seeded: seed the generators; false in children, which get knobs and never a re-seed.
    """
    session = Session(planned() if seeded else unseeded(planned()))
    session._begin()  # noqa: SLF001  # as in `apply`
    return session


def inherit(parent: int, profile: str, steps: Rows) -> Inheritance:
    """Put in force what a parent process hands down. Called where multiprocessing unpickles it, which must not fail."""
    inheritance = Inheritance(inherit, profile, steps)
    try:
        plan = inheritance.plan
        known = bool(_stack) and rows(merged([session.plan for session in _stack])) == rows(plan)
        if parent != os.getpid() and not known:
            Session(plan)._begin()  # noqa: SLF001  # as in `apply`
    except Exception as error:  # noqa: BLE001  # whatever fails here, the child must still start
        sys.stderr.write(f"detconf: {profile} could not be put in force in this child process: {first_line(error)}\n")
    return inheritance


def inspect(profile: str | None = None, *, frameworks: Collection[str] | None = None) -> Attestation:
    """What `apply` would meet here, changing nothing.

    Raises:
        ProfileError: the profile cannot be used.
    """
    with _lock:
        facts = facts_of.gather()
        wanted = planned(profile, frameworks=frameworks)
        return attest(wanted.profile, [judge(observe(step), facts, applied=False) for step in wanted.steps], facts)


def _after_fork() -> None:
    global _lock  # noqa: PLW0603  # the thread that held it may not exist here
    _lock = threading.RLock()
    for session in _stack:
        session._forked()  # noqa: SLF001  # of the same class


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
