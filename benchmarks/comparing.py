"""What comparing costs: two recordings of a million events, two files of arrays. Prints a table.

    python benchmarks/comparing.py [EVENTS [GIB]]

Each row runs in a process of its own; `peak` is its resident memory, `own` the part of it that is not the mapped files themselves,
which the system can take back at any time. The limit for arrays is reading both files once, in chunks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from detconf.digests import mix
from detconf.recording.file import Writer
from detconf.recording.recorder import Recorder

_SITES, _STEP = 211, 2000


def record(path: Path, events: int, *, differ: int, extra: int = 0) -> None:
    """A recording whose event `differ` writes other bytes, whose later ones do too but for every fifth, with `extra` more per step."""
    recorder = Recorder(Writer(str(path), lambda: {"level": "operations", "facts": {}}))
    recorder.begin()
    for index in range(events):
        if index and index % _STEP == 0:
            recorder.step()
        if extra and index % _STEP == _STEP // 2:
            recorder.operation("aten.clone", [mix(b"e%d" % index)], [mix(b"f%d" % index)], (("float32", (8,)),))
        late = index > differ and index % 5
        word = b"b%d" % index if late else b"a%d" % index
        written = b"b%d" % index if late or index == differ else b"a%d" % index
        site = index % _STEP % _SITES
        recorder.operation(f"aten.op{site % 40}", [mix(b"i", word), mix(b"j", word)], [mix(b"o", written)], (("float32", (8, site)),))
    recorder.close()


def write_arrays(folder: Path, gib: float) -> None:
    """a, the same again, one with a million elements in other places, one that differs everywhere, and one with other numbers."""
    import numpy as np

    size = int(gib * 2**28)
    values = np.random.default_rng(0).standard_normal(size, "f4")
    np.save(folder / "a.npy", values)
    np.save(folder / "same.npy", values)
    few = values.copy()
    few[size // 2 : size // 2 + 1_000_000] *= np.float32(1.0000001)
    np.save(folder / "few.npy", few)
    np.save(folder / "all.npy", np.nextafter(values, np.float32(np.inf)))
    np.save(folder / "other.npy", np.random.default_rng(1).standard_normal(size, "f4"))


def read_once(*paths: str) -> None:
    """The limit."""
    buffer = bytearray(1 << 20)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def measure(action: Callable[[], object]) -> None:
    """Print seconds, peak memory and own peak memory of `action` as JSON: the best of three."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    own = [memory("RssAnon")]
    done = threading.Event()
    watch = threading.Thread(target=lambda: [own.append(memory("RssAnon")) for _ in iter(lambda: done.wait(0.005), True)])
    watch.start()
    action()
    done.set()
    watch.join()
    print(json.dumps({"seconds": min(seconds), "peak": memory("VmHWM"), "own": max(own)}))


def memory(name: str) -> float:
    """A line of this process's status, in MiB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(status[name].split()[0]) / 1024


def child(kind: str, *paths: str) -> dict[str, float]:
    """`measure` in a process of its own."""
    done = subprocess.run([sys.executable, __file__, f"--{kind}", *paths], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main(events: int, gib: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record(folder / "a.det", events, differ=events)
        record(folder / "same.det", events, differ=events)
        record(folder / "late.det", events, differ=events // 10)
        record(folder / "extra.det", events, differ=events // 10, extra=1)
        print(f"{events:,} events each, {os.path.getsize(folder / 'a.det') / 2**20:.0f} MiB a file")
        print(f"  {'recordings':34}{'cpu s':>8}{'peak MiB':>10}{'own MiB':>9}")
        for label, other in (("equal", "same"), ("one differs, four in five follow", "late"), ("and one more operation a step", "extra")):
            row = child("compare", str(folder / "a.det"), str(folder / f"{other}.det"))
            print(f"  {label:34}{row['seconds']:8.2f}{row['peak']:10.0f}{row['own']:9.0f}")
        write_arrays(folder, gib)
        a = str(folder / "a.npy")
        limit = child("read", a, str(folder / "same.npy"))
        print(f"float32 arrays of {gib:g} GiB\n  {'':34}{'cpu s':>8}{'peak MiB':>10}{'own MiB':>9}{'x limit':>9}")
        print(f"  {'limit: read both once':34}{limit['seconds']:8.2f}{limit['peak']:10.0f}{limit['own']:9.0f}{1:9.2f}")
        for label, other in (
            ("equal", "same"),
            ("a million elements differ", "few"),
            ("all differ, by one step", "all"),
            ("other numbers, half of other signs", "other"),
        ):
            row = child("compare", a, str(folder / f"{other}.npy"))
            print(f"  {label:34}{row['seconds']:8.2f}{row['peak']:10.0f}{row['own']:9.0f}{row['seconds'] / limit['seconds']:9.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compare"]:
        import detconf

        measure(lambda: detconf.compare(*sys.argv[2:]).to_dict())
    elif sys.argv[1:2] == ["--read"]:
        measure(lambda: read_once(*sys.argv[2:]))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000, float(sys.argv[2]) if sys.argv[2:] else 1.0)
