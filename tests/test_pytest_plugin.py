"""The pytest plugin: a profile for the run, seeds per test, bitwise reruns, golden values."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np  # noqa: F401  # loaded once: a run inside this process forgets the modules that it imported
import pytest
import torch  # noqa: F401
from conftest import readings, run_python

import detconf.goldens
import detconf.publishing
import detconf.report.testing
import detconf.rerun
import detconf.seeding  # noqa: F401

pytest_plugins = "pytester"

SEED = "import random\nSEEDED = random.Random(0).random()\n"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No profile of the run that runs these tests."""
    for name in ("DETCONF_PROFILE", "DETCONF_SEED", "DETCONF_SET", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)


def _run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """In a process of its own, and perhaps workers of that: what is read at the start of one, or goes between several."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)


def _here(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """In this process, which is faster; in one of its own where it starts workers."""
    if "-n2" in options:
        return _run(pytester, *options)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)


def test_loading_is_light() -> None:
    """The plugin, which every pytest of the environment loads, brings no framework, no validator and no engine of ours."""
    loaded = set(run_python("import pytest, detconf.pytest_plugin, sys, json; print(json.dumps(sorted(sys.modules)))"))
    assert not {"torch", "paddle", "numpy", "pydantic", "yaml", "wrapt", "xxhash"} & loaded
    ours = {name for name in loaded if name.startswith("detconf.") and not name.startswith("detconf.pytest_plugin")}
    assert ours == {"detconf.errors"}


def test_a_profile_is_in_force_before_anything_is_imported(pytester: pytest.Pytester) -> None:
    """A conftest, which may import a framework, finds the environment written; the header has one line."""
    pytester.makeconftest("import os\nassert os.environ['OMP_DYNAMIC'] == 'FALSE'")
    pytester.makepyfile("import os\nassert os.environ['OMP_DYNAMIC'] == 'FALSE'\ndef test(): pass")
    result = _run(pytester, "--detconf", "strict")
    result.assert_outcomes(passed=1)
    heads = [line for line in result.outlines if line.startswith("detconf: strict: ")]
    assert len(heads) == 2, result.outlines  # what is in force at the start, and at the end
    assert "in force" in heads[0]


def test_without_a_profile_nothing_changes(pytester: pytest.Pytester) -> None:
    """Installed and not asked for, the plugin seeds nothing, writes nothing and says nothing."""
    pytester.makepyfile(
        "import os, random\nstate = random.getstate()\ndef test_a():\n    assert 'OMP_DYNAMIC' not in os.environ\n    assert random.getstate() == state"
    )
    result = _run(pytester)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("detconf: *")


def test_everything_is_put_back(pytester: pytest.Pytester, unchanged: None) -> None:
    """After the run, in the same process, every control reads as before, also when the run failed to start."""
    before = readings()
    pytester.makepyfile("def test(): pass")
    pytester.runpytest_inprocess("--detconf", "strict", "-p", "no:cacheprovider").assert_outcomes(passed=1)
    assert readings() == before
    pytester.makeconftest("raise ValueError('broken')")
    assert pytester.runpytest_inprocess("--detconf", "strict", "-p", "no:cacheprovider").ret != 0
    assert readings() == before


def test_option_beats_variable_beats_ini(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile comes from --detconf, else DETCONF_PROFILE, else the ini option; an empty option turns all off."""
    pytester.makeini("[pytest]\ndetconf = parity")
    pytester.makepyfile("def test(): pass")
    _here(pytester).stdout.fnmatch_lines(["detconf: parity: *"])
    monkeypatch.setenv("DETCONF_PROFILE", "warn")
    _here(pytester).stdout.fnmatch_lines(["detconf: warn: *"])
    _here(pytester, "--detconf", "strict").stdout.fnmatch_lines(["detconf: strict: *"])
    _here(pytester, "--detconf=").stdout.no_fnmatch_line("detconf: *")


