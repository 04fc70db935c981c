"""Two recordings are aligned whatever was inserted or left out, and the first operation that brings a difference is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import clean_environment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import detconf
from detconf.arrays import Array
from detconf.comparing import alignment
from detconf.comparing.result import Comparison, Verdict
from detconf.comparing.sequences import greedy, increasing, longest_common, unique_pairs
from detconf.digests import NOTHING, Flag, mix
from detconf.errors import DetconfError
from detconf.recording.file import Writer
from detconf.recording.recorder import Recorder
from detconf.results import flatten

FACTS = {"cpu": "one", "cores": 2, "versions": {"torch": "2.13.0"}}


@dataclass(frozen=True)
class Op:
    """One event of a synthetic recording: its name, and words for what it reads, writes and draws from."""

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ("w",)
    random: str = ""
    shape: tuple[int, ...] = (4,)
    dtype: str = "float32"
    flags: int = 0
    source: str = ""
    thread: int = 0


STEP = None


def word(text: str) -> bytes:
    return NOTHING if text == "-" else mix(text.encode())


def write(path: Path, ops: Sequence[Op | None], *, kept: dict[int, Array] | None = None, ended: str = "", **about: Any) -> str:
    """A recording of `ops`, where None ends a step."""
    recorder = Recorder(Writer(str(path), lambda: {"level": "operations", "rank": None, "facts": FACTS, **about}), values=bool(kept))
    recorder.begin()
    for op in ops:
        if op is None:
            recorder.step()
            continue
        values = ((), (kept[recorder.index],)) if kept and recorder.index in kept else None
        layouts = tuple((op.dtype, op.shape) for _ in op.writes)
        written = [bytes.fromhex(values[1][0].digest)] if values else list(map(word, op.writes))
        recorder.operation(
            op.name, list(map(word, op.reads)), written, layouts, random=word(op.random) if op.random else b"", flags=op.flags,
            source=op.source, values=values,
        )  # fmt: skip
    recorder.close(ended)
    return str(path)


def compared(folder: Path, a: Sequence[Op | None], b: Sequence[Op | None], **about: Any) -> Comparison:
    return detconf.compare(write(folder / "a.det", a, **about), write(folder / "b.det", b, **about))


def training(steps: int, *, differ: tuple[int, int] | None = None, absorbing: int = 3) -> list[Op | None]:
    """Steps of six operations that feed each other; from (step, operation) on they hold other values, but for one that absorbs."""
    ops: list[Op | None] = []
    changed = ""
    for step in range(steps):
        for place in range(6):
            read = f"{step}.{place}{changed}"
            if differ == (step, place):
                changed = "'"
            own = "" if place == absorbing else changed
            ops.append(Op(f"aten.op{place % 4}", (read, "weight"), (f"w{step}.{place}{own}",), shape=(place,)))
        ops.append(STEP)
    return ops


def counts(found: Comparison) -> tuple[int, int, int, int]:
    return found.counts.introduced, found.counts.propagated, found.counts.missing, found.counts.extra


def test_equal(tmp_path: Path) -> None:
    """Two recordings of the same events are equal, and a difference of facts alone does not change that."""
    a = write(tmp_path / "a.det", training(4))
    b = write(tmp_path / "b.det", training(4), facts={**FACTS, "cpu": "other"})
    found = detconf.compare(a, b)
    assert found.equal
    assert found.first is None
    assert found.counts.compared == found.counts.equal == 24
    assert [(row.fact, row.a, row.b, row.can_change_bits) for row in found.environment] == [("cpu", "one", "other", True)]


def test_one_operation_introduces_the_rest_propagates(tmp_path: Path) -> None:
    """An operation in step 3 that differs on equal inputs is the only one introduced; what absorbs is equal, what follows propagates."""
    found = compared(tmp_path, training(8), training(8, differ=(3, 1)))
    assert counts(found) == (1, 23, 0, 0)
    assert found.first
    assert (found.first.divergence.name, found.first.divergence.step, found.first.events) == ("aten.op1", 3, (19, 19))
    assert found.first.verdict is Verdict.INTRODUCED
    assert found.counts.absorbed == 5
    assert found.affected
    assert (found.affected.steps, found.affected.first_step, found.affected.last_step) == (5, 3, 7)


def test_one_ulp_of_kept_values(tmp_path: Path) -> None:
    """Where both files hold the values, the divergence says how many elements differ, where first, and by how many ULP."""
    x = np.linspace(1, 2, 4, dtype="f4")
    y = x.copy()
    y[2] = np.nextafter(y[2], np.float32(9))
    ops = training(4)
    a = write(tmp_path / "a.det", ops, kept={19: flatten(x)["result"]})
    b = write(tmp_path / "b.det", ops, kept={19: flatten(y)["result"]})
    found = detconf.compare(a, b)
    assert found.first
    there = found.first.divergence
    assert (there.differing, there.index, there.max_ulp, there.step) == (1, (2,), 1, 3)
    assert there.scaled
    assert counts(found) == (1, 0, 0, 0)


def test_random_state(tmp_path: Path) -> None:
    """A random operation with another generator state and equal inputs is introduced, and says so; with equal state it does not."""
    a = [Op("aten.relu", ("x",)), Op("aten.dropout", ("x",), ("m",), random="s")]
    b = [Op("aten.relu", ("x",)), Op("aten.rand", (), ("r",), random="s"), Op("aten.dropout", ("x",), ("m'",), random="t")]
    found = compared(tmp_path, a, b)
    assert counts(found) == (1, 0, 0, 1)
    assert found.first
    assert found.first.divergence.name == "aten.dropout"
    assert "generator's state differs: only b drew for aten.rand" in found.first.hint
    same = compared(tmp_path, a, [a[0], replace(a[1], writes=("m'",))])
    assert same.first
    assert "generator" not in same.first.hint


def test_what_is_not_hashed_is_not_compared(tmp_path: Path) -> None:
    """Outputs without a digest are neither equal nor different: they are counted, and a note says so."""
    a = [Op("aten.empty", (), ("-",), flags=Flag.UNINITIALISED), Op("aten.add", ("x",))]
    found = compared(tmp_path, a, a)
    assert found.equal
    assert found.counts.uncompared == 1
    assert "1 outputs were not compared" in found.notes[0]


def test_another_dtype_or_shape(tmp_path: Path) -> None:
    """Operations of one name that write another dtype or shape are one pair that differs in that, not a missing and an extra one."""
    a = [Op("aten.mm", ("x",), ("1",)), Op("aten.sum", ("y",), ("2",))]
    b = [Op("aten.mm", ("x",), ("1'",), dtype="bfloat16"), Op("aten.sum", ("y'",), ("2'",), shape=(5,))]
    found = compared(tmp_path, a, b)
    assert counts(found) == (1, 1, 0, 0)
    assert found.divergence
    assert (str(found.divergence.kind), found.divergence.values) == ("dtype", ("float32", "bfloat16"))


def test_structure_is_named_where_it_parts(tmp_path: Path) -> None:
    """Where the first difference has other inputs, the operation that one side alone has before it is named."""
    a = [Op("aten.a", ("x",), ("1",)), Op("aten.b", ("y",), ("2",)), Op("aten.c", ("2",), ("3",))]
    b = [a[0], a[1], Op("aten.mul_", ("2",), ("2'",)), Op("aten.c", ("2'",), ("3'",))]
    found = compared(tmp_path, a, b)
    assert found.first
    assert (found.first.divergence.name, str(found.first.verdict), found.first.events) == ("aten.mul_", "extra", (None, 2))
    mirrored = compared(tmp_path, b, a)
    assert mirrored.first
    assert (mirrored.first.divergence.name, str(mirrored.first.verdict), mirrored.first.events) == ("aten.mul_", "missing", (2, None))
    harmless = compared(tmp_path, a, [a[0], Op("aten.item", ("1",), ()), *a[1:]])
    assert not harmless.equal
    assert harmless.first
    assert harmless.first.divergence.name == "aten.item"


def test_unseen_write(tmp_path: Path) -> None:
    """A first difference whose inputs differ, with nothing before it, is named with that caveat and counts as propagated."""
    found = compared(tmp_path, [Op("aten.a", ("x",), ("1",))], [Op("aten.a", ("y",), ("2",))])
    assert counts(found) == (0, 1, 0, 0)
    assert found.first
    assert "nothing that was recorded before it does" in found.first.hint
    assert found.introduced == ()


def test_state_and_published_values(tmp_path: Path) -> None:
    """Published values that differ after an operation did are reach, not causes; alone, the first of them is the divergence."""
    a: list[Op | None] = []
    b: list[Op | None] = []
    for step in range(3):
        for side, mark in ((a, ""), (b, "'" if step else "")):
            side += [Op("aten.mm", ("x",), (f"{step}{mark}",)), Op("loss", (), (f"l{step}{mark}",), flags=Flag.PUBLISHED), STEP]
    found = compared(tmp_path, a, b)
    assert found.affected
    assert counts(found) == (2, 2, 0, 0)
    assert found.affected.state == (("loss", 1),)
    only = [[op for op in side if op is None or op.flags] for side in (a, b)]
    state = compared(tmp_path, *only, level="state")
    assert counts(state) == (1, 1, 0, 0)
    assert state.first
    assert (state.first.divergence.name, state.first.divergence.step) == ("loss", 1)


def test_source_of_either_side(tmp_path: Path) -> None:
    """The source line is taken from whichever recording has one."""
    found = compared(tmp_path, [Op("aten.mm", ("x",), ("1",))], [Op("aten.mm", ("x",), ("2",), source="train.py:7")])
    assert found.divergence
    assert found.divergence.source == "train.py:7"


def test_repeated_operations_after_a_divergence(tmp_path: Path) -> None:
    """One more operation in each step after the divergence is extra each time; every other event keeps its counterpart."""
    a = training(60, differ=(2, 0))
    b: list[Op | None] = []
    for op in training(60):
        b.append(op)
        if op is not None and op.name == "aten.op2":
            b.append(Op("aten.op3", (f"e{len(b)}",), (f"e{len(b)}",), shape=(9,)))
    found = compared(tmp_path, a, b)
    assert (found.counts.missing, found.counts.extra) == (0, 60)
    assert {each.divergence.shape for each in found.extra} == {(9,)}


def test_steps_that_one_side_does_not_mark(tmp_path: Path) -> None:
    """A recording without ends of steps is aligned with one that has them, also where every byte differs."""
    marked = training(5)
    bare = [replace(op, writes=tuple(f"{name}'" for name in op.writes)) for op in marked if op is not None]
    found = compared(tmp_path, marked, [bare[0], Op("aten.new", ("n",), ("n",)), *bare[1:]])
    assert (found.counts.compared, found.counts.missing, found.counts.extra) == (30, 0, 1)


OPS = st.builds(
    Op,
    name=st.sampled_from(["a", "b", "c"]),
    reads=st.sampled_from([(), ("x",), ("y", "x")]),
    writes=st.sampled_from([("1",), ("2",), ("3", "1"), ("-",), ()]),
    random=st.sampled_from(["", "", "s"]),
)
RECORDED = st.lists(st.one_of(OPS, st.none()), max_size=30)
QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def has_events(*sides: Sequence[Op | None]) -> bool:
    return any(op is not None for side in sides for op in side)


@QUICK
@given(RECORDED)
def test_a_recording_equals_itself(tmp_path: Path, ops: list[Op | None]) -> None:
    """compare(a, a) is equal, whatever a holds; nothing at all is an error."""
    path = write(tmp_path / "a.det", ops)
    if not has_events(ops):
        with pytest.raises(DetconfError, match="nothing to compare"):
            detconf.compare(path, path)
        return
    found = detconf.compare(path, path)
    assert found.equal
    assert found.counts.compared == sum(op is not None for op in ops)


@QUICK
@given(RECORDED, RECORDED)
def test_mirror(tmp_path: Path, a: list[Op | None], b: list[Op | None]) -> None:
    """compare(b, a) is compare(a, b) with the sides exchanged; JSON carries both."""
    if not has_events(a, b):
        return
    paths = write(tmp_path / "a.det", a), write(tmp_path / "b.det", b)
    there, back = detconf.compare(*paths), detconf.compare(*paths[::-1])
    assert there.equal == back.equal
    assert (there.counts.missing, there.counts.extra, there.counts.compared) == (
        back.counts.extra,
        back.counts.missing,
        back.counts.compared,
    )
    assert sorted(each.events for each in there.extra) == sorted(each.events[::-1] for each in back.missing)
    assert there.counts.equal == back.counts.equal
    assert [each.events for each in there.introduced] == sorted(each.events[::-1] for each in back.introduced)
    assert json.loads(json.dumps(there.to_dict(), allow_nan=False)) == there.to_dict()
    assert str(there)


@QUICK
@given(st.integers(1, 8), st.data())
def test_insertions_and_deletions(tmp_path: Path, steps: int, data: Any) -> None:
    """Operations inserted anywhere are extra, deleted ones are missing, and all others stay aligned and equal."""
    a = training(steps)
    b: list[Op | None] = []
    deleted = inserted = 0
    for place, op in enumerate(a):
        choice = data.draw(st.sampled_from(["keep"] * 4 + ["insert", "delete"]))
        if choice == "insert":
            inserted += 1
            b.append(Op(data.draw(st.sampled_from(["aten.op0", "aten.new"])), ("z",), (f"new{place}",)))
        if choice == "delete" and op is not None:
            deleted += 1
        else:
            b.append(op)
    found = compared(tmp_path, a, b)
    # A deleted operation and an inserted one of its name in its place are one operation that differs.
    differing = found.counts.introduced + found.counts.propagated
    assert (found.counts.missing + differing, found.counts.extra + differing) == (deleted, inserted)
    assert found.counts.equal == 6 * steps - deleted


@given(st.lists(st.integers(0, 4), max_size=25), st.lists(st.integers(0, 4), max_size=25))
def test_common_subsequences(x: list[int], y: list[int]) -> None:
    """What is aligned is equal and in order; the exact search finds as much as dynamic programming does, the crude one no more."""
    table = np.zeros((len(x) + 1, len(y) + 1), int)
    for i, value in enumerate(x):
        for j, other in enumerate(y):
            table[i + 1, j + 1] = table[i, j] + 1 if value == other else max(table[i, j + 1], table[i + 1, j])
    exact, _ = longest_common(x, y, 100)
    assert exact is not None
    assert len(exact) == table[-1, -1]
    for pairs in (exact, greedy(x, y)):
        assert all(x[i] == y[j] for i, j in pairs)
        assert pairs == sorted(pairs)
        assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs) <= table[-1, -1]


@given(st.lists(st.integers(0, 9), max_size=20), st.lists(st.integers(0, 9), max_size=20))
def test_anchors(x: list[int], y: list[int]) -> None:
    """Anchors stand once on either side, and a longest increasing run of them is kept."""
    i, j = unique_pairs(np.array(x, "uint64"), np.array(y, "uint64"))
    expected = [(x.index(value), y.index(value)) for value in sorted(set(x) & set(y), key=x.index) if x.count(value) == y.count(value) == 1]
    assert list(zip(i.tolist(), j.tolist(), strict=True)) == expected
    kept = j[increasing(j)].tolist()
    assert kept == sorted(kept)
    best = [1] * len(j)
    for place in range(len(j)):
        best[place] = max([best[before] + 1 for before in range(place) if j[before] < j[place]], default=1)
    assert len(kept) == max(best, default=0)


def test_unlike_programs_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of work, two programs that have nothing in common still give a verdict."""
    monkeypatch.setattr(alignment, "_WORK", 0)
    monkeypatch.setattr(alignment, "_SMALL", 0)
    rng = np.random.default_rng(0)
    a, b = ([Op(f"op{kind}", (f"{side}{n}",), (f"{side}{n}",)) for n, kind in enumerate(rng.integers(0, 9, 3000))] for side in "ab")
    found = compared(tmp_path, a, b)
    assert not found.equal
    assert found.counts.compared + found.counts.missing == 3000


