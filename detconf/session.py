"""A plan put in force: write, read back, watch, put back. The only writer of process state."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from detconf import facts as facts_of
from detconf.access import Access, Env, Rng
from detconf.attestation import Attestation, Entry
from detconf.errors import DetconfWarning, LateError, ProfileError
from detconf.frameworks import NAMES, catalogue
from detconf.judge import Live, attest, holds, in_time, is_loaded, judge, missing_part, observe
from detconf.lookup import Missing, finished, first_line
from detconf.plan import Plan, Step, make
from detconf.values import Outcome, Reading, Value, same, suggest

if TYPE_CHECKING:
    from typing_extensions import Self

_lock = threading.RLock()
_stack: list[Session] = []


def _write(live: Live) -> None:
    """Write one knob. A failure is kept for its row and never stops the others."""
    knob, wanted = live.knob, live.step.wanted
    if isinstance(knob.access, Env) and not live.late:
        in_time[knob.access.variable] = wanted
    if live.held and holds(live.step):
        return
    try:
        knob.access.write(wanted)
    except (Missing, AttributeError) as error:
        live.problem, live.before = str(error), Reading(problem=str(error), missing=True)
    except Exception as error:  # noqa: BLE001  # whatever a framework raises becomes the row's note
        live.problem = first_line(error)
        _undo_failed_write(live)


def _undo_failed_write(live: Live) -> None:
    # `torch.backends.cuda.preferred_linalg_library` raises and stores the value all the same (torch 2.13).
    if not live.before.problem and not same(live.knob.read().value, live.before.value):
        _load(live)


def _load(live: Live) -> str:
    """Put one knob back. Returns what went wrong, or empty."""
    access = live.knob.access
    try:
        if not _unchanged(access, live.saved):
            access.load(live.saved)
    except Exception as error:  # noqa: BLE001  # a failing restore goes on and is reported
        return first_line(error)
    return ""


def _unchanged(access: Access, saved: Any) -> bool:
    try:
        return access.unchanged(saved)
    except Exception:  # noqa: BLE001  # unreadable now: put it back
        return False


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
                _write(live)
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
                    live.step.because, "something changed it after apply(); apply again or remove that call",
                )
                for live in self._lives
                if live.knob.name in was and live.knob.watched and live.reached and not holds(live.step)
            ]  # fmt: skip
            return Attestation(self.plan.profile, tuple(drifted), (), facts.to_dict())

    def restore(self) -> Attestation:
        """Put back every value that was read before, also what others have changed since, and generator states.

        Goes on past a failure. Returns, and warns of, what could not be put back; a second call does nothing.
        """
        with _lock:
            if not self._active:
                return Attestation(self.plan.profile, ())
            while _stack[-1] is not self:
                _stack[-1].restore()
            _stack.pop()
            self._active = False
            failed = tuple(self._put_back())
        report = Attestation(self.plan.profile, failed)
        if failed:
            names = ", ".join(f"{entry.knob} ({entry.note})" for entry in failed)
            warnings.warn(f"detconf could not put back: {names}", DetconfWarning, stacklevel=2)
        return report

    def _put_back(self) -> Iterator[Entry]:
        order = {name: place for place, name in enumerate(catalogue())}
        lives = sorted((live for live in (*self._lives, *self._aside) if live.reached), key=lambda live: order[live.knob.name])
        problems = {live.knob.name: _load(live) for live in lives}
        for live in lives:
            now, problem = live.knob.read(), problems[live.knob.name]
            if live.before.problem and now.problem:
                continue
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
    on_late: Literal["warn", "error"] = "warn",
) -> Session:
    """Put a profile in force in this process and read back what became of it.

    Environment variables are written at once; a framework that is not imported yet is configured when it is, and
    none is imported for it.

    Args:
        profile: a name or path. Default: the variable DETCONF_PROFILE, else "strict".
        seed: seed for every generator, in place of the profile's. Default: DETCONF_SEED, else the profile's.
        overrides: exact values, knob or policy name -> value; they beat the variable DETCONF_SET.
        frameworks: configure only these (of numpy, torch, paddle), beside the process and the native libraries.
        on_late: "warn" of settings that apply here and are not in force, or put everything back and raise an "error".

    Raises:
        ProfileError: the profile, a value or an argument cannot be used; nothing has been changed.
        LateError: `on_late="error"` and something came too late; everything has been put back.
    """
    if on_late not in ("warn", "error"):
        msg = f"on_late: {on_late!r} is not accepted. Accepted: 'warn', 'error'."
        raise ProfileError(msg)
    session = Session(planned(profile, seed=seed, overrides=overrides, frameworks=frameworks))
    session._begin()  # noqa: SLF001  # a session is made and begun in one place, so that none exists half begun
    bad = [entry for entry in session.attestation.entries if not entry.ok]
    if on_late == "error" and any(entry.outcome is Outcome.TOO_LATE for entry in bad):
        session.restore()
        raise LateError(_complaint(session.plan.profile, bad) + " Everything has been put back.")
    if bad:
        warnings.warn(_complaint(session.plan.profile, bad), DetconfWarning, stacklevel=2)
    return session


def _complaint(profile: str, bad: Collection[Entry]) -> str:
    rows = "".join(f"\n  {entry.knob}: {entry.outcome} ({entry.note.partition('; restore:')[0]})" for entry in bad)
    return f"{profile} is not fully in force:{rows}\n"


def start(*, seeded: bool) -> Session:
    """Apply DETCONF_PROFILE for the life of this process, without warnings: for a command that detconf started.

    Args:
        seeded: seed the generators; false in children, which get knobs and never a re-seed.
    """
    wanted = planned()
    steps = tuple(step for step in wanted.steps if seeded or not isinstance(step.knob.access, Rng))
    session = Session(Plan(wanted.profile, steps))
    session._begin()  # noqa: SLF001  # as in `apply`
    return session


def inspect(profile: str | None = None, *, frameworks: Collection[str] | None = None) -> Attestation:
    """What `apply` would meet here, changing nothing.

    Raises:
        ProfileError: the profile cannot be used.
    """
    with _lock:
        facts = facts_of.gather()
        wanted = planned(profile, frameworks=frameworks)
        return attest(wanted.profile, [judge(observe(step), facts, applied=False) for step in wanted.steps], facts)


def planned(
    profile: str | None = None,
    *,
    seed: int | None = None,
    overrides: Mapping[str, Value] | None = None,
    frameworks: Collection[str] | None = None,
) -> Plan:
    """The steps that `apply` would take with the same arguments and variables.

    Raises:
        ProfileError: the profile, a value or an argument cannot be used.
    """
    from detconf import profile as profiles  # pydantic and yaml load only when a profile is needed

    for name in frameworks or ():
        if name not in NAMES:
            msg = f"frameworks: unknown framework {name!r}.{suggest(str(name), NAMES)}"
            raise ProfileError(msg)
    wanted = profiles.load(os.environ.get("DETCONF_PROFILE") or "strict" if profile is None else profile)
    variable = os.environ.get("DETCONF_SEED")
    if seed is not None:
        wanted = wanted.with_seed(seed, "seed argument")
    elif variable:
        wanted = wanted.with_seed(int(variable) if variable.isdecimal() else variable, "DETCONF_SEED")  # type: ignore[arg-type]  # refused there, in words
    if os.environ.get("DETCONF_SET"):
        wanted = wanted.with_lines(profiles.parse_assignments(os.environ["DETCONF_SET"], "DETCONF_SET"), "DETCONF_SET")
    if overrides:
        wanted = wanted.with_lines(dict(overrides), "overrides argument")
    return make(wanted, NAMES if frameworks is None else frameworks)
