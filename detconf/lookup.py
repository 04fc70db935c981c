"""Finding things in this process without importing anything: attributes of loaded modules, mapped libraries.

Paths are strings ("torch.backends.cudnn:benchmark"), so that a table of knobs imports no framework; they are resolved
through `sys.modules` only, because a framework that nobody imported cannot be in play.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

from detconf.values import Value


class NotLoaded(Exception):
    """The module that holds a control is not imported yet."""


class Missing(Exception):
    """The control does not exist in this build."""


def resolve(path: str) -> Any:
    """The object at "module:attr.attr".

    Only our own modules are imported; any other must be in `sys.modules` already.

    Raises:
        NotLoaded: the module is not imported (or still being imported).
        Missing: the module has no such attribute.
    """
    module_name, _, attributes = path.partition(":")
    module = import_module(module_name) if module_name.startswith("detconf.") else loaded(module_name)
    found: Any = module
    for name in attributes.split("."):
        if not hasattr(found, name):
            msg = f"{module_name} has no {attributes} in this build"
            raise Missing(msg)
        found = getattr(found, name)
    return found


_finished: set[str] = set()


def finished(name: str) -> None:
    """Take note that `name` is imported: its post-import hook runs while importlib still calls it initializing."""
    _finished.add(name)


def loaded(name: str) -> Any:
    """The imported module `name`.

    Raises:
        NotLoaded: not imported, or in the middle of being imported.
        Missing: its top-level package is imported and has no such submodule.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and (name in _finished or not getattr(spec, "_initializing", False)):
        return module
    parent = sys.modules.get(name.partition(".")[0])
    folders = getattr(parent, "__path__", None)
    tail = name.split(".")[1:]
    if module is None and folders and tail and not _on_disk(folders, tail):
        msg = f"there is no {name} in this build"
        raise Missing(msg)
    raise NotLoaded(name)


def is_imported(name: str) -> bool:
    """Is the module `name` there, whole?"""
    try:
        return loaded(name) is not None
    except (NotLoaded, Missing):
        return False


def assign(path: str, value: Value) -> None:
    """Assign the attribute at "module:attr.attr"; same errors as `resolve`."""
    module, _, attributes = path.partition(":")
    owner, _, name = attributes.rpartition(".")
    setattr(resolve(f"{module}:{owner}") if owner else loaded(module), name, value)


def _on_disk(folders: Sequence[str], tail: Sequence[str]) -> bool:
    # importlib's find_spec would import the parent packages, which is what must not happen here.
    stems = [os.path.join(folder, *tail) for folder in folders]
    return any(os.path.isdir(stem) or os.path.isfile(stem + ".py") for stem in stems)


def mapped(prefixes: Sequence[str]) -> Iterator[str]:
    """Paths of the shared libraries in this process whose file name starts with one of `prefixes`.

    Raises:
        OSError: no /proc on this system.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        lines = maps.read().splitlines()
    # A library has several lines; each path is looked at once. This is asked dozens of times, of thousands of lines.
    for path in dict.fromkeys(line[line.index("/") :] for line in lines if "/" in line):
        if path[path.rindex("/") + 1 :].startswith(tuple(prefixes)):
            yield path


def in_fork(function: Callable[[], Value], seconds: float = 10) -> Value:
    """`function()` as a forked copy of this process answers it; None without fork, or when the copy fails or hangs.

    For questions that change the process that asks them. The copy calls one function and leaves by `os._exit`.
    """
    if not hasattr(os, "fork"):
        return None
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of forking with threads; the copy starts none
        child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], seconds)
        text = os.read(reader, 65536) if ready else b""
    finally:
        os.close(reader)
        if not text:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return json.loads(text) if text else None


def first_line(error: BaseException) -> str:
    """The type and first line of an error, short enough for a table."""
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}"[:200]