def test_threads_are_aligned_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads whose events interleave in another way are equal."""
    from detconf.recording import recorder

    def written(name: str, order: str) -> str:
        one = Recorder(Writer(str(tmp_path / name), lambda: {"level": "operations"}))
        one.begin()
        done = {"A": 0, "B": 0}
        for who in order:
            monkeypatch.setattr(recorder, "get_ident", lambda who=who: ord(who))
            one.operation("op", [word(f"{who}{done[who]}")], [word(f"o{who}{done[who]}")], (("float32", ()),))
            done[who] += 1
        one.close()
        return str(tmp_path / name)

    assert detconf.compare(written("a.det", "AABBAB"), written("b.det", "ABABAB")).equal


def ranks(folder: Path, sides: dict[int, Sequence[Op | None]]) -> str:
    folder.mkdir()
    for rank, ops in sides.items():
        write(folder / f"run.rank{rank}.det", ops, rank=rank)
    return str(folder)


REDUCE = Op("c10d.allreduce_.default", ("g",), ("sum",))


def test_a_collective_hands_on(tmp_path: Path) -> None:
    """A rank whose collective differs because another rank's input did introduced nothing; the earliest over ranks is named."""
    clean = [Op("aten.mm", ("x",), ("1",)), REDUCE, Op("aten.add", ("sum",), ("2",))]
    handed = [clean[0], replace(REDUCE, writes=("sum'",)), Op("aten.add", ("sum'",), ("2'",))]
    guilty = [replace(clean[0], writes=("1'",)), replace(REDUCE, reads=("g'",), writes=("sum'",)), handed[2]]
    found = detconf.compare(ranks(tmp_path / "a", {0: clean, 1: clean}), ranks(tmp_path / "b", {0: handed, 1: guilty}))
    assert counts(found) == (1, 4, 0, 0)
    assert found.first
    assert (found.first.divergence.name, found.first.divergence.rank, found.ranks) == ("aten.mm", "1", 2)


