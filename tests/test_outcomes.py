"""One row per outcome, each produced by the real framework or library in a fresh process.

Rows that this machine cannot produce: none of the outcomes; `MKL_CBWR=AVX2` on an AMD processor runs only there, and
on other processors a value that MKL really refuses in time stands for it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from conftest import ROOT, run_python

from detconf.facts import gather

APPLY = "session = detconf.apply({profile!r}, overrides={overrides!r}); found = session.attestation"
INSPECT = "found = detconf.inspect({profile!r})"
TAIL = """
row = next((e.to_dict() for e in found.entries if e.knob == {knob!r}), None)
print(json.dumps({{"row": row, "ok": found.ok}}))
"""


def outcome(
    knob: str,
    *,
    before: str = "",
    after: str = "",
    do: str = APPLY,
    profile: str = "strict",
    overrides: dict[str, object] | None = None,
    **environ: str,
) -> dict:
    """The row of `knob` after `before`, then apply or inspect, then `after`, in a fresh process."""
    middle = do.format(profile=profile, overrides=overrides or {})
    code = "\n".join(["import detconf, json, os, sys", before, middle, after, TAIL.format(knob=knob)])
    return run_python(code, **environ)["row"]


ROWS = [
    # (what happens, knob, how, outcome, words in the note or because)
    ("a flag that was off", "torch.backends.cudnn.deterministic", {"before": "import torch"}, "set", ""),
    ("a flag that was right", "torch.backends.cudnn.benchmark", {"before": "import torch"}, "already", ""),
    ("looking only", "torch.use_deterministic_algorithms", {"before": "import torch", "do": INSPECT}, "open", ""),
    ("before import", "torch.use_deterministic_algorithms", {}, "pending", "when torch is imported"),
    ("a part that loads later", "torch._inductor.config.fallback_random", {"before": "import torch"}, "pending", "torch._inductor.config"),
    ("set at import", "torch.use_deterministic_algorithms", {"after": "import torch; found = session.attestation"}, "set", ""),
    ("set at import of paddle", "paddle.FLAGS_new_executor_sequential_run", {"after": "import paddle; found = session.attestation"}, "set", ""),
    ("numpy seeded at import", "numpy.random.seed", {"after": "import numpy; found = session.attestation"}, "set", ""),
    ("GPU flag on a CPU build", "paddle.FLAGS_cudnn_deterministic", {"before": "import paddle"}, "unsupported", "does not exist in this build"),
    ("no cuDNN to limit", "torch.backends.cudnn.benchmark_limit", {"before": "import torch", "overrides": {"torch.backends.cudnn.benchmark_limit": 5}}, "unsupported", "None in this build"),
    ("framework not installed", "paddle.seed", {"before": "sys.modules['paddle'] = None"}, "unsupported", "not installed"),
    ("a library that refuses", "torch.backends.cuda.preferred_linalg_library", {"before": "import torch", "overrides": {"torch.backends.cuda.preferred_linalg_library": "magma"}}, "rejected", "MAGMA|magma"),
    ("an unknown core type", "env.OPENBLAS_CORETYPE", {"before": "import numpy", "OPENBLAS_CORETYPE": "Bogus", "overrides": {"env.OPENBLAS_CORETYPE": "Bogus"}}, "rejected", "the library answers"),
    ("an unknown NumPy feature", "env.NPY_DISABLE_CPU_FEATURES", {"before": "import numpy", "NPY_DISABLE_CPU_FEATURES": "BOGUS", "overrides": {"env.NPY_DISABLE_CPU_FEATURES": "BOGUS"}}, "rejected", "nothing"),
    ("no leading colon", "env.CUBLAS_WORKSPACE_CONFIG", {"do": INSPECT, "CUBLAS_WORKSPACE_CONFIG": "4096:8"}, "invalid", "':SIZE:COUNT'"),
    ("upper case", "env.ATEN_CPU_CAPABILITY", {"do": INSPECT, "profile": "ci", "ATEN_CPU_CAPABILITY": "AVX2"}, "invalid", "accepted"),
    ("not of this profile, yet invalid", "env.MKL_CBWR", {"do": INSPECT, "MKL_CBWR": "AVX3"}, "invalid", "accepted"),
    ("repaired in time", "env.CUBLAS_WORKSPACE_CONFIG", {"CUBLAS_WORKSPACE_CONFIG": "4096:8"}, "set", r"environment said '4096:8' \(invalid\)"),
    ("hash seed in a running interpreter", "env.PYTHONHASHSEED", {"profile": "ci"}, "too-late", "PYTHONHASHSEED=0 in its environment"),
    ("hash seed at start", "env.PYTHONHASHSEED", {"profile": "ci", "PYTHONHASHSEED": "0"}, "already", ""),
    ("hash seed assigned in vain", "env.PYTHONHASHSEED", {"before": "os.environ['PYTHONHASHSEED'] = '0'", "profile": "ci", "do": INSPECT}, "too-late", ""),
    ("OpenMP after torch", "env.OMP_NUM_THREADS", {"before": "import torch; torch.set_num_threads(2)", "profile": "ci", "do": INSPECT}, "too-late", "OMP_NUM_THREADS=1"),
    ("OpenMP cap after torch", "env.OMP_THREAD_LIMIT", {"before": "import torch", "overrides": {"env.OMP_THREAD_LIMIT": "2"}}, "too-late", "libgomp"),
    ("OpenMP before torch", "env.OMP_NUM_THREADS", {"profile": "ci", "after": "import torch; found = session.attestation"}, "set", ""),
    ("OpenBLAS core after NumPy", "env.OPENBLAS_CORETYPE", {"before": "import numpy", "profile": "ci"}, "too-late", "Haswell"),
    ("NumPy features after NumPy", "env.NPY_DISABLE_CPU_FEATURES", {"before": "import numpy", "overrides": {"env.NPY_DISABLE_CPU_FEATURES": "X86_V3"}}, "too-late", ""),
    ("ATen after its first operation", "env.ATEN_CPU_CAPABILITY", {"before": "import torch; torch.ones(4) + 1", "overrides": {"env.ATEN_CPU_CAPABILITY": "default"}}, "too-late", "first operation"),
    ("ATen after import, before an operation", "env.ATEN_CPU_CAPABILITY", {"before": "import torch", "overrides": {"env.ATEN_CPU_CAPABILITY": "default"}}, "set", ""),
    ("ATen late, looking only", "env.ATEN_CPU_CAPABILITY", {"before": "import torch; torch.ones(4) + 1; os.environ['ATEN_CPU_CAPABILITY'] = 'default'", "do": "found = detconf.inspect('ci')"}, "too-late", ""),
    ("MKL after its first product", "env.MKL_CBWR", {"before": "import torch; torch.ones(64, 64) @ torch.ones(64, 64)", "overrides": {"env.MKL_CBWR": "COMPATIBLE"}}, "too-late", "OFF"),
    ("MKL after import, before a product", "env.MKL_CBWR", {"before": "import torch", "overrides": {"env.MKL_CBWR": "COMPATIBLE"}}, "set", ""),
    ("Paddle's variable after import", "env.FLAGS_prim_all", {"before": "import paddle", "overrides": {"env.FLAGS_prim_all": "1"}}, "too-late", "paddle is imported"),
    ("a flag assigned to os.environ after import", "env.FLAGS_check_nan_inf", {"before": "import paddle; os.environ['FLAGS_check_nan_inf'] = '1'", "do": INSPECT}, "too-late", "set_flags"),
    ("NVIDIA's override before its libraries", "env.NVIDIA_TF32_OVERRIDE", {"before": "import torch"}, "set", ""),
    ("a cap that no getter shows", "torch.set_num_threads", {"before": "import torch", "overrides": {"torch.set_num_threads": 2}, "OMP_THREAD_LIMIT": "1"}, "overridden", "OMP_THREAD_LIMIT=1"),
    ("TF32 forced on from outside", "torch.backends.cuda.matmul.fp32_precision", {"before": "import torch; os.environ['NVIDIA_TF32_OVERRIDE'] = '1'", "do": INSPECT, "profile": "strict"}, "open", ""),
    ("changed behind our back", "torch.backends.cudnn.conv.fp32_precision", {"before": "import torch", "after": "torch.backends.cudnn.allow_tf32 = True; found = session.check()"}, "drifted", "after apply"),
]  # fmt: skip


@pytest.mark.parametrize(("knob", "how", "expected", "words"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_outcomes(knob: str, how: dict, expected: str, words: str) -> None:
    """The row says what really happened, and what to do."""
    row = outcome(knob, **how)
    assert row is not None, f"no row for {knob}"
    assert (row["outcome"], bool(re.search(words, row["note"] + row["because"]))) == (expected, True), row


def test_every_outcome_has_a_row() -> None:
    """No outcome is untested."""
    from detconf.values import Outcome

    assert {row[3] for row in ROWS} == {str(each) for each in Outcome}


def test_mkl_refuses_on_amd() -> None:
    """MKL_CBWR=AVX2 is taken by Intel processors, and refused in time by others (AUTO is answered)."""
    row = outcome("env.MKL_CBWR", before="import torch", overrides={"env.MKL_CBWR": "AVX2"})
    assert row["outcome"] == ("set" if gather().vendor == "GenuineIntel" else "rejected"), row


@pytest.mark.parametrize("value", ["4096:8", ":4096", ":4096:", ":4096,8", ": 4096:8x", ""])
def test_cublas_values_that_cannot_work(value: str) -> None:
    """Decided from the string alone, no GPU needed."""
    assert outcome("env.CUBLAS_WORKSPACE_CONFIG", do=INSPECT, CUBLAS_WORKSPACE_CONFIG=value)["outcome"] == "invalid"


@pytest.mark.parametrize("value", [":4096:8", ":16:8", ":16:8:4096:2"])
def test_cublas_values_that_can_work(value: str) -> None:
    """Another valid value than the profile's is open, not invalid; the profile's own is in force."""
    expected = "already" if value == ":4096:8" else "open"
    assert outcome("env.CUBLAS_WORKSPACE_CONFIG", do=INSPECT, CUBLAS_WORKSPACE_CONFIG=value)["outcome"] == expected


def test_strict_at_script_start_is_fully_in_force() -> None:
    """`apply("strict")` first, both frameworks after: nothing that applies is left out, and the exit code agrees."""
    found = run_python(
        "import detconf, json\nsession = detconf.apply('strict')\nimport numpy, torch, paddle, torch._inductor.config\n"
        "a = session.attestation\nprint(json.dumps([a.ok, [e.to_dict() for e in a.entries if e.applies and e.outcome == 'pending'], a.headline]))"
    )
    assert found[0], found
    assert [entry["knob"] for entry in found[1]] == []
    assert re.match(r"strict: (\d+) of \1 that apply are in force; \d+ do not apply here", found[2])


def test_ci_from_the_first_instruction(tmp_path: Path) -> None:
    """Under the variables of `ci`, nothing is too late, whatever was imported first."""
    from detconf.launch import child_environment

    environment = child_environment("ci", {})
    found = run_python(
        "import numpy, torch, paddle, detconf, json\n(torch.ones(64, 64) @ torch.ones(64, 64)).exp(); a = detconf.inspect('ci')\n"
        "print(json.dumps([[e.knob, e.outcome, e.note] for e in a.entries if e.applies and e.outcome not in ('already', 'pending')]))",
        **{key: value for key, value in environment.items() if key not in ("PYTHONPATH", "DETCONF_PROFILE")},
    )
    seeds_and_flags = [row for row in found if row[0].startswith("env.")]
    assert seeds_and_flags == []


def test_user_value_is_reported_with_its_source() -> None:
    """A contradicting variable from the environment, and one assigned in the process, are told apart."""
    assert "the environment said '4'" in outcome("env.OMP_NUM_THREADS", profile="ci", OMP_NUM_THREADS="4")["because"]
    row = outcome("env.OMP_NUM_THREADS", before="os.environ['OMP_NUM_THREADS'] = '4'", profile="ci")
    assert "the os.environ of this process said '4'" in row["because"]


def test_a_framework_that_fails_to_import(tmp_path: Path) -> None:
    """A broken framework does not break apply, before or after its import fails."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('broken build')")
    found = run_python(
        "import detconf, json\nsession = detconf.apply('strict')\ntry: import torch\nexcept ImportError: pass\n"
        "print(json.dumps([str(session.attestation)[:6], session.restore().ok]))",
        PYTHONPATH=f"{tmp_path}:{ROOT}",
    )
    assert found == ["strict", True]


