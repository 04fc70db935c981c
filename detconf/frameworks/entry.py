"""The state that a program is entered with, so that it can be run again from there: generators, and what a function holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FunctionType, MethodType
from typing import Any

from detconf.access import Rng
from detconf.frameworks import catalogue
from detconf.lookup import is_imported

_DEEP = 4
Back = Callable[[], None]


class Entry:
    """Puts generators and held objects back to where they were when this was made.

    Args:
        backs: what puts single objects back.
    """

    def __init__(self, backs: Sequence[Back] = ()) -> None:
        self._generators = [(access, access.save()) for access in _accesses()]
        self._backs = tuple(backs)

    def back(self) -> None:
        """Put everything back."""
        self.generators()
        for each in self._backs:
            each()

    def generators(self) -> None:
        """Put the generators back."""
        for access, state in self._generators:
            access.load(state)


def _accesses() -> list[Rng]:
    found = [knob.access for knob in catalogue().values() if isinstance(knob.access, Rng)]
    return [each for each in found if not each.module or is_imported(each.module)]


def held(function: Any) -> Iterator[Any]:
    """The objects that a function reaches by its closure, its globals, its defaults and its `self`, helpers of its file included."""
    seen: set[int] = set()
    yield from _held(function, getattr(inspect.unwrap(function) if callable(function) else function, "__module__", None), seen, _DEEP)


def _held(function: Any, module: str | None, seen: set[int], depth: int) -> Iterator[Any]:
    if id(function) in seen or not depth:
        return
    seen.add(id(function))
    if isinstance(function, MethodType):
        yield function.__self__
        function = function.__func__
    if not isinstance(function, FunctionType):
        return
    values: list[Any] = list(function.__defaults__ or ())
    with suppress(Exception):  # a cell that is still empty
        variables = inspect.getclosurevars(function)
        values += [*variables.nonlocals.values(), *variables.globals.values()]
    for value in values:
        if isinstance(value, (FunctionType, MethodType)):
            if getattr(value, "__module__", None) == module:
                yield from _held(value, module, seen, depth - 1)
        elif isinstance(value, (list, tuple)):
            yield from value
        elif isinstance(value, dict):
            yield from list(value.values())
        else:
            yield value
