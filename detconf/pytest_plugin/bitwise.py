"""The marker `bitwise`: a test is run several times, and what it gives must not change by a bit. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import call_and_report  # as the plugins that repeat tests do: pytest has no public way

from detconf.errors import TargetError
from detconf.pytest_plugin.recording import finish
from detconf.pytest_plugin.state import state_of
from detconf.pytest_plugin.varied import AXES, problem_of, variants, varied

if TYPE_CHECKING:
    from detconf.agreement import Reruns

MARKER = "bitwise(runs=3, vary='rerun'): run the test `runs` times; what it returns or gives to detconf.publish must be equal bit for bit; also with other `threads` and `workers`, where vary names them."

_RERUNS = pytest.StashKey["Reruns"]()


def _reruns_of(runs: Any = 3, vary: Any = "rerun") -> Reruns:
    """The arguments of the marker.

    Raises:
        TargetError: they cannot be used.
    """
    if type(runs) is not int or runs < 2:
        msg = f"bitwise: runs={runs!r} is not accepted. Accepted: an integer of 2 or more."
        raise TargetError(msg)
    names = (vary,) if isinstance(vary, str) else vary
    if not (isinstance(names, (tuple, list)) and all(name in AXES for name in names)):
        msg = f"bitwise: vary={vary!r} is not accepted. Accepted here: {', '.join(map(repr, AXES))}; detconf.verify() varies more."
        raise TargetError(msg)
    from detconf.agreement import Reruns

    labels = tuple(variant.label for variant in variants(names))
    return Reruns(runs + len(labels), labels)


def _reruns(item: pytest.Item) -> Reruns | None:
    """What the runs of a marked test give; None for another test.

    Raises:
        TargetError: the marker's arguments cannot be used.
    """
    marker = item.get_closest_marker("bitwise")
    if marker is None:
        return None
    try:
        return _reruns_of(*marker.args, **marker.kwargs)
    except TypeError as error:
        msg = f"bitwise: {str(error).partition(' ')[2]}. Accepted: bitwise(runs=3, vary='rerun')."
        raise TargetError(msg) from None


def refuse(item: pytest.Item) -> None:
    """Fail the setup of a test whose marker cannot be used."""
    problem = ""
    try:
        _reruns(item)
    except TargetError as error:
        problem = str(error)
    if problem:  # outside the handler: pytest would show that chain
        pytest.fail(problem, pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test as often as it says, each time with function fixtures of its own; report it once."""
    try:
        reruns = None if item.config.getoption("setuponly", default=False) else _reruns(item)
    except TargetError:
        return None  # said at its setup
    if reruns is None:
        return None
    item.stash[_RERUNS] = reruns
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _repeat(item, nextitem, reruns):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _repeat(item: pytest.Item, nextitem: pytest.Item | None, reruns: Reruns) -> list[pytest.TestReport]:
    """The reports of the last run, and of every fixture that could not be torn down in an earlier one."""
    failed: list[pytest.TestReport] = []
    spent: dict[str, float] = {}
    while True:
        before = reruns.finished
        with varied(reruns.label(before + 1), item):
            reports = _run(item, nextitem, reruns)
        for report in reports:
            report.duration = spent[report.when] = spent.get(report.when, 0.0) + report.duration
        if reruns.last or reruns.finished == before:
            return [*reports, *failed]
        failed += [report for report in reports if report.when == "teardown" and report.failed]


def _run(item: pytest.Item, nextitem: pytest.Item | None, reruns: Reruns) -> list[pytest.TestReport]:
    """Setup, call and teardown, as `_pytest.runner.runtestprotocol`, which does not say how the call ended."""
    _renew(item)
    before = reruns.finished
    reports = [call_and_report(item, "setup", log=False)]
    if reports[0].passed:
        reports.append(call_and_report(item, "call", log=False))
    again = reruns.finished > before and not reruns.last
    stop = item.session.shouldfail or item.session.shouldstop
    # The next one is this test again: after a copy of it, all but function fixtures stay set up.
    following = copy.copy(item) if again else None if stop else nextitem
    reports.append(call_and_report(item, "teardown", log=False, nextitem=following))
    if isinstance(item, pytest.Function):
        item._request, item.funcargs = False, None  # type: ignore[assignment]  # noqa: SLF001  # as there
    return reports


def _renew(item: Any) -> None:
    """Before another run: a request and an instance of its class of its own."""
    if getattr(item, "_request", True):
        return
    item._initrequest()  # noqa: SLF001  # as `runtestprotocol` does for plugins that repeat tests
    instance = getattr(item, "_instance", None)
    if instance is not None and getattr(item.obj, "__self__", None) is instance:
        del item._instance, item._obj  # noqa: SLF001  # pytest finds both again


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    reruns = item.stash.get(_RERUNS, None)
    if reruns is None:
        outcome = yield
        finish(item)
        return outcome
    from detconf.publishing import collecting

    outcome, problem = None, problem_of(item)
    if problem:
        pytest.fail(problem, pytrace=False)
    with collecting() as results:
        try:
            outcome = yield
        except TargetError as error:
            problem = str(error)
    if problem:
        pytest.fail(problem, pytrace=False)
    finish(item)
    reruns.add(results)
    _compare(reruns, state_of(item.config).profile)
    return outcome


def _compare(reruns: Reruns, profile: str | None) -> None:
    from detconf.report import testing

    if not reruns.evidence.bytes:
        reruns.end()  # there is nothing to run again for
        pytest.fail(testing.nothing(profile), pytrace=False)
    if reruns.parted:
        reruns.end()
    if reruns.last and reruns.evidence.distinct > 1:
        pytest.fail(testing.reruns(reruns, profile), pytrace=False)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Take what a marked test returns. One that is asynchronous is called by its own plugin, and has to publish."""
    if _RERUNS not in pyfuncitem.stash or inspect.iscoroutinefunction(pyfuncitem.obj) or inspect.isasyncgenfunction(pyfuncitem.obj):
        return None
    from detconf.targets import call

    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001  # what pytest's own implementation passes
    call(lambda: pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
