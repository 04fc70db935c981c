"""Apply, attest, watch, put back: in one process, with the real frameworks, and everything as before at the end."""

from __future__ import annotations

import random
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config  # so that nothing is pending in this process
from conftest import readings, run_python
from hypothesis import example, given, settings
from hypothesis import strategies as st

import detconf
from detconf.errors import DetconfWarning, LateError, ProfileError
from detconf.frameworks import catalogue
from detconf.frameworks.torch.controls import Legacy, Precision
from detconf.knob import Pattern, Span
from detconf.plan import make
from detconf.profile import load

pytestmark = pytest.mark.filterwarnings("ignore::detconf.errors.DetconfWarning")  # `ci` is late in this process by nature

PROFILES = ("strict", "ci", "parity", "warn", "fast")


def outcomes(attestation: Any) -> dict[str, str]:
    return {entry.knob: str(entry.outcome) for entry in attestation.entries}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("profile", PROFILES)
def test_restore_is_exact(profile: str) -> None:
    """After restore, every control of the catalogue reads as before, generators included."""
    with detconf.apply(profile) as session:
        assert session.attestation.entries
    assert session.restore().entries == ()


@pytest.mark.usefixtures("unchanged")
def test_strict_is_in_force() -> None:
    """What the frameworks themselves say under strict."""
    with detconf.apply("strict") as session:
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.backends.cudnn.benchmark
        assert torch._inductor.config.fallback_random
        assert paddle.get_flags("FLAGS_new_executor_sequential_run")["FLAGS_new_executor_sequential_run"]
        assert torch.initial_seed() == 0
        assert session.check().ok


@pytest.mark.usefixtures("unchanged")
def test_tf32_is_off_and_every_reader_works() -> None:
    """Products, convolutions and recurrent layers are at IEEE precision, and both API families can be read, then and after."""
    readers = (
        lambda: torch.backends.cuda.matmul.fp32_precision,
        lambda: torch.backends.cudnn.conv.fp32_precision,
        lambda: torch.backends.cudnn.rnn.fp32_precision,
        lambda: torch.backends.mkldnn.matmul.fp32_precision,
        lambda: torch.backends.fp32_precision,
    )
    legacy = (torch.get_float32_matmul_precision, lambda: torch.backends.cudnn.allow_tf32, lambda: torch.backends.cuda.matmul.allow_tf32)
    before = [read() for read in (*readers, *legacy)]
    with detconf.apply("strict"):
        assert {read() for read in readers} == {"ieee"}
        assert [read() for read in legacy] == ["highest", False, False]
    assert [read() for read in (*readers, *legacy)] == before


@pytest.mark.usefixtures("unchanged")
def test_cudnn_flags_turn_tf32_back_on_and_are_reported() -> None:
    """Inside `torch.backends.cudnn.flags(enabled=True)` TF32 is on again: `check` says which knobs drifted."""
    with detconf.apply("strict") as session:
        with torch.backends.cudnn.flags(enabled=True):
            found = session.check()
            assert not found.ok
            assert outcomes(found)["torch.backends.cudnn.conv.fp32_precision"] == "drifted"
            assert outcomes(found)["torch.backends.cudnn.deterministic"] == "drifted"
        assert session.check().ok


NODES = (("generic", "all"), *((backend, operation) for backend in ("cuda", "mkldnn") for operation in ("all", "matmul", "conv", "rnn")))
LEGACY = {
    "legacy matmul": ("highest", "high", "medium"),
    "legacy cublas": (True, False),
    "legacy cudnn": (True, False),
}


def mixed_states() -> st.SearchStrategy[list[tuple[Any, Any]]]:
    """Writes through both TF32 API families, in any order."""
    legacy = [(name, value) for name, values in LEGACY.items() for value in values]
    new = [(node, value) for node in NODES for value in ("ieee", "tf32", "bf16", "none") if (node[0], value) != ("cuda", "bf16")]
    return st.lists(st.one_of(st.sampled_from(legacy), st.sampled_from(new)), min_size=1, max_size=6)


def write(node: Any, value: Any) -> None:
    if node == "legacy matmul":
        torch.set_float32_matmul_precision(value)
    elif node == "legacy cublas":
        torch.backends.cuda.matmul.allow_tf32 = value
    elif node == "legacy cudnn":
        torch.backends.cudnn.allow_tf32 = value
    else:
        torch._C._set_fp32_precision_setter(*node, value)


