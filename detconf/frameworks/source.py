"""Where in the user's program an operation was called. For tracers that have no better way."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from detconf.facts import here

_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_LIBRARY = f"{os.sep}site-packages{os.sep}"


def line(foreign: tuple[str, ...]) -> str:
    """ "train.py:12" of the innermost frame that belongs neither to `foreign`, nor to detconf, nor to an installed package.

    Args:
        foreign: folders of the framework at hand, each with a separator at its end.
    """
    frame: Any = sys._getframe(1)  # noqa: SLF001  # the way that `inspect` goes, without its cost
    outer = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_OURS, *foreign, "<frozen")):
            found = f"{short(file)}:{frame.f_lineno}"
            if _LIBRARY not in file:
                return found
            outer = outer or found
        frame = frame.f_back
    return outer


def short(file: str) -> str:
    return _below(file, here())


@functools.lru_cache(maxsize=4096)
def _below(file: str, root: str) -> str:
    return os.path.relpath(file, root) if root and file.startswith(root + os.sep) else os.path.basename(file)
