"""How a target is run: again and again in this process, or each time in one of its own; plainly, or under a setting."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from detconf import evaluating, observing, reseeding
from detconf.access import Rng
from detconf.arrays import Array
from detconf.causes.changes import IN_CHILDREN, IN_PROCESS, Change, Setting
from detconf.errors import DetconfWarning, TargetError
from detconf.frameworks import catalogue, frameworks
from detconf.frameworks.base import Modes
from detconf.knob import Knob
from detconf.lookup import first_line, is_imported, resolve
from detconf.outputs import Outputs
from detconf.publishing import FOLDER, collecting, read_published
from detconf.stopping import VARIABLE as STEPS
from detconf.supervise import supervise
from detconf.targets import Target, call, label, load_function, locate
from detconf.values import Value
from detconf.verification import Run

PLAIN = Setting()
_TIMEOUT = 1800.0
_EXPERIMENT = 120.0
"""Seconds for the runs of one experiment; a slow target gets fewer runs, and then perhaps no verdict."""
_TRIAL_SEED = 0


class Execution(Protocol):
    """A way to run a target."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """What can be changed between its runs."""
        ...

    def runs(self, count: int, setting: Setting = PLAIN) -> Generator[Run, None, None]:
        """So many runs; fewer where an experiment takes too long."""
        ...

    def recorded(self, folder: str, keep: bool | range = False, setting: Setting = PLAIN) -> Generator[tuple[str, Run], None, None]:
        """Runs without end like those of `runs`, each recorded operation by operation: a folder of its own in `folder`, and the run.

        `keep`: the indexes of the events whose arrays are kept; False for digests only, True for all.
        """
        ...

    def trained(self) -> bool | None:
        """Did the last run call backward? None where that cannot be told."""
        ...


@dataclass(slots=True)
class InProcess:
    """Runs a function in this process.

    Attributes:
        entry: what every generator held before the first run that found it there.
        states: the same as short texts.
        drew: a generator was found elsewhere at a later run.
        modes: what was seen of training and evaluation in the last experiment that overruled it.
    """

    target: Target
    profile: str | None
    seed: int | None
    files: Outputs
    entry: dict[str, Any] = field(default_factory=dict)
    states: dict[str, Value] = field(default_factory=dict)
    drew: bool = False
    modes: Modes = field(default_factory=Modes)

    @property
    def changes(self) -> tuple[Change, ...]:
        """What can be changed: where nothing was drawn, generators cannot matter, and runs that agree would agree by chance."""
        return tuple(change for change in IN_PROCESS if self.drew or not change.entry)

    def runs(self, count: int, setting: Setting = PLAIN) -> Generator[Run, None, None]:
        if setting.has("apart"):
            yield from InChildren(self.target, self.profile, self.seed, self.files).runs(count, setting)
            return
        end = time.monotonic() + _EXPERIMENT
        with _in_force(self.profile, self.seed, {}):  # around loading too: some settings must come before a framework is imported
            function = load_function(self.target) if isinstance(self.target, str) else self.target
            for _ in range(count):
                yield self._one(function, setting)
                if setting.changes and time.monotonic() > end:
                    return

    def recorded(self, folder: str, keep: bool | range = False, setting: Setting = PLAIN) -> Generator[tuple[str, Run], None, None]:
        from detconf.recording.running import record  # only where runs part

        with _in_force(self.profile, self.seed, {}):
            function = load_function(self.target) if isinstance(self.target, str) else self.target
            for path in _folders(folder):
                recording = record(os.path.join(path, observing.OPERATIONS), values=keep, sources=True)
                yield path, self._one(function, setting, recording)

    def _one(self, function: Any, setting: Setting, recording: AbstractContextManager[Any] | None = None) -> Run:
        self.files.begin()
        with ExitStack() as stack:
            results = stack.enter_context(collecting())
            stack.enter_context(_in_force(self.profile, self.seed, setting.overrides, quiet=True))
            self._generators(put_back=setting.has("entry"))
            if setting.has("reseed"):
                stack.enter_context(reseeding.fixed(needed=len(setting.changes) == 1))
            if setting.has("evaluate"):
                self.modes = Modes()
                _watch(stack, self.modes)
            if recording:
                stack.enter_context(recording)
            _call(function)
        return Run(results | self.files.written())

    def _generators(self, *, put_back: bool) -> None:
        for name, access in _generators():
            if name not in self.entry:
                self.entry[name], self.states[name] = access.save(), access.read()
                continue
            self.drew = self.drew or access.read() != self.states[name]
            if put_back:
                access.load(self.entry[name])

    def trained(self) -> bool | None:
        return self.modes.trained


def _generators() -> Iterator[tuple[str, Rng]]:
    """The generators of the process and of every imported framework."""
    for name, knob in catalogue().items():
        if isinstance(knob.access, Rng) and _there(knob):
            yield name, knob.access


def _there(knob: Knob) -> bool:
    return not knob.access.module or is_imported(knob.access.module)


def _watch(stack: ExitStack, seen: Modes) -> None:
    for framework in frameworks():
        if framework.modes and is_imported(framework.module):
            stack.enter_context(resolve(framework.modes)(seen, evaluate=True))


@contextmanager
def _in_force(profile: str | None, seed: int | None, overrides: Mapping[str, Value], *, quiet: bool = False) -> Iterator[None]:
    """The profile, and its seeds anew; nothing for None without overrides. `quiet`: what is not in force has been said."""
    if profile is None and not overrides:
        yield
        return
    from detconf.session import apply  # only where a profile is asked for

    with warnings.catch_warnings(), _bare(profile) as name:
        if quiet:
            warnings.simplefilter("ignore", DetconfWarning)
        session = apply(name, seed=seed, overrides=overrides)
    with session:
        yield


@contextmanager
def _bare(profile: str | None) -> Iterator[str]:
    """`profile`, or for None the path of one that asks for nothing, to be overridden."""
    if profile is not None:
        yield profile
        return
    with tempfile.TemporaryDirectory(prefix="detconf-") as folder:
        path = os.path.join(folder, "trial.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("name: trial\n")
        yield path


def _call(function: Any) -> None:
    try:
        call(function)
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        msg = f"{label(function)} raised {first_line(error)}"
        raise TargetError(msg) from error


@dataclass(slots=True)
class InChildren:
    """Runs a command, each time in a process of its own, which ends after so many optimizer `steps`.

    Attributes:
        said: what the runs of the last experiment in evaluation mode said of backward.
    """

    target: Target
    profile: str | None
    seed: int | None
    files: Outputs
    timeout: float | None = None
    steps: int | None = None
    changes: tuple[Change, ...] = IN_CHILDREN
    said: bool | None = None

    def runs(self, count: int, setting: Setting = PLAIN) -> Generator[Run, None, None]:
        command = self._words(setting)
        end = time.monotonic() + _EXPERIMENT
        with self._environment(setting) as environment:
            for _ in range(count):
                yield self._one(command, environment)
                if setting.changes and time.monotonic() > end:
                    return

    def recorded(self, folder: str, keep: bool | range = False, setting: Setting = PLAIN) -> Generator[tuple[str, Run], None, None]:
        with self._environment(setting) as environment:
            for path in _folders(folder):
                own = observing.environment(environment, path, keep, "operations")
                yield path, self._one(self._words(setting), own, observed=True)

    def _words(self, setting: Setting) -> list[str]:
        return [*(_fixed_addresses() if setting.has("addresses") else ()), *_command(self.target)]

    @contextmanager
    def _environment(self, setting: Setting) -> Iterator[dict[str, str]]:
        from detconf.launch import child_environment  # only where children are started

        seed = _TRIAL_SEED if self.seed is None and setting.has("seed") else self.seed
        plain = self.profile is None and not setting.overrides and seed is None
        with _bare(self.profile) as name, ExitStack() as stack:
            environment = child_environment(None if plain else name, os.environ, overrides=setting.overrides, seed=seed)
            environment.pop("DETCONF_SEEDED", None)  # each run is the first process of its command
            environment |= ({STEPS: str(self.steps)} if self.steps else {}) | setting.environment
            if setting.has("reseed"):
                environment = stack.enter_context(reseeding.told(environment, needed=len(setting.changes) == 1))
            if not setting.has("evaluate"):
                yield environment
                return
            with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
                yield evaluating.environment(environment, folder)
                self.said = evaluating.trained(folder)

    def _one(self, command: list[str], environment: dict[str, str], *, observed: bool = False) -> Run:
        """`observed`: the environment says already what is recorded."""
        with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
            published = os.path.join(folder, "published")
            os.mkdir(published)
            self.files.begin()
            plain = observed or not isinstance(self.target, list)
            own = environment if plain else observing.environment(environment, folder)
            ending = supervise(command, own | {FOLDER: published}, folder, self.timeout or _TIMEOUT)
            return Run(observing.states(folder) | read_published(published) | self.files.written(), ending)

    def kept(self, index: int, count: int = 2) -> list[Array]:
        """The array of one recorded state, from so many more runs."""
        found: list[Array] = []
        with self._environment(PLAIN) as environment:
            for _ in range(count):
                with tempfile.TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
                    supervise(
                        _command(self.target),
                        observing.environment(environment, folder, range(index, index + 1)),
                        folder,
                        self.timeout or _TIMEOUT,
                    )
                    found += filter(None, [observing.kept(folder, index)])
        return found

    def trained(self) -> bool | None:
        return self.said


def _folders(parent: str) -> Iterator[str]:
    """New folders in `parent`, without end."""
    for number in itertools.count():
        path = os.path.join(parent, str(number))
        os.mkdir(path)
        yield path


def _command(target: Target) -> list[str]:
    if isinstance(target, list):
        return target
    file, _, function = (target if isinstance(target, str) else locate(target)).rpartition(":")
    if not os.path.isfile(file):
        load_function(f"{file}:{function}")  # says what is wrong, once and not in every run
    return [sys.executable, "-m", "detconf.runner", file, function]


def _fixed_addresses() -> list[str]:
    """The words that start a command without address-space randomisation (util-linux); none where there is no such tool."""
    tool = shutil.which("setarch")
    return [tool, "-R"] if tool else []