def tree() -> dict[str, Any]:
    """What every reader of both families says, and what a contradiction hides from the older ones."""
    knobs = {name: knob for name, knob in catalogue().items() if isinstance(knob.access, Legacy | Precision)}
    read = {name: str(knob.read()) for name, knob in knobs.items()}
    hidden = {f"{name}, below": knob.access.save() for name, knob in knobs.items() if isinstance(knob.access, Legacy)}
    try:
        cublas: Any = torch.backends.cuda.matmul.allow_tf32
    except RuntimeError as error:
        cublas = str(error)
    return {**read, **hidden, "cublas": cublas}


@pytest.mark.usefixtures("unchanged")
@settings(max_examples=60)
@given(mixed_states(), st.sampled_from(PROFILES))
@example([("legacy cudnn", False), (("cuda", "all"), "tf32")], "fast")  # False is stored as "none", which inherits tf32
def test_mixed_tf32_state_never_raises_and_comes_back(writes: list[tuple[Any, Any]], profile: str) -> None:
    """Whatever mix of old and new API was used before: no crash, in force under the profile, and exactly as before after."""
    with detconf.apply("strict"):  # brings this test's own writes back at the end
        for node, value in writes:
            write(node, value)
        before = tree()
        detconf.inspect(profile)
        assert tree() == before
        with detconf.apply(profile) as session:
            about = [entry for entry in session.attestation.entries if "precision" in entry.knob or "tf32" in entry.knob]
            assert [entry for entry in about if not entry.ok] == []
        assert tree() == before


@pytest.mark.usefixtures("unchanged")
def test_one_precision_knob_brings_both_families_back(tmp_path: Path) -> None:
    """A profile that sets one knob of the tree also undoes what was written meanwhile through the other older function."""
    profile = tmp_path / "one.yaml"
    profile.write_text("name: one\nsummary: One knob.\npolicy:\n  autotune: false\n")
    for knob, wanted, node, value in (
        ("torch.set_float32_matmul_precision", "high", "legacy cudnn", True),
        ("torch.backends.cudnn.allow_tf32", True, "legacy matmul", "high"),
    ):
        with detconf.apply("strict"):
            before = tree()
            with detconf.apply(str(profile), overrides={knob: wanted}):
                write(node, value)
            assert tree() == before


def written(node: Any, value: Any) -> dict[Any, str]:
    """What a write leaves at the nodes themselves, as aten/src/ATen/Context.cpp has it."""
    if node == "legacy matmul":
        cuda, mkldnn = {"highest": ("ieee", "ieee"), "high": ("tf32", "tf32"), "medium": ("tf32", "bf16")}[value]
        return {("cuda", "matmul"): cuda, ("mkldnn", "matmul"): mkldnn}
    if node == "legacy cublas":
        return {("cuda", "matmul"): "tf32" if value else "ieee"}
    if node == "legacy cudnn":
        return dict.fromkeys((("cuda", "conv"), ("cuda", "rnn")), "tf32" if value else "none")
    return {node: value}


@pytest.mark.usefixtures("unchanged")
@settings(max_examples=60)
@given(mixed_states(), st.sampled_from(PROFILES))
@example([(("cuda", "matmul"), "none"), (("cuda", "all"), "tf32")], "fast")
def test_looking_below_a_contradiction_keeps_inheritance(writes: list[tuple[Any, Any]], profile: str) -> None:
    """`inspect` looks below a contradiction without writing out at a node what it only inherits from its parents."""
    with detconf.apply("strict"):  # brings this test's own writes back at the end
        own: dict[Any, str] = {}
        for node, value in (*((node, "ieee") for node in NODES), *writes):
            write(node, value)
            own |= written(node, value)
        detconf.inspect(profile)
        assert {node: Precision(*node).own() for node in NODES} == own


