"""`numpy.vectorize`: the function of the program runs once per element, on numbers that are followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np

from detconf.frameworks.numpy import followed
from detconf.frameworks.numpy.followed import Followed
from detconf.frameworks.numpy.following import Following
from detconf.frameworks.numpy.precision import floats, shadow_dtype
from detconf.shadows.study import Known, Read

_call = np.vectorize.__call__


def patches(following: Following, patched: Callable[[], Mapping[int, Any]]) -> Iterator[tuple[Any, str, Any]]:
    """(class, name, what to put there).

    Args:
        following: takes reports.
        patched: id of what stood where a patch stands now -> the patch.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = followed.heard()
        if found is not following or kwargs or not any(isinstance(each, Followed) and each.dtype.kind == "f" for each in args):
            return _call(self, *args, **kwargs)
        return _vectorized(following, self, args, patched())

    yield np.vectorize, "__call__", call


def _vectorized(following: Following, vectorized: Any, args: tuple[Any, ...], patched: Mapping[int, Any]) -> Any:
    known = [following.known(each) if isinstance(each, Followed) and each.dtype.kind == "f" else None for each in args]
    own = followed.plain(list(args), {})
    flat = [each.reshape(-1) for each in np.broadcast_arrays(*(one.shadow if one else each for one, each in zip(known, own, strict=True)))]
    plain, results = vectorized.pyfunc, dict[int, Any]()
    function = patched.get(id(plain), plain)
    # Where the kind of its results is not said, the first element is computed once more, or kept for later.
    again, calls = not vectorized.otypes and not vectorized.cache, count()

    def recorded(*values: Any) -> Any:
        place = max(next(calls) - again, 0)
        given = [
            each if one is None else _number(following, each, Known(np.asarray(shadow[place]), one.value))
            for each, one, shadow in zip(values, known, flat, strict=True)
        ]
        results[place] = found = function(*given)
        return found

    vectorized.pyfunc = recorded
    try:
        found = _call(vectorized, *own)
    finally:
        vectorized.pyfunc = plain
    if type(found) is not np.ndarray or shadow_dtype(found.dtype) is None or len(results) != found.size:
        return found
    return _reported(following, found, list(results.values()), [Read(one.value, one.shadow) for one in known if one is not None])


def _number(following: Following, value: Any, known: Known) -> Any:
    """An element as the function gets it: NumPy's scalar the first time, then Python's number."""
    return followed.scalar(value, known) if isinstance(value, np.generic) else following.number(value, known)


def _reported(following: Following, found: Any, results: list[Any], reads: list[Read]) -> Any:
    shadows = found
    if floats(found.dtype):
        shadows = np.empty(found.shape, shadow_dtype(found.dtype))
        for place, each in zip(np.ndindex(*found.shape), results, strict=True):
            one = following.elsewhere(each)
            shadows[place] = each if one is None else one.shadow
    with following.lock:
        written = [(shadows, str(found.dtype), found)]
        [(value, after)] = following.study.operation("numpy.vectorize", reads, written, source=following.source())
        return following.attach(found, following.stored(found, after, value))
