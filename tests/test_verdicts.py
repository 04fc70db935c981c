"""The programs that verdicts are measured on: drawn from their seed alone, and what is planted in them is true."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, run_python

sys.path.insert(0, str(ROOT / "benchmarks"))

from programs import FAMILIES, draw, sketch
from programs.program import Program
from programs.truth import refuted
from verdicts import Row, sentence, spread, table


def test_a_seed_gives_one_program() -> None:
    """Two draws of one seed are one text; another seed, number or attempt is another."""
    for family in FAMILIES:
        assert sketch(1, family, 2, 0) == sketch(1, family, 2, 0)
        assert len({sketch(seed, family, index, 0).source for seed in range(3) for index in range(6)}) > 6


def test_another_process_draws_the_same(tmp_path: Path) -> None:
    """Whatever the hash seed."""
    code = f"import sys, json; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); from programs import sketch, FAMILIES\n"
    code += "print(json.dumps([sketch(5, family, 1, 0).source for family in FAMILIES]))"
    found = [run_python(code, cwd=tmp_path, PYTHONHASHSEED=seed) for seed in ("1", "2")]
    assert found[0] == found[1] == [sketch(5, family, 1, 0).source for family in FAMILIES]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_planted_is_true(family: str) -> None:
    """A program of each family is found, has two sides, and holds when it is examined again."""
    program, _ = draw(11, family, 0)
    functions = {node.name for node in ast.parse(program.source).body if isinstance(node, ast.FunctionDef)}
    assert {"reference", "candidate"} <= functions
    assert not refuted(program)


def test_every_sketch_is_a_program() -> None:
    """Text of any draw compiles: what does not run is a mistake of a template, not of the draw."""
    for family in FAMILIES:
        for index in range(40):
            ast.parse(sketch(0, family, index, 0).source)


_SAME = Program("semantics", "nothing planted", "X = np.arange(6, dtype='float32')", 'return {"y": X * 2}', 'return {"y": X + X}')
_OTHER = replace(_SAME, wrong='return {"y": X + 1}')


@pytest.mark.parametrize("family", ["semantics", "dtype", "overflow", "rng", "ill-conditioned", "config"])
def test_nothing_planted_is_refuted(family: str) -> None:
    """The examination can fail: the same formula twice is none of these."""
    assert refuted(replace(_SAME, family=family))


@pytest.mark.parametrize("family", ["equal", "rounding"])
def test_a_mistake_is_no_benign_program(family: str) -> None:
    """And another formula is neither equal nor rounding; what cannot run is refused."""
    assert refuted(replace(_OTHER, family=family))
    assert not refuted(_OTHER)
    assert "NameError" in refuted(replace(_OTHER, wrong="return missing"))


def test_the_examination_leaves_settings() -> None:
    """Defaults that a program changes, and those of the float64 runs, are put back."""
    import torch

    before = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    refuted(replace(_OTHER, setup="X = np.ones(3, 'float32')\ntorch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)"))
    assert (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()) == before


def test_counts() -> None:
    """Benign called a bug, a real cause called benign, and what fits as well."""
    rows = [
        Row(0, index, planted, "x", also, got, "", 1.0, "")
        for index, (planted, also, got) in enumerate(
            [
                ("rounding", ("equal",), "equal"),
                ("rounding", (), "semantics"),
                ("ill-conditioned", (), "rounding"),
                ("semantics", (), "rounding"),
                ("layout", (), "unknown"),
                ("rng", (), "error"),
            ]
        )
    ]
    said = sentence(rows)
    assert said.startswith("1 of 6 verdicts right; benign called a bug: 1; real cause called benign: 1; unknown: 1; errors: 1")
    assert "semantics" in table(rows).splitlines()[0]
    assert len(spread(63, list(FAMILIES))) == len(set(spread(63, list(FAMILIES)))) == 63


def test_a_side_that_writes_into_its_data_is_refused() -> None:
    """It would not repeat, which is another finding."""
    assert "does not repeat" in refuted(replace(_OTHER, wrong='X[0] += 1\nreturn {"y": X + 1}'))
