"""Where reruns differ, `verify` names the first operation by which they part; what that does not show, it says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import ROOT

from detconf import publish
from detconf.recording import running
from detconf.report.verification import verification
from detconf.rerun import verify
from detconf.values import Cause
from detconf.verification import Operation, Verification


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of the test's own, in which children find detconf; two threads; generators put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(2)
    yield tmp_path
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


def located(result: Verification) -> Operation:
    """What was found, which the report and the dictionary tell too."""
    found = result.operation
    assert found is not None
    told, data = verification(result, verbose=False), result.to_dict()["operation"]
    assert data["name"] == (found.finding and found.finding.divergence.name)
    assert found.finding is None or f"first operation   {data['name']}" in told
    assert all(note in told for note in found.notes)
    return found


def gradient() -> dict[str, torch.Tensor]:
    """The strong race: many picks from a small table, added up by two threads."""
    make = torch.Generator().manual_seed(0)
    table = torch.randn(100, 16, generator=make).requires_grad_()
    picks = torch.randint(0, 100, (200_000,), generator=make)
    weights = torch.randn(200_000, 16, generator=make)
    (table[picks] * weights).sum().backward()
    assert table.grad is not None
    return {"picks": picks.sum(), "grad": table.grad}


def test_the_operation_that_races_is_named_with_its_line() -> None:
    """A gradient that two threads add up: the operation, its line, and how many elements differ."""
    result = verify(gradient, runs=3, until=0.05, most_runs=60)
    if result.stable:
        pytest.skip("the race did not show: no second core was free")
    found = located(result)
    if found.finding is None:  # a race may hide from the recorder, which then says so
        assert any("recorded runs agree" in note for note in found.notes)
        return
    divergence = found.finding.divergence
    line = next(number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "table[picks] *" in text)
    assert "index_put" in divergence.name
    assert divergence.source == f"test_locating.py:{line}"
    assert (divergence.step, divergence.shape, divergence.dtype) == (0, (100, 16), "float32")
    assert divergence.differing is None or 0 < divergence.differing <= divergence.elements == 1600
    assert not any("recording changed" in note for note in found.notes)


def test_unseeded_dropout_is_the_first_operation() -> None:
    """The operation that draws, not what reads it; that its generator stands elsewhere is said."""
    drop = torch.nn.Dropout(0.5)

    def train() -> dict[str, torch.Tensor]:
        x = torch.ones(64, 8) * 3
        return {"x": x, "y": (drop(x) @ torch.ones(8, 2)).relu()}

    result = verify(train, runs=3)
    finding = located(result).finding
    assert not result.stable
    assert finding is not None
    assert finding.divergence.name in ("aten.bernoulli_.float", "aten.native_dropout")
    assert finding.divergence.scope == "Dropout"
    assert finding.divergence.source.startswith("test_locating.py:")
    assert finding.divergence.differing
    assert "generator's state differs" in finding.hint
    assert not any("recording" in note for note in located(result).notes)  # x is what it was


SCRIPT = """
import torch
import detconf
weights = {name: torch.full((3,), 0.1 * number + 1e-7) for number, name in enumerate("abcdefghij")}
total = torch.zeros(3)
for name in {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}:
    total = total * 1.1 + weights[name]
detconf.publish("total", total)
"""


@pytest.mark.parametrize("published", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_order_of_a_set_is_found_in_fresh_processes(here: Path, published: bool) -> None:
    """A script that walks a set of text: the line of the first operation that met another name."""
    code = SCRIPT if published else SCRIPT.replace("import detconf\n", "").replace('detconf.publish("total", total)', "")
    (here / "walk.py").write_text(code if published else code + "open('total.txt', 'w').write(repr(total.tolist()))\n")
    result = verify([sys.executable, "walk.py"], runs=6, outputs=() if published else ["total.txt"])
    finding = located(result).finding
    assert result.cause is Cause.CONFIG
    assert finding is not None
    line = next(number for number, text in enumerate(code.splitlines(), 1) if "total * 1.1" in text)
    assert finding.divergence.source == f"walk.py:{line}"
    assert finding.divergence.name == "aten.add.Tensor"


@pytest.mark.slow
def test_a_function_in_fresh_processes(here: Path) -> None:
    """A function of a file, each time in a process of its own, is recorded there too."""
    (here / "model.py").write_text("import torch\ndef run():\n    return {'y': torch.rand(5) + 1}\n")
    finding = located(verify("model.py:run", runs=3, fresh=True)).finding
    assert finding is not None
    assert (finding.divergence.name, finding.divergence.source) == ("aten.rand", "model.py:3")


def test_recorded_runs_that_agree_are_said_to() -> None:
    """What no longer differs when it is recorded is not given an operation."""
    calls = iter(range(10**6))
    found = located(verify(lambda: {"y": torch.ones(3) * (1 if running._running else next(calls)), "x": 1.0}, runs=3))
    assert found.finding is None
    assert any("recorded runs agree" in note for note in found.notes)


def test_a_result_that_recording_changes_is_said_to_be() -> None:
    """A result that all plain runs give alike and recorded ones do not speaks against the recorder."""
    drop = torch.nn.Dropout(0.5)
    result = verify(lambda: {"x": torch.ones(3) * (2 if running._running else 1), "y": drop(torch.ones(99))}, runs=3)
    assert any(note.startswith("recording changed x") for note in located(result).notes)


def test_where_nothing_is_alike_the_recorder_is_not_trusted() -> None:
    """Where every result differs, nothing shows that the recorder leaves the bits alone: that is said."""
    assert any("not shown here" in note for note in located(verify(lambda: torch.rand(9), runs=3)).notes)


def test_what_no_framework_computes_is_not_located() -> None:
    """Reruns that differ by what Python computes have no first operation; the notes say what is known."""
    found = located(verify(lambda: {"t": __import__("time").perf_counter_ns()}, runs=3))
    assert found.finding is None
    assert found.notes


def test_state_that_is_kept_between_runs_is_located() -> None:
    """A parameter that goes on from run to run: the first operation that reads it, and that its input differs."""
    kept = torch.zeros(4)

    def train() -> torch.Tensor:
        kept.add_(1)
        return kept * 2

    finding = located(verify(train, runs=3)).finding
    assert finding is not None
    assert finding.divergence.name == "aten.add_.Tensor"


def test_a_stable_target_is_not_run_again() -> None:
    """The second pass is for reruns that differ."""
    calls: list[int] = []
    result = verify(lambda: calls.append(1) or publish("x", torch.ones(2)), runs=3)
    assert result.operation is None
    assert len(calls) == 3
    assert result.to_dict()["operation"] is None
