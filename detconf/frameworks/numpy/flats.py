"""`x.flat` of a followed array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from detconf.frameworks.numpy import followed


class Flat:
    """`x.flat` of a followed array: reads and writes are seen."""

    def __init__(self, array: Any) -> None:
        self.base = array
        self._next = 0
        self._plain = followed.plain_view(array, np.ndarray).flat

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def __len__(self) -> int:
        return len(self._plain)

    def __iter__(self) -> Iterator[Any]:
        self._next = 0
        return self

    def __next__(self) -> Any:
        if self._next >= len(self):
            raise StopIteration
        self._next += 1
        return self[self._next - 1]

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self._plain.__array__(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        found = followed.following
        if found is None or not found.ready():
            return self._plain[key]
        return found.getitem(found.method("reshape", np.ndarray.reshape, (self.base, -1), {}), key)

    def __setitem__(self, key: Any, value: Any) -> None:
        found = followed.following
        if found is None or not found.ready():
            self._plain[key] = followed.plain(value, {})
        else:
            found.set_flat(self.base, key, value)
