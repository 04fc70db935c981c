"""The state of every random generator at the end of each optimizer step, reported to a recorder.

A generator that nobody has drawn from or seeded since the recording found it says nothing of the program: those that
nobody seeds start each process elsewhere. It is reported from the first draw on.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from detconf.access import Rng
from detconf.arrays import Array
from detconf.frameworks import catalogue
from detconf.lookup import is_imported

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder

PREFIX = "generator."


class Generators:
    """The generators of a process and of its frameworks.

    Args:
        recorder: takes their states, as "generator.numpy".
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._entry: dict[str, object] = {}
        self._moved: set[str] = set()

    def find(self) -> None:
        """Note where the generators that are there by now stand."""
        for name, access in _all():
            if name not in self._entry and (not access.module or is_imported(access.module)):
                self._entry[name] = access.glance()

    def report(self) -> None:
        """Report those that have moved."""
        if not self._recorder.active:
            return
        for name, access in _all():
            if name in self._entry and (name in self._moved or access.glance() != self._entry[name]):
                self._moved.add(name)
                self._recorder.state(PREFIX + name, Array("str", (), str(access.read()).encode()))


@cache
def _all() -> list[tuple[str, Rng]]:
    """By the first word of the knob: "numpy" of "numpy.random.seed"."""
    return [(name.partition(".")[0], knob.access) for name, knob in catalogue().items() if isinstance(knob.access, Rng)]
