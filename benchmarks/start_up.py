"""What detconf adds to the start of a process: CPU time of whole processes, in pairs, interleaved.

    python benchmarks/start_up.py [--rounds 15] [--torch-rounds 7]

Each round runs every command of a group once, in turn, so that a busy moment of the machine meets all of them. A ratio
is the median of the ratios of one round each, with the middle half of them. Exit 1 where a limit is passed.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile

BARE, IMPORT, APPLY = "pass", "import detconf", "import detconf; detconf.apply('strict')"
TORCH = "import torch"
CHEAP = (BARE, IMPORT, APPLY)
DEAR = (TORCH, f"{APPLY}; import torch", f"import torch; {APPLY}")
# (command, what it is compared with, largest ratio; 0 for none)
PAIRS = ((IMPORT, BARE, 1.3), (APPLY, BARE, 0.0), (DEAR[1], TORCH, 1.10), (DEAR[2], TORCH, 1.10))


def cpu_seconds(code: str, folder: str) -> float:
    """User and system time of one interpreter that runs `code`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DETCONF_", "PYTHON"))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env={**environment, "OMP_NUM_THREADS": "1"}, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(commands: tuple[str, ...], rounds: int) -> dict[str, list[float]]:
    """Command -> its times, one per round, after one round that only warms the caches."""
    times: dict[str, list[float]] = {command: [] for command in commands}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            for command in commands:
                seconds = cpu_seconds(command, folder)
                if number:
                    times[command].append(seconds)
    return times


def processor() -> str:
    """The processor's name, or the architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    except OSError:
        return platform.machine()


def main(arguments: list[str] | None = None) -> int:
    """Measure, print two tables, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="rounds of the cheap commands")
    parser.add_argument("--torch-rounds", type=int, default=7, help="rounds of the commands that import torch; 0 leaves them out")
    options = parser.parse_args(arguments)
    times = measure(CHEAP, options.rounds) | (measure(DEAR, options.torch_rounds) if options.torch_rounds else {})
    print(
        f"{os.cpu_count()} cores, {processor()}, Python {platform.python_version()}\n\n| command | CPU ms | from | to |\n|---|---|---|---|"
    )
    for command, found in times.items():
        print(f"| `{command}` | {statistics.median(found) * 1e3:.1f} | {min(found) * 1e3:.1f} | {max(found) * 1e3:.1f} |")
    print("\n| command | against | ratio | middle half | at most |\n|---|---|---|---|---|")
    passed = True
    for command, base, limit in PAIRS:
        if command not in times:
            continue
        ratios = [ours / theirs for ours, theirs in zip(times[command], times[base], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        print(f"| `{command}` | `{base}` | {middle:.3f} | {low:.3f} to {high:.3f} | {limit or ''} |")
        passed &= not limit or middle <= limit
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