def test_ini_names_a_profile_beside_it(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile of the ini file is looked up from the root, also when pytest is started below it."""
    pytester.makeini("[pytest]\ndetconf = ./mine.yaml")
    pytester.makefile(".yaml", mine="name: mine\nextends: strict\nseed: 7")
    folder = pytester.mkdir("below")
    (folder / "test_it.py").write_text("import random\ndef test(): assert random.random() == random.Random(7).random()")
    monkeypatch.chdir(folder)
    result = _here(pytester)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["detconf: mine: *"])


@pytest.mark.parametrize("options", [(), ("-n2",)])
def test_unknown_profile_is_a_usage_error(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    """An unknown profile ends the run at once with our text and exit code 4, without a traceback."""
    pytester.makepyfile("def test(): pass")
    result = _here(pytester, "--detconf", "strct", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stdout.str() + result.stderr.str()
    assert "unknown profile 'strct'. Did you mean 'strict'?" in text
    assert "Traceback" not in text


def test_what_is_not_in_force_is_a_warning_that_can_be_an_error(pytester: pytest.Pytester) -> None:
    """A setting that came too late is a warning of the run, and a usage error where warnings are errors."""
    pytester.makepyfile("def test(): pass")
    result = _run(pytester, "--detconf", "ci")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*env.PYTHONHASHSEED*too-late*", "  not in force: env.PYTHONHASHSEED: too-late"])
    strict = _run(pytester, "--detconf", "ci", "-W", "error::detconf.errors.DetconfWarning")
    assert strict.ret == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in strict.stdout.str() + strict.stderr.str()


ORDERED = {
    "conftest": "import os\ndef pytest_collection_modifyitems(items):\n    if os.environ.get('BACKWARDS'): items.reverse()",
    "test_a": SEED
    + """
import pytest
AT_IMPORT = random.random()
@pytest.fixture(scope="module")
def shared():
    return [random.random() for _ in range(3)]
@pytest.fixture(scope="session")
def above():
    return random.random()
@pytest.mark.parametrize("place", range(4))
def test_it(place, shared, above):
    assert AT_IMPORT == SEEDED
    assert shared[0] == SEEDED == above
    assert random.random() == SEEDED
class TestX:
    @classmethod
    def setup_class(cls): cls.drawn = random.random()
    def setup_method(self): self.own = random.random()
    def test_m(self): assert self.drawn == self.own == SEEDED != random.random()
""",
    "test_b": SEED + "AT_IMPORT = random.random()\ndef test_b():\n    assert AT_IMPORT == random.random() == SEEDED",
}


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("options", [(), pytest.param(("-n2",), marks=pytest.mark.slow), ("-k", "test_m")])
def test_order_and_selection_do_not_matter(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], backwards: bool
) -> None:
    """Each test, module import and shared fixture starts from the seed, whatever ran before it and wherever."""
    for name, text in ORDERED.items():
        pytester.path.joinpath(f"{name}.py").write_text(text)
    if backwards:
        monkeypatch.setenv("BACKWARDS", "1")
    result = _here(pytester, "--detconf", "strict", *options)
    result.assert_outcomes(passed=1 if "-k" in options else 6, deselected=5 if "-k" in options else 0)


def test_seeds_of_pytest_randomly_do_not_replace_ours(pytester: pytest.Pytester) -> None:
    """A plugin that seeds before each call, by the option of pytest-randomly, is told not to."""
    pytester.makeconftest(
        """
        import random
        def pytest_addoption(parser):
            parser.addoption("--randomly-dont-reset-seed", action="store_false", dest="randomly_reset_seed", default=True)
        def pytest_runtest_call(item):
            if item.config.getoption("randomly_reset_seed"):
                random.seed(99)
        """
    )
    pytester.makepyfile(SEED + "def test(): assert random.random() == SEEDED")
    _here(pytester, "--detconf", "strict").assert_outcomes(passed=1)
    _here(pytester).assert_outcomes(failed=1)


@pytest.mark.slow
def test_real_frameworks_are_seeded_and_told_once(pytester: pytest.Pytester) -> None:
    """Torch and numpy, imported late by one test, draw the same in every test of two workers; one line speaks for both."""
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.parametrize("place", range(4))
        def test_it(place, record_property):
            import numpy, torch
            assert torch.are_deterministic_algorithms_enabled()
            assert torch.rand(()).item() == torch.rand((), generator=torch.Generator().manual_seed(0)).item()
            assert numpy.random.rand() == numpy.random.RandomState(0).rand()
        """
    )
    result = _run(pytester, "--detconf", "strict", "-n2", "-v")
    result.assert_outcomes(passed=4)
    heads = [line for line in result.outlines if line.startswith("detconf: strict: ")]
    assert len(heads) == 2
    assert heads[1].endswith("(in each of 2 workers)")


