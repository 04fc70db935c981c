"""An attribute of somebody else's, replaced for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

_INHERITED = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` inside the block, and afterwards the object that it was, as the owner itself holds it, or inherited."""
    plain = vars(owner).get(name, _INHERITED)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if plain is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, plain)


def giving(plain: Callable[..., Any], takers: Sequence[Callable[[Any], Any]]) -> Callable[..., Any]:
    """A method by which a framework gives the program an array, handed to each of the `takers` of the time."""

    @wraps(plain)
    def give(*args: Any, **kwargs: Any) -> Any:
        array = plain(*args, **kwargs)
        for take in takers:
            array = take(array)
        return array

    return give


@contextmanager
def replaced_everywhere(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Several attributes of modules, also where the globals of other modules hold them, as after `from torch.jit import trace`.

    Modules of the owners' own packages keep them: they may be what the values call. What an attribute wraps stands for it: a
    program may have taken `torch.jit.trace` before the first compilation put a wrapper in its place (torch 2.13,
    `torch._dynamo.eval_frame.TorchPatcher`).

    Args:
        places: module, name, and what takes its place.
    """
    table = {id(each): value for owner, name, value in places for each in _layers(getattr(owner, name))}
    packages = {owner.__name__.partition(".")[0] for owner, _, _ in places}
    with ExitStack() as stack:
        for key, module in list(sys.modules.items()):
            names = getattr(module, "__dict__", {})
            if key.partition(".")[0] not in packages and not table.keys().isdisjoint(map(id, list(names.values()))):
                kept = {name: each for name, each in list(names.items()) if id(each) in table}
                stack.callback(names.update, kept)
                names.update({name: table[id(each)] for name, each in kept.items()})
        for each in places:
            stack.enter_context(replaced(*each))
        yield


def _layers(function: Any) -> Iterator[Any]:
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


@contextmanager
def seeded_from(numbers: Iterator[int], *places: tuple[Any, str]) -> Iterator[None]:
    """Functions that take a seed first, if any, are given the next of `numbers` in its place.

    What is no number, such as a generator to go on with, is left.

    Args:
        numbers: without end.
        places: owner and name of each function.
    """

    def fixed(plain: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(plain)
        def called(*args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()][:1]
            return plain(*args, **kwargs) if given and not _is_seed(given[0]) else plain(next(numbers))

        return called

    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(replaced(owner, name, fixed(getattr(owner, name))))
        yield


def _is_seed(given: Any) -> bool:
    """A number, text, or a sequence of numbers."""
    return given is None or isinstance(given, float) or hasattr(given, "__index__") or hasattr(given, "__len__")
