"""The oldest versions that are promised: NumPy 1.26 and Paddle 2.6 on Python 3.10 or 3.11, without torch.

Run by `make test-floor` in an environment of its own; the default run leaves this folder out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from typing import Any

import numpy as np
import paddle
import pytest

import detconf
from detconf.frameworks import catalogue
from detconf.launch import child_environment

pytestmark = pytest.mark.filterwarnings("ignore::detconf.errors.DetconfWarning")  # `ci` is late in this process by nature


def readings() -> dict[str, str]:
    return {name: str(knob.read()) for name, knob in catalogue().items()}


def in_child(code: str, environment: dict[str, str]) -> Any:
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_this_is_the_floor() -> None:
    """The environment is the one that this folder is about."""
    assert np.__version__.startswith("1.26")
    assert paddle.__version__.startswith("2.6")
    assert sys.version_info < (3, 12)
    assert importlib.util.find_spec("torch") is None


@pytest.mark.parametrize("profile", ["strict", "warn", "parity", "fast"])
def test_everything_that_applies_is_in_force(profile: str) -> None:
    """Flags that 2.6 does not have yet do not count against it where their absence changes nothing."""
    with detconf.apply(profile) as session:
        bad = [(entry.knob, str(entry.outcome), entry.note) for entry in session.attestation.entries if not entry.ok]
        assert bad == []
        assert session.check().ok


@pytest.mark.parametrize("profile", ["strict", "ci", "warn", "parity", "fast"])
def test_restore_is_exact(profile: str) -> None:
    """Every control reads as before, and every generator draws what it would have drawn."""
    paddle.seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002  # the legacy generator is the subject

    def draws() -> list[Any]:
        return [paddle.rand([2]).tolist(), random.random(), np.random.rand()]  # noqa: NPY002  # as above

    before = readings()
    session = detconf.apply(profile, seed=3)
    inside = draws()
    assert session.restore().entries == ()
    assert readings() == before
    assert inside != draws()
    with detconf.apply(profile, seed=3):
        assert draws() == inside


def test_ci_from_the_first_instruction() -> None:
    """Started with the variables of `ci`, nothing is late: NumPy 1.26 spells its features as single sets, and takes them."""
    code = (
        "import warnings; warnings.simplefilter('ignore', ImportWarning)\n"
        "import numpy, paddle, detconf, json\n(paddle.ones([64, 64]) @ paddle.ones([64, 64])).exp(); a = detconf.inspect('ci')\n"
        "print(json.dumps([[e.knob, e.outcome, e.note] for e in a.entries if not e.ok]))"
    )
    assert in_child(code, child_environment("ci", dict(os.environ))) == []


def test_verify_tells_stable_from_unstable() -> None:
    """Seeded, dropout repeats; unseeded, it does not, and the cause is named."""

    def step() -> dict[str, Any]:
        return {"paddle": paddle.nn.functional.dropout(paddle.ones([100])), "numpy": np.random.rand(3)}  # noqa: NPY002  # as above

    assert detconf.verify(step, profile="strict").stable
    found = detconf.verify(step)
    assert (found.stable, str(found.cause)) == (False, "rng")


def test_training_repeats() -> None:
    """A small training in eager mode has the same bits three times over."""

    def train() -> dict[str, Any]:
        model = paddle.nn.Sequential(paddle.nn.Linear(13, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 5))
        optimizer = paddle.optimizer.AdamW(parameters=model.parameters())
        for _ in range(3):
            loss = model(paddle.rand([4, 13])).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        return dict(model.state_dict())

    found = detconf.verify(train, profile="strict")
    assert found.stable
    assert found.to_dict()["observed"]["arrays"] == 4
