"""The ground that shadows stand on: where in the program an operation is, and that compiled code runs as it is written."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from detconf.frameworks.source import line
from detconf.frameworks.torch.capturers import uncaptured

_FOREIGN = (os.path.join(os.path.dirname(torch.__file__), ""),)
_REMEMBERED = 1 << 16


class Places:
    """The user's line of each operation; one of a backward pass stands where its forward operation did."""

    def __init__(self) -> None:
        self._forward: OrderedDict[tuple[int, int], str] = OrderedDict()

    def here(self) -> str:
        """ "train.py:12", or empty."""
        node = torch._C._current_autograd_node()
        thread = threading.get_ident()
        if node is not None:
            return self._forward.get((thread, node._sequence_nr())) or line(_FOREIGN)
        found = line(_FOREIGN)
        # Its node, if it has one, took the last number; an operation without one must not take its place.
        self._forward.setdefault((thread, torch._C._autograd._get_sequence_nr() - 1), found)
        if len(self._forward) > _REMEMBERED:
            self._forward.popitem(last=False)
        return found


def eagerly() -> Callable[[], None]:
    """Compiled and traced functions run as they are written; what is in them and in us is not compiled, nor traced."""
    stances: list[Any] = []
    others = ExitStack()
    plain = torch.compile

    def calm() -> None:
        if not stances:
            stances.append(torch.compiler.set_stance("force_eager"))
            stances[0].__enter__()

    @functools.wraps(plain)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if torch.compile is compiled:
            calm()
        return plain(*args, **kwargs)

    def undo() -> None:
        others.close()
        if torch.compile is compiled:
            torch.compile = plain
        if stances:
            stances[0].__exit__(None, None, None)

    if "torch._dynamo" in sys.modules:
        calm()
    # Whoever compiles nothing does not pay for importing Dynamo.
    torch.compile = compiled
    others.enter_context(uncaptured())
    return undo
