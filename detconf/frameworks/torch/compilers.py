"""How each rung makes a callable of a program: one function per rung. Compilers by their public entry, with options per call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
import torch._dynamo.utils

from detconf.frameworks.replaced import replaced
from detconf.frameworks.rungs import Missing, Refused, Settings
from detconf.frameworks.torch.inference import Inference, freezing, frozen, require_evaluation
from detconf.lookup import first_line

OWN = frozenset(("decompositions", "folding", "inference"))
"""Settings that are no keys of inductor's configuration."""
COMPILED = ("dynamo", "aot_eager", "decomposed", "inductor", "lite", "freezing", "max-autotune")
"""Rungs for which dynamo makes graphs."""
LOWERED = ("inductor", "lite", "freezing", "max-autotune")
"""Those that inductor makes code for."""
_MODES = {"lite": "lite", "max-autotune": "max-autotune-no-cudagraphs"}
"""rung -> `mode` of `torch.compile`. CUDA graphs replay the same kernels, and overwrite results that are to be compared."""
_TWO = "pass a module or a function of the inputs, and inputs"
Inputs = tuple[Sequence[Any], Mapping[str, Any]] | None


def graphs_seen() -> tuple[int, int]:
    """(graphs that dynamo made since its counters were cleared, places where it broke one)."""
    counters = torch._dynamo.utils.counters
    return int(counters["stats"].get("unique_graphs", 0)), sum(counters["graph_break"].values())


def make(rung: str, function: Any, given: Inputs, settings: Settings) -> Any:
    """What runs `function` on a rung.

    Args:
        function: a module or function.
        given: inputs to capture with, by position and by name; None for a function without any.
        settings: keys of inductor's configuration, and those of `OWN`.

    Raises:
        Missing: this build lacks it.
        Refused: a program of this kind cannot be captured so.
    """
    return _MAKERS[rung](function, given, settings)


def _eager(function: Any, _given: Inputs, _settings: Settings) -> Any:
    return function


def _by_backend(function: Any, _given: Inputs, _settings: Settings, *, backend: str) -> Any:
    if backend not in torch._dynamo.list_backends(None):
        msg = f"torch.compile has no backend {backend!r} here"
        raise Missing(msg)
    return torch.compile(function, backend=backend)


def _decomposed(function: Any, given: Inputs, settings: Settings) -> Any:
    if "decompositions" in settings:
        return _by_backend(function, given, {}, backend="aot_eager")
    _by_backend(function, given, {}, backend="aot_eager_decomp_partition")
    inner = torch._dynamo.lookup_backend("aot_eager_decomp_partition")
    options = options_of("decomposed", settings)

    def backend(graph: Any, inputs: Any) -> Any:
        # decompositions are chosen by the configuration, which this backend takes no options for
        with torch._inductor.config.patch(options):
            return inner(graph, inputs)

    return torch.compile(function, backend=backend)


def _inductor(function: Any, _given: Inputs, settings: Settings, *, rung: str = "inductor") -> Any:
    from torch._inductor import compile_fx

    options = options_of(rung, settings)
    if "decompositions" not in settings:
        return torch.compile(function, options=options) if options else torch.compile(function)
    if "decompositions" not in inspect.signature(compile_fx.compile_fx).parameters:
        msg = "compile_fx takes no decompositions here"
        raise Missing(msg)
    return torch.compile(function, backend=functools.partial(compile_fx.compile_fx, decompositions={}, config_patches=options))


def options_of(rung: str, settings: Settings) -> dict[str, Any]:
    """Keys of inductor's configuration: those of the rung's mode, and the settings that are its own.

    Raises:
        Missing: it has no such key or mode here.
    """
    import torch._inductor.config as known

    options = {name: value for name, value in settings.items() if name not in OWN}
    for name in options:
        if not hasattr(known, name):
            msg = f"torch._inductor.config has no {name}"
            raise Missing(msg)
    return _mode(_MODES[rung]) | options if rung in _MODES else options


def _mode(mode: str) -> dict[str, Any]:
    modes = torch._inductor.list_mode_options()
    if mode not in modes:
        msg = f'torch.compile has no mode "{mode}"'
        raise Missing(msg)
    return dict(modes[mode])


def _freezing(function: Any, given: Inputs, settings: Settings) -> Any:
    require_evaluation("freezing", function, given)
    compiled = _inductor(function, given, settings, rung="freezing")
    return Inference(compiled, function, functools.partial(freezing, settings))


def _optimized(function: Any, given: Inputs, settings: Settings) -> Any:
    require_evaluation("optimize_for_inference", function, given)
    graph = frozen(_script(function, given, settings), folds=settings.get("folding") != "off")
    if settings.get("inference") != "off":
        graph = torch.jit.optimize_for_inference(graph)
    return Inference(graph, function)


def _captured_with(rung: str, given: Inputs) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if given is None:
        msg = f"{rung} needs inputs to capture with: {_TWO}"
        raise Refused(msg)
    return given


def _export(function: Any, given: Inputs, _settings: Settings) -> Any:
    args, kwargs = _captured_with("export", given)
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


def _trace(function: Any, given: Inputs, _settings: Settings) -> Any:
    args, kwargs = _captured_with("trace", given)
    if kwargs and args:
        msg = "trace takes inputs either by position or by name"
        raise Refused(msg)
    # The tracer's own check would draw from generators, and compares within a tolerance. Strict, it takes no mappings.
    if kwargs:
        return torch.jit.trace(function, example_kwarg_inputs=dict(kwargs), check_trace=False, strict=False)
    return torch.jit.trace(function, tuple(args), check_trace=False, strict=False)


def _script(function: Any, given: Inputs, _settings: Settings) -> Any:
    _captured_with("script", given)
    try:
        with _scripted_anew():
            return torch.jit.script(function)
    except Exception as error:  # whatever the compiler of that subset of Python says
        msg = f"torch.jit.script does not take it: {first_line(error)}"
        raise Refused(msg) from error


@contextmanager
def _scripted_anew() -> Iterator[None]:
    """TorchScript keeps code per type and function, with what it optimized after the first call: not what other runs left, or ours."""
    with ExitStack() as stack:
        with suppress(Exception):  # private parts, as in 2.13: elsewhere code is shared
            recursive = torch.jit._recursive
            stack.enter_context(replaced(recursive, "concrete_type_store", type(recursive.concrete_type_store)()))
            stack.enter_context(replaced(torch.jit._state, "_jit_caching_layer", {}))
        yield


_MAKERS: Mapping[str, Callable[[Any, Inputs, Settings], Any]] = {
    "eager": _eager,
    "dynamo": functools.partial(_by_backend, backend="eager"),
    "aot_eager": functools.partial(_by_backend, backend="aot_eager"),
    "decomposed": _decomposed,
    "inductor": _inductor,
    "lite": functools.partial(_inductor, rung="lite"),
    "export": _export,
    "trace": _trace,
    "script": _script,
    "freezing": _freezing,
    "optimize_for_inference": _optimized,
    "max-autotune": functools.partial(_inductor, rung="max-autotune"),
}
