"""Profiles: found in order, validated with a place in the text, and never a traceback from the inside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT, run_python
from hypothesis import given, settings
from hypothesis import strategies as st

from detconf.builtin import POLICIES, PROFILES
from detconf.documents import parse
from detconf.errors import ProfileError
from detconf.lines import Written
from detconf.policy import policy_names
from detconf.profile import available, builtin_names, load, parse_assignments
from detconf.report.schema import schema


def write(folder: Path, text: str, name: str = "p.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_builtin_profiles_are_what_the_readme_says() -> None:
    """Five profiles are built in."""
    assert builtin_names() == ("ci", "fast", "parity", "strict", "warn")


@pytest.mark.parametrize("name", builtin_names())
def test_builtin_profiles_load(name: str) -> None:
    """Every built-in profile is valid, has a summary, and is called what its file is called."""
    profile = load(name)
    assert (profile.name, bool(profile.summary)) == (name, True)


def test_built_in_data_is_what_the_files_say() -> None:
    """`detconf/builtin.py` is what `make knobs` writes: the profiles, and every policy there is."""
    found = {}
    for path in sorted((ROOT / "profiles").glob("*.yaml")):
        written = parse(path.read_bytes(), path.name)
        found[path.stem] = Written(path.stem, **PROFILES.get(path.stem, {}))
        assert found[path.stem] == written, "run `make knobs`"
    assert (set(found), policy_names()) == (set(PROFILES), POLICIES), "run `make knobs`"


@pytest.mark.parametrize(
    ("text", "validated"),
    [
        ("", False),
        ('[project]\ndependencies = ["detconf"]\n', False),
        ('[project]\ndependencies = ["detconf>=0.1", "detconf==0.1; x"]\n', False),
        ("[tool.detconf.profiles.mine]\nseed = 1\n", True),
        ('[tool."detconf"]\nprofiles = {}\n', True),
        ("tool = {detconf = {profiles = {}}}\n", True),
        ("[tool]\ndetconf.profiles.mine.seed = 1\n", True),
    ],
)
def test_a_built_in_profile_needs_no_parser(tmp_path: Path, text: str, validated: bool) -> None:
    """pydantic and yaml load only where a file or an override asks for them; a project that only depends on detconf does not."""
    write(tmp_path, text, "pyproject.toml")
    code = "import detconf, sys, json; detconf.apply('strict', overrides={'torch.backends.cudnn.benchmark': False}); print(json.dumps('pydantic' in sys.modules))"
    assert run_python(code, cwd=tmp_path) is validated


def test_strict_needs_nothing_before_the_interpreter() -> None:
    """`strict` has no hash seed, so that `apply("strict")` at the top of a script can be fully in force."""
    assert "hash_seed" not in load("strict").policies
    assert load("ci").policies["hash_seed"].value == 0


def test_a_child_overrides_its_parent_and_says_so() -> None:
    """A merged line knows which profile it comes from."""
    ci = load("ci")
    assert (ci.policies["threads"].value, ci.policies["threads"].source) == (1, "profile ci")
    assert (ci.policies["deterministic"].value, ci.policies["deterministic"].source) == ("error", "profile strict")
    assert ci.parents == ("strict",)


BAD = [
    # (text, what the error must say, and where)
    ("name: x\npolicy:\n  autotun: false\n", ["p.yaml:3:", "autotun", "Did you mean 'autotune'"]),
    ("name: x\npolicy:\n  graph:\n    randm: eager\n", ["p.yaml:4:", "randm", "Did you mean 'random'"]),
    ("name: x\npolcy: {}\n", ["p.yaml:2:", "polcy", "Did you mean 'policy'"]),
    ("name: x\npolicy:\n  tf32: 0\n", ["p.yaml:3:", "tf32", "received 0"]),
    ("name: x\npolicy:\n  deterministic: off\n", ["p.yaml:3:", "off", "Quote it"]),
    ("name: x\npolicy:\n  deterministic: maybe\n", ["p.yaml:3:", "maybe", "'none', 'warn' or 'error'"]),
    ("name: x\nknobs:\n  env.CUBLAS_WORKSPACE_CONFIG: 4096:8\n", ["p.yaml:3:", "4096:8", "Quote it"]),
    ("name: x\nknobs:\n  env.CUBLAS_WORKSPACE_CONFIG: '4096:8'\n", ["p.yaml:3:", "4096:8", "':SIZE:COUNT'"]),
    ("name: x\nknobs:\n  env.OMP_NUM_THREADS: 1\n", ["p.yaml:3:", "1 is not accepted", "Quote it"]),
    ("name: x\nknobs:\n  torch.backends.cudnn.benchmrk: false\n", ["p.yaml:3:", "Did you mean 'torch.backends.cudnn.benchmark'"]),
    ("name: x\nknobs:\n  torch.backends.cudnn.benchmark: 0\n", ["p.yaml:3:", "true, false"]),
    ("name: x\nseed: 1\nseed: 2\n", ["p.yaml:3:1", "'seed' stands twice"]),
    ("name: x\nseed: -1\n", ["p.yaml:2:", "seed", "-1"]),
    ("name: x\nseed: 012\n", ["p.yaml:2:", "'012'", "Quote it"]),
    ("name: x\nseed: 1e9\n", ["p.yaml:2:", "seed"]),
    ("name: x\nseed: 2026-11-30\n", ["p.yaml:2:", "Quote it"]),
    ("name: !!python/object/apply:os.system ['true']\n", ["p.yaml:1:", "tag"]),
    ("name: &a x\nsummary: *a\n", ["p.yaml:1:", "anchors"]),
    ("name: x\nextends: [a, b]\n", ["p.yaml:2:", "extends"]),
    ("seed: 1\n", ["name", "missing"]),
    ("- a\n", ["mapping"]),
    ("", ["mapping"]),
    ("{", ["not YAML"]),
    ("a: b: c\n", ["p.yaml:1:", "not YAML"]),
    ("name: x\n---\nname: y\n", ["not YAML"]),
    ("name: x\npolicy: {threads: 0}\n", ["p.yaml:2:", "threads"]),
    ("? [a]\n: b\n", ["a key must be text"]),
    ("[" * 40, ["nested deeper"]),
    ("[" * 5000, ["nest"]),
]


@pytest.mark.parametrize(("text", "words"), BAD, ids=[repr(text[:40]) for text, _ in BAD])
def test_bad_profiles_say_where_and_what(tmp_path: Path, text: str, words: list[str]) -> None:
    """The error names file, line and column, what was received, and what to do."""
    with pytest.raises(ProfileError) as caught:
        load(write(tmp_path, text))
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def test_not_utf8(tmp_path: Path) -> None:
    """A binary file is refused in words."""
    (tmp_path / "p.yaml").write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(ProfileError, match="not UTF-8"):
        load(str(tmp_path / "p.yaml"))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    """50 MB are refused by size, without parsing."""
    with (tmp_path / "p.yaml").open("wb") as stream:
        stream.truncate(50 * 1024 * 1024)
    with pytest.raises(ProfileError, match="larger than"):
        load(str(tmp_path / "p.yaml"))


@pytest.mark.parametrize("name", ["no/such.yaml", "missing.yaml", ".", "./", "\0.yaml"])
def test_paths_that_cannot_be_read(name: str) -> None:
    """A path that does not exist, or is a folder, is one clear error."""
    with pytest.raises(ProfileError, match=r"cannot be read|unknown profile"):
        load(name)


def test_unknown_name_suggests() -> None:
    """A misspelt name suggests a real one."""
    with pytest.raises(ProfileError, match=r"Did you mean 'strict'\?"):
        load("stritc")


@pytest.mark.parametrize("name", [None, 7, "", b"strict"])
def test_a_profile_is_a_name(name: object) -> None:
    """Anything but a name or path is refused in words."""
    with pytest.raises(ProfileError):
        load(name)  # type: ignore[arg-type]


def test_cycle_in_extends(tmp_path: Path) -> None:
    """A circle of parents is shown."""
    write(tmp_path, "name: a\nextends: ./b.yaml\n", "a.yaml")
    write(tmp_path, "name: b\nextends: ./a.yaml\n", "b.yaml")
    with pytest.raises(ProfileError, match=r"a\.yaml -> b\.yaml -> a\.yaml"):
        load(str(tmp_path / "a.yaml"))


def test_a_file_cannot_replace_a_builtin(tmp_path: Path) -> None:
    """Neither a file's own name nor a name in detconf.yaml may be that of a built-in profile."""
    with pytest.raises(ProfileError, match="built-in"):
        load(write(tmp_path, "name: strict\n"))
    write(tmp_path, "profiles:\n  strict: {seed: 1}\n", "detconf.yaml")
    with pytest.raises(ProfileError, match="built-in"):
        load("strict", folder=tmp_path)