def test_a_renamed_build_is_probed(tmp_path: Path) -> None:
    """A torch that calls itself 0.0.0 and lacks most controls is attested control by control, without a crash.

    The stand-in is a module with two real attributes: no machine here has such a build.
    """
    for name in ("torch", "torch/backends", "torch/backends/cudnn"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("__version__ = '0.0.0'\nbenchmark = True\n")
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '0.0.0'\nfrom . import backends\nfrom .backends import cudnn\n")
    found = run_python(
        "import torch, detconf, json\nsession = detconf.apply('strict')\nrows = {e.knob: e.outcome for e in session.attestation.entries}\n"
        "now = torch.cudnn.benchmark; session.restore()\nprint(json.dumps([rows, now, torch.cudnn.benchmark]))",
        PYTHONPATH=f"{tmp_path}:{ROOT}",
    )
    assert found[0]["torch.backends.cudnn.benchmark"] == "set"
    assert found[0]["torch.backends.cudnn.deterministic"] == "unsupported"
    assert found[1:] == [False, True]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_inspect_changes_nothing() -> None:
    """An inspection leaves every read-back as it was, also those whose reading fixes them (ATen, MKL)."""
    found = run_python(
        "import detconf, json, os\nimport torch, paddle\ndetconf.inspect('ci'); detconf.inspect('strict')\n"
        "os.environ['ATEN_CPU_CAPABILITY'] = 'default'; os.environ['MKL_CBWR'] = 'COMPATIBLE'\n"
        "from detconf.frameworks.native import controls\n"
        "print(json.dumps([torch.backends.cpu.get_cpu_capability(), controls.mkl_branch(), torch.are_deterministic_algorithms_enabled()]))"
    )
    assert found[0] == "DEFAULT"
    assert "COMPATIBLE" in found[1]
    assert found[2] is False


def test_a_variable_assigned_in_vain_is_found_whatever_the_profile() -> None:
    """`strict` has no hash seed; a program that assigned one to os.environ is told all the same that it came too late."""
    row = outcome("env.PYTHONHASHSEED", before="os.environ['PYTHONHASHSEED'] = '0'", do=INSPECT)
    assert row["outcome"] == "too-late"


def test_what_a_framework_sets_by_itself_is_no_wish() -> None:
    """`import paddle` sets OMP_NUM_THREADS=1 where it is not set: that is nobody's setting, and no row."""
    assert outcome("env.OMP_NUM_THREADS", before="import torch, paddle; torch.set_num_threads(2)", do=INSPECT) is None


def test_the_first_line_says_what_is_not_here() -> None:
    """Rows that do not apply are explained in one line: devices, and frameworks that are not installed."""
    found = run_python(
        "import sys; sys.modules['paddle'] = None\nimport detconf, json; print(json.dumps(detconf.inspect('strict').headline))"
    )
    assert found.endswith("no paddle)")  # after the devices that this machine lacks
