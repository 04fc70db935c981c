"""What a program publishes reaches the verifier, also from a process that is killed; outside, nothing happens."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from conftest import ROOT, clean_environment
from hypothesis import given
from hypothesis import strategies as st

from detconf.arrays import Array, Place
from detconf.errors import TargetError
from detconf.publishing import FOLDER, RANKS, collecting, publish, read_published, record, step
from detconf.results import flatten


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A verifier's folder, in force."""
    for name in RANKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


def script(code: str, folder: Path, **extra: str) -> int:
    """Run `code` under a verifier's folder; its status."""
    environment = clean_environment(**{FOLDER: str(folder), "PYTHONPATH": str(ROOT), **extra})
    return subprocess.run([sys.executable, "-c", code], env=environment, check=False, timeout=120).returncode


def value(array: Array) -> Any:
    """One number."""
    return np.frombuffer(array.data, array.dtype)[0]


def test_nothing_happens_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a verifier, nothing is looked at, not even a value that could not be compared."""
    monkeypatch.delenv(FOLDER, raising=False)
    publish("x", {1, 2})
    step()


@pytest.mark.parametrize("name", [None, 1, "", ["x"]])
@pytest.mark.parametrize("under", [False, True])
def test_a_name_is_text(name: Any, under: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is no text is an error with and without a verifier."""
    monkeypatch.setenv(FOLDER, str(tmp_path) if under else "")
    with pytest.raises(TargetError, match=r"publish: .* is not a name"):
        publish(name, 1)


def test_import_and_no_op_are_light(fresh: Callable[..., Any]) -> None:
    """Importing and calling outside a verification loads neither a framework nor the digest's library."""
    found = fresh("import json, sys, detconf; detconf.publish('x', 1); detconf.step(); print(json.dumps(list(sys.modules)))")
    assert not {"numpy", "torch", "paddle", "xxhash", "pydantic", "detconf.results"} & set(found)


def test_values_of_all_frameworks(folder: Path) -> None:
    """What is published is read back with its bytes, in order, whatever framework it is of."""
    values = {
        "t": torch.arange(6.0).reshape(2, 3).t().to(torch.bfloat16),
        "p": paddle.to_tensor([1.0, 2.0]).astype("bfloat16"),
        "n": np.zeros((0, 2)),
        "plain": {"a": [1, 2.5], "b": "text"},
    }
    for name, each in values.items():
        publish(name, each)
    found = read_published(str(folder))
    assert {Place(name, 0, origin="published"): array for name, array in flatten(values).items()} == found
    assert [place.name for place in found] == ["t", "p", "n", "plain.a[0]", "plain.a[1]", "plain.b"]


def test_values_are_taken_at_once(folder: Path) -> None:
    """A buffer that is changed later was published as it was."""
    buffer = torch.zeros(2)
    with collecting() as collected:
        publish("x", buffer)
        buffer += 1
    buffer.zero_()
    publish("x", buffer)
    buffer += 1
    assert list(collected.values()) == list(read_published(str(folder)).values()) == list(flatten(torch.zeros(2)).values())


def test_a_name_published_again_counts_as_a_step(folder: Path) -> None:
    """Where no step is ended, publications of one name are counted."""
    for loss in (3.0, 2.0, 1.0):
        publish("loss", loss)
    publish("final", 0)
    assert [place[:2] for place in read_published(str(folder))] == [("loss", 0), ("loss", 1), ("loss", 2), ("final", 0)]


def test_steps(folder: Path) -> None:
    """`step` ends a step; within one, a name published again is counted beside it."""
    for _ in range(2):
        publish("loss", 1.0)
        publish("loss", 2.0)
        step()
    publish("end", 0)
    found = [place[:3] for place in read_published(str(folder))]
    assert found == [("loss", 0, 0), ("loss", 0, 1), ("loss", 1, 0), ("loss", 1, 1), ("end", 2, 0)]


