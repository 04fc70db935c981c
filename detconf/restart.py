"""Starting this interpreter again with another environment, where that loses nothing."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping

from detconf import facts
from detconf.commandline import become, invocation

MARK = "DETCONF_RESTARTED"
"""Holds the number of the process that was started again: it stays the same process, its children are others."""


def _restarted() -> bool:
    return os.environ.get(MARK) == str(os.getpid())


def _embedded() -> bool:
    return not (sys.orig_argv and sys.executable and os.path.isfile(sys.executable)) or getattr(sys, "frozen", False)


def _in_notebook() -> bool:
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return ask is not None and ask() is not None


def _at_prompt() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive or sys.flags.inspect)


def _in_tests() -> bool:
    running = any(name in os.environ for name in ("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST_WORKER"))
    return "pytest" in sys.modules and (running or "pytest" in os.path.basename(sys.argv[0]) or _main_name().startswith("pytest"))


def _main_name() -> str:
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "") or ""


def _in_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _is_copy() -> bool:
    """Was this process forked from a program with the same command line, rather than started by it?"""
    try:
        with open("/proc/self/cmdline", "rb") as own, open(f"/proc/{os.getppid()}/cmdline", "rb") as parents:
            return own.read() == parents.read()
    except OSError:
        return False


def _has_children() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and bool(process.active_children())


def _is_rank() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ or (facts.rank() is not None and (facts.world_size() or 1) > 1)


def _read_from_input() -> bool:
    called = invocation(sys.orig_argv)
    return called.options[-1:] not in ("c", "m") and called.program[:1] in ((), ("-",))


def _moved() -> bool:
    program = invocation(sys.orig_argv).program
    return bool(program) and not os.path.exists(program[0])


def _threaded() -> bool:
    own, main = threading.current_thread(), threading.main_thread()
    return own is not main or any(each is not own and not each.daemon for each in threading.enumerate())


_OBSTACLES: tuple[tuple[Callable[[], bool], str], ...] = (
    (_restarted, "it was restarted once already, and that did not help"),
    (_embedded, "Python runs inside another program here, which cannot be started again"),
    (_in_notebook, "this is IPython or a notebook, which would lose its kernel and everything in it"),
    (_in_tests, "pytest is running, which would lose its results"),
    (_in_child, "this is a child process of multiprocessing, whose parent waits for it"),
    (_is_rank, "this is one rank of several, and the others wait for it"),
    (_at_prompt, "this is an interactive session, which would lose everything in it"),
    (_read_from_input, "the program came from standard input and cannot be read twice"),
    (_moved, "the working folder has changed since the start, and the script is not found from here"),
    (_is_copy, "this process was forked from another one with the same command line"),
    (_threaded, "other threads are at work"),
    (_has_children, "child processes are at work"),
)


def obstacle() -> str:
    """Why starting again would do harm or no good, in words; empty where nothing speaks against it."""
    return next((reason for found, reason in _OBSTACLES if found()), "")


def restart(environment: Mapping[str, str]) -> str:
    """Start this interpreter again, with the options, program and arguments that it had, and `environment`.

    What was printed is flushed; exit handlers do not run. Returns only where it could not be done: why.
    """
    try:
        code = become([sys.executable, *sys.orig_argv[1:]], {**environment, MARK: str(os.getpid())})
    except (OSError, ValueError) as error:
        return str(error)
    sys.exit(code)
