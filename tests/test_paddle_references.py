"""Replacing functions in Paddle's modules: all of them, again and again, and back to the last one."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from detconf.frameworks.paddle.references import References  # noqa: E402  # after the skip


def _ours(*_: Any) -> None:
    """Stands in."""


def test_every_place_is_found_again_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a place that came to hold the function, or what replaced it, since the last time, in a module as large as before."""
    plain = paddle._C_ops.tanh
    module: Any = types.ModuleType("paddle.detconf_test")
    module.first, module.second, module.third = plain, None, None
    monkeypatch.setitem(sys.modules, module.__name__, module)
    table = {id(plain): (plain, _ours)}
    for _ in range(3):
        references = References()
        references.put(table)
        assert paddle._C_ops.tanh is _ours
        assert module.first is _ours
        module.second, module.third = module.first, module.third or plain
        references.back()
        assert paddle._C_ops.tanh is plain
        assert (module.first, module.second, module.third) == (plain, plain, plain)
        module.second = None


def test_what_others_put_there_meanwhile_stays() -> None:
    """A function that somebody wrapped while ours was in force is theirs."""
    plain = paddle._C_ops.tanh
    references = References()
    references.put({id(plain): (plain, _ours)})

    def theirs(*_: Any) -> None:
        """Theirs."""

    paddle._C_ops.tanh = theirs
    references.back()
    assert paddle._C_ops.tanh is theirs
    paddle._C_ops.tanh = plain
