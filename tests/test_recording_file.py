"""The file of a recording: what is read is what was written, whatever happened to the writer or to the file."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from conftest import clean_environment, run_python
from hypothesis import given
from hypothesis import strategies as st

import detconf
from detconf.arrays import Array
from detconf.errors import DetconfError
from detconf.recording import recorder as recorder_module
from detconf.recording.event import NOTHING, Event, Flag, Output, digest, mix
from detconf.recording.file import VERSION, Writer, is_recording
from detconf.recording.reading import Recording
from detconf.recording.recorder import Recorder

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
ROW = (("float32", (2, 3)),)


def begin(path: Path, **options: Any) -> Recorder:
    made = Recorder(Writer(str(path), lambda: {"facts": {"cpu": "x"}, "level": "operations"}), **options)
    made.begin()
    return made


def read(path: Path) -> list[Event]:
    with Recording(path) as found:
        return list(found.events())


def test_an_event_comes_back_as_it_was_recorded(tmp_path: Path) -> None:
    """Every field of an event survives the file."""
    made = begin(tmp_path / "a.det")
    made.operation("aten.mm", [A, B], [C], ROW, random=B, flags=Flag.IN_PLACE, scope="layer.0", source="train.py:12")
    made.step()
    made.operation("aten.empty", [], [NOTHING, A], (("bool", ()), ("int8", (0,))), flags=Flag.UNINITIALISED)
    made.close()
    first, second = read(tmp_path / "a.det")
    flags = Flag.RANDOM | Flag.IN_PLACE
    assert first == Event(0, 0, "aten.mm", 0, (A, B), (Output(C, "float32", (2, 3)),), B, flags, "layer.0", "train.py:12")
    outputs = (Output(NOTHING, "bool", ()), Output(A, "int8", (0,)))
    assert second == Event(1, 1, "aten.empty", 0, (), outputs, b"", Flag.UNINITIALISED, "", "")


@given(st.sampled_from(["float32", "bool", "bfloat16"]), st.lists(st.integers(0, 5), max_size=3), st.binary(max_size=64))
def test_digests_of_events_and_arrays_are_the_same(dtype: str, shape: list[int], data: bytes) -> None:
    """A digest in a recording is that of the array: recordings and results can be compared with each other."""
    assert digest(dtype, tuple(shape), data).hex() == Array(dtype, tuple(shape), data).digest


def test_the_parts_of_a_witness_count() -> None:
    """Witnesses of other chains or other geometries differ."""
    assert len({mix(A, b"x"), mix(B, b"x"), mix(A, b"y"), mix(A), mix(A, B)}) == 5


def test_summary_has_the_contract_keys(tmp_path: Path) -> None:
    """`schema`, `events`, `steps`, `complete`, `facts` are there, complete or not."""
    path = tmp_path / "a.det"
    made = begin(path)
    made.operation("x", [A], [B], ROW)
    made.flush()
    with Recording(path) as found:
        before = found.summary()
    made.step()
    made.close()
    with Recording(path) as found:
        after = found.summary()
    assert (before["events"], before["steps"], before["complete"]) == (1, 0, False)
    assert (after["events"], after["steps"], after["complete"]) == (1, 1, True)
    assert before["schema"] == after["schema"] == f"detconf.recording/{VERSION}"
    assert after["facts"] == {"cpu": "x"}


@pytest.mark.parametrize("batch", [100, 1 << 18])
def test_any_range_of_events_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """A range gives its events with their steps, across batches or within one."""
    monkeypatch.setattr(recorder_module, "_BATCH", batch)
    made = begin(tmp_path / "a.det")
    for index in range(100):
        made.operation("x", [index.to_bytes(16, "big")], [A], ROW)
        if index % 10 == 9:
            made.step()
    made.close()
    with Recording(tmp_path / "a.det") as found:
        every = list(found.events())
        assert [event.step for event in every] == [index // 10 for index in range(100)]
        for start, stop in ((0, 0), (0, 1), (7, 23), (50, 50), (99, 100), (95, 1000), (100, 200)):
            assert list(found.events(start, stop)) == every[start:stop]
        assert found.event(42) == every[42]
        with pytest.raises(DetconfError, match="no event 100"):
            found.event(100)


def test_a_step_of_a_transformer_is_small(tmp_path: Path) -> None:
    """950 operations with three arrays each take under 40 KB a step: names and layouts are stored once."""
    path = tmp_path / "a.det"
    made = begin(path)
    for _ in range(20):
        for index in range(950):
            made.operation(f"aten.{index % 40}", [os.urandom(16)], [os.urandom(16)], (("float32", (index % 50, 256)),), scope=f"l{index}")
        made.step()
    made.close()
    assert path.stat().st_size / 20 < 40_000


def test_values_are_kept_where_asked_for(tmp_path: Path) -> None:
    """`keeping` is true exactly for the events of the range; equal bytes are stored once; large arrays come back whole."""
    made = begin(tmp_path / "a.det", values=range(2, 4))
    big = Array("uint8", (1 << 20,), os.urandom(1 << 20))
    seen = []
    for _ in range(6):
        seen.append(made.keeping)
        made.operation("x", [A], [B], ROW, values=((big,), (big, big)) if made.keeping else None)
    made.close()
    assert seen == [False, False, True, True, False, False]
    assert (tmp_path / "a.det").stat().st_size < 1.2 * (1 << 20)
    with Recording(tmp_path / "a.det") as found:
        assert found.values(1) == {}
        assert found.values(2) == {("input", 0): big, ("output", 0): big, ("output", 1): big}
        assert found.summary()["kept"] == 2


def test_large_values_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept arrays do not pile up until a batch of events is full, and the numbers of events go on."""
    monkeypatch.setattr(recorder_module, "_HELD", 1000)
    made = begin(tmp_path / "a.det", values=True)
    arrays = [Array("uint8", (400,), os.urandom(400)) for _ in range(10)]
    for array in arrays:
        made.operation("x", [A], [bytes.fromhex(array.digest)], ROW, values=((), (array,)))
    with Recording(tmp_path / "a.det") as found:
        assert found.summary()["events"] == 9
    made.close()
    with Recording(tmp_path / "a.det") as found:
        events = list(found.events())
        assert [event.index for event in events] == list(range(10))
        assert [found.values(index)["output", 0] for index in range(10)] == arrays


