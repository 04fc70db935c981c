"""A study that waits before its first value, to be copied for several runs (`forking`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detconf.auditing.forking import serve
from detconf.shadows.study import Study, Value


class _Awaiting(Study):
    """See the module."""

    take: Callable[[str, str], None] | None = None

    def _value(self, *args: Any) -> tuple[Value, Any]:
        take, self.take = self.take, None
        if take is not None:
            serve(take)
        return super()._value(*args)


def study(options: Mapping[str, Any], take: Callable[[str, str], None]) -> Study:
    """A study with `options`.

    Args:
        take: see `forking.serve`.
    """
    found = _Awaiting(**options)
    found.take = take
    return found
