"""NumPy's generators: every draw is one operation, "numpy.random.normal", with the state before it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from detconf.frameworks.numpy import traced
from detconf.frameworks.numpy.contents import state_of

STATES = ("get_state", "set_state", "seed")
"""They compute arrays, in Cython, which nobody asked for."""
_NO_DRAWS = frozenset(("bit_generator", "spawn", "default_rng", "get_bit_generator", "set_bit_generator", *STATES))
_WRITERS = ("shuffle",)


def draw(name: str, plain: Callable[..., Any], state: Callable[[], Any], args: Any, kwargs: Any) -> Any:
    """Draw, and report it.

    Args:
        name: of the method.
        plain: runs it, without the generator.
        state: gives the state of the generator.
        args: of the method.
        kwargs: of the method.
    """
    calls = traced.calls
    if calls is None or not calls.ready():
        return traced.bare(plain, args, kwargs)
    targets = args[:1] if name in _WRITERS else ()
    return calls.call(f"numpy.random.{name}", plain, args, kwargs, targets=targets, random=state_of(state()))


def unseen(plain: Callable[..., Any]) -> Callable[..., Any]:
    """`plain`, with nothing of what it does reported."""

    @functools.wraps(plain)
    def run(*args: Any, **kwargs: Any) -> Any:
        calls = traced.calls
        return plain(*args, **kwargs) if calls is None or not calls.ready() else calls.unseen(plain, args, kwargs)

    return run


def draws(owner: Any) -> list[str]:
    """Names of what draws, in a class of generators or in `numpy.random`."""
    found = [name for name in dir(owner) if name[0] != "_" and name not in _NO_DRAWS and callable(getattr(owner, name))]
    return [name for name in found if not isinstance(getattr(owner, name), type) and name != "test"]


class _Stands(type):
    """A class that stands for another while a recording runs: both have the same instances."""

    original: type
    user: Callable[[int], bool]

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.original)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.original)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.user(2) or cls.__dict__.get("original") is None:
            return super().__call__(*args, **kwargs)
        return cls.original(*args, **kwargs)


def standing(  # noqa: PLR0913, PLR0917  # what differs between the kinds of generators
    original: type,
    user: Callable[[int], bool],
    state: Callable[[Any], Any],
    drawing: Callable[..., Any] = draw,
    silent: Callable[[Callable[..., Any]], Callable[..., Any]] = unseen,
    names: Sequence[str] = (),
) -> Any:
    """A subclass of a class of generators whose draws are reported. It pickles as the original.

    Args:
        original: `numpy.random.Generator` or `RandomState`.
        user: is the caller, that many frames up, user code? Others get the original.
        state: the state of an instance.
        drawing: draws and reports; takes the arguments of `draw`.
        silent: makes of a method one that reports nothing.
        names: of the methods that draw; found by themselves for NumPy's.
    """

    def method(name: str) -> Callable[..., Any]:
        plain = getattr(original, name)

        @functools.wraps(plain)
        def drawn(self: Any, *args: Any, **kwargs: Any) -> Any:
            return drawing(name, functools.partial(plain, self), functools.partial(state, self), args, kwargs)

        return drawn

    members: dict[str, Any] = {name: method(name) for name in names or draws(original) if hasattr(original, name)}
    members |= {name: silent(getattr(original, name)) for name in STATES if hasattr(original, name)}
    members |= {"__module__": original.__module__, "__doc__": original.__doc__, "original": original, "user": staticmethod(user)}
    return _Stands(original.__name__, (original,), members)


def generator(original: Callable[..., Any], kind: Any, seed: Any) -> Any:
    """What `default_rng(seed)` gives while a recording runs."""
    if type(seed) is kind:
        return seed
    back: dict[int, Any] = {}
    return type.__call__(kind, original(traced.plain(seed, back)).bit_generator)


def legacy_state() -> Any:
    """The state of the global generator."""
    return np.random.get_state(legacy=False)  # noqa: NPY002  # the state that programs draw from
