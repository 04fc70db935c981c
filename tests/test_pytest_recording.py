"""The pytest fixture `recording`: what a test computes, operation by operation, against what was recorded beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np  # noqa: F401  # loaded once: a run inside this process forgets the modules that it imported
import pytest
import torch  # noqa: F401

import detconf.comparing.entry
import detconf.recording.running
import detconf.report.testing

pytest_plugins = "pytester"

TEST = """
import os, torch
import pytest

@pytest.mark.parametrize("size", [3])
def test_it(recording, size):
    x = torch.arange(6.0).reshape(2, size)
    recording("train")
    y = x * 2
    z = y + OFFSET
    z.sum()
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No profile of the run that runs these tests."""
    for name in ("DETCONF_PROFILE", "DETCONF_SEED", "DETCONF_SET", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)


def _run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)


@pytest.fixture
def recorded(pytester: pytest.Pytester) -> Path:
    """A test whose recording is stored; the file."""
    pytester.makepyfile(test_one=TEST.replace("OFFSET", "1.0"))
    result = _run(pytester, "--detconf-update")
    result.assert_outcomes(passed=1)
    (file,) = (pytester.path / "goldens" / "test_one").iterdir()
    result.stdout.fnmatch_lines([f"detconf: goldens recorded: 1 in goldens/test_one/{file.name}"])
    return file


def test_an_equal_test_passes(pytester: pytest.Pytester, recorded: Path) -> None:
    """What was recorded passes, in any process; updating again leaves the file as it is."""
    before = recorded.read_bytes()
    _run(pytester).assert_outcomes(passed=1)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    _run(pytester, "--detconf-update").assert_outcomes(passed=1)
    assert recorded.read_bytes() == before
    assert recorded.name.startswith("test_it-3-.train-")


def test_the_first_operation_is_named(pytester: pytest.Pytester, recorded: Path) -> None:
    """Another number: the test fails in its call, and the text names the operation, its line, and how to update."""
    pytester.makepyfile(test_one=TEST.replace("OFFSET", "1.5"))
    result = _run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["recording 'train' of test_it*3* does not agree with goldens/test_one/*", "first operation: aten.add*introduced*test_one.py:9*"]
    )
    result.stdout.fnmatch_lines(["*If the new one is right: pytest --detconf-update"])
    assert _run(pytester, "--detconf-update").ret == 0
    _run(pytester).assert_outcomes(passed=1)


def test_what_came_before_is_not_recorded(pytester: pytest.Pytester, recorded: Path) -> None:
    """Only the rest of the test counts."""
    pytester.makepyfile(test_one=TEST.replace("OFFSET", "1.0").replace("    recording", "    torch.ones(3) * 3\n    recording"))
    _run(pytester).assert_outcomes(passed=1)


def test_a_missing_recording_says_how(pytester: pytest.Pytester) -> None:
    """Without a file the test fails and says how to record; nothing is written."""
    pytester.makepyfile(test_one=TEST.replace("OFFSET", "1.0"))
    result = _run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["there is no recording 'train' of test_it*Record it: pytest --detconf-update"])
    assert not (pytester.path / "goldens").exists()


@pytest.mark.parametrize(
    ("body", "outcome", "said"),
    [
        ("recording('x'); recording('y')", "failed", "*'y' is the second*"),
        ("recording('')", "failed", "*'' is no name*"),
        ("recording('x'); raise ValueError('its own words')", "failed", "*its own words*"),
        ("recording('x'); pytest.skip()", "skipped", "*1 skipped*"),
        ("pass", "passed", "*1 passed*"),
    ],
)
def test_other_endings_are_kept(pytester: pytest.Pytester, body: str, outcome: str, said: str) -> None:
    """One recording in a test; a body that raises or skips ends so, stores nothing, and leaves no recording running."""
    pytester.makepyfile(f"import pytest\ndef test(recording):\n    {body}")
    result = _run(pytester, "--detconf-update")
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines([said])
    assert not (pytester.path / "goldens").exists()
    assert detconf.recording.running._running is None


def test_a_damaged_recording_fails(pytester: pytest.Pytester, recorded: Path) -> None:
    """A file that is no recording is named, and is not overwritten without being asked."""
    recorded.write_bytes(b"mine")
    result = _run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["recording 'train': *"])
    assert recorded.read_bytes() == b"mine"


def test_recording_of_a_bitwise_test(pytester: pytest.Pytester) -> None:
    """Each rerun of a marked test is compared, with what it returns."""
    text = TEST.replace("OFFSET", "1.0").replace("@pytest", "@pytest.mark.bitwise(runs=2)\n@pytest").replace("z.sum()", "return z.sum()")
    pytester.makepyfile(test_one=text)
    _run(pytester, "--detconf-update").assert_outcomes(passed=1)
    _run(pytester).assert_outcomes(passed=1)
    pytester.makepyfile(test_one=text.replace("z.sum()", "z.sum() if os.path.exists('mark') else open('mark', 'w').close() or z.sum() * 1"))
    result = _run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["first operation: aten.mul*extra*"])
