"""Every test, test module and shared fixture starts from the same seeds: neither order nor selection matters.

Only under a profile, and only for generators that it seeds. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from detconf.pytest_plugin.state import state_of


def seed_all(config: pytest.Config) -> None:
    """Seed every generator of the profile."""
    if session := state_of(config).session:
        from detconf.seeding import seed

        seed(session.plan.steps)


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        seed_all(collector.config)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
    """What a shared fixture draws must not depend on the test that needs it first, nor that test on the fixture."""
    session = state_of(request.config).session
    if session is None or fixturedef.scope == "function":
        return (yield)
    from detconf.seeding import aside

    with aside(session.plan.steps):
        return (yield)