def test_states_and_leaves_are_named_arrays(tmp_path: Path) -> None:
    """State and leaves are events with the name given, the digest of the array, and their flag; values where asked for."""
    array = Array("float32", (1,), b"abcd")
    made = begin(tmp_path / "a.det", values=True)
    made.state("model.weight", array)
    made.leaf("np.load", array, source="train.py:3")
    made.close()
    first, second = read(tmp_path / "a.det")
    assert (first.name, first.flags, first.outputs[0].digest.hex()) == ("model.weight", Flag.STATE, array.digest)
    assert (second.name, second.flags, second.source) == ("np.load", Flag.LEAF, "train.py:3")
    with Recording(tmp_path / "a.det") as found:
        assert found.values(0) == {("output", 0): array}


@pytest.mark.parametrize(
    ("calls", "steps"),
    [("ooo", 3), ("eee", 3), ("oeoeoe", 3), ("ooeooe", 3), ("", 0)],
    ids=["optimizer", "explicit", "both", "two optimizers and explicit", "none"],
)
def test_what_ends_a_step(tmp_path: Path, calls: str, steps: int) -> None:
    """Optimizers end steps; where the program calls `detconf.step()`, that does, and nothing is counted twice."""
    made = begin(tmp_path / "a.det")
    for call in calls:
        made.operation("x", [], [], ())
        made.step(explicit=call == "e")
    made.close()
    assert made.steps == steps


# What can happen to a writer


KILLED = """
import os, sys, time
from detconf.recording import recorder
from detconf.recording.file import Writer
recorder._BATCH = 4000
made = recorder.Recorder(Writer(sys.argv[1], lambda: {"facts": {}})); made.begin()
for index in range(10**9):
    made.operation("x", [index.to_bytes(16, "big")], [bytes(16)], (("float32", (2,)),))
    if index == 2000:
        print("going", flush=True)
"""