def test_returned_and_published_stay_apart(folder: Path) -> None:
    """A returned "loss" is not the published "loss"."""
    publish("loss", 1.0)
    record({"loss": 2.0}, "returned")
    assert [(place.name, place.step, place.origin) for place in read_published(str(folder))] == [
        ("loss", 0, "published"),
        ("loss", None, "returned"),
    ]


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.abort()", "os._exit(0)"])
def test_a_killed_process_leaves_what_it_published(tmp_path: Path, end: str) -> None:
    """A process that dies leaves everything published before."""
    script(f"import os, detconf; detconf.publish('a', 1); detconf.publish('a', 2); {end}; detconf.publish('a', 3)", tmp_path)
    assert [value(array) for array in read_published(str(tmp_path)).values()] == [1, 2]


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a file with five results."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder))
        for number in range(5):
            publish("x", np.arange(number))
    (file,) = files(folder)
    return file.read_bytes()


@given(st.data())
def test_a_damaged_file_is_read_up_to_the_damage(published: bytes, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Cut off anywhere, or with any bit flipped, a file gives its first records, unchanged, and never garbage."""
    place = data.draw(st.integers(0, len(published) - 1))
    damaged = bytearray(published[:place] if data.draw(st.booleans()) else published)
    if len(damaged) == len(published):
        damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "1").write_bytes(damaged)
    found = list(read_published(str(folder)).values())
    assert len(found) < 5
    assert found == [flatten(np.arange(number))["result"] for number in range(len(found))]


def test_foreign_files_are_passed_over(tmp_path: Path) -> None:
    """A file of another format holds no results; absurd lengths reserve no memory."""
    (tmp_path / "1").write_bytes(b"something else")
    (tmp_path / "2").write_bytes(b"detconf1" + struct.pack("<IQI", 2**32 - 1, 2**63, 0))
    (tmp_path / "3").write_bytes(b"")
    assert read_published(str(tmp_path)) == {}


def test_forks_and_children_have_files_of_their_own(tmp_path: Path) -> None:
    """A forked or started process appends to its own file; a name of several unranked processes is counted on."""
    code = """
import os, subprocess, sys, detconf
detconf.publish("x", 1)
child = os.fork()
if child == 0:
    detconf.publish("x", 2)
    os._exit(0)
os.waitpid(child, 0)
subprocess.run([sys.executable, "-c", "import detconf; detconf.publish('x', 3); detconf.publish('only', 4)"], check=True)
detconf.publish("x", 5)
"""
    assert script(code, tmp_path) == 0
    assert len(files(tmp_path)) == 3
    found = {(place.name, place.step): int(value(array)) for place, array in read_published(str(tmp_path)).items()}
    assert found == {("x", 0): 1, ("x", 1): 5, ("x", 2): 2, ("x", 3): 3, ("only", 0): 4}


def test_ranks(tmp_path: Path) -> None:
    """Ranks are told apart and come in numeric order, whichever published first; each counts its own steps."""
    for rank in ("10", "2", "0"):
        script("import detconf; detconf.publish('x', 1); detconf.step(); detconf.publish('x', 2)", tmp_path, RANK=rank)
    found = [(place.rank, place.step) for place in read_published(str(tmp_path))]
    assert [(rank, step) for rank in ("0", "2", "10") for step in (0, 1)] == found


def test_threads(folder: Path) -> None:
    """Records of several threads do not mix."""

    def work(thread: int) -> None:
        for _ in range(20):
            publish(f"t{thread}", np.full(100, thread))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read_published(str(folder))
    assert len(found) == 80
    assert all(value(array) == int(place.name[1:]) for place, array in found.items())


def test_collecting(folder: Path) -> None:
    """In one process, results are collected in the block only, ahead of any folder, and blocks nest."""
    with collecting() as outer:
        publish("a", 1)
        step()
        with collecting() as inner:
            publish("b", 2)
        publish("c", 3)
    publish("d", 4)
    assert [place[:2] for place in outer] == [("a", 0), ("c", 1)]
    assert [place[:2] for place in inner] == [("b", 0)]
    assert [place.name for place in read_published(str(folder))] == ["d"]


def test_collecting_ends_with_an_error(folder: Path) -> None:
    """What was published before an error is there, and collecting has ended."""
    with contextlib.suppress(ZeroDivisionError), collecting() as found:
        publish("a", 1)
        raise ZeroDivisionError
    assert [place.name for place in found] == ["a"]
    publish("b", 1)
    assert len(files(folder)) == 1
    assert str(os.getpid()) in files(folder)[0].name
