"""Axes: one thing varied at a time, judged against the plain runs, and what holds it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import run_python

import detconf
from detconf.axes import VARIABLES
from detconf.facts import gather
from detconf.rerun import AXES

SOURCE = """
import os, sys

def threads():
    import torch
    return {"n": torch.get_num_threads(), "x": 1.0}

def words():
    return {"order": [w for w in {"cat", "dog", "bird", "fish", "horse", "sheep", "goat"}]}

def level():
    import torch
    return {"level": torch.backends.cpu.get_cpu_capability()}

def compiled():
    import torch
    f = torch.compile(lambda x: x + torch.compiler.is_compiling(), backend="eager")
    return {"x": f(torch.zeros(3))}

def steady():
    return {"x": 1.0}

def single():
    import torch
    assert torch.get_num_threads() > 1, "needs two threads"
    return {"x": 1.0}
"""


@pytest.fixture
def target(tmp_path: Path) -> Any:
    (tmp_path / "program.py").write_text(SOURCE)
    return lambda name: f"{tmp_path / 'program.py'}:{name}"


def axes(found: Any) -> dict[str, Any]:
    return {axis.axis: axis for axis in found.axes}


@pytest.mark.parametrize(
    ("function", "axis", "pin"),
    [("threads", "threads", "policy threads"), ("words", "hash-seed", "policy hash_seed"), ("compiled", "compile", "same mode")],
)
def test_what_depends_on_an_axis_is_named(target: Any, function: str, axis: str, pin: str) -> None:
    """The axis is not invariant, with its first difference, the variant that showed it, and what holds it."""
    found = axes(detconf.verify(target(function), runs=2, vary=(axis,)))[axis]
    assert found.invariant is False
    assert found.divergence is not None
    assert pin in found.restored_by
    assert found.note.startswith("with ")


def test_the_dispatch_level_is_varied(target: Any) -> None:
    """`isa` runs under x86-64-v3; a processor that has more than that shows it."""
    found = axes(detconf.verify(target("level"), runs=2, vary=("isa",)))["isa"]
    best = run_python("import torch, json; print(json.dumps(torch.backends.cpu.get_cpu_capability()))")
    if "x86" in gather().devices:
        assert found.invariant == (best not in ("AVX512", "AMX"))
    else:
        assert found.invariant is None


def test_a_steady_program_is_invariant_everywhere(target: Any) -> None:
    """All axes are judged, in their order, and none differs; the verdict is stable with cause `equal`."""
    found = detconf.verify(target("steady"), runs=2, vary="all")
    assert [axis.axis for axis in found.axes] == list(AXES)
    assert (found.stable, str(found.cause)) == (True, "equal")
    assert {axis.invariant for axis in found.axes} <= {True, None}


def test_axes_are_judged_with_what_restores_the_plain_runs(target: Any) -> None:
    """Plain runs that differ by their hash seed do not hide that threads make no difference."""
    found = axes(detconf.verify(target("words"), runs=4, vary=("process", "threads")))
    assert found["process"].invariant is False
    assert found["threads"].invariant is True


def test_a_variant_that_fails_is_not_invariant(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that cannot run with one thread: the axis says so, and holding it is not called a fix."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # `import paddle` in this process has set it to 1, for children too
    found = axes(detconf.verify(target("single"), runs=2, vary=("threads",)))["threads"]
    assert (found.invariant, found.restored_by) == (False, None)
    assert "exit status 1" in found.note


def test_an_axis_that_differs_makes_the_verdict_unstable(target: Any) -> None:
    """Not invariant on a requested axis is not stable; no cause is claimed without a proof."""
    found = detconf.verify(target("threads"), runs=2, vary=("threads",))
    assert (found.stable, found.distinct, str(found.cause)) == (False, 1, "unknown")
    assert found.to_dict()["divergence"]["name"] == "n"


@pytest.mark.parametrize(("vary", "words"), [(("threds",), "Did you mean 'threads'"), (("rerun",), "processes of its own")])
def test_bad_axes(vary: tuple[str, ...], words: str) -> None:
    """An unknown axis suggests a real one; a command cannot be repeated in one process."""
    with pytest.raises(detconf.TargetError, match=words):
        detconf.verify([sys.executable, "-c", "pass"], vary=vary)


def test_names_are_those_of_the_documentation() -> None:
    """The axes have unique names, and at least one variant here."""
    assert len({variable.name for variable in VARIABLES}) == len(VARIABLES)
    assert all(variable.variants(gather()) or variable.name == "isa" for variable in VARIABLES)
