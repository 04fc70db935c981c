"""Where an operation was called: the path of the module, and the line of the user's program."""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from detconf.facts import here

_REMEMBERED = 1 << 16
_FOREIGN = tuple(
    os.path.join(root, "") for root in {os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(os.path.dirname(__file__)))}
)
_LIBRARY = f"{os.sep}site-packages{os.sep}"


class Places:
    """Follows the modules that are being called, and links backward operations to their forward ones."""

    def __init__(self) -> None:
        self._calls = threading.local()
        self._forward: OrderedDict[tuple[int, int], tuple[str, str]] = OrderedDict()
        self._ends = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave, always_call=True)]

    def end(self) -> None:
        """Stop following."""
        for each in self._ends:
            each.remove()

    def here(self) -> tuple[str, str]:
        """(scope, source) of the operation at hand. One of a backward pass stands where its forward operation did."""
        node = torch._C._current_autograd_node()
        if node is not None:
            scope, source = self._forward.get((threading.get_ident(), node._sequence_nr()), ("", ""))
            return f"{scope} {node.name()}".strip(), source or _source()
        found = (self._scope(), _source())
        if torch.is_grad_enabled():
            # The node of this operation, if it has one, took the last number; one without must not take its place.
            self._forward.setdefault((threading.get_ident(), torch._C._autograd._get_sequence_nr() - 1), found)
            if len(self._forward) > _REMEMBERED:
                self._forward.popitem(last=False)
        return found

    def _stack(self) -> list[tuple[Any, str]]:
        if not hasattr(self._calls, "stack"):
            self._calls.stack, self._calls.names = [], {}
        return self._calls.stack  # type: ignore[no-any-return]

    def _scope(self) -> str:
        stack = self._stack()
        return stack[-1][1] if stack else ""

    def _enter(self, module: Any, _inputs: Any) -> None:
        stack = self._stack()
        if not stack:
            self._calls.names = {id(each): name for name, each in module.named_modules()}
        stack.append((module, self._calls.names.get(id(module)) or type(module).__name__))

    def _leave(self, module: Any, _inputs: Any, _result: Any) -> None:
        stack = self._stack()
        while stack and stack.pop()[0] is not module:  # a forward that raised left its own behind
            pass


def _source() -> str:
    """ "train.py:12" of the innermost frame that belongs to neither PyTorch, nor detconf, nor an installed package."""
    frame: Any = sys._getframe(2)
    outer = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((*_FOREIGN, "<frozen")):
            line = f"{_short(file)}:{frame.f_lineno}"
            if _LIBRARY not in file:
                return line
            outer = outer or line
        frame = frame.f_back
    return outer


def _short(file: str) -> str:
    root = here()
    return os.path.relpath(file, root) if root and file.startswith(root + os.sep) else os.path.basename(file)