def test_a_guilty_collective(tmp_path: Path) -> None:
    """A collective with equal inputs on every rank and another output is named as such."""
    a, b = [REDUCE], [replace(REDUCE, writes=("sum'",))]
    found = detconf.compare(ranks(tmp_path / "a", {0: a, 1: a}), ranks(tmp_path / "b", {0: b, 1: b}))
    assert found.first
    assert found.first.divergence.name == REDUCE.name
    assert "its inputs are equal on every rank" in found.first.hint
    alone = detconf.compare(str(tmp_path / "a" / "run.rank0.det"), str(tmp_path / "b" / "run.rank0.det"))
    assert alone.first
    assert "compare the folders" in alone.first.hint


def test_a_missing_rank(tmp_path: Path) -> None:
    """A rank without a counterpart makes the folders differ, and is named."""
    found = detconf.compare(ranks(tmp_path / "a", {0: [REDUCE], 1: [REDUCE]}), ranks(tmp_path / "b", {0: [REDUCE]}))
    assert not found.equal
    assert [(each.divergence.rank, each.divergence.name) for each in found.missing] == [("1", "run.rank1.det")]
    assert "rank 1 is missing" in found.notes[0]


def test_incomplete(tmp_path: Path) -> None:
    """A recording that ended early says so beside the verdict."""
    a = write(tmp_path / "a.det", training(2))
    b = write(tmp_path / "b.det", training(1), ended="KeyboardInterrupt")
    found = detconf.compare(a, b)
    assert counts(found) == (0, 0, 6, 0)
    assert "b: b.det ended early (KeyboardInterrupt)" in found.notes[0]


