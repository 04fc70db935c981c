"""Replaces functions of Paddle wherever a module holds them, and puts them back.

Paddle's modules hold its C++ functions by reference, in many places. A module that is imported while replacements are in
force takes those; putting back therefore looks through all modules again.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

_COMPILED = "paddle.base.libpaddle"
_ABSENT = object()


class References:
    """Replacements in force. `put` and `put_attribute` make them, `back` undoes all."""

    def __init__(self) -> None:
        self._ours: dict[int, tuple[Any, Any]] = {}
        self._attributes: list[tuple[Any, str, Any, Any]] = []

    def put(self, replacements: dict[int, tuple[Any, Any]]) -> None:
        """Replace in all modules of Paddle.

        Args:
            replacements: id of a function -> (the function, what takes its place).
        """
        self._ours = {id(after): (after, before) for before, after in replacements.values()}
        _exchange(replacements)

    def put_attribute(self, owner: Any, name: str, after: Any) -> None:
        """Replace one attribute of a class, inherited or not."""
        self._attributes.append((owner, name, vars(owner).get(name, _ABSENT), after))
        setattr(owner, name, after)

    def back(self) -> None:
        """Put everything back, except where someone else has replaced ours meanwhile: those pass calls on."""
        for owner, name, before, after in reversed(self._attributes):
            if vars(owner).get(name) is not after:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._attributes.clear()
        _exchange(self._ours)


_places: dict[tuple[int, str], dict[str, Any]] = {}
"""Where something was replaced before, by (id of a module's names, name): the next study finds it there again."""
_spaces: tuple[tuple[int, ...], list[dict[str, Any]]] = ((), [])
"""The modules that were imported when we last looked, and the names of those that are Paddle's."""


def _exchange(table: dict[int, tuple[Any, Any]]) -> None:
    for (_, name), names in _places.items():
        found = table.get(id(names.get(name)))
        if found is not None and found[0] is names[name]:
            names[name] = found[1]
    spaces = _modules()
    try:
        left = not table.keys().isdisjoint(map(id, chain.from_iterable(map(dict.values, spaces))))
    except RuntimeError:  # another thread imports something
        left = True
    if left:
        _search(table, spaces)


def _search(table: dict[int, tuple[Any, Any]], spaces: list[dict[str, Any]]) -> None:
    for names in spaces:
        for name, value in list(names.items()):
            found = table.get(id(value))
            if found is not None and found[0] is value:
                names[name] = found[1]
                _places[id(names), name] = names


def _modules() -> list[dict[str, Any]]:
    global _spaces  # noqa: PLW0603  # looking through all modules takes longer than to see that they are the same
    imported = tuple(map(id, list(sys.modules.values())))
    if imported != _spaces[0]:
        # By their keys: `paddle._C_ops` copies every name of its C++ original, `__name__` included.
        ours = [
            module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "paddle" and not name.startswith(_COMPILED)
        ]
        _spaces = imported, [names for each in ours if isinstance(names := getattr(each, "__dict__", None), dict)]
    return _spaces[1]