def test_drift_is_said(pytester: pytest.Pytester) -> None:
    """A test that changes what the profile set is found out at the end of the run."""
    pytester.makepyfile("import os\ndef test(): os.environ['OMP_DYNAMIC'] = 'TRUE'")
    result = _here(pytester, "--detconf", "strict", "-q")
    result.stdout.fnmatch_lines(["  drifted: env.OMP_DYNAMIC: FALSE was in force, is now TRUE"])


BITWISE = """
import itertools, pytest, detconf
numpy = pytest.importorskip("numpy")
count = itertools.count()
made = []
@pytest.fixture
def own():
    made.append("own")
    yield len(made)
    made.append("gone")
@pytest.fixture(scope="module")
def shared():
    return []
"""


def _bitwise(pytester: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(BITWISE + text)
    return _here(pytester, *options)


def test_equal_bits_pass(pytester: pytest.Pytester) -> None:
    """A test whose returned and published arrays do not change passes, once; pytest does not mind that it returns."""
    text = """
@pytest.mark.bitwise(runs=4)
def test_it(own, shared):
    shared.append(own)
    detconf.publish("x", numpy.arange(3))
    return {"y": 1.5}
def test_after(shared):
    assert made == ["own", "gone"] * 4
    assert shared == [1, 3, 5, 7]
"""
    _bitwise(pytester, text, "-W", "error").assert_outcomes(passed=2)


def test_other_bits_fail(pytester: pytest.Pytester) -> None:
    """A changing bit fails the test, with numbers in the manner of assert_close and the first array that differs."""
    text = """
@pytest.mark.bitwise
def test_it():
    detconf.publish("first", numpy.ones(2))
    detconf.publish("second", numpy.float32([1, 1 + next(count) // 2 * 2**-23, -2]))
"""
    result = _bitwise(pytester, text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "NOT repeatable: 2 distinct results in 3 runs of this test in one process",
            "first difference: published 'second' (step 0), float32[[]3[]], run 1 (expected) against run 3",
            "Mismatched elements: 1 / 3 (33.3%)",
            "Greatest absolute difference: 1.1920928955078125e-07 at index (1,)",
            "Greatest relative difference: 1.1920928955078125e-07 at index (1,)",
            "Greatest difference in representable numbers: 1 ULP",
            "First mismatched element: 1.0 expected, 1.0000001 found at index (1,)",
        ]
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("[-0.0, 0.0]", "Greatest absolute difference: 0.0 at index ()"),
        ("[numpy.ones(2), numpy.ones(3)]", "The shape differs: (2,) expected, (3,) found"),
        ("[numpy.float32(1), numpy.float64(1)]", "The dtype differs: float32 expected, float64 found"),
        ("[{'a': 1}, {'a': 1, 'b': 1}]", "Only the second run gave it"),
        ("[{'a': 1, 'b': 1}, {'a': 1}]", "The second run did not give it"),
        ("['yes', 'no']", "First mismatched element: 'yes' expected, 'no' found at index ()"),
    ],
)
def test_every_kind_of_difference_is_said(pytester: pytest.Pytester, values: str, said: str) -> None:
    """A sign of zero, a shape, a dtype, a name and a text fail too, each in its words."""
    result = _bitwise(pytester, f"@pytest.mark.bitwise(runs=2)\ndef test_it():\n    return {values}[next(count)]")
    result.assert_outcomes(failed=1)
    assert said in result.stdout.str()


