"""Shadows of what user code computes with NumPy, reported to a study. The engine of NumPy, and the hub between frameworks.

Arrays that user code makes, loads or draws, those that it holds already (`adopt`) and those that other frameworks give out
(`wrap`) are followed, and so is what is computed with them: universal functions, reductions, functions, methods, indexing,
assignments, views. Operations are named as NumPy's functions; those that only look at memory another way are none.

Not followed: what libraries compute with arrays of their own, object arrays, what C extensions write (it is noticed when it is
read next, and said), bits of floats read as integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from detconf.frameworks.numpy import draws, followed, makers, vectors
from detconf.frameworks.numpy.adoption import Adoption
from detconf.frameworks.numpy.following import Following
from detconf.frameworks.numpy.trace import named_as, user
from detconf.shadows.number import Number
from detconf.shadows.study import Known, Study

_MISSING = object()


def start(study: Study) -> NumpyEngine:
    """Follow NumPy until `end` is called on what is returned."""
    return NumpyEngine(study)


class NumpyEngine:
    """See `shadows.study.Engine`."""

    def __init__(self, study: Study) -> None:
        self._following = Following(study)
        self._put: list[tuple[Any, str, Any, Any]] = []
        self._adoption = Adoption(self._following, self._patched)
        followed.following = self._following
        listed = [
            (Number, "__array_ufunc__", followed.Followed.__array_ufunc__),  # numpy.sqrt(x.item())
            *makers.patches(self._following, user, named_as),
            *draws.patches(user, named_as),
            *vectors.patches(self._following, self._patched),
            *((owner, name, self._taking_scalars(function)) for owner, name, function in self._following.numbers.patches()),
        ]
        for owner, name, after in listed:
            self._put.append((owner, name, vars(owner).get(name, _MISSING), after))
            setattr(owner, name, after)

    def _patched(self) -> dict[int, Any]:
        return {id(before): after for _, _, before, after in self._put}

    def _taking_scalars(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def apply(*args: Any) -> Any:
            return function(*map(self._following.as_number, args))

        vars(apply).update(vars(function))
        return named_as(apply, function)

    def known(self, thing: Any) -> Known | None:
        """The shadow of an array, a scalar or a float; None for a plain array."""
        return self._following.known(thing)

    def wrap(self, array: Any, known: Known) -> Any:
        """`array`, followed: the same memory, with a shadow and as the value that are known."""
        if type(array) is not np.ndarray and not isinstance(array, followed.Followed):
            return array
        plain = array.view(np.ndarray) if type(array) is np.ndarray else followed.plain_view(array, np.ndarray)
        return self._following.wrapped(plain, known)

    def adopt(self, roots: Sequence[Any]) -> None:
        """Follow arrays and generators that exist already; see `adoption`."""
        self._adoption.adopt(roots)

    def end(self) -> None:
        """Put everything back. What is still held stays readable, and nothing more is reported."""
        self._following.active = self._following.numbers.active = False
        self._adoption.end()
        for owner, name, before, after in reversed(self._put):
            if vars(owner).get(name) is not after:
                continue  # where someone has wrapped ours meanwhile, it stays below and does nothing
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._put.clear()
        if followed.following is self._following:
            followed.following = None