@pytest.mark.usefixtures("unchanged")
@settings(max_examples=25)
@given(st.lists(st.sampled_from(PROFILES), min_size=1, max_size=4), st.integers(0, 3))
def test_restore_after_any_nested_sequence_is_the_identity(names: list[str], depth: int) -> None:
    """Sessions nest to any depth and come back to what each of them found, in whatever order they are closed."""
    before = readings()
    found, sessions = [], []
    for name in names:
        found.append(readings())
        sessions.append(detconf.apply(name))
        random.random()
        torch.rand(3)
        paddle.rand([3])
        np.random.rand()  # noqa: NPY002  # the legacy generator is the subject
    level = min(depth, len(sessions) - 1)
    sessions[level].restore()  # takes those above it along
    assert readings() == found[level]
    for session in reversed(sessions):
        session.restore()
    assert readings() == before


@pytest.mark.usefixtures("unchanged")
@settings(max_examples=25)
@given(st.data())
def test_any_overrides_come_back(data: Any) -> None:
    """Any accepted values of any knobs, taken or refused, are put back."""
    names = data.draw(st.lists(st.sampled_from(sorted(set(catalogue()) - UNSAFE)), unique=True, max_size=6))
    overrides = {name: data.draw(values_of(name), label=name) for name in names}
    with detconf.apply("strict", overrides=overrides) as session:
        assert {"env", "torch"} <= {entry.knob.partition(".")[0] for entry in session.attestation.entries}


# Not put back in a living process by their own declaration, or read by subprocesses of other tests.
UNSAFE = {"paddle.FLAGS_new_executor_serial_run", "torch.set_default_dtype", "paddle.FLAGS_check_nan_inf", "torch.set_flush_denormal"}


def values_of(name: str) -> st.SearchStrategy[Any]:
    """Values that a knob accepts."""
    accepts = catalogue()[name].accepts
    if accepts is bool:
        return st.booleans()
    if isinstance(accepts, Span):
        return st.integers(max(accepts.low or 0, 0), min(accepts.high or 4, 4))
    if isinstance(accepts, Pattern):
        return st.from_regex(accepts.regex, fullmatch=True).filter(lambda text: text.isascii() and text.isprintable() and len(text) < 40)
    return st.sampled_from(list(accepts))


@pytest.mark.usefixtures("unchanged")
def test_every_knob_comes_back_on_its_own(tmp_path: Path) -> None:
    """Every listed value of every knob, set alone by a profile that says nothing else, is put back."""
    empty = tmp_path / "empty.yaml"
    empty.write_text("name: empty")
    for name in sorted(set(catalogue()) - UNSAFE):
        knob = catalogue()[name]
        watched = [catalogue()[other] for other in (name, *knob.touches)]
        for value in listed(knob):
            before = [str(each.read()) for each in watched]
            report = detconf.apply(str(empty), overrides={name: value}).restore()
            assert (report.entries, [str(each.read()) for each in watched]) == ((), before), (name, value)


def listed(knob: Any) -> list[Any]:
    """A few values that a knob accepts; none for free text."""
    if knob.accepts is bool:
        return [True, False]
    if isinstance(knob.accepts, Span):
        return [*sorted({knob.accepts.low or 0, min(knob.accepts.high or 4, 4)}), *filter(None, [knob.accepts.word])]
    return [] if isinstance(knob.accepts, Pattern) else list(knob.accepts)


@pytest.mark.usefixtures("unchanged")
def test_foreign_changes_are_undone_too() -> None:
    """Restore brings back what was read before, also where someone else has changed it since."""
    with detconf.apply("strict"):
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        torch.backends.cudnn.benchmark = True
        paddle.set_flags({"FLAGS_use_autotune": True})


def test_generator_states_come_back() -> None:
    """The next draw of every generator after the session is the one that would have come without it."""
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002  # the legacy generator is the subject
    paddle.seed(5)

    def draws() -> list[Any]:
        return [torch.rand(2).tolist(), random.random(), np.random.rand(), paddle.rand([2]).tolist()]  # noqa: NPY002  # as above

    draws()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state(), paddle.get_rng_state()  # noqa: NPY002  # as above
    expected = draws()
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])  # noqa: NPY002  # as above
    paddle.set_rng_state(states[3])
    with detconf.apply("strict", seed=3) as session:
        first = draws()
        again = detconf.apply("strict", seed=3)
        assert draws() == first
        again.restore()
    assert session.plan.profile == "strict"
    assert draws() == expected


