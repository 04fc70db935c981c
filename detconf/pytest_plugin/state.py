"""What the plugin knows in one process, and how the profile is put in force. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from detconf.errors import DetconfWarning, ProfileError

if TYPE_CHECKING:
    from detconf.session import Session


@dataclass(slots=True)
class State:
    """What the plugin knows.

    Attributes:
        session: the profile in force; None for none.
        written: per recorded golden its file.
        sampled: goldens that were compared on a sample only.
        workers: what the workers of xdist reported.
    """

    session: Session | None
    written: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    workers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def profile(self) -> str | None:
        return self.session.plan.profile if self.session else None

    @property
    def seeded(self) -> bool:
        """Does the profile seed generators?"""
        from detconf.access import Rng

        return self.session is not None and any(isinstance(step.knob.access, Rng) for step in self.session.plan.steps)

    @property
    def spoken(self) -> bool:
        """Is there anything to say at the end?"""
        return bool(self.session or self.written or self.sampled)


_STATE = pytest.StashKey[State]()


def state_of(config: pytest.Config) -> State:
    """What is known since `begin`."""
    return config.stash[_STATE]


def begin(config: pytest.Config) -> None:
    """Put the profile in force, where one is wanted; a second call does nothing."""
    if _STATE not in config.stash:
        profile, folder = _wanted(config)
        config.stash[_STATE] = State(_apply(config, profile, folder) if profile else None)


def _wanted(config: pytest.Config) -> tuple[str, Path]:
    """(the profile, the folder that it is looked up from)."""
    for namespace in (config.known_args_namespace, config.option):  # the second, where a conftest named this plugin
        option = getattr(namespace, "detconf", None)
        if option is not None:
            return option, Path.cwd()
    return (variable, Path.cwd()) if (variable := os.environ.get("DETCONF_PROFILE")) else (config.getini("detconf"), config.rootpath)


def _apply(config: pytest.Config, profile: str, folder: Path) -> Session:
    from detconf.session import apply  # only where a profile is asked for

    with warnings.catch_warnings(record=True) as caught, _working_in(folder):
        warnings.simplefilter("always")
        try:
            session = apply(profile)
        except ProfileError as error:
            msg = f"detconf: {error}"
            raise pytest.UsageError(msg) from None
    config.add_cleanup(lambda: _restore(session))
    try:
        for each in caught:
            config.issue_config_time_warning(each.message if isinstance(each.message, Warning) else each.category(each.message), 2)
    except DetconfWarning as error:
        msg = f"detconf: {error}"
        raise pytest.UsageError(msg) from None
    return session


def _restore(session: Session) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default", DetconfWarning)  # said, and never an error: the run is over
        session.restore()


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """A profile of the ini file is looked up from its folder, wherever pytest was started."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
