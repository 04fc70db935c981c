"""What the files of a command's processes are called.

`run.det` for the first process, `run.rank1.det` for a rank of a distributed job, and `run.pid1234.det` or
`run.rank1.pid1234.det` for a child, or for a second program of the command.
"""

from __future__ import annotations

import os
from glob import escape, glob

from detconf import facts


def own_path(path: str) -> str:
    """`path` for this process: with its rank before the suffix in a distributed job."""
    rank = own_rank()
    return path if rank is None else with_part(path, f"rank{rank}")


def own_rank() -> int | None:
    """This process's rank, where there are two or more."""
    return facts.rank() if (facts.world_size() or 0) > 1 else None


def with_part(path: str, part: str) -> str:
    """ "run.det" -> "run.PART.det"."""
    stem, suffix = os.path.splitext(path)
    return f"{stem}.{part}{suffix}"


def siblings(path: str) -> list[str]:
    """The files that the processes of one command left."""
    stem, suffix = os.path.splitext(path)
    found = {path, *glob(f"{escape(stem)}.rank*{escape(suffix)}"), *glob(f"{escape(stem)}.pid*{escape(suffix)}")}
    return sorted(name for name in found if os.path.isfile(name))