@pytest.mark.usefixtures("unchanged")
def test_a_failing_restore_goes_on_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """One control that cannot be put back is named; the others are."""
    session = detconf.apply("strict")
    monkeypatch.setattr(torch._C, "_set_deterministic_algorithms", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("locked")))
    with pytest.warns(DetconfWarning, match="locked"):
        report = session.restore()
    assert [entry.knob for entry in report.entries] == ["torch.use_deterministic_algorithms"]
    assert not torch._inductor.config.fallback_random
    monkeypatch.undo()
    torch.use_deterministic_algorithms(mode=False)


@pytest.mark.usefixtures("unchanged")
def test_frozen_flags_are_rejected_not_raised() -> None:
    """A control that raises on writing becomes a row; the others are set."""
    found = run_python(
        "import torch, detconf, json; torch.backends.disable_global_flags()\n"
        "a = detconf.apply('strict').attestation\nprint(json.dumps({e.knob: [e.outcome, e.note] for e in a.entries}))"
    )
    assert found["torch.backends.cudnn.deterministic"][0] == "rejected"
    assert "disable_global_flags" in found["torch.backends.cudnn.deterministic"][1]
    assert found["torch.use_deterministic_algorithms"][0] == "set"


@pytest.mark.usefixtures("unchanged")
def test_on_late_error_puts_everything_back() -> None:
    """`on_late="error"` raises with the remedy, and leaves nothing half applied."""
    with pytest.raises(LateError, match=r"PYTHONHASHSEED=0 in its environment[\s\S]*put back"):
        detconf.apply("ci", on_late="error")


def test_late_settings_warn_with_the_remedy() -> None:
    """By default, what applies here and is not in force is one warning."""
    with pytest.warns(DetconfWarning, match="PYTHONHASHSEED=0 in its environment"):
        detconf.apply("ci").restore()


@pytest.mark.usefixtures("unchanged")
def test_a_warning_that_is_an_error_puts_everything_back() -> None:
    """Where warnings are errors, `apply` raises and leaves no session behind that nobody could restore."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DetconfWarning)
        with pytest.raises(DetconfWarning, match="PYTHONHASHSEED"):
            detconf.apply("ci")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"profile": "nope"}, "unknown profile"),
        ({"seed": -1}, "seed"),
        ({"seed": True}, "seed"),
        ({"overrides": {"torch.nope": 1}}, "unknown knob"),
        ({"overrides": {"threads": "many"}}, "threads"),
        ({"frameworks": ["jax"]}, "unknown framework"),
        ({"on_late": "ignore"}, "on_late"),
    ],
)
def test_bad_arguments_change_nothing(arguments: dict[str, Any], words: str) -> None:
    """A bad argument is one ProfileError, before anything is written."""
    with pytest.raises(ProfileError, match=words):
        detconf.apply(**arguments)


def test_variables_choose_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """DETCONF_PROFILE, DETCONF_SEED and DETCONF_SET are defaults; explicit arguments beat them."""
    monkeypatch.setenv("DETCONF_PROFILE", "warn")
    monkeypatch.setenv("DETCONF_SEED", "11")
    monkeypatch.setenv("DETCONF_SET", "torch.backends.cudnn.benchmark=true; graph.order=any")
    with detconf.apply() as session:
        steps = {step.knob.name: step for step in session.plan.steps}
        assert (session.attestation.profile, torch.initial_seed()) == ("warn", 11)
        assert torch.backends.cudnn.benchmark
        assert "DETCONF_SET" in steps["torch.backends.cudnn.benchmark"].because
    with detconf.apply("strict", seed=3, overrides={"torch.backends.cudnn.benchmark": False}) as session:
        assert (session.attestation.profile, torch.initial_seed(), torch.backends.cudnn.benchmark) == ("strict", 3, False)
    monkeypatch.setenv("DETCONF_SEED", "x")
    with pytest.raises(ProfileError, match="DETCONF_SEED"):
        detconf.apply()


@pytest.mark.parametrize("profile", PROFILES)
def test_plan_is_idempotent(profile: str) -> None:
    """Planning twice gives the same plan, and a plan does not depend on what is in force."""
    first = make(load(profile)).to_dict()
    with detconf.apply("fast"):
        assert make(load(profile)).to_dict() == first


@pytest.mark.usefixtures("unchanged")
def test_applying_twice_finds_everything_in_force() -> None:
    """Under a session, an inspection of the same profile reports nothing to do, but for generators that have moved on."""
    with detconf.apply("strict"):
        random.random()
        left = {entry.knob for entry in detconf.inspect("strict").entries if entry.outcome == "open"}
        assert left <= {"random.seed"}


@pytest.mark.usefixtures("unchanged")
def test_two_threads_apply_and_restore() -> None:
    """Sessions from several threads neither deadlock nor leave anything behind."""
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                detconf.apply("strict").restore()
        except BaseException as error:  # noqa: BLE001  # reported by the main thread
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert problems == []


def test_compiling_keeps_strict_in_force() -> None:
    """Each compile resets inductor's flag to the eager one, which strict has set: it is still on afterwards (same state
    as the public call gives, proved in a fresh process)."""
    code = """
