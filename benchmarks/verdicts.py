"""How often `detconf.audit` names the planted cause, on random small programs: planted causes in rows, named ones in columns.

    python benchmarks/verdicts.py [--seed 0] [--count 150] [--families rounding,dtype] [--jobs 1] [--dry] [--keep DIR] [--json]

A program is a Python file with `reference` and `candidate`, written to a folder of its own and audited in a fresh process.
Its truth is by construction, and was examined before (`programs/truth.py`): a draw that does not hold is drawn again. With
--keep the files stay, and any can be rerun by hand: `detconf audit FILE:reference FILE:candidate`. --dry only draws and
examines. Exit status 0 when every verdict is right.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from programs import FAMILIES, draw
from programs.program import Program

BENIGN = {"equal", "rounding", "ill-conditioned"}
"""Planted causes that are no mistake."""
_UNDECIDED = {"unknown", "error"}
_CHILD = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import detconf
path = sys.argv[1]
said = detconf.audit(f"{path}:reference", f"{path}:candidate").to_dict()
print("\\n@@" + json.dumps(said, default=str))
"""


@dataclass(slots=True)
class Row:
    """One verdict.

    Attributes:
        index: number of the program within its family.
        planted: the cause that was put in; `also`: others that fit.
        got: the cause that was named, `unknown` or `error`; `said` its sentence, or the error.
        seconds: of the whole process.
        file: the program, where it is kept.
    """

    seed: int
    index: int
    planted: str
    name: str
    also: tuple[str, ...]
    got: str
    said: str
    seconds: float
    file: str

    @property
    def right(self) -> bool:
        """Is it the planted cause, or one that fits as well?"""
        return self.got == self.planted or self.got in self.also


def spread(count: int, families: Sequence[str]) -> list[tuple[str, int]]:
    """(family, number within it) of `count` programs, families in turn; half as many equal and config ones."""
    weights = {family: 1 if family in {"equal", "config"} else 2 for family in families}
    rounds = [family for turn in (1, 2) for family in families if weights[family] >= turn]
    numbers: Counter[str] = Counter()
    found = []
    for position in range(count):
        family = rounds[position % len(rounds)]
        found.append((family, numbers[family]))
        numbers[family] += 1
    return found


def judge(seed: int, index: int, program: Program, path: Path, timeout: float) -> Row:
    """Audit one file in a fresh process."""
    start = time.monotonic()
    got, said = "error", f"no verdict in {timeout:.0f} s"
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run([sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, timeout=timeout, check=False)
        said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}, no output"])[-1][:300]
        if "@@" in done.stdout:
            verdict = json.loads(done.stdout.rsplit("@@", 1)[1])
            got, said = str(verdict.get("cause") or "error"), str(verdict.get("summary", ""))
    return Row(seed, index, program.family, program.name, program.also, got, said, round(time.monotonic() - start, 1), str(path))


def table(rows: Sequence[Row]) -> str:
    """The confusion table, and what it comes to."""
    named = [cause for cause in [*FAMILIES, "race", "unknown", "error"] if any(row.got == cause for row in rows)]
    width = max(len(cause) for cause in [*FAMILIES, *named]) + 2
    lines = ["planted".ljust(width) + "".join(cause.rjust(width) for cause in named) + "right".rjust(width)]
    for family in FAMILIES:
        own = [row for row in rows if row.planted == family]
        if own:
            counts = Counter(row.got for row in own)
            cells = "".join((str(counts[cause]) if counts[cause] else ".").rjust(width) for cause in named)
            lines.append(family.ljust(width) + cells + f"{sum(row.right for row in own)}/{len(own)}".rjust(width))
    return "\n".join([*lines, "", sentence(rows)])


def sentence(rows: Sequence[Row]) -> str:
    """The counts that matter."""
    wrong = [row for row in rows if not row.right]
    alarms = sum(row.planted in BENIGN and row.got not in BENIGN | _UNDECIDED for row in wrong)
    missed = sum(row.planted not in BENIGN and row.got in BENIGN for row in wrong)
    unknown, errors = (sum(row.got == each for row in rows) for each in ("unknown", "error"))
    seconds = sorted(row.seconds for row in rows) or [0.0]
    return (
        f"{len(rows) - len(wrong)} of {len(rows)} verdicts right; benign called a bug: {alarms}; real cause called benign: {missed}; "
        f"unknown: {unknown}; errors: {errors}; median {seconds[len(seconds) // 2]} s, longest {seconds[-1]} s"
    )


def drawn(seed: int, wanted: Sequence[tuple[str, int]], *, quiet: bool) -> Iterator[tuple[int, Program]]:
    """Each program that was found, with its number; what could not be drawn is said on stderr."""
    for family, index in wanted:
        program, refused = draw(seed, family, index)
        if not quiet:
            for name, why in refused:
                print(f"redrawn: {family} {index}, {name}: {why}", file=sys.stderr)
        yield index, program


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quiet", action="store_true", help="do not say which draws did not hold")
    options = parser.parse_args()
    options.families = [each.strip() for each in options.families.split(",") if each.strip()]
    unknown = set(options.families) - set(FAMILIES)
    if unknown:
        parser.error(f"--families: {sorted(unknown)} are not among {sorted(FAMILIES)}")
    return options


def _show(row: Row) -> None:
    mark = "ok   " if row.right else "WRONG"
    print(
        f"{mark} {row.planted:<15} {row.index:>3}  {row.name[:48]:<48} {row.got:<15} {row.seconds:5.1f} s  {'' if row.right else row.said[:160]}",
        flush=True,
    )


def main() -> int:
    """Draw, audit, print. Returns the exit code."""
    options = _options()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        waiting = []
        for index, program in drawn(options.seed, spread(options.count, options.families), quiet=options.quiet):
            path = folder.resolve() / f"{program.family.replace('-', '_')}_{options.seed}_{index}.py"
            path.write_text(program.source)
            if options.dry:
                rows.append(
                    Row(options.seed, index, program.family, program.name, program.also, program.family, "not audited", 0.0, str(path))
                )
            else:
                waiting.append(pool.submit(judge, options.seed, index, program, path, options.timeout))
        for each in waiting:
            rows.append(each.result())
            if not options.json:
                _show(rows[-1])
    print(json.dumps([{**asdict(row), "right": row.right} for row in rows], indent=1) if options.json else table(rows))
    return 0 if all(row.right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
