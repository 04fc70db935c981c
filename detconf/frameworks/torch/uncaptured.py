"""Graph capture as an experiment: a program run without it, captured anew at each call, or compiled under other settings.

For audits. Nothing here judges: it only says what was captured, and runs the program in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from wrapt import register_post_import_hook

from detconf.frameworks.base import Captured, Remedy
from detconf.frameworks.replaced import replaced, replaced_everywhere
from detconf.frameworks.torch.capturers import CAPTURERS, captured_anew, present, uncaptured
from detconf.frameworks.torch.steps import watch as watch_steps
from detconf.lookup import is_imported, loaded
from detconf.values import Cause

_CONFIG = "torch._inductor.config"
_DYNAMO = "torch._dynamo.config"


@contextmanager
def watch(seen: Captured) -> Iterator[None]:
    """Note what is captured, and how often a saved state is loaded."""
    torch = loaded("torch")
    with ExitStack() as stack:
        capturers = ((torch, "compile"), *present(CAPTURERS))
        noting = ((owner, name, _noting(getattr(owner, name), f"{owner.__name__}.{name}", seen)) for owner, name in capturers)
        stack.enter_context(replaced_everywhere(*noting))
        steps: list[None] = []
        stack.callback(watch_steps(lambda: steps.append(None)))
        schedules = _kinds(torch.optim.lr_scheduler.LRScheduler)
        for kind in (torch.nn.Module, torch.optim.Optimizer, *(each for each in schedules if "load_state_dict" in vars(each))):
            stack.enter_context(replaced(kind, "load_state_dict", _counting(vars(kind)["load_state_dict"], seen, steps)))
        yield
        if is_imported("torch._dynamo.utils") and loaded("torch._dynamo.utils").counters["frames"]["total"]:
            seen.names.add("torch.compile")  # before this run, perhaps; a run without it shows whether that matters


@contextmanager
def without() -> Iterator[None]:
    """Compiled, traced, scripted and exported functions run as the Python that they were made from."""
    torch = loaded("torch")
    with ExitStack() as stack:
        stack.enter_context(uncaptured())
        if hasattr(torch.compiler, "set_stance"):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


@contextmanager
def anew() -> Iterator[None]:
    """What is traced or exported is so again at each call, on the arguments of that call."""
    with captured_anew(), _compiled_with({}):
        yield


def disturbed(seed: int, units: float) -> AbstractContextManager[None]:
    """What an operation computes is off by about `units` roundings, at random."""
    from detconf.frameworks.torch.disturbing import disturbing  # only where it is asked for

    return disturbing(seed, units)


def remedies() -> tuple[Remedy, ...]:
    """Settings of the compiler that take one kind of difference away; none before it has been used."""
    return REMEDIES if is_imported(_CONFIG) else ()


@contextmanager
def _compiled_with(settings: dict[str, Any], config: str = _CONFIG) -> Iterator[None]:
    """Everything is compiled again, under these settings; and once more after the block. The compiler may come in the block only."""
    dynamo = loaded("torch._dynamo") if is_imported("torch._dynamo") else None
    with ExitStack() as stack:
        if dynamo:
            stack.callback(dynamo.reset)
            dynamo.reset()
        if settings:
            inside = [stack]
            stack.callback(inside.clear)
            register_post_import_hook(partial(_set, settings, inside), config)
        yield


def _set(settings: dict[str, Any], inside: list[ExitStack], config: Any) -> None:
    for stack in inside:
        stack.enter_context(config.patch({key: value for key, value in settings.items() if hasattr(config, key)}))


def _remedy(words: str, cause: Cause, config: str = _CONFIG, **settings: bool) -> Remedy:
    return Remedy(words, cause, lambda: _compiled_with(settings, config))


REMEDIES = (
    _remedy("torch._inductor.config.fallback_random = True", Cause.RNG, fallback_random=True),
    _remedy("torch._inductor.config.emulate_precision_casts = True", Cause.DTYPE, emulate_precision_casts=True),
    _remedy(
        "torch._inductor.config.fallback_random = True and emulate_precision_casts = True",
        Cause.RNG,
        fallback_random=True,
        emulate_precision_casts=True,
    ),
    # Dynamo takes NumPy's functions for torch's, which draw from torch's generator.
    _remedy("torch._dynamo.config.use_numpy_random_stream = True", Cause.RNG, _DYNAMO, use_numpy_random_stream=True),
)


def _noting(plain: Callable[..., Any], name: str, seen: Captured) -> Callable[..., Any]:
    def noting(*args: Any, **kwargs: Any) -> Any:
        seen.names.add(name)
        return plain(*args, **kwargs)

    return noting


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _counting(plain: Callable[..., Any], seen: Captured, steps: Sized) -> Callable[..., Any]:
    def counting(*args: Any, **kwargs: Any) -> Any:
        seen.loads(trained=len(steps) > 0)
        return plain(*args, **kwargs)

    return counting
