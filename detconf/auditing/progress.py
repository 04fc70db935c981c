"""What is being done, for whoever waits at a terminal."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """One line on stderr, where that is a terminal."""
    if sys.stderr.isatty():
        print(f"detconf: {text}", file=sys.stderr)  # noqa: T201  # for whoever waits
