"""The marker `bitwise(vary=...)`: runs with other threads and other workers, in one process, beside the plain ones."""

from __future__ import annotations

import numpy as np  # noqa: F401  # loaded once: a run inside this process forgets the modules that it imported
import pytest
import torch

import detconf.axes
import detconf.comparison
import detconf.report.testing  # noqa: F401

pytest_plugins = "pytester"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No profile of the run that runs these tests, and no limit of its own."""
    for name in ("DETCONF_PROFILE", "DETCONF_SEED", "DETCONF_SET", "PYTEST_ADDOPTS", "OMP_THREAD_LIMIT"):
        monkeypatch.delenv(name, raising=False)


def _run(pytester: pytest.Pytester, body: str) -> pytest.RunResult:
    pytester.makepyfile(f"import pytest, torch, itertools\ncount = itertools.count()\n{body}")
    return pytester.runpytest_inprocess("-p", "no:cacheprovider")


@pytest.mark.usefixtures("unchanged")
def test_what_depends_on_threads_fails_and_says_with_which(pytester: pytest.Pytester) -> None:
    """A plain run comes first; the run that differs is told by what was varied; threads are put back."""
    threads = torch.get_num_threads()
    other = next(number for number in (1, 2) if number != threads)
    result = _run(pytester, "@pytest.mark.bitwise(runs=2, vary='threads')\ndef test_it(): return torch.get_num_threads()")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "NOT repeatable: * runs of this test in one process, the last * with 1 thread in every pool, *",
            f"first difference: returned *, run 1 (expected) against run * ({other} thread*in every pool)",
        ]
    )


def test_what_does_not_depend_on_threads_passes(pytester: pytest.Pytester) -> None:
    """Every number of threads is really there while the test runs, its fixtures included, and the test passes."""
    body = """
seen = []
@pytest.fixture
def own(): seen.append(torch.get_num_threads())
@pytest.mark.bitwise(runs=2, vary=["rerun", "threads"])
def test_it(own): return 1.0
def test_after(): assert {1, 2} <= set(seen[2:])
"""
    _run(pytester, body).assert_outcomes(passed=2)


def test_workers_are_varied(pytester: pytest.Pytester) -> None:
    """Draws of a dataset that change with the number of workers fail."""
    body = """
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.rand(())
@pytest.mark.bitwise(runs=2, vary="workers")
def test_it():
    torch.manual_seed(0)
    return torch.cat(list(torch.utils.data.DataLoader(Data(), batch_size=2)))
"""
    result = _run(pytester, body)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["first difference: *run 1 (expected) against run 4 (1 worker in every DataLoader)"])


def test_nothing_is_varied_where_plain_runs_differ(pytester: pytest.Pytester) -> None:
    """Plain runs that differ end it: what is varied would prove nothing."""
    body = "@pytest.mark.bitwise(runs=2, vary='threads')\ndef test_it(): return next(count)\ndef test_after(): assert next(count) == 2"
    result = _run(pytester, body)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["NOT repeatable: 2 distinct results in 2 runs of this test in one process"])


def test_what_cannot_be_had_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a number of threads is not in force by its own getter, the test fails and names the control."""
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    result = _run(pytester, "@pytest.mark.bitwise(runs=2, vary='threads')\ndef test_it(): return 1.0")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["bitwise: * thread* in every pool cannot be had in this process: *torch.set_num_threads: overridden*"])
