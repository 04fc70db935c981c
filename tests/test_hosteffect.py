"""Scalars that one side forms in float64, seen in values between; devices that are not here; noise of large arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import detconf
from detconf import facts
from detconf.arrays import Array
from detconf.auditing import devices
from detconf.auditing.meaning import part
from detconf.values import Cause

BETA, RATE, DECAY, STEPS = 0.999, 0.001, 0.01, 4
_random = np.random.default_rng(5)
START = _random.normal(0, 1, 400).astype("float32")
GRADIENTS = _random.normal(0, 1, (STEPS, 400)).astype("float32")


def rounded_everywhere() -> dict[str, Any]:
    """Running squares with scalars of float32; torch's order of operations."""
    parameter, square = torch.from_numpy(START.copy()), torch.zeros(400)
    kept = torch.tensor(BETA)
    added = 1 - kept
    for gradient in map(torch.from_numpy, GRADIENTS):
        square = kept * square + added * (gradient * gradient)
        parameter = parameter - DECAY * parameter
        parameter = parameter - RATE / (square / added).sqrt() * gradient
    return {"parameter": parameter}


def float64_scalars() -> dict[str, Any]:
    """The same in NumPy, where 1 - BETA is formed in float64, and the sum of the weights in float32."""
    parameter, square = START.copy(), np.zeros(400, "float32")
    whole = np.float32(1) - np.float32(BETA)
    for gradient in GRADIENTS:
        square = BETA * square + (1 - BETA) * (gradient * gradient)
        parameter = parameter * (1 - np.float32(DECAY)) - np.float32(RATE) * gradient / np.sqrt(square / whole)
    return {"parameter": parameter}


def float32_scalars() -> dict[str, Any]:
    """The same with scalars of float32."""
    parameter, square = START.copy(), np.zeros(400, "float32")
    kept = np.float32(BETA)
    added = np.float32(1) - kept
    for gradient in GRADIENTS:
        square = kept * square + added * (gradient * gradient)
        parameter = parameter * (1 - np.float32(DECAY)) - np.float32(RATE) * gradient / np.sqrt(square / added)
    return {"parameter": parameter}


def test_a_scalar_of_float64_is_named() -> None:
    """It hardly shows in the parameters; the running squares are off on every element."""
    found = detconf.audit(float64_scalars, rounded_everywhere)
    assert found.cause is Cause.DTYPE
    assert found.proof is not None
    assert found.proof.kind == "re-created"
    assert "test_hosteffect.py:" in found.summary


def test_float32_scalars_are_rounding() -> None:
    """Another order alone is not blamed on scalars."""
    found = detconf.audit(float32_scalars, rounded_everywhere)
    assert found.cause in (Cause.ROUNDING, Cause.EQUAL)


def test_training_mode_is_not_blamed_for_rounding() -> None:
    """Layers that do the same in evaluation mode take nothing away."""
    layer = torch.nn.Linear(40, 30)
    x = torch.randn(20, 40)

    def reference() -> dict[str, Any]:
        weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        return {"y": sum(np.outer(x.numpy()[:, k], weight[:, k]) for k in range(40)) + bias}

    found = detconf.audit(reference, lambda: {"y": layer(x)})
    assert found.cause is Cause.ROUNDING


def test_large_outputs_are_rounding() -> None:
    """Among many elements some have next to no noise in every sample; that is no error."""
    x, w = _random.normal(size=(96, 512)).astype("float32"), _random.normal(size=(512, 1024)).astype("float32")
    found = detconf.audit(
        lambda: {"y": torch.from_numpy(x) @ torch.from_numpy(w)}, lambda: {"y": paddle.matmul(paddle.to_tensor(x), paddle.to_tensor(w))}
    )
    assert found.cause in (Cause.ROUNDING, Cause.EQUAL)


@given(st.integers(64, 100), st.integers(64, 100), st.integers(0, 1 << 30))
def test_noise_keeps_the_scale_of_rows(rows: int, columns: int, seed: int) -> None:
    """What is added to small samples stays below the noise that an element's own row has."""
    random = np.random.default_rng(seed)
    scale = 10.0 ** random.integers(-6, 6, (rows, 1))
    shadow = random.normal(size=(rows, columns)) * scale
    noisy = [shadow + 1e-7 * scale * random.normal(size=shadow.shape) for _ in range(3)]
    real = shadow.astype("float32")
    found = part(Array("float32", real.shape, real.tobytes()), shadow, noisy, 2.0**-24)
    assert found is not None
    ratio = found.noise / (1e-7 * scale)
    assert np.all(ratio < 10)
    assert np.median(ratio) > 0.5


@pytest.mark.parametrize(("cause", "told"), [(Cause.ROUNDING, True), (Cause.DTYPE, True), (Cause.EQUAL, True), (Cause.LAYOUT, False)])
def test_absent_devices_are_named(monkeypatch: pytest.MonkeyPatch, cause: Cause, told: bool) -> None:
    """With what records there and what audits here; only where kernels matter, and only where there is none."""
    here = facts.gather()
    monkeypatch.setattr(devices.facts, "gather", lambda: replace(here, devices=frozenset({"cpu"})))
    assert bool(devices.unexamined(cause)) is told
    assert all("record --values" in each and "detconf audit" in each for each in devices.unexamined(cause))
    monkeypatch.setattr(devices.facts, "gather", lambda: replace(here, devices=here.devices | {"cuda"}))
    assert not devices.unexamined(cause)