@pytest.mark.parametrize("body", ["pass", "return None", "return {}", "return numpy.ones(0)", "detconf.publish('x', [])"])
def test_nothing_compared_fails(pytester: pytest.Pytester, body: str) -> None:
    """A marked test that gives nothing fails, and at once: it is never called repeatable."""
    result = _bitwise(pytester, f"@pytest.mark.bitwise\ndef test_it(own): {body}\ndef test_after(): assert made == ['own', 'gone']")
    result.assert_outcomes(failed=1, passed=1)
    assert "nothing was compared" in result.stdout.str()


def test_other_endings_are_kept(pytester: pytest.Pytester) -> None:
    """A failing, skipped or expectedly failing body ends as it would without the marker, after one run; shared fixtures
    are torn down for the next module."""
    text = """
@pytest.mark.bitwise
def test_fails(own): assert 0, "its own words"
@pytest.mark.bitwise
def test_skips(): pytest.skip()
@pytest.mark.bitwise
@pytest.mark.xfail(strict=True)
def test_expected(): return next(count)
@pytest.mark.bitwise
@pytest.mark.xfail
def test_raises(own): raise ValueError
def test_runs(): assert made == ["own", "gone"] * 2
@pytest.fixture
def broken():
    yield
    raise RuntimeError("torn")
@pytest.mark.bitwise
def test_torn(broken): return 1
@pytest.mark.bitwise
def test_odd(): return object()
"""
    pytester.makepyfile(test_z="def test_z(): pass")
    result = _bitwise(pytester, text)
    result.assert_outcomes(passed=3, failed=2, skipped=1, xfailed=2, errors=3)
    assert "its own words" in result.stdout.str()
    assert "a object cannot be compared" in result.stdout.str() or "object cannot be compared" in result.stdout.str()


def test_methods_get_an_instance_for_each_run(pytester: pytest.Pytester) -> None:
    """What a method leaves on `self` does not reach the next run; unittest classes publish."""
    text = """
import unittest
@pytest.mark.bitwise
class TestX:
    n = 0
    def test_m(self):
        self.n += 1
        return self.n
class TestU(unittest.TestCase):
    @pytest.mark.bitwise
    def test_u(self): detconf.publish("x", 1.0)
    @pytest.mark.bitwise
    def test_v(self): detconf.publish("x", next(count))
"""
    _bitwise(pytester, text).assert_outcomes(passed=2, failed=1)


@pytest.mark.parametrize("arguments", ["runs=1", "runs=True", "runs='3'", "vary='process'", "vary=3", "times=3", "3, 'rerun', 1"])
def test_bad_arguments_are_errors(pytester: pytest.Pytester, arguments: str) -> None:
    """Arguments of the marker that cannot work are an error of the test that says what is accepted."""
    result = _bitwise(pytester, f"@pytest.mark.bitwise({arguments})\ndef test_it(): return 1")
    result.assert_outcomes(errors=1)
    assert "Accepted" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize("options", [(), pytest.param(("-n2",), marks=pytest.mark.slow)])
def test_reruns_start_from_the_seed(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    """Dropout of torch differs between reruns, and not under a profile."""
    text = """
torch = pytest.importorskip("torch")
@pytest.fixture
def x(): return torch.randn(8)
@pytest.mark.bitwise
def test_it(x): return torch.nn.functional.dropout(x)
"""
    pytester.makepyfile(BITWISE + text)
    result = _here(pytester, *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["first difference: returned 'result', float32[[]8[]], run 1 (expected) against run 2"])
    _here(pytester, "--detconf", "strict", *options).assert_outcomes(passed=1)


GOLDEN = """
import pytest, numpy
VALUE = numpy.float32([0.1, 0.25, 1 / 3])
def test_it(golden): golden("x", VALUE)
def test_other(golden): golden("y", {"a": numpy.arange(100.0), "b": [True, 2**70, "text", None, 1 + 2j]})
class TestC:
    @pytest.mark.parametrize("p", ["ü", "2"])
    def test_p(self, p, golden): golden("z", 1.5)
"""


@pytest.fixture
def recorded(pytester: pytest.Pytester) -> Path:
    """The file of goldens of a module that has just recorded them."""
    pytester.makepyfile(test_g=GOLDEN)
    result = _here(pytester, "--detconf-update")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["detconf: goldens recorded: 4 in goldens?test_g.json"])
    return pytester.path / "goldens" / "test_g.json"


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def _elsewhere(path: Path) -> None:
    """As if another class of machine had recorded other bits."""
    content = json.loads(path.read_text("utf-8"))
    for machine in content["machines"].values():
        machine["architecture"] = "riscv64"
    path.write_text(json.dumps(content), "utf-8")


