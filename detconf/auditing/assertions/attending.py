"""Inside a test command: runs it as a request asks, and stops it at the comparison in question.

Variables that detconf's sitecustomize acts on name the request and where the answer goes. The engines of a study start
when their framework is imported. The process ends, by `os._exit`, at the first comparison that fails, or at the one whose
number the request gives, whether that one fails or not. Nothing else of the program changes, but for the seeds that it
starts from, which are the same in each run.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import random
import sys
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from detconf.auditing.assertions.watching import Call, Watching
from detconf.frameworks import frameworks
from detconf.frameworks.base import Framework
from detconf.lookup import finished, first_line, is_imported

if TYPE_CHECKING:
    from detconf.auditing.assertions.comparisons import Comparison
    from detconf.auditing.elsewhere.requests import Request
    from detconf.shadows.study import Study

VARIABLE, ANSWER, SEED, AT = (f"DETCONF_AUDIT{name}" for name in ("", "_ANSWER", "_SEED", "_AT"))
"""Paths of the request and of the answer; the seed; the number of the comparison to stop at, empty for the first that fails."""
RUNNERS = (("unittest.case", "TestCase", "run"), ("_pytest.python", "Function", "runtest"))
"""What runs one test: (module, class, method)."""
STOPPED = 86
"""Exit status of a process that was stopped at a comparison."""


def start_from_environment() -> None:
    """Attend this process; called by detconf's sitecustomize."""
    from wrapt import register_post_import_hook  # loaded where a process is attended

    attendance = Attendance(os.environ[ANSWER], os.environ.get(AT, ""))
    random.seed(int(os.environ[SEED]))
    for framework in frameworks():
        if framework.module:
            register_post_import_hook(partial(attendance.arrived, framework), framework.module)
    attendance.watch()
    for module, kind, method in RUNNERS:
        register_post_import_hook(partial(attendance.patch_runner, kind, method), module)
    atexit.register(attendance.leave)


