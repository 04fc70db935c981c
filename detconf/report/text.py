"""Text tables."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

_NARROWEST = 40


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, cut to the terminal's width; whole where stdout is no terminal."""
    body = [tuple(head), *map(tuple, rows)]
    widths = [max(len(row[place]) for row in body) for place in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in body]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    return "\n".join("  " + (line if columns < _NARROWEST or len(line) <= columns - 3 else line[: columns - 4] + "…") for line in lines)