def test_a_killed_process_leaves_its_batches(tmp_path: Path) -> None:
    """After kill -9 in the middle of writing, the file holds whole batches from the first event on, and is not complete."""
    path = tmp_path / "a.det"
    for _ in range(3):
        path.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], env=clean_environment(), stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Recording(path) as found:
            events = list(found.events())
            assert not found.summary()["complete"]
        assert len(events) > 100
        assert [int.from_bytes(event.inputs[0], "big") for event in events] == list(range(len(events)))


def test_a_half_written_batch_is_undone(tmp_path: Path) -> None:
    """A journal that a killed writer left is rolled back by the reader; one that may not write says so."""
    path = tmp_path / "a.det"
    code = """
    import os, sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA cache_size = 1"); connection.execute("PRAGMA cache_spill = 1")
    connection.execute("BEGIN")
    for index in range(200):
        connection.execute("INSERT INTO batches VALUES (?, 1, 0, 0, 0, ?)", (1000 + index, bytes(5000)))
    os.kill(os.getpid(), 9)
    """
    made = begin(path)
    made.operation("x", [A], [B], ROW)
    made.close()
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(path)], check=False)
    assert path.with_name("a.det-journal").exists()
    assert len(read(path)) == 1
    assert not path.with_name("a.det-journal").exists()


def test_a_full_disk_stops_the_recording_and_not_the_program(tmp_path: Path) -> None:
    """Where no more can be written, the program goes on, stderr says so at once, the end of the block raises, and the file is readable."""
    code = """
    import resource, sys, torch, detconf
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
    try:
        with detconf.record(sys.argv[1]):
            total = torch.zeros(4)
            for index in range(20_000):
                total = total + 1
    except detconf.DetconfError as error:
        print(error)
    print(total.tolist())
    """
    path = tmp_path / "a.det"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)], env=clean_environment(), capture_output=True, text=True, timeout=120, check=True
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[20000.0, 20000.0, 20000.0, 20000.0]"
    assert "recording stopped" in done.stdout
    assert done.stderr.count("recording stopped, the program goes on") == 1
    assert 0 < len(read(path)) < 20_000
    assert path.stat().st_size <= 500_000


def test_ctrl_c_leaves_whole_events(tmp_path: Path) -> None:
    """An interrupted block leaves a readable file that names the interrupt and is not complete."""
    code = """
    import signal, sys, threading, detconf, torch, os, time
    x = torch.ones(3)
    try:
        with detconf.record(sys.argv[1]):
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            while True:
                x = x * 1.5
    except KeyboardInterrupt:
        print("interrupted")
    """
    path = tmp_path / "a.det"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)], env=clean_environment(), capture_output=True, text=True, timeout=120, check=True
    )  # fmt: skip
    assert done.stdout == "interrupted\n", done.stderr
    with Recording(path) as found:
        about = found.summary()
        assert (about["complete"], about["ended"]) == (False, "KeyboardInterrupt")
        assert len(list(found.events())) == about["events"] > 0


