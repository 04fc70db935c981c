"""The script behind `make gpu-check`, as far as a machine without a GPU can try it: its measurements, and what it makes of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT

import detconf

spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "tools" / "gpu_check.py")
assert spec
assert spec.loader
gpu_check = importlib.util.module_from_spec(spec)
sys.modules["gpu_check"] = gpu_check  # dataclasses look their module up
spec.loader.exec_module(gpu_check)


def rounded(tensor: torch.Tensor, bits: int, *, cut: bool = False) -> torch.Tensor:
    """float32 with the last `bits` of its significand rounded to nearest even, or cut off."""
    words = tensor.view(torch.int32)
    half = 0 if cut else (1 << (bits - 1)) - 1 + ((words >> bits) & 1)
    return ((words + half) & ~((1 << bits) - 1)).view(torch.float32)


@pytest.mark.parametrize(
    ("arithmetic", "expected"),
    [
        (lambda a, b: a @ b, "fp32"),
        (lambda a, b: (a.double() @ b.double()).float(), "fp32"),
        (lambda a, b: sum(a[:, i : i + 8] @ b[i : i + 8] for i in range(0, a.shape[1], 8)), "fp32"),
        (lambda a, b: rounded(a, 13) @ rounded(b, 13), "TF32"),
        (lambda a, b: rounded(a, 13, cut=True) @ rounded(b, 13, cut=True), "TF32"),
        (lambda a, b: rounded(a, 16) @ rounded(b, 16), "bf16 or lower"),
        (lambda a, b: (a.bfloat16() @ b.bfloat16()).float(), "bf16 or lower"),
    ],
    ids=["as it is", "wide sums", "other order", "TF32", "TF32 cut off", "bf16 inputs", "bf16"],
)
def test_arithmetic_is_read_off_the_bits(arithmetic: Any, expected: str) -> None:
    """float32 in any order, TF32 rounded or cut off, and bfloat16 are told apart by their error alone."""
    assert gpu_check.classify(gpu_check.product_residual(torch, "cpu", arithmetic)) == expected


def test_every_measurement_works_on_cpu() -> None:
    """Convolution and recurrent layer are float32 here, and so is Paddle."""
    found = gpu_check.precision("cpu") | gpu_check.paddle_precision("cpu")
    assert {name: gpu_check.classify(value) for name, value in found.items()} == dict.fromkeys(
        ("matmul", "convolution", "recurrent layer", "paddle matmul", "paddle convolution"), "fp32"
    )


def test_reruns_are_compared_as_bytes() -> None:
    """Under strict every operation of the list repeats here; a result that moves by its sign of zero is seen."""
    with detconf.apply("strict"):
        assert {name: len(found) for name, found in gpu_check.reruns("cpu").items()} == dict.fromkeys(gpu_check.operations(torch, "cpu"), 1)
    zeros = iter((torch.zeros(1), -torch.zeros(1)))
    assert len(gpu_check.repeat(lambda: [next(zeros)], 2)) == 2
    assert gpu_check.repeat(lambda: torch.linalg.cholesky(-torch.eye(2)), 2)[0].startswith("raises")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device to check")
def test_without_a_device_nothing_is_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, the reason, and no file."""
    assert gpu_check.main(["--output", str(tmp_path / "gpu.md")]) == 2
    assert "no CUDA device: nothing was checked" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


GOOD = {
    ("precision", "strict"): {"matmul": 1.0},
    ("precision", "strict, its variables aside"): {"matmul": 60.0},
    ("precision", "fast"): {"matmul": 4900.0},
    ("paddle", "strict"): {},
    ("paddle", "fast"): {},
    ("reruns", "strict"): {"index_add": ["a"], "cumsum": ["raises x"]},
    ("reruns", "nothing"): {"index_add": ["a", "b"], "cumsum": ["c", "d"]},
    ("late", "nothing"): dict.fromkeys(gpu_check.LATE, "too-late"),
    ("restore", "nothing"): {"differ": {}, "draws": True},
}


@pytest.mark.parametrize(
    ("part", "under", "instead", "broken"),
    [
        ("precision", "strict", {"matmul": 1.0}, 0),
        ("precision", "strict", {"matmul": 4900.0}, 1),
        ("precision", "strict", {"matmul": 700.0}, 1),
        ("precision", "strict, its variables aside", {"matmul": 4900.0}, 1),
        ("precision", "fast", {"matmul": 1.0}, 1),
        ("precision", "fast", {"problem": "out of time"}, 1),
        ("paddle", "strict", {"paddle matmul": 5000.0}, 1),
        ("reruns", "strict", {"index_add": ["a", "b"], "cumsum": ["raises x"]}, 1),
        ("reruns", "strict", {"index_add": ["raises x"], "cumsum": ["raises x"]}, 1),
        ("reruns", "nothing", {"problem": "out of time"}, 1),
        ("late", "nothing", dict.fromkeys(gpu_check.LATE, "set"), 2),
        ("late", "nothing", {"problem": "crashed"}, 2),
        ("restore", "nothing", {"differ": {"x": ["1", "2"]}, "draws": True}, 1),
        ("restore", "nothing", {"differ": {}, "draws": False}, 1),
    ],
)
def test_what_is_not_found_is_not_kept(part: str, under: str, instead: dict[str, Any], broken: int) -> None:
    """Every promise fails when its measurement does not bear it out, a missing measurement included."""
    answers = GOOD | {(part, under): instead}

    def run(part: str, under: str) -> dict[str, Any]:
        return answers[part, under]

    claims = [*gpu_check.precision_claims(run, tensor_cores=True), *gpu_check.rerun_claims(run), *gpu_check.state_claims(run, "cuda")]
    assert sum(not claim.ok for claim in claims) == broken
    page = gpu_check.report({"cuda": True, "card": "X"}, claims, {"step": {"nothing": 1.0, "strict": 1.5, "strict, no fill": 1.25}})
    assert page.startswith("# What was proved on a GPU")
    assert f"{len(claims) - broken} of {len(claims)} promises kept" in page
    assert "| 1.50 |" in page


def test_two_processes_must_agree() -> None:
    """One result within each of two processes, and not the same one, is not repeatable."""
    results = iter(({"matmul": ["a"]}, {"matmul": ["b"]}, {"matmul": ["a"]}))
    claims = gpu_check.rerun_claims(lambda _part, _under: next(results))
    assert [(claim.ok, claim.found) for claim in claims] == [(False, "2 distinct; 1 distinct without a profile")]


def test_parts_run_in_processes_of_their_own() -> None:
    """A part is started with its settings in force, and without the variables of this process."""
    found = gpu_check.child("late", "cpu", "nothing", gpu_check.time.monotonic() + 120)
    assert found == dict.fromkeys(gpu_check.LATE, "set")
    assert gpu_check.child("late", "cpu", "nothing", gpu_check.time.monotonic()) == {"problem": "out of time"}
    assert "problem" in gpu_check.child("restore", "cuda", "nothing", gpu_check.time.monotonic() + 120) or torch.cuda.is_available()
