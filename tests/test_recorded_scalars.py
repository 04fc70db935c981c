"""Numbers that a side formed in float64, found in recordings: no line of the program is at hand, only what it computed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import detconf
from detconf.auditing.attempts.hostfloats import VARIANTS, product
from detconf.auditing.recordings.forming import FORMS, Formed, formed, sites
from detconf.shadows.study import Read, Study
from detconf.values import Cause

EXAMPLE = Path(__file__).parents[1] / "examples" / "adamw_dynamic_vs_static.py"
STEPS = 5


def adam(one: Any, beta1: Any, beta2: Any, *, inside: bool = False, epsilon: float = 1e-8) -> Any:
    """A parameter after some steps; `one` and the weights say in which precision the scalars are formed."""
    draw = np.random.RandomState(3)
    parameter = draw.standard_normal(300).astype("float32")
    first, second, power1, power2 = np.zeros_like(parameter), np.zeros_like(parameter), one, one
    for _ in range(STEPS):
        gradient = draw.standard_normal(300).astype("float32")
        first = beta1 * first + (one - beta1) * gradient
        second = beta2 * second + (one - beta2) * np.square(gradient)
        power1, power2 = power1 * beta1, power2 * beta2
        whole = second / (one - power2)
        root = np.sqrt(whole + epsilon) if inside else np.sqrt(whole) + epsilon
        parameter = parameter - 0.001 * ((first / (one - power1)) / root)
    return parameter


def float64(**options: Any) -> Any:
    """Scalars of Python."""
    return adam(1.0, 0.9, 0.999, **options)


def float32(**options: Any) -> Any:
    """Scalars of float32."""
    return adam(np.float32(1), np.float32(0.9), np.float32(0.999), **options)


def recorded(path: Path, function: Any, **options: Any) -> str:
    """The path of its recording."""
    with detconf.record(path, values=True, sources=True):
        detconf.publish("parameter", function(**options))
    return str(path)


def test_scalars_of_float64_are_named(tmp_path: Path) -> None:
    """Carried out again with the scalars of float32, one side's operations give the other's bits, whichever side it is."""
    wide, narrow = recorded(tmp_path / "a.det", float64), recorded(tmp_path / "b.det", float32)
    for pair, who in (((wide, narrow), "reference"), ((narrow, wide), "candidate")):
        found = detconf.audit(*pair)
        assert found.cause is Cause.DTYPE, found
        assert found.summary.startswith(f"the {who} forms scalars in float64 (")
        assert "test_recorded_scalars.py:" in found.summary
        assert found.proof is not None
        assert (found.proof.kind, found.proof.share) == ("re-created", 1.0)
        assert any("1 - 0.999**t" in each.statement for each in found.evidence)
        assert not any("0.001 in" in each.statement for each in found.evidence)
        assert found.fixes[0].verified
        assert found.where is not None
        assert found.where.name in ("numpy.multiply", "numpy.divide")


def test_another_formula_is_not_blamed_on_scalars(tmp_path: Path) -> None:
    """Epsilon inside the root or outside, with scalars of Python on both sides; the errors cancel in every sum."""
    paths = [recorded(tmp_path / f"{inside}.det", float64, inside=inside, epsilon=1e-4) for inside in (True, False)]
    found = detconf.audit(*paths)
    assert found.cause is Cause.SEMANTICS, found
    assert found.where is not None
    assert found.where.name == "numpy.sqrt"


def test_float32_scalars_are_rounding(tmp_path: Path) -> None:
    """Another order alone is not blamed on scalars."""

    def reordered() -> Any:
        draw = np.random.RandomState(0)
        return np.tanh((draw.standard_normal((40, 30)).astype("float32") * 0.1).sum(1) / 3)

    def plain() -> Any:
        draw = np.random.RandomState(0)
        return np.tanh(np.sum(draw.standard_normal((40, 30)).astype("float32"), 1) * 0.1 / 3)

    found = detconf.audit(recorded(tmp_path / "a.det", plain), recorded(tmp_path / "b.det", reordered))
    assert found.cause in (Cause.ROUNDING, Cause.EQUAL), found


def test_a_scalar_that_widens_an_array(tmp_path: Path) -> None:
    """NumPy's float64 scalar makes the rest of a program float64; the same number of Python would not."""

    def program(scale: Any) -> Any:
        x = np.random.RandomState(0).standard_normal(200).astype("float32")
        return (np.square(x) + x) * scale / 3

    paths = [recorded(tmp_path / f"{type(each).__name__}.det", program, scale=each) for each in (np.float64(0.1), 0.1)]
    found = detconf.audit(*paths)
    assert found.cause is Cause.DTYPE, found
    assert found.proof is not None
    assert (found.proof.kind, found.proof.share) == ("re-created", 1.0)