def test_the_memory_of_a_writer_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, shapes, threads and events without end leave the recorder as large as before."""
    monkeypatch.setattr(recorder_module, "_SITES", 256)
    monkeypatch.setattr(recorder_module, "_BATCH", 1 << 14)
    monkeypatch.setattr("detconf.recording.file._REMEMBERED", 256)
    made = begin(tmp_path / "a.det")

    def go(first: int) -> None:
        for index in range(first, first + 5_000):
            made.operation(f"op{index}", [A], [B], (("float32", (index,)),), scope=f"s{index}")

    go(0)
    tracemalloc.start()
    go(5_000)
    before = tracemalloc.get_traced_memory()[0]
    for turn in range(2, 6):
        go(turn * 5_000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    made.close()
    assert grown < 100_000
    assert [event.name for event in read(tmp_path / "a.det")] == [f"op{index}" for index in range(30_000)]


@pytest.mark.slow
def test_a_million_events_are_read_in_little_memory(tmp_path: Path) -> None:
    """Reading is lazy: the memory of a reader does not depend on the number of events."""
    made = begin(tmp_path / "a.det")
    for _ in range(1_000_000):
        made.operation("x", [A], [B], ROW)
    made.close()
    with Recording(tmp_path / "a.det") as found:
        tracemalloc.start()
        count = sum(1 for _ in found.events())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count == 1_000_000
    assert peak < 4_000_000


# What can be wrong with a file


def recording(path: Path) -> Path:
    made = begin(path)
    for index in range(5_000):
        made.operation("x", [index.to_bytes(16, "big")], [B], ROW)
    made.close()
    return path


def test_foreign_files_are_refused_in_words(tmp_path: Path) -> None:
    """No file, a folder, text, another database: one DetconfError each, that says what is accepted."""
    text, other = tmp_path / "a.txt", tmp_path / "b.db"
    text.write_text("hello")
    sqlite3.connect(other).execute("CREATE TABLE x (y)").connection.commit()
    for path in (tmp_path / "none.det", tmp_path, text, other):
        with pytest.raises(DetconfError, match="Accepted"):
            Recording(path)


def test_foreign_files_are_not_overwritten(tmp_path: Path) -> None:
    """`record` replaces a recording and nothing else."""
    path = tmp_path / "a.det"
    path.write_text("my thesis")
    with pytest.raises(DetconfError, match="not overwritten"), detconf.record(path):
        pass
    assert path.read_text() == "my thesis"
    path.unlink()
    for _ in range(2):
        with detconf.record(path):
            pass
    assert is_recording(str(path))


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A folder that is not there is an error before anything runs."""
    with pytest.raises(DetconfError, match="cannot be written"), detconf.record(tmp_path / "no" / "a.det"):
        pytest.fail("the block must not run")


def test_a_newer_file_says_so(tmp_path: Path) -> None:
    """A file of a later schema is refused with the remedy."""
    path = recording(tmp_path / "a.det")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE schema SET version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(DetconfError, match="newer detconf"):
        Recording(path)


