"""An attribute of somebody else's, replaced for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