class Attendance(Watching):
    """One process of a test command.

    Args:
        answer: where it goes.
        at: number of the comparison to stop at, empty for the first that fails.
    """

    def __init__(self, answer: str, at: str) -> None:
        super().__init__()
        self.answer = answer
        self.at = int(at) if at else None
        self.reached = 0
        self.study: Study | None = None
        self.pending: tuple[Comparison, Any] | None = None
        self._request: Request | None = None
        self._stack = ExitStack()
        self._sight: Any = None
        self._recompiled = False
        self._process = os.getpid()

    # frameworks

    def arrived(self, framework: Framework, module: Any) -> None:
        """A framework is imported: seed it, start its engine, put it under the conditions."""
        finished(module.__name__)
        try:
            self._begin(framework)
        except Exception as error:  # noqa: BLE001  # the program goes on
            self._lose(f"{framework.name} is not followed: {first_line(error)}")

    def _begin(self, framework: Framework) -> None:
        from detconf.auditing.elsewhere.conditions import Sight, enter  # needs frameworks' parts, which are there now
        from detconf.auditing.elsewhere.requests import Request as Asked

        if self._request is None:
            self._request, self._sight = Asked.read(os.environ[VARIABLE]), Sight()
        _seed(framework)
        enter(framework, self._request.conditions, self._sight, self._stack)
        if self._request.kind != "study" or not framework.shadow:
            return
        if self.study is None:
            from detconf.auditing.assertions.awaiting import study  # needs NumPy, which is there now

            self.study = study(self._request.options, self._take)
        engine = import_module(framework.shadow).start(self.study)
        self.study.engines.append(engine)

    def _take(self, request: str, answer: str) -> None:
        """This process is a copy, made for another request."""
        from detconf.auditing.elsewhere.requests import Request as Asked  # as above

        self.answer, self._process = answer, os.getpid()
        self._request = Asked.read(request)
        if self._request.kind == "plain":
            self.at = None if self._request.options.get("first") else self.at
            if self._request.seed is not None:
                _reseed(self._request.seed)
            return
        for name, value in self._request.options.items():
            setattr(self.study, name, value)

    def _lose(self, words: str) -> None:
        if self.study is not None:
            self.study.lose(words)
        sys.stderr.write(f"detconf: {words}\n")

    def patch_runner(self, kind: str, method: str, module: Any) -> None:
        """Before the first test runs, its file is loaded, and its functions can be recompiled where that is asked for."""
        plain = getattr(getattr(module, kind), method)
        attendance = self

        @functools.wraps(plain)
        def run(test: Any, *args: Any, **kwargs: Any) -> Any:
            attendance.recompile()
            return plain(test, *args, **kwargs)

        setattr(getattr(module, kind), method, run)

    def recompile(self) -> None:
        """Put recompiled functions in place, once."""
        if self._recompiled or self._request is None:
            return
        self._recompiled = True
        from detconf.auditing.assertions.forking import serve
        from detconf.auditing.elsewhere.conditions import recompiled  # as in `_begin`

        if self._request.kind == "plain":
            serve(self._take)
        try:
            self._stack.enter_context(recompiled(self._request.conditions))
        except Exception as error:  # noqa: BLE001  # the program goes on
            self._lose(f"floats are not rounded: {first_line(error)}")

    # comparisons

    def before(self, call: Call) -> None:
        """Stop at the comparison in question, before it computes with its operands, which is none of their origin."""
        if self.reached == self.at:
            self._stop(*self._read(call), self.reached)

    def compared(self, call: Call, before: Any) -> None:
        """A comparison was made: stop where it fails."""
        del before
        number, self.reached = self.reached, self.reached + 1
        if self.at is not None or not call.counts:
            return
        comparison, pair = self._read(call)
        if call.certain or comparison.fails:
            self._stop(comparison, pair, number)
        self.pending = comparison, (pair, number)

    def _read(self, call: Call) -> tuple[Comparison, Any]:
        from detconf.auditing.assertions.pairs import Pair  # needs NumPy, which is there

        pair = Pair.of(*call.operands(), call.name, self.study)
        pair.broadcast()
        return call.comparison(pair.dtype), pair

    # the end

    def _stop(self, comparison: Comparison, pair: Any, number: int) -> None:
        """Write the answer and end the process."""
        self._write(comparison, pair, number)
        self._count()
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(STOPPED)

    def _write(self, comparison: Comparison, pair: Any, number: int) -> None:
        from detconf.auditing.elsewhere import (
            conditions,
            kept,  # as above
        )

        if os.path.exists(self.answer):  # another process was first
            return
        seen = {**self._sight.to_dict(), "remedies": conditions.offered()} if self._sight else {}
        about = {"comparison": comparison.to_dict(), "number": number, "seen": seen}
        kept.write(self.answer, pair.observation(self.study), about)

    def leave(self) -> None:
        """The process ends without having been stopped."""
        if os.getpid() != self._process and not self.reached:
            return
        if self.pending and self.at is None:
            comparison, (pair, number) = self.pending
            with suppress(Exception):
                self._write(comparison, pair, number)
        self._count()

    def _count(self) -> None:
        with suppress(OSError), open(f"{self.answer}.{os.getpid()}.json", "w", encoding="utf-8") as file:
            json.dump({"reached": self.reached}, file)


def _seed(framework: Framework) -> None:
    """The generators of a framework start from the seed of all runs."""
    from detconf.access import Rng  # loaded with the catalogue

    for knob in framework.knobs:
        if isinstance(knob.access, Rng):
            with suppress(Exception):  # a device without a generator
                knob.access.write(int(os.environ[SEED]))


def _reseed(seed: int) -> None:
    os.environ[SEED] = str(seed)
    random.seed(seed)
    for framework in frameworks():
        if framework.module and is_imported(framework.module):
            _seed(framework)
