"""How each rung makes a callable of a program: one function per rung. Compilers by their public entry, with options per call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo.utils

from detconf.frameworks.rungs import Settings

OWN = frozenset(("decompositions",))
"""Settings that are no keys of inductor's configuration."""
_TWO = "pass a module or a function of the inputs, and inputs"


class Missing(Exception):
    """This build cannot do that."""


class Refused(Exception):
    """A program of this kind has nothing for this rung."""


def graphs_seen() -> tuple[int, int]:
    """(graphs that dynamo made since its counters were cleared, places where it broke one)."""
    counters = torch._dynamo.utils.counters
    return int(counters["stats"].get("unique_graphs", 0)), sum(counters["graph_break"].values())


def make(rung: str, function: Any, given: tuple[Sequence[Any], Mapping[str, Any]] | None, settings: Settings) -> Any:
    """What runs `function` on a rung.

    Args:
        function: a module or function.
        given: inputs to capture with, by position and by name; None for a function without any.
        settings: keys of inductor's configuration, and those of `OWN`.

    Raises:
        Missing: this build lacks it.
        Refused: a program of this kind cannot be captured so.
    """
    if rung in _CAPTURES:
        if given is None:
            msg = f"{rung} needs inputs to capture with: {_TWO}"
            raise Refused(msg)
        return _CAPTURES[rung](function, *given)
    return _COMPILERS[rung](function, settings)


def _eager(function: Any, _settings: Settings) -> Any:
    return function


def _by_backend(function: Any, _settings: Settings, *, backend: str) -> Any:
    if backend not in torch._dynamo.list_backends(None):
        msg = f"torch.compile has no backend {backend!r} here"
        raise Missing(msg)
    return torch.compile(function, backend=backend)


def _decomposed(function: Any, settings: Settings) -> Any:
    if "decompositions" in settings:
        return _by_backend(function, {}, backend="aot_eager")
    _by_backend(function, {}, backend="aot_eager_decomp_partition")
    inner = torch._dynamo.lookup_backend("aot_eager_decomp_partition")
    options = options_of(settings)

    def backend(graph: Any, inputs: Any) -> Any:
        # decompositions are chosen by the configuration, which this backend takes no options for
        with torch._inductor.config.patch(options):
            return inner(graph, inputs)

    return torch.compile(function, backend=backend)


def _inductor(function: Any, settings: Settings, *, mode: str = "") -> Any:
    from torch._inductor import compile_fx

    options = _mode(mode) | options_of(settings)
    if "decompositions" not in settings:
        return torch.compile(function, options=options) if options else torch.compile(function)
    if "decompositions" not in inspect.signature(compile_fx.compile_fx).parameters:
        msg = "compile_fx takes no decompositions here"
        raise Missing(msg)
    return torch.compile(function, backend=functools.partial(compile_fx.compile_fx, decompositions={}, config_patches=options))


def options_of(settings: Settings) -> dict[str, Any]:
    """The settings that are inductor's.

    Raises:
        Missing: it has no such key here.
    """
    import torch._inductor.config as known

    options = {name: value for name, value in settings.items() if name not in OWN}
    for name in options:
        if not hasattr(known, name):
            msg = f"torch._inductor.config has no {name}"
            raise Missing(msg)
    return options


def _mode(mode: str) -> dict[str, Any]:
    if not mode:
        return {}
    modes = torch._inductor.list_mode_options()
    if mode not in modes:
        msg = f'torch.compile has no mode "{mode}"'
        raise Missing(msg)
    return dict(modes[mode])


def _export(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if not hasattr(torch, "export"):
        msg = "there is no torch.export"
        raise Missing(msg)
    module = function if isinstance(function, torch.nn.Module) else _Wrapped(function)
    return torch.export.export(module, tuple(args), dict(kwargs)).module()


class _Wrapped(torch.nn.Module):  # type: ignore[misc]  # torch ships no types that we follow
    """A function as a module: export takes nothing else."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def _trace(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if kwargs and args:
        msg = "trace takes inputs either by position or by name"
        raise Refused(msg)
    # The tracer's own check would draw from generators, and compares within a tolerance. Strict, it takes no mappings.
    if kwargs:
        return torch.jit.trace(function, example_kwarg_inputs=dict(kwargs), check_trace=False, strict=False)
    return torch.jit.trace(function, tuple(args), check_trace=False, strict=False)


def _script(function: Any, _args: Sequence[Any], _kwargs: Mapping[str, Any]) -> Any:
    return torch.jit.script(function)


_COMPILERS: Mapping[str, Callable[[Any, Settings], Any]] = {
    "eager": _eager,
    "dynamo": functools.partial(_by_backend, backend="eager"),
    "aot_eager": functools.partial(_by_backend, backend="aot_eager"),
    "decomposed": _decomposed,
    "inductor": _inductor,
    "lite": functools.partial(_inductor, mode="lite"),
}
_CAPTURES: Mapping[str, Callable[..., Any]] = {"export": _export, "trace": _trace, "script": _script}
"""Those that need inputs; "script" is no rung, but a remedy for one."""
