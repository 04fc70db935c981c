"""Functions that make a graph of a program: that hand it back as it is, or make a graph anew at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from detconf.frameworks.replaced import replaced_everywhere
from detconf.lookup import is_imported, loaded

CAPTURERS: Mapping[str, tuple[str, ...]] = {
    "torch.jit": ("trace", "script"),
    "torch.fx": ("symbolic_trace",),
    "torch.export": ("export",),
}
"""Module -> its functions that make a graph. `torch.compile` is told by its own stance whether to compile."""
_REFINERS: Mapping[str, tuple[str, ...]] = {"torch.jit": ("freeze", "optimize_for_inference")}
"""Those that make another graph of a graph."""


def present(table: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[Any, str]]:
    """(module, name) of the functions of a table that are there."""
    for module in filter(is_imported, table):
        yield from ((loaded(module), name) for name in table[module] if hasattr(loaded(module), name))


def uncaptured() -> AbstractContextManager[None]:
    """Inside, what would be captured stays as it was written."""
    return _replacing(lambda name, _: _Unexported if name == "export" else _itself, lambda _: _itself)


def captured_anew() -> AbstractContextManager[None]:
    """Inside, what is captured is captured again at each call, on the arguments of that call."""
    return _replacing(lambda name, plain: partial(_AT_EACH_CALL[name], plain) if name in _AT_EACH_CALL else plain, _refining)


def _replacing(capturer: Callable[[str, Any], Any], refiner: Callable[[Any], Any]) -> AbstractContextManager[None]:
    captures = ((owner, name, capturer(name, getattr(owner, name))) for owner, name in present(CAPTURERS))
    refines = ((owner, name, refiner(getattr(owner, name))) for owner, name in present(_REFINERS))
    return replaced_everywhere(*captures, *refines)


def _itself(function: Any = None, *_args: Any, **_options: Any) -> Any:
    return function


class _Unexported:
    """Stands for an exported program, and is the module that it was made from."""

    def __init__(self, module: Any, *_args: Any, **_options: Any) -> None:
        self._module = module

    def module(self, *_args: Any, **_options: Any) -> Any:
        """What runs."""
        return self._module

    def run_decompositions(self, *_args: Any, **_options: Any) -> _Unexported:
        """Those change no meaning."""
        return self


class _Anew:
    """A function or module that is captured again at each call. What it is asked for otherwise, the original answers.

    Args:
        original: what is captured.
        capture: of (args, kwargs): makes the graph.
    """

    def __init__(self, original: Any, capture: Callable[[Any, Any], Any]) -> None:
        self._original, self._capture = original, capture

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._capture(args, kwargs)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def refined(self, refine: Callable[[Any], Any]) -> _Anew:
        """The same, with another graph made of each graph."""
        return _Anew(self._original, lambda args, kwargs: refine(self._capture(args, kwargs)))


class _Exported:
    """Stands for an exported program that is exported again at each call."""

    def __init__(self, anew: _Anew) -> None:
        self._anew = anew

    def module(self, *args: Any, **options: Any) -> Any:
        """What runs."""
        return self._anew.refined(lambda program: program.module(*args, **options))

    def run_decompositions(self, *args: Any, **options: Any) -> _Exported:
        """With operations decomposed each time."""
        return _Exported(self._anew.refined(lambda program: program.run_decompositions(*args, **options)))


def _trace(plain: Any, function: Any, *_args: Any, **options: Any) -> Any:
    # The check would trace once more, through this very function.
    kept = {key: value for key, value in options.items() if key not in ("example_inputs", "example_kwarg_inputs", "check_trace")}

    def capture(args: Any, kwargs: Any) -> Any:
        given = {"example_kwarg_inputs": kwargs} if kwargs else {"example_inputs": args}
        return plain(function, check_trace=False, **given, **kept)

    return _Anew(function, capture)


def _export(plain: Any, module: Any, *_args: Any, strict: bool = False, **_options: Any) -> Any:
    # Without dynamic shapes, which speak of the arguments of one call.
    return _Exported(_Anew(module, lambda args, kwargs: plain(module, args, kwargs, strict=strict)))


def _symbolic(plain: Any, root: Any, *args: Any, **options: Any) -> Any:
    return _Anew(root, lambda _args, _kwargs: plain(root, *args, **options))


_AT_EACH_CALL: Mapping[str, Callable[..., Any]] = {"trace": _trace, "export": _export, "symbolic_trace": _symbolic}


def _refining(plain: Any) -> Callable[..., Any]:
    def refine(graph: Any, *args: Any, **options: Any) -> Any:
        again = partial(_with_rest, plain, args, options)
        return graph.refined(again) if isinstance(graph, _Anew) else again(graph)

    return refine


def _with_rest(plain: Any, args: Any, options: Any, graph: Any) -> Any:
    return plain(graph, *args, **options)