def test_damage_is_one_clear_error(tmp_path: Path) -> None:
    """Cut short, or with any byte changed, a file is read to the end or refused with a DetconfError; never wrong events."""
    whole = recording(tmp_path / "a.det").read_bytes()
    true = read(tmp_path / "a.det")
    damaged = tmp_path / "b.det"
    cases = [whole[:length] for length in (200, 4096, len(whole) // 2, len(whole) - 1)]
    places = range(100, len(whole), len(whole) // 60)
    cases += [whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :] for place in places]
    outcomes = set()
    for case in cases:
        damaged.write_bytes(case)
        try:
            seen = read(damaged)
        except DetconfError as error:
            assert "b.det" in str(error)
            outcomes.add("refused")
        else:
            assert all(event in true for event in seen[::500])
            outcomes.add("read")
    assert "refused" in outcomes


def test_hostile_descriptions_are_damage(tmp_path: Path) -> None:
    """A layout or a number that no writer makes is an error in words, not a crash."""
    changes = (
        "UPDATE strings SET text = '[[1'",
        "UPDATE sites SET inputs = 'x'",
        "UPDATE sites SET name = 77",
        "UPDATE sites SET inputs = 9999999",
    )
    for change in changes:
        path = recording(tmp_path / "a.det")
        connection = sqlite3.connect(path)
        connection.execute(change)
        connection.commit()
        connection.close()
        with pytest.raises(DetconfError, match="damaged"):
            read(path)


def test_a_read_only_file_can_be_read(tmp_path: Path) -> None:
    """A recording in a place that cannot be written is read all the same."""
    path = recording(tmp_path / "a.det")
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert len(read(path)) == 5_000
    finally:
        tmp_path.chmod(0o755)


# Several processes


def test_a_forked_child_writes_its_own_file(tmp_path: Path) -> None:
    """After a fork, parent and child go on in files of their own, and neither disturbs the other's."""
    code = """
    import json, os, sys, torch, detconf
    x = torch.ones(3)
    with detconf.record(sys.argv[1] + "/run.det"):
        x + 1
        child = os.fork()
        for _ in range(500):
            x * 2 if child else x / 2
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    print(json.dumps(child))
    """
    child = run_python(f"import sys; sys.argv.append({str(tmp_path)!r})\n{textwrap.dedent(code)}")
    parent, forked = read(tmp_path / "run.det"), read(tmp_path / f"run.pid{child}.det")
    assert [event.name for event in parent] == ["aten.add.Tensor"] + ["aten.mul.Tensor"] * 500
    assert [event.name for event in forked] == ["aten.div.Tensor"] * 500
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["run.det", f"run.pid{child}.det"])


def test_workers_of_multiprocessing_write_their_own_files(tmp_path: Path) -> None:
    """A forked worker's events are written although it leaves by os._exit."""
    code = """
    import json, multiprocessing, sys, torch, detconf
    def work(number):
        return (torch.ones(2) * number).sum().item()
    with detconf.record(sys.argv[1] + "/run.det"):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            result = pool.map(work, [1, 2])
            pool.close(); pool.join()
    print(json.dumps(result))
    """
    assert run_python(f"import sys; sys.argv.append({str(tmp_path)!r})\n{textwrap.dedent(code)}") == [2.0, 4.0]
    others = [path for path in tmp_path.iterdir() if path.name.startswith("run.pid")]
    assert [[event.name for event in read(path)].count("aten.mul.Tensor") for path in others] == [2]


def test_two_processes_write_side_by_side(tmp_path: Path) -> None:
    """Recordings of two processes in one folder do not touch each other."""
    code = "import sys, torch, detconf\nwith detconf.record(sys.argv[1]):\n    for _ in range(3000): torch.ones(3) + 1\n"
    paths = [tmp_path / f"{name}.det" for name in "ab"]
    running = [subprocess.Popen([sys.executable, "-c", code, str(path)], env=clean_environment()) for path in paths]
    assert [each.wait(120) for each in running] == [0, 0]
    first, second = map(read, paths)
    assert len(first) == 6000
    assert first == second


def test_one_recording_at_a_time(tmp_path: Path) -> None:
    """A second recording in a process is refused, and the first one goes on."""
    with detconf.record(tmp_path / "a.det") as made:
        with pytest.raises(DetconfError, match="one at a time"), detconf.record(tmp_path / "b.det"):
            pass
        made.operation("x", [], [], ())
    assert [event.name for event in read(tmp_path / "a.det")] == ["x"]
    assert not (tmp_path / "b.det").exists()


@pytest.mark.parametrize("options", [{"level": "everything"}, {"values": "yes"}, {"values": 3}])
def test_arguments_are_checked(tmp_path: Path, options: dict[str, Any]) -> None:
    """What cannot be meant is refused before a file is made."""
    with pytest.raises(DetconfError, match="Accepted"), detconf.record(tmp_path / "a.det", **options):
        pass
    assert not (tmp_path / "a.det").exists()


def test_published_values_are_in_the_recording(tmp_path: Path) -> None:
    """`detconf.publish` and `detconf.step` reach a recording as they reach the verifier."""
    with detconf.record(tmp_path / "a.det"):
        for value in (1.0, 2.0):
            detconf.publish("loss", value)
            detconf.step()
    events = read(tmp_path / "a.det")
    assert [(event.name, event.step, event.flags) for event in events] == [("loss", 0, Flag.PUBLISHED), ("loss", 1, Flag.PUBLISHED)]
    assert events[0].outputs[0].digest != events[1].outputs[0].digest


@pytest.mark.filterwarnings("ignore::detconf.errors.DetconfWarning")  # without torch's own knob, MKL_DYNAMIC is late here
def test_the_attestation_is_inside(tmp_path: Path) -> None:
    """A recording says what was in force when it was made."""
    with detconf.apply("strict", frameworks=[]), detconf.record(tmp_path / "a.det"):
        pass
    with Recording(tmp_path / "a.det") as found:
        assert found.summary()["attestation"]["profile"] == "strict"
        assert "torch" in found.summary()["facts"]["versions"] or "torch" not in sys.modules
