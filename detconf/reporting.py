"""What became of a session, as one file per process: written at the first optimizer step, again at the end.

DETCONF_REPORT names the folder. A process that is killed leaves what it wrote at its first step. Nothing here may stop
the program: a folder that cannot be written to costs one line on stderr.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from detconf import facts
from detconf.attestation import Attestation, Entry
from detconf.frameworks import frameworks
from detconf.lookup import finished, first_line, is_imported, resolve
from detconf.warned import Warned

if TYPE_CHECKING:
    from detconf.session import Session

FOLDER = "DETCONF_REPORT"
SCHEMA = "detconf.report/1"

_reporter: _Reporter | None = None


def begin(session: Session) -> Callable[[], None]:
    """Report on `session` in the folder that DETCONF_REPORT names. To be called before what it set is put back: the result."""
    global _reporter  # noqa: PLW0603  # one report per process
    if _reporter is None:
        _reporter = _Reporter(os.environ[FOLDER])
        atexit.register(_reporter.write, "exit")
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_reporter.forked)
    _reporter.enter(session)
    return partial(_reporter.leave, session)


class _Reporter:
    """This process's report. Sessions nest; the report speaks of the innermost."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)
        self.sessions: list[Session] = []
        self.warned = Warned()
        self.drift: dict[str, Entry] = {}
        self.ends: dict[str, Callable[[], None]] = {}
        self.stepped = self.child = self.complained = False
        self.token, self.path = os.urandom(3).hex(), ""
        self.lock = threading.RLock()

    def enter(self, session: Session) -> None:
        self.sessions.append(session)
        if len(self.sessions) > 1:
            return
        with self._harmless():
            os.makedirs(self.folder, exist_ok=True)
        self.warned.begin()
        for each in frameworks():
            if each.on_step and is_imported(each.module):
                self._watch(each.name, each.on_step)
            elif each.on_step:
                from wrapt import register_post_import_hook  # only where something is pending, as in the session

                register_post_import_hook(partial(self._arrived, each.name, each.on_step), each.module)

    def leave(self, session: Session) -> None:
        if session not in self.sessions:
            return
        if self.sessions[-1] is session:
            self.write("restore")
        self.sessions.remove(session)
        if not self.sessions:
            self.warned.end()
            while self.ends:
                self.ends.popitem()[1]()

    def forked(self) -> None:
        """Start anew in a child: it has its own first step, and no report before that."""
        self.lock = threading.RLock()
        self.warned.forget()
        self.drift, self.token, self.path = {}, os.urandom(3).hex(), ""
        self.stepped, self.child = False, True

    def _arrived(self, name: str, path: str, module: Any) -> None:
        finished(module.__name__)
        if self.sessions:
            self._watch(name, path)

    def _watch(self, name: str, path: str) -> None:
        if name not in self.ends:
            with self._harmless():
                self.ends[name] = resolve(path)(self._step)

    def _step(self) -> None:
        if not self.stepped:
            self.stepped = True
            self.write("first step")

    def write(self, moment: str) -> None:
        """Replace this process's file. Does nothing without a session, or at the exit of a child that made no step."""
        if not self.sessions or (moment == "exit" and self.child and not self.stepped):
            return
        with self.lock, self._harmless():
            text = json.dumps(_shareable(self._content(moment)), indent=1)
            rank = facts.rank()
            name = f"{'' if rank is None else f'rank{rank}-'}pid{os.getpid()}-{self.token}.json"
            before, self.path = self.path, os.path.join(self.folder, name)
            _replace(self.path, text)
            if before not in ("", self.path):  # the rank was given after the first report
                os.unlink(before)

    def _content(self, moment: str) -> dict[str, Any]:
        session = self.sessions[-1]
        attestation, now = session.attestation, session.check()
        self.drift.update({entry.knob: entry for entry in now.entries})
        rank = facts.rank()
        return {
            "schema": SCHEMA,
            "rank": rank,
            "world_size": None if rank is None else facts.world_size(),
            "pid": os.getpid(),
            "written": moment,
            "stepped": self.stepped,
            "profile": attestation.profile,
            "ok": attestation.ok and not self.drift,
            "attestation": attestation.to_dict(),
            "drift": Attestation(now.profile, tuple(self.drift.values()), (), now.facts).to_dict(),
            "nondeterministic": [{**place._asdict(), "count": count} for place, count in self.warned.counts.items()],
        }

    def _harmless(self) -> _Harmless:
        return _Harmless(self)


class _Harmless:
    """Whatever fails inside is said once and goes no further."""

    def __init__(self, owner: _Reporter) -> None:
        self.owner = owner

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        if not self.owner.complained:
            self.owner.complained = True
            why = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
            with suppress(Exception):  # stderr may be closed
                sys.stderr.write(f"detconf: no report in {self.owner.folder}: {why}. The program goes on; see {FOLDER}.\n")
        return True


def _replace(path: str, text: str) -> None:
    """Write a file so that whoever reads it finds the old text or the new, and never a part."""
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    part = os.path.join(folder, f".{name}.part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def _shareable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shareable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shareable(item) for item in value]
    return facts.shareable(value) if isinstance(value, str) else value