import json, torch, detconf
{setup}
import torch._inductor.config as config
f = torch.compile(lambda x: (x * 2).relu(), backend="aot_eager")
f(torch.ones(3))
print(json.dumps([config.deterministic, torch.get_deterministic_debug_mode()]))
"""
    ours = run_python(code.format(setup="session = detconf.apply('strict')"))
    public = run_python(code.format(setup="torch.use_deterministic_algorithms(True)"))
    assert ours == public == [True, 2]


@pytest.mark.usefixtures("unchanged")
def test_without_the_private_setter_the_public_one_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch whose private flag setter is gone gets the same state through `torch.use_deterministic_algorithms`.

    The stand-in keeps the real setter: the public function of this version calls it too.
    """
    setter, calls = torch._C._set_deterministic_algorithms, []

    def public(mode: Any, *, warn_only: bool = False) -> None:
        calls.append((mode, warn_only))
        setter(mode, warn_only=warn_only)

    monkeypatch.delattr(torch._C, "_set_deterministic_algorithms")
    monkeypatch.setattr(torch, "use_deterministic_algorithms", public)
    with detconf.apply("strict") as session:
        assert outcomes(session.attestation)["torch.use_deterministic_algorithms"] == "set"
        assert torch.are_deterministic_algorithms_enabled()
    assert calls == [(True, False), (False, False)]


@pytest.mark.usefixtures("unchanged")
def test_what_an_older_build_lacks_and_does_not_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control that is missing does not count against a build where another does the same, or where nothing is to be turned off."""
    monkeypatch.delattr(torch._C, "_get_fp32_precision_getter")  # as before torch 2.9
    monkeypatch.delattr(torch._C, "_get_overrideable_sdp_enabled")
    monkeypatch.delattr(torch._C, "_get_nnpack_enabled")
    with detconf.apply("parity", overrides={"torch.backends.nnpack": True}) as session:
        rows = {entry.knob: entry for entry in session.attestation.entries}
    tree = rows["torch.backends.mkldnn.matmul.fp32_precision"]
    assert (tree.outcome, tree.applies) == ("unsupported", False)
    assert "torch.set_float32_matmul_precision does it" in tree.note
    other = rows["torch._C._set_sdp_use_overrideable"]
    assert (other.outcome, other.applies) == ("unsupported", False)
    needed = rows["torch.backends.nnpack"]
    assert (needed.outcome, needed.applies) == ("unsupported", True)


def test_attestation_prints_and_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    """An attestation prints its headline first, and its dictionary has the promised keys."""
    with detconf.apply("strict") as session:
        found = session.attestation
    print(found)
    assert capsys.readouterr().out.startswith(f"strict: {sum(entry.applies for entry in found.entries)} of")
    document = found.to_dict()
    assert {"schema", "profile", "ok", "entries"} <= set(document)
    assert {"knob", "framework", "applies", "wanted", "before", "now", "outcome", "because", "note"} <= set(document["entries"][0])


def test_what_cannot_be_restored_is_said_before() -> None:
    """Controls whose restore is not exact say so in the attestation."""
    notes = {entry.knob: entry.note for entry in detconf.inspect("ci").entries}
    assert "restore:" in notes["env.MKL_CBWR"]
    assert "restore:" in notes["torch.backends.cudnn.conv.fp32_precision"]
    assert "restore:" in notes["torch.set_flush_denormal"]
    assert catalogue()["paddle.FLAGS_new_executor_serial_run"].undo
