"""What can be verified: a function, "file.py:function", or a command. Finds it, and says what is wrong with it."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import CodeType
from typing import Any

from detconf.errors import TargetError
from detconf.lookup import first_line
from detconf.publishing import record
from detconf.values import suggest

Target = Callable[..., Any] | str | list[str]
"""A function, "file.py:function", or the words of a command."""
ROWS = "DETCONF_ROWS"
"""How many leading rows a function is asked for that takes `rows`; all where it is not set."""
_FORM = "Accepted: a function without arguments, 'file.py:function', or the list of a command's words."


def load_function(target: str) -> Callable[[], Any]:
    """The function that "file.py:function" names.

    The file is loaded as a module of its own name, not as `__main__`, with its folder first on `sys.path`, as Python
    does for a script. Both stay: the function may import more when it runs.

    Raises:
        TargetError: no such file or function, not callable, or the file raises.
    """
    path, _, name = target.rpartition(":")
    if not path or not name:
        msg = f"{target!r} names no function. {_FORM}"
        raise TargetError(msg)
    if not os.path.isfile(path):
        msg = f"{path}: no such file (working folder {os.getcwd()}). {_FORM}"
        raise TargetError(msg)
    module = _load(os.path.abspath(path), path)
    found = getattr(module, name, None)
    if found is None:
        known = [each for each, value in vars(module).items() if inspect.isfunction(value)]
        msg = f"{path} has no function {name!r}.{suggest(name, known)}"
        raise TargetError(msg)
    if not callable(found):
        msg = f"{path}: {name} is a {type(found).__name__}, not a function. {_FORM}"
        raise TargetError(msg)
    function: Callable[[], Any] = found
    return function


class _Source(SourceFileLoader):
    """Compiles a file each time: the cache goes by a time stamp in whole seconds, and would be written beside the file."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _load(path: str, shown: str) -> Any:
    name = os.path.splitext(os.path.basename(path))[0]
    present = sys.modules.get(name)
    if present is not None and getattr(present, "__file__", None) == path:
        return present
    if present is not None:
        name = f"detconf_target_{name}"  # a file may be called as a module that is in use
    if os.path.dirname(path) not in sys.path:
        sys.path.insert(0, os.path.dirname(path))
    loader = _Source(name, path)
    spec = spec_from_loader(name, loader)
    assert spec is not None  # noqa: S101  # a loader was given
    module = sys.modules[name] = module_from_spec(spec)
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        msg = f"{shown} cannot be loaded: {first_line(error)}. A script that does its work at once is verified as a command."
        raise TargetError(msg) from error
    return module


def locate(function: Callable[[], Any]) -> str:
    """The "file.py:function" of a function, for another process.

    Raises:
        TargetError: it does not stand at the top level of a file.
    """
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = inspect.getsourcefile(function) if inspect.isfunction(function) else None
    if not file or not os.path.isfile(file) or getattr(module, name, None) is not function:
        msg = (
            f"{label(function)} cannot be found by another process: it is no function at the top level of a file. Pass 'file.py:function'."
        )
        raise TargetError(msg)
    return f"{file}:{name}"


def label(target: Target) -> str:
    """A target in words."""
    if isinstance(target, str):
        return target
    if callable(target):
        return getattr(target, "__qualname__", None) or type(target).__qualname__
    return " ".join(target)


def takes_rows(function: Callable[..., Any]) -> bool:
    """Does it take an argument `rows`, a slice of the batch that its results follow?"""
    try:
        rows = inspect.signature(function).parameters.get("rows")
    except (TypeError, ValueError):  # built-in functions have none
        return False
    return rows is not None and (rows.default is rows.empty or isinstance(rows.default, slice))


def call(function: Callable[..., Any], rows: slice | None = None) -> None:
    """Run a function and record what it returns; None is no result. `rows`: of a function that takes some; None for all."""
    value = function(rows=rows or slice(None)) if takes_rows(function) else function()
    if value is not None:
        record(value, "returned")
