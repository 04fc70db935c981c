"""Keys of torch's config modules (`torch._inductor.config` and its like), for every thread.

Since 2.12 a value that is assigned to a key holds only in the thread that assigned it: it is kept in a ContextVar. A
profile is one for the process, so what is written here is what threads without a value of their own fall back to: the
field that a key's environment variable would have filled (`torch/utils/_config_module.py`). Threads that run already,
threads that start later and pools see it alike, whichever thread imported the module.
"""

from __future__ import annotations

import threading
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any

from detconf.access import Attr
from detconf.lookup import loaded
from detconf.values import Value, same

_MEMORIES = {"_hash_dirty_var": True, "_get_dict_dirty_keys_var": None}
"""By which a thread knows that its copy of a whole module is up to date; what these hold says that it is not. The keys
of compiled graphs in inductor's cache are made from such copies."""


@dataclass(frozen=True)
class Setting(Attr):
    """One key. Before 2.12, and where the fields behind it are not as expected, an attribute like any other."""

    def _fields(self) -> tuple[Any, Any]:
        """(the module that keeps the key, the fields behind it), where values are kept per thread; None, None elsewhere."""
        name, key = self.module, self.path.partition(":")[2]
        entry: Any = getattr(loaded(name), "_config", {}).get(key)
        if getattr(entry, "alias", None):
            name, _, key = entry.alias.rpartition(".")
            entry = getattr(loaded(name), "_config", {}).get(key)
        known = isinstance(getattr(entry, "user_override", None), ContextVar) and hasattr(entry, "env_value_default")
        return (loaded(name), entry) if known else (None, None)

    def holds(self, wanted: Value) -> bool:
        return same(self.read(), wanted) and same(Context().run(self.read), wanted)  # here, and in a new thread

    def write(self, value: Value) -> None:
        self.read()
        module, entry = self._fields()
        if entry is not None:
            _set_common(module, entry, value)
        if not same(self.read(), value):  # this thread has a value of its own
            super().write(value)

    def save(self) -> Any:
        _, entry = self._fields()
        return self.read() if entry is None else (entry.env_value_default, entry.user_override.get(), threading.current_thread())

    def load(self, saved: Any) -> None:
        module, entry = self._fields()
        if entry is None:
            super().write(saved)
        else:
            common, own, thread = saved
            _set_common(module, entry, common)
            if thread is threading.current_thread():
                entry.user_override.set(own)
            elif thread.is_alive() and own is not Context().run(entry.user_override.get):
                msg = f"thread {thread.name!r} had a value of its own, which can be put back only there"
                raise RuntimeError(msg)

    def unchanged(self, saved: Any) -> bool:
        return same(self.save(), saved)


def _set_common(module: Any, entry: Any, value: Any) -> None:
    entry.env_value_default = value
    for name, stale in _MEMORIES.items():
        if hasattr(module, name):
            setattr(module, name, ContextVar(name, default=stale))
