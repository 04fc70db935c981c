"""A study that waits before it is first told or asked anything, to be copied for several runs (`forking`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detconf.auditing.assertions.forking import serve
from detconf.shadows.study import Study, Value


class _Awaiting(Study):
    """See the module."""

    take: Callable[[str, str], None] | None = None

    def _wait(self) -> None:
        take, self.take = self.take, None
        if take is not None:
            serve(take)

    def leaf(self, *args: Any, **options: Any) -> tuple[Value, Any]:
        self._wait()
        return super().leaf(*args, **options)

    def operation(self, *args: Any, **options: Any) -> list[tuple[Value, Any]]:
        self._wait()
        return super().operation(*args, **options)

    def altered(self) -> Mapping[str | int, Any]:
        self._wait()
        return super().altered()

    def drawing(self, fixed: Any) -> Any:
        self._wait()
        return super().drawing(fixed)


def study(options: Mapping[str, Any], take: Callable[[str, str], None]) -> Study:
    """A study with `options`.

    Args:
        take: see `forking.serve`.
    """
    found = _Awaiting(**options)
    found.take = take
    return found
