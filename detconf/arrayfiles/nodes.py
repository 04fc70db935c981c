"""What the values of a pickle are made of, and how they become plain ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from detconf.errors import DetconfError

_DEPTH = 64
_MOST = 1 << 20
"""Most values that a pickle may stand for, repetitions counted."""


@dataclass(frozen=True, slots=True)
class Name:
    """Something that a pickle names and that the table knows; never the thing itself."""

    text: str


class Node:
    """A value that a pickle makes in two steps, an object and its state."""

    def build(self, state: Any) -> None:
        """Take the state. Here: there is none."""
        msg = f"a state, {type(state).__name__}, for something that has none"
        raise ValueError(msg)

    def finish(self) -> Any:
        """The value, once all is read."""
        raise NotImplementedError


class Ordered(dict[Any, Any]):
    """An OrderedDict; attributes that it was given are left out."""


def checked_key(key: Any) -> Any:
    """`key`, if it is one that names something.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(key, (str, int, float, type(None))) and not (
        isinstance(key, tuple) and all(isinstance(part, (str, int)) for part in key)
    ):
        msg = f"a key of type {type(key).__name__}"
        raise TypeError(msg)
    return key


class Finish:
    """Puts finished values in the place of nodes, each once, and counts what a walk over all of it would meet."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.known: dict[int, tuple[Any, int]] = {}
        self.alive: list[Any] = []  # what `known` speaks of: an address is used again once its object is gone

    def value(self, value: Any, depth: int) -> tuple[Any, int]:
        """(the finished value, how many leaves it has)."""
        if not isinstance(value, (dict, list, tuple, Node, Name)):
            return value, 1
        if id(value) not in self.known:
            if depth > _DEPTH:
                msg = f"{self.source}: its pickle is nested more than {_DEPTH} deep, or in a circle."
                raise DetconfError(msg)
            found = self._container(value, depth)
            if found[1] > _MOST:
                msg = f"{self.source}: its pickle stands for more than {_MOST:,} values."
                raise DetconfError(msg)
            self.known[id(value)] = found
            self.alive.append(value)
        return self.known[id(value)]

    def _container(self, value: Any, depth: int) -> tuple[Any, int]:
        if isinstance(value, Name):
            return value.text, 1
        if isinstance(value, Node):
            inside = value.finish()
            return self.value(inside, depth + 1) if isinstance(inside, (dict, list, tuple)) else (inside, 1)
        if isinstance(value, dict):
            done = {key: self.value(item, depth + 1) for key, item in value.items()}
            return {key: item for key, (item, _) in done.items()}, sum(leaves for _, leaves in done.values())
        items = [self.value(item, depth + 1) for item in value]
        return [item for item, _ in items], sum(leaves for _, leaves in items)
