"""Operations of which a framework itself warns that they are not deterministic, counted at every call.

Python shows a warning once per place and then no longer asks anyone, and what C code raises never passes
`warnings.warn`. Every occurrence passes the list of filters, though, as long as the answer is "always" or "ignore".
So two filters stand first in that list: they count, and answer what the user's own filters would have answered.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import threading
import warnings
from collections import Counter
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

from detconf.facts import here
from detconf.frameworks import frameworks

_HERE = os.path.dirname(os.path.abspath(__file__))
_INSTALLED = tuple({os.path.join(path, "") for key, path in sysconfig.get_paths().items() if key in ("stdlib", "purelib", "platlib")})


class Place(NamedTuple):
    """An operation and the line of the user's program that called it."""

    framework: str
    operation: str
    source: str


class Warned:
    """Counts from `begin` to `end`. Does not swallow a warning and shows none that would not have been shown."""

    def __init__(self) -> None:
        self.counts: Counter[Place] = Counter()
        self._lock = threading.Lock()
        self._verdict = threading.local()
        self._folder = here()
        self._admits = [(each, re.compile(pattern)) for each in frameworks() for pattern in each.admits]
        self._own = tuple((action, _Matcher(self, action), Warning, None, 0) for action in ("always", "ignore"))
        self._replaced: list[Any] | None = None

    def begin(self) -> None:
        """Start to count."""
        self._replaced = warnings.filters  # type: ignore[assignment]  # a list, which is what C code reads
        warnings.filters = _Filters(self._own, warnings.filters)
        with warnings.catch_warnings():  # makes Python forget what it has shown: what is known there, it does not ask about
            pass

    def end(self) -> None:
        """Leave the filters as if nothing had been there, with what others did to them meanwhile."""
        before, self._replaced = self._replaced, None  # a copy that someone kept, and puts back later, does nothing from here on
        if before is not None and isinstance(warnings.filters, _Filters):
            before[:] = self._others()
            warnings.filters = before

    def forget(self) -> None:
        """Start from nothing, in a process that was forked."""
        self.counts, self._lock = Counter(), threading.Lock()

    def verdict(self, text: str) -> str:
        """Count `text` if a framework admits something in it. The user's answer: "always", "ignore" or neither."""
        found = next(((each, match[1]) for each, pattern in self._admits if (match := pattern.search(text))), None)
        if found is None or self._replaced is None:
            return ""
        frame = sys._getframe(2)  # noqa: SLF001  # the frame to which Python attributes the warning
        with self._lock:
            self.counts[Place(found[0].name, found[1], self._source(frame, found[0].module))] += 1
        return _answer(text, frame, self._others())

    def _others(self) -> list[Any]:
        """The filters without ours."""
        return [item for item in list[Any](warnings.filters) if item not in self._own]

    def _source(self, frame: FrameType, module: str) -> str:
        """The user's line: the nearest that is neither the framework's nor of an installed package, if there is one."""
        framework = tuple(os.path.join(path, "") for path in getattr(sys.modules.get(module), "__path__", ()))
        outside = None
        walk: FrameType | None = frame
        while walk:
            file = walk.f_code.co_filename
            if not file.startswith((*framework, _HERE, "<frozen ")):
                outside = outside or walk
                if not file.startswith(_INSTALLED):
                    return self._spell(walk)
            walk = walk.f_back
        return self._spell(outside or frame)

    def _spell(self, frame: FrameType) -> str:
        """A path that can be mailed: below the working directory as it is, elsewhere the name alone."""
        file = os.path.abspath(frame.f_code.co_filename) if os.path.isfile(frame.f_code.co_filename) else frame.f_code.co_filename
        inside = self._folder and file.startswith(os.path.join(self._folder, ""))
        return f"{os.path.relpath(file, self._folder) if inside else os.path.basename(file)}:{frame.f_lineno}"


class _Matcher:
    """Stands where a filter has the regular expression for its message. The first of the two asks, both answer."""

    def __init__(self, owner: Warned, action: str) -> None:
        self.owner = owner
        self.action = action

    def match(self, text: str) -> bool:
        memory = self.owner._verdict  # noqa: SLF001  # one object in three parts
        if self.action == "always":
            memory.answer = self.owner.verdict(text)
        return bool(getattr(memory, "answer", "") == self.action)


def _answer(text: str, frame: FrameType, filters: Iterable[Any]) -> str:
    """What Python would do next by `filters`, with its own memory of what it has shown."""
    module = str(frame.f_globals.get("__name__") or "<unknown>")
    action: str = next((item[0] for item in filters if _matches(item, text, module, frame.f_lineno)), warnings.defaultaction)  # type: ignore[attr-defined]
    if action in ("always", "ignore", "error", "all"):
        return {"all": "always", "error": ""}.get(action, action)
    # Python empties this dictionary whenever a filter changes, and its own entries with it.
    shown = warnings.onceregistry if action == "once" else frame.f_globals.setdefault("__warningregistry__", {})  # type: ignore[attr-defined]
    key = ("detconf", text, frame.f_lineno if action == "default" else 0)
    if key in shown:
        return "ignore"
    shown[key] = True
    return "always"


def _matches(item: tuple[Any, ...], text: str, module: str, line: int) -> bool:
    _, message, category, module_pattern, wanted = item
    return (
        (message is None or (message == text if isinstance(message, str) else bool(message.match(text))))
        and issubclass(UserWarning, category)
        and (
            module_pattern is None or (module_pattern == module if isinstance(module_pattern, str) else bool(module_pattern.match(module)))
        )
        and wanted in (0, line)
    )


class _Filters(list[Any]):
    """The list of filters, which keeps two of its items first whatever is inserted, copied or emptied."""

    def __init__(self, own: tuple[Any, ...], others: Iterable[Any]) -> None:
        super().__init__((*own, *(item for item in others if item not in own)))
        self.own = own

    def insert(self, index: Any, item: Any) -> None:
        super().insert(index if index < 0 else index + len(self.own), item)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return _Filters(self.own, found) if isinstance(index, slice) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        if isinstance(index, slice):
            super().__setitem__(slice(None), (*self.own, *(item for item in self if item not in self.own)))
