"""`to_static` as an experiment: a program run without it, captured anew at each call, or run under other settings.

For audits. Nothing here judges: it only says what was captured, and runs the program in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from detconf.frameworks.base import Captured, Remedy
from detconf.frameworks.paddle.steps import watch as watch_steps
from detconf.frameworks.replaced import replaced
from detconf.lookup import loaded
from detconf.values import Cause

_TRANSLATOR = "paddle.jit.dy2static.program_translator"


@contextmanager
def watch(seen: Captured) -> Iterator[None]:
    """Note calls of captured functions, and how often a saved state is loaded."""
    paddle, translator = loaded("paddle"), loaded(_TRANSLATOR)
    kinds = _kinds(translator)
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(
                replaced(kind, "__call__", _before(vars(kind)["__call__"], lambda _: seen.names.add("paddle.jit.to_static")))
            )

        steps: list[None] = []
        stack.callback(watch_steps(lambda: steps.append(None)))

        def count(_: Any) -> None:
            seen.loads(trained=len(steps) > 0)

        for kind in (paddle.nn.Layer, paddle.optimizer.Optimizer):
            stack.enter_context(replaced(kind, "set_state_dict", _before(vars(kind)["set_state_dict"], count)))
        yield


@contextmanager
def without() -> Iterator[None]:
    """Captured functions run as the Python that they were made from."""
    paddle, program = loaded("paddle"), loaded(_TRANSLATOR).ProgramTranslator()
    before = program.enable_to_static
    paddle.jit.enable_to_static(False)
    try:
        yield
    finally:
        paddle.jit.enable_to_static(before)


@contextmanager
def anew(*, once: bool = False) -> Iterator[None]:
    """Captured functions are captured again at each call; with `once` at their first call in the block only."""
    translator = loaded(_TRANSLATOR)
    done: set[int] = set()

    def forget(function: Any) -> None:
        cache = getattr(function, "program_cache", None)
        if cache is not None and hasattr(cache, "clear") and id(function) not in done:
            cache.clear()
            if once:
                done.add(id(function))

    with ExitStack() as stack:
        for kind in _kinds(translator):
            stack.enter_context(replaced(kind, "__call__", _before(vars(kind)["__call__"], forget)))
        yield


def disturbed(seed: int, units: float) -> AbstractContextManager[None]:
    """What an operation computes is off by about `units` roundings, at random."""
    from detconf.frameworks.paddle.disturbing import disturbing  # only where it is asked for

    return disturbing(seed, units)


def remedies() -> tuple[Remedy, ...]:
    """Settings that take one kind of difference away."""
    return REMEDIES


@contextmanager
def _flag(name: str, *, value: object) -> Iterator[None]:
    paddle = loaded("paddle")
    before = paddle.get_flags(name)
    paddle.set_flags({name: value})
    try:
        with anew(once=True):
            yield
    finally:
        paddle.set_flags(before)


@contextmanager
def _no_decomposition() -> Iterator[None]:
    core = loaded("paddle.base.core")
    with replaced(core, "_set_prim_all_enabled", lambda *_: None), anew(once=True):
        yield


REMEDIES = (
    Remedy("FLAGS_new_executor_sequential_run = True", Cause.RACE, lambda: _flag("FLAGS_new_executor_sequential_run", value=True)),
    Remedy("without primitive decomposition (core._set_prim_all_enabled(False))", Cause.ROUNDING, _no_decomposition),
)


def _kinds(translator: Any) -> list[Any]:
    names = ("StaticFunction", "ASTStaticFunction", "SymbolicStaticFunction")
    return [kind for kind in (getattr(translator, name, None) for name in names) if kind is not None and "__call__" in vars(kind)]


def _before(plain: Callable[..., Any], act: Callable[[Any], None]) -> Callable[..., Any]:
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        act(self)
        return plain(self, *args, **kwargs)

    return called
