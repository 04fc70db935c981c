"""The number of worker processes of data loaders: an argument of every loader, forced from outside. For any framework."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any

from detconf.access import Access
from detconf.lookup import loaded, resolve
from detconf.values import Value

AS_WRITTEN = "as-written"
"""Each loader has the workers that the program gives it."""
_MARK = "_detconf_workers"


@dataclass(slots=True)
class _Forced:
    """What one wrapped constructor does.

    Attributes:
        count: workers of every loader made from now on; None for those that the program asks for.
    """

    count: int | None


@dataclass(frozen=True)
class Workers(Access):
    """The argument `num_workers` of a class of loaders.

    No framework has such a control, so that the constructor is wrapped while a number is forced. The constructor itself
    is asked what is in force, so that one that somebody has put in its place is seen.

    Attributes:
        path: of the class.
        idle: arguments that loaders without workers refuse: left out where none are forced.
    """

    path: str
    idle: tuple[str, ...] = ("timeout", "prefetch_factor", "persistent_workers", "multiprocessing_context")

    @property
    def module(self) -> str:  # type: ignore[override]  # derived, so that the path stays the single source
        return self.path.partition(":")[0]

    def _class(self) -> Any:
        loaded(self.module)
        return resolve(self.path)

    def read(self) -> Value:
        forced = getattr(self._class().__init__, _MARK, None)
        return AS_WRITTEN if forced is None or forced.count is None else forced.count

    def write(self, value: Value) -> None:
        owner = self._class()
        forced = getattr(owner.__init__, _MARK, None)
        count = None if value == AS_WRITTEN else value
        if forced is not None:
            forced.count = count
        elif count is not None:
            owner.__init__ = _wrapped(owner.__init__, _Forced(count), self.idle)
        if count is None and getattr(owner.__init__, "__code__", None) is _CODE:  # else one around ours stays, which passes all on
            owner.__init__ = owner.__init__.__wrapped__


def _wrapped(original: Any, forced: _Forced, idle: tuple[str, ...]) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def construct(*args: Any, **kwargs: Any) -> Any:
        if forced.count is None:
            return original(*args, **kwargs)
        given = signature.bind(*args, **kwargs)  # raises as the constructor itself would
        given.arguments["num_workers"] = forced.count
        for name in () if forced.count else idle:
            given.arguments.pop(name, None)
        return original(*given.args, **given.kwargs)

    setattr(construct, _MARK, forced)
    return construct


_CODE = next(each for each in _wrapped.__code__.co_consts if inspect.iscode(each))
"""By which our own wrapper is told from another around it, which has taken over its attributes."""
