"""Shared helpers. What a process read at its start cannot be tested in one that is running: `fresh` starts another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from detconf.frameworks import catalogue

settings.register_profile("detconf", deadline=None)  # a busy machine is no failure
settings.load_profile("detconf")

ROOT = Path(__file__).parents[1]
_OURS = ("DETCONF_", "FLAGS_", "OMP_", "MKL_", "OPENBLAS_", "NPY_", "ONEDNN_", "NCCL_", "ATEN_", "CUBLAS", "NVIDIA_", "PYTHONHASHSEED")


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without anything that a profile could speak of, plus `extra`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OURS)}
    return {**kept, "PYTHONWARNINGS": "ignore", **extra}


def run_python(code: str, *, cwd: Path | None = None, options: tuple[str, ...] = (), **extra: str) -> Any:
    """Run `code` in a fresh interpreter; the value of its last `print(json.dumps(...))` line."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env=clean_environment(**extra),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture
def fresh() -> Callable[..., Any]:
    """`run_python`."""
    return run_python


def readings() -> dict[str, str]:
    """What every control of the catalogue says now."""
    return {name: str(knob.read()) for name, knob in catalogue().items()}


@pytest.fixture
def unchanged() -> Any:
    """The test must leave every read-back of every knob as it found it."""
    before = readings()
    yield
    after = readings()
    assert before == after, {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: two workers that take whole files then end at about the same time."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])