@given(
    digits=st.integers(9000, 9999),
    number=st.integers(0, len(FORMS) - 2),
    constant=st.sampled_from([1.0, -0.003, 17.0]),
    per_step=st.integers(1, 3),
    counted=st.booleans(),
)
def test_powers_are_recognized(digits: int, number: int, constant: float, per_step: int, *, counted: bool) -> None:
    """Whatever they are multiplied by, with steps that were counted and without; and what float32 forms is what is computed."""
    beta = float(f"0.{digits}")
    form = FORMS[number]
    rows = [(step, (1 + each) * constant * float(form[1](1.0, beta**step))) for step in range(1, STEPS + 1) for each in range(per_step)]
    found = formed(sites(_operations([(0, beta), *rows], counted=counted)), VARIANTS[0])
    single = {step: float(form[1](np.float32(1), np.float32(product(beta, step)))) for step in range(1, STEPS + 1)}
    after = dict(_seen(found))
    for at, (step, value) in enumerate(rows, 1):
        assert after.get(at, value) == pytest.approx(value / float(form[1](1.0, beta**step)) * single[step], rel=3e-7)


def _operations(rows: list[tuple[int, float]], *, counted: bool) -> list[Any]:
    """Products of an array with each number; the first on a line of its own."""
    study = Study()
    value, _ = study.leaf(np.ones(3), "float32", "a test")
    for at, (step, number) in enumerate(rows):
        study.step = step if counted else 0
        study.operation(
            "numpy.multiply", [Read(value)], [(np.ones(3) * number, "float32", None)], options={1: number}, source=f"x.py:{bool(at)}"
        )
    return study.operations


def _seen(found: list[Formed]) -> list[tuple[int, float]]:
    return [(each.operation.index, each.after) for each in found]


def test_what_a_person_wrote_is_left_alone() -> None:
    """0.001 is a learning rate, and no complement of 0.999; a number that changes in other ways is no power."""
    rows = [(0, 0.999), (1, 0.001), (2, 0.001), (3, 0.001)]
    assert not formed(sites(_operations(rows, counted=True)), VARIANTS[0])
    rows = [(0, 0.999), (1, 0.3), (2, 0.2), (3, 0.17)]
    assert not formed(sites(_operations(rows, counted=True)), VARIANTS[0])


def test_the_recipe_of_the_example(tmp_path: Path) -> None:
    """Followed by hand: one command on the device, one anywhere; that of the failing test; and that of two recordings, of a static program as well."""
    text = subprocess.run(
        [sys.executable, "-c", "import adamw_dynamic_vs_static as a; print(a.RECORDING.format(file=a.__file__))"],
        cwd=EXAMPLE.parent, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    commands = [line.partition(": ")[2].strip() for line in text.splitlines()]
    assert sum(each.startswith("detconf audit") for each in commands) == 3
    commands += [f"detconf record --values -o static.det -- python {EXAMPLE} static", "detconf audit reference.det static.det"]
    for command in commands:
        words = shlex.split(command)
        words = (
            [sys.executable, "-m", *words[: words.index("--") + 1], sys.executable, *words[words.index("--") + 2 :]]
            if "--" in words
            else [sys.executable, "-m", *words]
        )
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        if words[3] == "audit":
            assert done.returncode == 1, done.stderr
            assert done.stdout.startswith("dtype: the reference forms scalars in float64 (adamw_dynamic_vs_static.py:"), done.stdout
            assert "1 - 0.999" in done.stdout
            assert ("tolerance     array" if words[-1] == "test.det" else "tolerance     w1") in done.stdout
        else:
            assert done.returncode == (words[-1] == "test"), done.stderr