def test_damage_and_mixtures_are_errors(tmp_path: Path) -> None:
    """A damaged recording, two levels, a recording against arrays, an empty folder: each one clear error."""
    a = write(tmp_path / "a.det", training(2))
    state = write(tmp_path / "state.det", training(2), level="state")
    (tmp_path / "cut.det").write_bytes(Path(a).read_bytes()[:9000])
    np.save(tmp_path / "x.npy", np.ones(3))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    rows = [
        ("cut.det", "damaged"),
        (state, "level"),
        ("x.npy", "is arrays"),
        ("empty", "neither"),
        ("text.txt", "not a file of arrays"),
        ("no", "cannot be read"),
    ]
    for other, words in rows:
        with pytest.raises(DetconfError, match=words):
            detconf.compare(a, os.path.join(tmp_path, other))
    with pytest.raises(DetconfError, match="nothing to compare"):
        detconf.compare({}, {})


def test_mappings() -> None:
    """Mappings of arrays are compared by name; all that differ are listed, missing and extra ones too."""
    x = np.arange(4.0)
    found = detconf.compare({"a": x, "b": x, "gone": x}, {"a": x, "b": x + 1, "new": 1})
    assert counts(found) == (1, 0, 1, 1)
    assert found.divergence
    assert (found.divergence.name, found.divergence.differing) == ("b", 4)
    assert found.to_dict()["schema"] == "detconf.comparison/1"
    assert "NOT equal: 1 differ, 1 missing, 1 extra" in str(found)
    assert detconf.compare(x, x.copy()).equal


