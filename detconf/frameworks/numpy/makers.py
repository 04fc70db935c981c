"""Arrays that user code makes, loads or converts: leaves, or operations where they are made of arrays that are followed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from detconf.frameworks.numpy import followed
from detconf.frameworks.numpy.arguments import Arguments, mapped, names
from detconf.frameworks.numpy.following import Following
from detconf.frameworks.numpy.precision import floats, raised, shadow_dtype, up
from detconf.lookup import loaded

_NEW_NAMES = (
    "zeros ones empty full zeros_like ones_like empty_like full_like arange linspace logspace geomspace eye identity tri vander "
    "indices fromfunction frombuffer fromfile fromstring from_dlpack fromregex load loadtxt genfromtxt bartlett blackman hamming "
    "hanning kaiser"
)
_NEW = _NEW_NAMES.split()
_FROM_NAMES = "array asarray asanyarray ascontiguousarray asfortranarray asarray_chkfinite require copy diag diagflat meshgrid fromiter"
_FROM = _FROM_NAMES.split()
_RANGES = frozenset(("arange", "linspace", "logspace", "geomspace"))
_FULL = frozenset(("full", "full_like"))
User = Callable[[int], bool]
_array = np.array


def patches(following: Following, user: User, named_as: Callable[..., Any]) -> Iterator[tuple[Any, str, Any]]:
    """(module, name, what to put there)."""
    for owner, listed in ((np, (*_NEW, *_FROM)), (np.fft, ("fftfreq", "rfftfreq"))):
        for name in listed:
            if name in vars(owner):
                yield owner, name, _maker(following, vars(owner)[name], f"{owner.__name__}.{name}", user, named_as)
    for owner in (np, np.linalg, np.fft):
        for name, plain in list(vars(owner).items()):
            if hasattr(plain, "_implementation") and name not in _FROM and name not in _NEW:
                yield owner, name, _on_lists(following, plain, user, named_as)
    tricks = np.lib.stride_tricks
    yield tricks, "as_strided", _maker(following, tricks.as_strided, "numpy.lib.stride_tricks.as_strided", user, named_as)
    try:
        archive: Any = loaded("numpy.lib.npyio").NpzFile
        plain = vars(archive)["__getitem__"]
    except Exception:  # noqa: BLE001  # another version: arrays of archives come plain
        return
    yield archive, "__getitem__", _from_archive(following, plain, user)


def _on_lists(following: Following, plain: Any, user: User, named_as: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy lets arrays take a call over, not what lies in lists: `numpy.mean([x.sum(), y.sum()])`. Plain arrays join in here."""

    def function(*args: Any, **kwargs: Any) -> Any:
        if followed.heard() is following:
            given = (args, list(kwargs.values()))
            if _given(following, given) if user(2) else _ours(given):
                return following.function(plain, args, kwargs)
        return plain(*args, **kwargs)

    vars(function).update(getattr(plain, "__dict__", {}), __wrapped__=plain, _implementation=plain._implementation)
    dressed: Callable[..., Any] = named_as(function, plain)
    return dressed


def _from_archive(following: Following, plain: Callable[..., Any], user: User) -> Callable[..., Any]:
    @functools.wraps(plain)
    def getitem(self: Any, key: str) -> Any:
        found = plain(self, key)
        ours = following.ready() and user(2) and type(found) is np.ndarray
        return following.leaf(found, "numpy.load") if ours else found

    return getitem


def _maker(following: Following, plain: Callable[..., Any], title: str, user: User, named_as: Callable[..., Any]) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        if following.ready() and user(2):
            return made(following, title, plain, args, kwargs)
        return plain(*args, **kwargs)

    dressed: Callable[..., Any] = named_as(make, plain)
    return dressed


@dataclass(frozen=True, slots=True)
class _Making:
    """A call of a function that makes arrays."""

    title: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of the function, without its module."""
        return self.title.rpartition(".")[2]

    @property
    def contents(self) -> Any:
        """Arguments that what is made holds, or is computed from."""
        if self.name in _FULL:
            return (*self.args[1:2], self.kwargs.get("fill_value"))
        return (self.args, list(self.kwargs.values())) if self.name in _FROM or self.name in _RANGES else ()


def made(following: Following, title: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a function that makes arrays, and report it."""
    making = _Making(title, plain, args, kwargs)
    if making.name == "fromiter" and args and not isinstance(args[0], np.ndarray):
        count = kwargs.get("count", args[2] if len(args) > 2 else -1)
        making = _Making(title, plain, (list(args[0] if count < 0 else islice(args[0], count)), *args[1:]), kwargs)
    if _given(following, making.contents):
        return following.call(title, plain, making.args, kwargs, template=plain)
    with following.silence():
        back: dict[int, Any] = {}
        own = [followed.plain(each, back) for each in making.args]
        named = {key: followed.plain(each, back) for key, each in kwargs.items()}
        return _leaves(following, making, plain(*own, **named))


def _given(following: Following, value: Any) -> bool:
    """Is there something with a shadow, or an array, among these?"""
    if isinstance(value, (list, tuple)):
        return any(_given(following, each) for each in value)
    if isinstance(value, np.ndarray) or followed.is_scalar(value):
        return True
    if isinstance(value, (int, complex, str, bytes, type, np.generic, np.dtype, type(None))):
        return False
    return (isinstance(value, float) or hasattr(value, "__array__")) and following.elsewhere(value) is not None


def _ours(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_ours, value))
    return isinstance(value, followed.Followed) or followed.is_scalar(value)


def _leaves(following: Following, making: _Making, result: Any) -> Any:
    """What was made, followed."""
    if type(result) in (list, tuple):
        return type(result)([_leaves(following, _Making(making.title, making.function, (), {}), each) for each in result])
    if type(result) is not np.ndarray:
        return result
    shadow = None
    if floats(result.dtype) and making.args:
        try:
            with np.errstate(all="ignore"):
                shadow = _finer(following, making, result)
        except Exception:  # noqa: BLE001  # its own elements then
            shadow = None
    return following.leaf(result, making.title, shadow if np.shape(shadow) == result.shape else None)


def _finer(following: Following, making: _Making, result: Any) -> Any:
    """What the function makes of the same Python numbers in the format of shadows; None where that is the array itself."""
    wanted, args = shadow_dtype(result.dtype), making.args
    if making.name in _FROM and _pure(args[0]):
        return _array(args[0], dtype=wanted).reshape(result.shape)
    if making.name in _FULL:
        _, shadow = Arguments(following).pair(args[1] if len(args) > 1 else making.kwargs["fill_value"])
        return np.broadcast_to(_array(shadow, dtype=wanted), result.shape)
    if making.name not in _RANGES:
        return None
    known = names(making.function)[0]
    given = [wanted.type(each) if isinstance(each, float) else each for each in args]
    named = {key: wanted.type(each) if isinstance(each, float) else each for key, each in making.kwargs.items()}
    if "dtype" in known[: len(given)]:
        given[known.index("dtype")] = wanted
    elif making.name != "arange" or len(given) < 4:  # its parameters have no names in some versions
        named["dtype"] = wanted
    return mapped(making.function(*given, **named), raised if wanted.itemsize > 8 else up)


def _pure(value: Any) -> bool:
    """Python's numbers, in lists and tuples."""
    if isinstance(value, (list, tuple)):
        return all(_pure(each) for each in value)
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)