def test_local_profiles_are_found(tmp_path: Path) -> None:
    """Names from detconf.yaml and pyproject.toml are found, listed, and may extend built-in ones."""
    write(tmp_path, "profiles:\n  mine:\n    extends: strict\n    seed: 7\n", "detconf.yaml")
    write(tmp_path, '[tool.detconf.profiles.theirs]\nextends = "mine"\nseed = 8\n', "pyproject.toml")
    assert load("mine", folder=tmp_path).policies["seed"].value == 7
    theirs = load("theirs", folder=tmp_path)
    assert (theirs.policies["seed"].value, theirs.parents) == (8, ("mine", "strict"))
    assert {"mine", "theirs"} <= {name for name, _, _ in available(tmp_path)}


def test_local_errors_have_a_place(tmp_path: Path) -> None:
    """A mistake inside detconf.yaml is reported with its line there."""
    write(tmp_path, "profiles:\n  mine:\n    policy:\n      tf23: false\n", "detconf.yaml")
    with pytest.raises(ProfileError, match=r"detconf\.yaml:4:\d+: unknown key 'tf23'"):
        load("mine", folder=tmp_path)


def test_bad_toml(tmp_path: Path) -> None:
    """A broken pyproject.toml, or a foreign key in our table, is one clear error."""
    write(tmp_path, "[tool.detconf\n", "pyproject.toml")
    with pytest.raises(ProfileError, match="cannot be read"):
        load("mine", folder=tmp_path)
    write(tmp_path, "[tool.detconf]\nprofile = 1\n", "pyproject.toml")
    with pytest.raises(ProfileError, match="accepts only"):
        load("mine", folder=tmp_path)