TORCH = """
import sys, torch, detconf
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 8)
with detconf.record(sys.argv[1], values=True):
    for step in range(5):
        if step == 3 and sys.argv[2] == "ulp":
            with torch.no_grad():
                torch.utils.swap_tensors(x, torch.nextafter(x, torch.tensor(9.0)))
        loss = model(x).pow(2).mean()
        detconf.publish("loss", loss)
        loss.backward(); optimizer.step(); optimizer.zero_grad()
"""


def test_real_recordings(tmp_path: Path) -> None:
    """Two recordings of one torch training are equal; with one operation more in step 3, that one is named and the rest is aligned."""
    paths = {}
    for name in ("a", "same", "ulp"):
        paths[name] = str(tmp_path / f"{name}.det")
        subprocess.run(
            [sys.executable, "-c", TORCH, paths[name], name], check=True, env=clean_environment(OMP_NUM_THREADS="1"), timeout=240
        )
    same, other = detconf.compare(paths["a"], paths["same"]), detconf.compare(paths["a"], paths["ulp"])
    assert same.equal
    assert other.first
    assert other.first.divergence.name.startswith("aten.nextafter")
    assert (other.first.divergence.step, other.counts.missing, other.counts.extra) == (3, 0, other.counts.extra)
    assert other.affected
    assert other.affected.first_step == 3


def test_command(tmp_path: Path) -> None:
    """`detconf compare`: 0 equal, 1 differs, 2 could not; facts stand before any number; --json carries the contract's keys."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "detconf", "compare", *words]
        return subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=240, check=False)

    a = write(tmp_path / "a.det", training(8))
    b = write(tmp_path / "b.det", training(8, differ=(3, 1)), facts={**FACTS, "versions": {"torch": "2.12.0"}})
    equal, differs, could_not = run(a, a), run(a, b), run(a, str(tmp_path / "none"))
    assert (equal.returncode, differs.returncode, could_not.returncode) == (0, 1, 2)
    assert "bitwise equal: 48 events" in equal.stdout
    assert differs.stdout.index("versions.torch") < differs.stdout.index("introduced a difference")
    assert "aten.op1, step 3" in differs.stdout
    assert "none" in could_not.stderr
    assert not could_not.stdout
    body = json.loads(run(a, b, "--json").stdout)
    assert {"schema", "equal", "divergence", "introduced", "propagated", "environment", "tolerance"} <= set(body)
    assert body["environment"] == [{"fact": "versions.torch", "a": "2.13.0", "b": "2.12.0", "can_change_bits": True}]
