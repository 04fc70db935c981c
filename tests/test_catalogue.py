"""The catalogue: every knob complete, every policy served, the documentation true."""

from __future__ import annotations

import itertools
import re
from fnmatch import fnmatch
from typing import Any, get_args

import paddle
import pytest
from conftest import ROOT

from detconf.access import Env
from detconf.frameworks import catalogue, frameworks
from detconf.frameworks import framework as framework_of
from detconf.knob import Pattern, Timing
from detconf.plan import make
from detconf.policy import GraphPolicy, Policy, policy_names
from detconf.profile import builtin_names, load
from detconf.report import knobs as formats

KNOBS = list(catalogue().values())


def values_of(policy: str) -> list[Any]:
    """The words of a policy; a number stands for the numeric ones."""
    model, _, name = ("graph.", "", policy.partition(".")[2]) if policy.startswith("graph.") else ("", "", policy)
    annotation = (GraphPolicy if model else Policy).model_fields[name].annotation
    found: list[Any] = []
    for part in get_args(annotation):
        literal = [word for word in get_args(part) if isinstance(word, str)]
        found += literal or ([True, False] if part is bool else [2] if part is not type(None) else [])
    return found


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_knobs_are_complete(knob: Any) -> None:
    """A knob has a sentence, a public address, devices, and values that it accepts itself."""
    assert re.fullmatch(r"[^.].*[.]", knob.summary, re.DOTALL), knob.summary
    assert knob.docs.startswith("https://")
    assert set(knob.governs.split("|")) <= {"cpu", "x86", "cuda", "rocm", "cinn"}
    assert (knob.timing in (Timing.ANY_TIME, Timing.AT_COMPILE)) or knob.late or knob.access.module
    for policy, rule in knob.serves.items():
        assert policy in (*policy_names(), "seed")
        if not callable(rule):
            assert set(rule) <= set(values_of(policy)), policy
            assert all(not knob.objection(own) for own in rule.values())
    if isinstance(knob.access, Env):
        assert knob.name == f"env.{knob.access.variable}"
    if isinstance(knob.accepts, Pattern):
        re.compile(knob.accepts.regex)


@pytest.mark.parametrize("policy", policy_names())
def test_every_word_of_every_policy_is_served(policy: str) -> None:
    """No policy value is a wish that nobody grants."""
    for value in values_of(policy):
        assert any(knob.spell(policy, value)[0] for knob in KNOBS), (policy, value)


@pytest.mark.parametrize("profile", builtin_names())
def test_no_two_policies_of_a_profile_disagree(profile: str) -> None:
    """A knob that serves several policies of a built-in profile is told the same by all of them."""
    lines = load(profile).policies
    for knob in KNOBS:
        told = {policy: own for policy, line in lines.items() for serves, own in [knob.spell(policy, line.value)] if serves}
        assert all(first == second for first, second in itertools.pairwise(told.values())), (knob.name, told)


@pytest.mark.parametrize("profile", builtin_names())
def test_plans_want_only_what_is_accepted(profile: str) -> None:
    """Every step of a built-in profile asks for a value that its knob accepts."""
    for step in make(load(profile)).steps:
        assert not step.knob.objection(step.wanted), step


def test_true_is_not_one() -> None:
    """A boolean knob refuses 1, an integer knob refuses True."""
    assert catalogue()["torch.backends.cudnn.benchmark"].objection(1)
    assert catalogue()["torch.set_num_threads"].objection(True)


def test_names_are_unique_and_many() -> None:
    """No knob is declared twice, and touched knobs exist."""
    names = [knob.name for each in frameworks() for knob in each.knobs]
    assert len(names) == len(set(names)) == len(catalogue()) >= 400
    assert {name for knob in KNOBS for name in knob.touches} <= set(names)


def test_knobs_page_is_generated() -> None:
    """docs/knobs.md is what `make knobs` writes."""
    assert (ROOT / "docs" / "knobs.md").read_text() == formats.markdown(), "run `make knobs`"


def test_refused_controls_have_a_reason_and_are_no_knobs() -> None:
    """A control is a knob or is refused, with a reason, not both."""
    for framework in frameworks():
        for each in formats.refused(framework):
            assert each.names
            assert re.fullmatch(r"[^|\n]{5,}[^.|\n]", each.reason), each
            assert not ({f"env.{name}" for name in each.names} | set(each.names)) & set(catalogue())


def test_every_flag_of_paddle_is_a_knob_or_refused() -> None:
    """No flag of the real build is overlooked, and every pattern of refused flags meets one of this or a GPU build."""
    flags = set(paddle.base.core.globals().keys())
    patterns = [name for each in formats.refused(framework_of("paddle")) for name in each.names if name.startswith("FLAGS_")]
    knobs = {name.partition(".")[2] for name in catalogue() if ".FLAGS_" in name}
    assert sorted(flag for flag in flags - knobs if not any(fnmatch(flag, pattern) for pattern in patterns)) == []
    assert sorted(flag for flag in flags & knobs if any(fnmatch(flag, pattern) for pattern in patterns)) == []
    elsewhere = {
        f"FLAGS_{name}" for name in ("nccl_blocking_wait", "benchmark_nccl", "prim_log", "trace_api", "shard_*")
    }  # GPU, or no flags
    assert {pattern for pattern in patterns if not any(fnmatch(flag, pattern) for flag in flags)} == elsewhere


def test_readme_lists_the_profiles() -> None:
    """Every built-in profile has a row in the README."""
    text = (ROOT / "README.md").read_text()
    assert [name for name in builtin_names() if f"| `{name}` |" not in text] == []
