"""The fixture `golden`: a value must be the one that is kept beside the test. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from detconf.errors import TargetError
from detconf.pytest_plugin.state import State, state_of

if TYPE_CHECKING:
    from detconf.arrays import Array
    from detconf.goldens import File, Record


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`golden(name, value, rtol=None, atol=None)`: `value` must be the one recorded under `name` for this test.

    Bit for bit on the class of machine that recorded it; elsewhere within the bound that is given here or was recorded.
    `--detconf-update` records instead. Kept in `goldens/MODULE.json` beside the test.
    """
    from detconf.goldens import File

    chain = [node.name for node in request.node.listchain() if isinstance(node, (pytest.Class, pytest.Item))]
    file = File(request.path.parent / "goldens" / f"{request.path.stem}.json")
    shown = os.path.relpath(file.path, request.config.rootpath)
    return _Golden(file, shown, "::".join(chain), state_of(request.config), update=request.config.getoption("detconf_update"))


class _Golden:
    """The golden values of one test."""

    def __init__(self, file: File, shown: str, test: str, state: State, *, update: bool) -> None:
        self.file, self.shown, self.test, self.state, self.update = file, shown, test, state, update
        self.used: set[str] = set()

    def __call__(self, name: str, value: Any, *, rtol: float | None = None, atol: float | None = None) -> None:
        __tracebackhide__ = True
        try:
            problem = self._check(name, value, rtol, atol)
        except TargetError as error:
            problem = f"golden {name!r}: {error}"
        if problem:
            raise AssertionError(problem)

    def _check(self, name: str, value: Any, rtol: float | None, atol: float | None) -> str:
        """Compare or record; what is wrong, or empty."""
        from detconf import goldens
        from detconf.machine import machine_class
        from detconf.results import flatten

        if not (name and isinstance(name, str)) or name in self.used:
            return f"golden: {name!r} is {'used twice in this test' if name in self.used else 'no name'}. Accepted: a text of its own."
        self.used.add(name)
        arrays = flatten(value, name)
        if not arrays:
            return f"golden {name!r}: there is nothing in this value. Accepted: at least one array or number."
        stated = goldens.bound(rtol, atol)
        known = self.file.find(self.test, name)
        here = goldens.Record(machine_class(), self.state.profile, stated or (known.bound if known else None), goldens.keep(arrays))
        return self._record(name, here) if self.update else self._compare(name, known, here, arrays)

    def _record(self, name: str, here: Record) -> str:
        try:
            if self.file.put(self.test, name, here):
                self.state.written.append(self.shown)
        except OSError as error:
            return f"golden {name!r}: {self.shown} cannot be written: {error}"
        return ""

    def _compare(self, name: str, known: Record | None, here: Record, arrays: dict[str, Array]) -> str:
        from detconf.agreement import judge_golden
        from detconf.report import testing

        if known is None:
            return testing.absent(name, self.test, self.shown)
        verdict = judge_golden(known, arrays, here)
        if verdict.ok:
            self.state.sampled += [f"{self.test} {each}" for each in verdict.sampled]
        return "" if verdict.ok else testing.golden(name, self.test, self.shown, verdict)
