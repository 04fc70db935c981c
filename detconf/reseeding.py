"""Every seed that a program sets itself, or takes from the system, is a fixed one. For experiments of the verifier.

A seed made of the clock, or none at all, gives other numbers each time; where runs agree with these seeds in its place, that
was the reason. In this process, or in an unmodified program by a variable that detconf's sitecustomize acts on. A program
that sets none is told from one that does: agreement then shows nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from detconf.errors import TargetError
from detconf.frameworks import frameworks
from detconf.frameworks.base import Framework
from detconf.launch import INJECT
from detconf.lookup import finished, is_imported, resolve

VARIABLE = "DETCONF_RESEED"
"""A folder; each process that sets a seed leaves a file there."""
_IDLE = "the program sets no seed itself"


class _Numbers(Iterator[int]):
    """1, 2, 3 and so on. Knows whether any was taken.

    Args:
        folder: where to leave a file when the first is taken; empty for nowhere.
    """

    def __init__(self, folder: str = "") -> None:
        self.taken = 0
        self._folder = folder

    def __next__(self) -> int:
        if self._folder and not self.taken:
            with open(os.path.join(self._folder, str(os.getpid())), "wb"):
                pass
        self.taken += 1
        return self.taken


@contextmanager
def fixed(*, needed: bool = False) -> Iterator[None]:
    """In the block the first seed is 1, the second 2, and so on, for every imported framework.

    Raises:
        TargetError: at the end, where a seed is `needed` and none was set.
    """
    numbers = _Numbers()
    with ExitStack() as stack:
        for each in frameworks():
            if each.seeds and (not each.module or is_imported(each.module)):
                stack.enter_context(resolve(each.seeds)(numbers))
        yield
    if needed and not numbers.taken:
        raise TargetError(_IDLE)


@contextmanager
def told(base: Mapping[str, str], *, needed: bool = False) -> Iterator[dict[str, str]]:
    """`base` with the variables that fix the seeds of children, and of their children.

    Raises:
        TargetError: at the end, where a seed is `needed` and no child set one.
    """
    others = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", INJECT)]
    with TemporaryDirectory(prefix="detconf-", ignore_cleanup_errors=True) as folder:
        yield {**base, "PYTHONPATH": os.pathsep.join([INJECT, *others]), VARIABLE: folder}
        if needed and not os.listdir(folder):
            raise TargetError(_IDLE)


def start_from_environment() -> None:
    """Fix seeds from now on; called by detconf's sitecustomize."""
    for each in frameworks():
        numbers = _Numbers(os.environ[VARIABLE])  # of its own: frameworks may be imported, and seeded, in any order
        if each.seeds and (not each.module or is_imported(each.module)):
            _kept.enter_context(resolve(each.seeds)(numbers))
        elif each.seeds:
            from wrapt import register_post_import_hook  # only where something is awaited

            register_post_import_hook(partial(_arrived, each, numbers), each.module)


_kept = ExitStack()
"""Never closed: for the life of this process."""


def _arrived(framework: Framework, numbers: Iterator[int], module: Any) -> None:
    finished(module.__name__)
    _kept.enter_context(resolve(framework.seeds)(numbers))