def test_missing_golden_says_how(pytester: pytest.Pytester) -> None:
    """Without a golden a test fails, never passes, and says how to record one; nothing is written."""
    pytester.makepyfile(test_g=GOLDEN)
    result = _here(pytester)
    result.assert_outcomes(failed=4)
    assert "there is no golden 'x' of test_it in goldens/test_g.json. Record it: pytest --detconf-update" in result.stdout.str()
    assert not (pytester.path / "goldens").exists()


def test_recorded_goldens_pass(pytester: pytest.Pytester, recorded: Path) -> None:
    """What was recorded agrees; recording again leaves the file as it is, byte for byte, and no lock or draft behind."""
    _here(pytester).assert_outcomes(passed=4)
    before = recorded.read_bytes()
    result = _here(pytester, "--detconf-update")
    assert recorded.read_bytes() == before
    result.stdout.no_fnmatch_line("*goldens recorded*")
    assert [path.name for path in recorded.parent.iterdir()] == ["test_g.json"]
    content = json.loads(before)
    assert list(content["goldens"]) == ["TestC::test_p[2]", "TestC::test_p[\\xfc]", "test_it", "test_other"]
    kept = content["goldens"]["test_it"]["x"]["arrays"]["x"]
    assert kept["sample"] == {"0": "0.1", "1": "0.25", "2": "0.33333334"}
    assert (kept["dtype"], kept["shape"]) == ("float32", [3])


def test_failing_golden(pytester: pytest.Pytester, recorded: Path) -> None:
    """Another bit on the same class of machine fails with numbers, the remedy, and the line of the test."""
    _change(pytester.path / "test_g.py", "0.25,", "0.25 + 2**-25,")
    result = _here(pytester)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            '> *golden("x", VALUE)',
            "E *golden 'x' of test_it does not agree with goldens?test_g.json",
            "E *first difference: 'x', float32[[]3[]]",
            "E *Mismatched elements: 1 / 3 (33.3%)",
            "E *Greatest absolute difference: 2.98*e-08 at index (1,)",
            "E *First mismatched element: 0.25 expected, 0.25000003 found at index (1,)",
            "E *Compared bit for bit: it was recorded on this class of machine.",
            "E *If the new value is the right one: pytest --detconf-update",
        ]
    )


def test_a_change_outside_the_sample_is_found(pytester: pytest.Pytester, recorded: Path) -> None:
    """The digest tells what the sample does not show, and the text says that the values are not known."""
    _change(pytester.path / "test_g.py", 'numpy.arange(100.0), "b"', 'numpy.r_[:5.0, 5.5, 6:100.0], "b"')
    result = _here(pytester)
    result.assert_outcomes(passed=3, failed=1)
    assert "The 8 recorded values agree, and the digest of all 100 elements does not." in result.stdout.str()


def test_structure_is_compared(pytester: pytest.Pytester, recorded: Path) -> None:
    """Names, shapes and dtypes that changed are said as such; types without numbers go by their digest."""
    _change(pytester.path / "test_g.py", '"text", None, 1 + 2j', '"Text", None')
    _change(pytester.path / "test_g.py", "1 / 3])", "1 / 3, 1])")
    result = _here(pytester)
    result.assert_outcomes(passed=2, failed=2)
    text = result.stdout.str()
    assert "recorded, and not here: y.b[4]" in text
    assert "The digest differs; of this type no values are recorded." in text
    assert "The shape differs: (3,) expected, (4,) found" in text


