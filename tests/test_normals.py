"""Noise out of one block: normal, repeatable, and not the same from call to call or from row to row."""

from __future__ import annotations

import numpy as np

from detconf.shadows.normals import Normals


def test_they_are_standard_normal_and_repeat() -> None:
    """Mean, deviation, and the same for the same seed only."""
    first, again, other = (Normals(seed).standard_normal((300, 400)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert abs(first.mean()) < 0.02
    assert abs(first.std() - 1) < 0.02


def test_calls_are_independent() -> None:
    """Neither two calls nor the rows of an array larger than all blocks are correlated."""
    normals = Normals(0)
    draws = np.stack([normals.standard_normal(50_000) for _ in range(4)])
    large = normals.stretch((1 << 22) + 7)
    rows = large[: 4 << 20].reshape(4, 1 << 20)
    for each in (draws, rows[:, :50_000]):
        assert np.all(np.abs(np.corrcoef(each) - np.eye(4)) < 0.03)
    assert normals.standard_normal(()).shape == ()
    assert normals.stretch(0).size == 0
