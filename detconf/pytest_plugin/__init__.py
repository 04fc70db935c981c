"""The pytest plugin: a profile for the whole run, seeds for each test, bitwise reruns, golden values.

    pytest --detconf strict            in force before any conftest or test module is imported; restored at the end
    @pytest.mark.bitwise(runs=3)       the test is run again and again, and what it gives must not change by a bit
    golden("logits", value)            a fixture: the value must be the one that is kept beside the test
    recording("train")                 a fixture: so must every operation of the rest of the test

Loading it loads nothing else of detconf but its errors. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import Any

import pytest

from detconf.pytest_plugin.bitwise import MARKER, refuse
from detconf.pytest_plugin.bitwise import pytest_pyfunc_call as pytest_pyfunc_call
from detconf.pytest_plugin.bitwise import pytest_runtest_call as pytest_runtest_call
from detconf.pytest_plugin.bitwise import pytest_runtest_protocol as pytest_runtest_protocol
from detconf.pytest_plugin.golden import golden as golden
from detconf.pytest_plugin.recording import recording as recording
from detconf.pytest_plugin.seeds import pytest_fixture_setup as pytest_fixture_setup
from detconf.pytest_plugin.seeds import pytest_make_collect_report as pytest_make_collect_report
from detconf.pytest_plugin.seeds import seed_all
from detconf.pytest_plugin.state import State, begin, state_of


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("detconf", "repeatable numbers")
    text = "put this detconf profile in force for the run (a name or a path; empty: none). Default: DETCONF_PROFILE, else the ini option."
    group.addoption("--detconf", metavar="PROFILE", default=None, help=text)
    group.addoption(
        "--detconf-update", action="store_true", default=False, help="record what the fixtures `golden` and `recording` are given"
    )
    parser.addini("detconf", "the detconf profile of this project's tests; --detconf and DETCONF_PROFILE beat it", default="")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """The earliest moment at which the options are known: a conftest may import frameworks."""
    begin(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    begin(config)  # where a conftest named this plugin, the earlier hook had passed
    if getattr(config.option, "randomly_reset_seed", False) and state_of(config).seeded:
        config.option.randomly_reset_seed = False  # pytest-randomly goes on shuffling; its seeds would replace the profile's


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    refuse(item)
    seed_all(item.config)


def pytest_report_header(config: pytest.Config) -> str | None:
    session = state_of(config).session
    return f"detconf: {session.attestation.headline}" if session else None


def _told(state: State) -> dict[str, Any]:
    """What this process has to say at its end, as xdist can carry it."""
    told: dict[str, Any] = {"headline": "", "drifted": [], "bad": [], "written": state.written, "sampled": state.sampled}
    if state.session:
        from detconf.values import show

        attestation = state.session.attestation
        told["headline"] = attestation.headline
        told["bad"] = [f"{entry.knob}: {entry.outcome}" for entry in attestation.entries if not entry.ok]
        told["drifted"] = [
            f"{entry.knob}: {show(entry.wanted)} was in force, is now {entry.now}" for entry in state.session.check().entries
        ]
    return told


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output, state = getattr(session.config, "workeroutput", None), state_of(session.config)
    if output is not None and state.spoken:
        output["detconf"] = _told(state)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of xdist has ended; one that crashed has told nothing."""
    told = getattr(node, "workeroutput", {}).get("detconf")
    if told:
        state_of(node.config).workers.append(told)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    state = state_of(config)
    if not (state.spoken or state.workers):
        return
    from detconf.report import testing

    lines = testing.summary(state.workers or [_told(state)], workers=bool(state.workers))
    if config.getoption("verbose") < 0 and state.session and len(lines) == 1:
        return  # nothing but what was in force
    for place, line in enumerate(lines):
        terminalreporter.write_line(line if place else f"detconf: {line}")
