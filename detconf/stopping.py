"""Ending a training cleanly after so many optimizer steps: a variable that detconf's sitecustomize acts on.

The program ends as by `sys.exit(0)`: `finally`, context managers and exit handlers run. It ends where it would begin the
next step (a forward in training mode, a backward, an optimizer), so that what follows the last step in the program is
still done: saving a checkpoint, the learning-rate schedule, an evaluation.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from detconf.errors import DetconfError
from detconf.frameworks import frameworks
from detconf.frameworks.base import Framework
from detconf.lookup import finished, is_imported, resolve

VARIABLE = "DETCONF_STEPS"
"""Number of optimizer steps after which a process under detconf's sitecustomize ends."""


class _Stop:
    """Counts the steps of this process, and ends it.

    Args:
        steps: that are made.
    """

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.armed: list[Callable[[], None]] = []

    def watch(self, framework: Framework) -> None:
        """Count the steps of a framework."""
        resolve(framework.on_step)(self.stepped)

    def stepped(self) -> None:
        """A step has been made."""
        self.left -= 1
        if self.left < 0:  # someone has caught our exception and gone on
            self.end()
        if self.left:
            return
        for each in frameworks():
            if each.on_begin and is_imported(each.module):
                self.armed.append(resolve(each.on_begin)(self.end))

    def end(self) -> None:
        """Leave. What the program does on its way out is no longer looked at."""
        while self.armed:
            self.armed.pop()()
        main = threading.main_thread()
        if threading.current_thread() is not main and main.ident:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main.ident), ctypes.py_object(SystemExit))
        raise SystemExit(0)


def start_from_environment() -> None:
    """Count from now on; called by detconf's sitecustomize.

    Raises:
        DetconfError: the variable has a value that cannot be used.
    """
    text = os.environ[VARIABLE]
    if not (text.isdecimal() and int(text)):
        msg = f"{VARIABLE}: {text!r} is not accepted. Accepted: a number of steps, 1 or more."
        raise DetconfError(msg)
    stop = _Stop(int(text))
    for each in frameworks():
        if not each.on_step:
            continue
        if is_imported(each.module):
            stop.watch(each)
        else:
            from wrapt import register_post_import_hook  # only where something is awaited

            register_post_import_hook(partial(_arrived, stop, each), each.module)


def _arrived(stop: _Stop, framework: Framework, module: Any) -> None:
    finished(module.__name__)
    stop.watch(framework)