def test_update_rewrites_one_and_keeps_the_rest(pytester: pytest.Pytester, recorded: Path) -> None:
    """Recording one test changes its golden alone; goldens of tests that did not run, or are gone, stay."""
    before = json.loads(recorded.read_text("utf-8"))
    pytester.makepyfile(test_g="def test_it(golden): golden('x', 2.0)")
    _here(pytester, "--detconf-update").assert_outcomes(passed=1)
    after = json.loads(recorded.read_text("utf-8"))
    assert after["goldens"].pop("test_it") != before["goldens"].pop("test_it")
    assert after["goldens"] == before["goldens"]
    _here(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize("bound", ["", ", atol=1e-6", ", rtol=1e-6, atol=0", ", rtol=1e-9"])
def test_outside_the_class_a_bound_holds(pytester: pytest.Pytester, recorded: Path, bound: str) -> None:
    """On another class of machine other bits pass within a stated bound, on the sample, and the run says so; without a
    bound, or beyond it, they fail, and the text names the facts that differ. Equal bits pass anywhere."""
    _elsewhere(recorded)
    _here(pytester).assert_outcomes(passed=4)
    _change(pytester.path / "test_g.py", "0.25,", "0.25 + 2**-25,")
    _change(pytester.path / "test_g.py", '"x", VALUE', f'"x", VALUE{bound}')
    result = _here(pytester)
    text = result.stdout.str()
    if "1e-6" in bound:
        result.assert_outcomes(passed=4)
        assert "compared on a sample only, within the stated bound (another class of machine): test_it x" in text
        return
    result.assert_outcomes(passed=3, failed=1)
    assert re.search(r"another class of machine \(architecture: riscv64 recorded, \S+ here\)", text)
    assert ("no bound is stated" in text) == (not bound)
    assert ("(up to 1e-09 allowed)" in text) == bool(bound)
    assert "pytest --detconf-update" in text


def test_a_bound_is_recorded(pytester: pytest.Pytester, recorded: Path) -> None:
    """A bound that a test states stands in the file, and holds there when the test states none any more."""
    for bound in (", atol=1e-6", ""):
        pytester.makepyfile(test_g=f"import numpy\ndef test_it(golden): golden('x', numpy.float32(0.1){bound})")
        _here(pytester, "--detconf-update").assert_outcomes(passed=1)
        assert json.loads(recorded.read_text("utf-8"))["goldens"]["test_it"]["x"]["atol"] == 1e-6
    _elsewhere(recorded)
    pytester.makepyfile(test_g="import numpy\ndef test_it(golden): golden('x', numpy.float32(0.1000001))")
    _here(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("golden('x', 1.0); golden('x', 1.0)", "used twice"),
        ("golden('', 1.0)", "no name"),
        ("golden('x', object())", "cannot be compared"),
        ("golden('x', [])", "nothing in this value"),
        ("golden('x', 1.0, rtol=-1)", "rtol: -1 is not accepted"),
        ("golden('x', 1.0, atol=float('nan'))", "atol: nan is not accepted"),
    ],
)
def test_bad_goldens_fail(pytester: pytest.Pytester, body: str, said: str) -> None:
    """A golden that cannot work fails and says why, also while recording."""
    pytester.makepyfile(f"def test_it(golden): {body}")
    result = _here(pytester, "--detconf-update")
    result.assert_outcomes(failed=1)
    assert said in result.stdout.str()


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", "<<<<<<< HEAD", '{"schema": "detconf.goldens/2"}', "[" * 100_000, '{"schema": "detconf.goldens/1", "goldens": {"test_it": 1}, "machines": {}}'],
)  # fmt: skip
def test_damaged_files_are_left_alone(pytester: pytest.Pytester, recorded: Path, content: str) -> None:
    """A file that is none of ours, or in the middle of a merge, fails the tests and is not overwritten by an update."""
    recorded.write_text(content)
    for options in ((), ("--detconf-update",)):
        result = _here(pytester, *options, "-k", "test_it")
        result.assert_outcomes(failed=1, deselected=3)
        assert "these goldens cannot be read" in result.stdout.str()
        assert "Restore the file from version control, or delete it." in result.stdout.str()
    assert recorded.read_text() == content


