"""What a framework declares to the rest of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from detconf.knob import Knob


@dataclass(frozen=True, slots=True)
class Stray:
    """A setting that someone asked for in the environment and that the framework did not take.

    Attributes:
        knob: the control's name.
        asked: what the environment says.
        now: what is in force.
        note: what to do.
    """

    knob: str
    asked: str
    now: object
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework.

    Attributes:
        name: its folder.
        module: what a user imports; empty where there is nothing to import.
        knobs: its controls, in the order in which they are written and put back.
        devices: the device kinds that the imported build can drive; asked only once the module is imported.
        strays: settings in the environment that the framework ignored.
        tensors: name of the module that turns its arrays into bytes; empty for none.
    """

    name: str
    module: str = ""
    knobs: tuple[Knob, ...]
    devices: Callable[[], frozenset[str]] | None = None
    strays: Callable[[], Iterable[Stray]] | None = None
    tensors: str = ""
