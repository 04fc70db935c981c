"""Layers in evaluation mode in an unmodified program: a variable that detconf's sitecustomize acts on. For experiments of the verifier."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from detconf.frameworks import frameworks
from detconf.frameworks.base import Framework, Modes
from detconf.launch import INJECT
from detconf.lookup import finished, is_imported, resolve

VARIABLE = "DETCONF_EVALUATE"
"""A folder; each process says there, in a file of its own, whether it called backward."""
_TRAINED, _NOT = "trained", "inferred"


def environment(base: Mapping[str, str], folder: str) -> dict[str, str]:
    """`base` with the variables that make a child, and its children, run every layer in evaluation mode."""
    others = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry not in ("", INJECT)]
    return {**base, "PYTHONPATH": os.pathsep.join([INJECT, *others]), VARIABLE: folder}


def trained(folder: str) -> bool | None:
    """Did any process that was told so call backward? None where none came to its end, or that cannot be told."""
    said = {name.partition(".")[0] for name in os.listdir(folder)}
    return None if not said & {_TRAINED, _NOT} else _TRAINED in said


def start_from_environment() -> None:
    """Overrule training mode from now on; called by detconf's sitecustomize."""
    seen, stack = Modes(), ExitStack()  # never closed: for the life of this process
    atexit.register(_say, seen, stack, os.environ[VARIABLE])
    for each in frameworks():
        if each.modes and is_imported(each.module):
            _overrule(each, seen, stack)
        elif each.modes:
            from wrapt import register_post_import_hook  # only where something is awaited

            register_post_import_hook(partial(_arrived, each, seen, stack), each.module)


def _arrived(framework: Framework, seen: Modes, stack: ExitStack, module: Any) -> None:
    finished(module.__name__)
    _overrule(framework, seen, stack)


def _overrule(framework: Framework, seen: Modes, stack: ExitStack) -> None:
    stack.enter_context(resolve(framework.modes)(seen, evaluate=True))


def _say(seen: Modes, _stack: ExitStack, folder: str) -> None:
    with open(os.path.join(folder, f"{_TRAINED if seen.trained else _NOT}.{os.getpid()}"), "wb"):
        pass