def test_samples_are_untrusted(pytester: pytest.Pytester, recorded: Path) -> None:
    """A sample that is no number, or outside the array, fails with a text, not with an error of ours."""
    for old, new in (('"2": "0.33333334"', '"77": "0.33333334"'), ('"0": "0.1"', '"0": "__import__"')):
        _change(recorded, old, new)
        content = json.loads(recorded.read_text("utf-8"))
        content["goldens"]["test_it"]["x"]["arrays"]["x"]["digest"] = "0"
        recorded.write_text(json.dumps(content), "utf-8")
        result = _here(pytester, "-k", "test_it")
        result.assert_outcomes(failed=1, deselected=3)
        assert "the recorded sample of 'x' cannot be read" in result.stdout.str()


def test_workers_record_into_one_file(pytester: pytest.Pytester) -> None:
    """Two workers of xdist that record at the same time lose nothing of each other's, and agree afterwards."""
    pytester.makepyfile(
        test_g="import pytest\n@pytest.mark.parametrize('p', range(40))\ndef test_it(p, golden):\n    for n in range(3): golden(f'v{n}', p * 1.5 + n)"
    )
    result = _run(pytester, "--detconf-update", "-n2")
    result.assert_outcomes(passed=40)
    result.stdout.fnmatch_lines(["detconf: goldens recorded: 120 in goldens?test_g.json"])
    content = json.loads((pytester.path / "goldens" / "test_g.json").read_text())
    assert sum(map(len, content["goldens"].values())) == 120
    assert [path.name for path in (pytester.path / "goldens").iterdir()] == ["test_g.json"]
    _run(pytester, "-n2", "--dist", "loadgroup").assert_outcomes(passed=40)


def test_golden_under_another_profile(pytester: pytest.Pytester) -> None:
    """A golden that was recorded under a profile says so when it fails without it."""
    pytester.makepyfile("import random\ndef test_it(golden): golden('x', random.random())")
    _here(pytester, "--detconf", "strict", "--detconf-update").assert_outcomes(passed=1)
    _here(pytester, "--detconf", "strict").assert_outcomes(passed=1)
    result = _here(pytester)
    result.assert_outcomes(failed=1)
    assert "It was recorded under strict, and this run is without a profile." in result.stdout.str()


def test_golden_of_a_bitwise_test(pytester: pytest.Pytester) -> None:
    """Both at once: each rerun has a fixture of its own, and torch tensors are kept."""
    pytester.makepyfile(
        """
        import pytest, torch
        @pytest.mark.bitwise
        def test_it(golden):
            value = torch.nn.Linear(3, 2)(torch.ones(3)).to(torch.bfloat16)
            golden("y", value)
            return value
        """
    )
    _here(pytester, "--detconf", "strict", "--detconf-update").assert_outcomes(passed=1)
    _here(pytester, "--detconf", "strict").assert_outcomes(passed=1)


def test_it_can_be_left_out(pytester: pytest.Pytester) -> None:
    """`-p no:detconf` removes every trace: options, header, marker and fixture."""
    pytester.makepyfile("def test_it(golden): pass")
    result = _here(pytester, "-p", "no:detconf")
    result.assert_outcomes(errors=1)
    assert "fixture 'golden' not found" in result.stdout.str()
    assert "bitwise" not in _here(pytester, "-p", "no:detconf", "--markers").stdout.str()
    assert "bitwise(runs=3" in _here(pytester, "--markers", "--strict-markers").stdout.str()


def test_a_conftest_may_name_it(pytester: pytest.Pytester) -> None:
    """Named by a conftest in place of the entry point, it applies the profile at configure time."""
    pytester.makeconftest("pytest_plugins = 'detconf.pytest_plugin'")
    pytester.makepyfile("import os\ndef test(): assert os.environ['OMP_DYNAMIC'] == 'FALSE'")
    result = _here(pytester, "-p", "no:detconf", "--detconf", "strict")
    result.assert_outcomes(passed=1)
