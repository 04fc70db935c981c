"""A program run whole in float64: what it makes of NumPy's arrays in less is made in float64, and so are arrays that it has already.

It listens where shadows do (`followed`), and in place of computing beside the program it lets the program compute in float64.
Not widened: numbers that were made before, and bits that are read as another type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from detconf.frameworks.base import Widened
from detconf.frameworks.numpy import draws, followed, makers
from detconf.frameworks.numpy.adoption import Adoption
from detconf.frameworks.numpy.precision import doubled
from detconf.frameworks.numpy.trace import named_as, user
from detconf.frameworks.numpy.wide import Wide
from detconf.frameworks.replaced import replaced

Functions = Callable[..., Any]
_NARROW = ("float16", "half", "float32", "single", "complex64", "csingle")
"""Classes of numbers, under all their names."""


@contextmanager
def widening(seen: Widened, roots: Sequence[Any] = ()) -> Iterator[None]:
    """Inside the block what user code makes of arrays is float64. `roots`: functions whose arrays are widened too."""
    wide = Wide(seen)
    patched: dict[int, Any] = {}
    adoption = Adoption(wide.anyhow, lambda: patched)
    with ExitStack() as stack:
        for owner, name, after in _patches(wide):
            patched[id(vars(owner)[name])] = after
            stack.enter_context(replaced(owner, name, after))
        stack.callback(wide.end)
        stack.callback(adoption.end)
        stack.enter_context(replaced(followed, "following", wide.anyhow))
        seen.takers.append(wide.from_outside)
        stack.callback(seen.takers.remove, wide.from_outside)
        with wide.outside():
            adoption.adopt(roots)
        yield


def _patches(wide: Wide) -> Iterator[tuple[Any, str, Any]]:
    yield from makers.patches(wide.anyhow, user, named_as)
    yield from draws.patches(user, named_as)
    for name in _NARROW:
        yield np, name, _standing(wide, vars(np)[name])
    yield np.vectorize, "__call__", _called(wide, vars(np.vectorize)["__call__"])


class _Makes(type):
    """A class of numbers of less than float64 that makes numbers of float64, and else is equal to what it stands for."""

    original: type
    make: Functions

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs) if user(2) else cls.original(*args, **kwargs)

    def __eq__(cls, other: object) -> bool:
        return getattr(other, "original", other) is cls.original

    def __hash__(cls) -> int:
        return hash(cls.original)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.original)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.original)


def _standing(wide: Wide, original: Any) -> Any:
    def make(*args: Any) -> Any:
        return wide.call(original.__name__, doubled(np.dtype(original)).type, args, {})

    members = {"original": original, "make": staticmethod(make), "__module__": original.__module__, "__doc__": original.__doc__}
    return _Makes(original.__name__, (original,), members)


def _called(wide: Wide, plain: Functions) -> Functions:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        wide.seen.decides = True  # a function of the program gets Python's numbers
        return plain(self, *args, **kwargs)

    return named_as(call, plain)
