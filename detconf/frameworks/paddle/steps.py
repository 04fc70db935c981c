"""When an optimizer of paddle has made a step. Paddle has no hook for it, so the methods themselves are wrapped.

A static program makes a step where it runs and holds an operation of an optimizer; `minimize` only builds it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from detconf.frameworks.paddle.operations import OPTIMIZERS
from detconf.lookup import loaded

_METHODS = ("step", "minimize")
_RUN = "_run_pir_impl"


def watch(callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback()` after each step of any optimizer whose class exists by now, and of static programs.

    Returns what ends that.
    """
    ends = (watch_optimizers(lambda _optimizer: callback()), _watch_programs(callback))

    def end() -> None:
        for each in reversed(ends):
            each()

    return end


def _watch_programs(callback: Callable[[], None]) -> Callable[[], None]:
    executor = vars(loaded("paddle")).get("static") and loaded("paddle.base.executor").Executor
    plain = executor and vars(executor).get(_RUN)
    if plain is None:
        return lambda: None
    on = [True]
    known: WeakKeyDictionary[Any, tuple[int, bool]] = WeakKeyDictionary()

    @functools.wraps(plain)
    def run(self: Any, program: Any, *args: Any, **kwargs: Any) -> Any:
        result = plain(self, program, *args, **kwargs)
        if on[0] and _steps(program, known):
            callback()
        return result

    setattr(executor, _RUN, run)

    def end() -> None:
        on[0] = False  # as below
        if vars(executor)[_RUN] is run:
            setattr(executor, _RUN, plain)

    return end


def _steps(program: Any, known: WeakKeyDictionary[Any, tuple[int, bool]]) -> bool:
    """Does a program hold an operation of an optimizer?"""
    paddle = loaded("paddle")
    program = program if program is not None else paddle.static.default_main_program()
    if not isinstance(program, paddle.pir.Program):
        return False
    operations = program.global_block().ops
    size, found = known.get(program, (-1, False))
    if size != len(operations):
        found = any(each.name().rpartition(".")[2] in OPTIMIZERS for each in operations)
        known[program] = len(operations), found
    return found


def watch_optimizers(callback: Callable[[Any], None], earlier: Callable[[Any], None] | None = None) -> Callable[[], None]:
    """Call `callback(optimizer)` after each step in a dynamic graph of any optimizer whose class exists by now.

    And `earlier(optimizer)` before it. Returns what ends that.

    A step that makes another (LookAhead, `super().step()`, `minimize` in a dynamic graph) counts once.
    """
    state = {"depth": 0, "on": 1}

    def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def step(*args: Any, **kwargs: Any) -> Any:
            if earlier and state["on"] and not state["depth"] and loaded("paddle").in_dynamic_mode():
                earlier(args[0])
            state["depth"] += 1
            try:
                result = method(*args, **kwargs)
            finally:
                state["depth"] -= 1
            if state["on"] and not state["depth"] and loaded("paddle").in_dynamic_mode():
                callback(args[0])
            return result

        return step

    # Every subclass that has a method of its own: Adam and AdamW do not call their parent's.
    found = [
        (kind, name, vars(kind)[name])
        for kind in dict.fromkeys(kinds(loaded("paddle").optimizer.Optimizer))
        for name in _METHODS
        if name in vars(kind)
    ]
    ours = [(kind, name, before, wrapped(before)) for kind, name, before in found]
    for kind, name, _, after in ours:
        setattr(kind, name, after)

    def end() -> None:
        state["on"] = 0  # where someone has wrapped ours meanwhile, it stays below and does nothing
        for kind, name, before, after in ours:
            if vars(kind)[name] is after:
                setattr(kind, name, before)

    return end


def kinds(kind: type[Any]) -> Iterator[type]:
    yield kind
    for below in kind.__subclasses__():
        yield from kinds(below)