def test_assignments() -> None:
    """DETCONF_SET takes semicolons between items, bare text for variables, YAML scalars for the rest."""
    text = "torch.backends.cudnn.benchmark=true; env.CUBLAS_WORKSPACE_CONFIG=:16:8;env.OMP_NUM_THREADS=2;threads=3;env.NCCL_ALGO=null"
    assert parse_assignments(text, "DETCONF_SET") == {
        "torch.backends.cudnn.benchmark": True,
        "env.CUBLAS_WORKSPACE_CONFIG": ":16:8",
        "env.OMP_NUM_THREADS": "2",
        "threads": 3,
        "env.NCCL_ALGO": None,
    }
    with pytest.raises(ProfileError, match="not an assignment"):
        parse_assignments("tf32", "DETCONF_SET")


def test_overrides_are_checked() -> None:
    """Exact lines and policies can be overridden by name; unknown names and values are refused."""
    strict = load("strict").with_lines({"threads": 2, "graph.order": "any", "env.NCCL_ALGO": "Tree"}, "test")
    assert (strict.policies["threads"].value, strict.policies["graph.order"].value, strict.knobs["env.NCCL_ALGO"].value) == (
        2,
        "any",
        "Tree",
    )
    for bad in ({"thread": 2}, {"threads": "two"}, {"torch.set_num_threads": True}, {7: 1}):
        with pytest.raises(ProfileError):
            load("strict").with_lines(bad, "test")  # type: ignore[arg-type]


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_only_our_error(raw: bytes) -> None:
    """Parsing any bytes gives a profile or a ProfileError."""
    try:
        parse(raw, "bytes")
    except ProfileError as error:
        assert str(error).startswith("bytes")


_KEYS = st.sampled_from(["name", "seed", "policy", "knobs", "extends", "summary", "tf32", "graph", "threads", "env.MKL_CBWR", "x"])
_YAML = st.recursive(
    st.sampled_from(
        [
            "true",
            "off",
            "1",
            "-1",
            "0x10",
            "1:20",
            ".nan",
            "~",
            "a",
            "'4096:8'",
            "!!set {}",
            "*x",
            "&x y",
            "2026-01-01",
            "9" * 5000,
            '"\\ud800"',
        ]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.lists(st.tuples(_KEYS, inner), max_size=4).map(lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"),
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(_YAML)
def test_arbitrary_yaml_raises_only_our_error(text: str) -> None:
    """The same for text that is nearly a profile."""
    try:
        parse(text.encode("utf-8", "surrogatepass"), "text")
    except ProfileError as error:
        assert str(error).startswith("text")


def test_schema_speaks_of_every_knob() -> None:
    """The JSON Schema for editors is JSON, closed, and lists knobs and policies."""
    document = json.loads(json.dumps(schema()))
    assert document["additionalProperties"] is False
    assert "torch.backends.cudnn.benchmark" in document["properties"]["knobs"]["properties"]
    assert "tf32" in document["$defs"]["Policy"]["properties"]
