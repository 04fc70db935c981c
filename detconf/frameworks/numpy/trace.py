"""What unmodified user code computes with NumPy, reported to a recorder.

Arrays that user code makes, loads or draws are `traced.Traced`; what is computed with one of them is reported and traced
as well: ufuncs, reductions, functions, methods, indexing, `x[i] = v`. That which only moves elements is not reported.

Operations are named as NumPy's functions, "numpy.add", "numpy.linalg.svd", "numpy.random.normal"; a method is named as the
function that does the same ("numpy.sum" for `x.sum()`), or "numpy.ndarray.sort" where none does; indexing is
"numpy.getitem" and "numpy.setitem".

Not seen: what is computed with arrays alone that come from elsewhere (made before the recording, or by a library) until a
traced one meets them; what is computed with the scalars that full reductions return
(`x.sum()` is seen, `x.sum() + 1.0` is not); writes through `x.flat`, memory views and C extensions. Whatever is written
unseen is seen by its content when it is read next.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dis import opmap
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from detconf.frameworks.numpy import generators, traced
from detconf.frameworks.numpy.calls import Calls
from detconf.lookup import loaded

if TYPE_CHECKING:
    from detconf.recording.recorder import Recorder

_MAKERS = (
    "array asarray asanyarray ascontiguousarray asfortranarray asarray_chkfinite require copy zeros ones empty full zeros_like ones_like "
    "empty_like full_like arange linspace logspace geomspace eye identity diag diagflat tri vander indices meshgrid fromfunction frombuffer "
    "fromfile fromiter fromstring from_dlpack fromregex load loadtxt genfromtxt bartlett blackman hamming hanning kaiser"
)
_ATTRIBUTES = {opmap[name] for name in ("LOAD_ATTR", "STORE_ATTR") if name in opmap}
_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "")


def start(recorder: Recorder) -> Callable[[], None]:
    """Report to `recorder` until what is returned is called. There is no state of a step in NumPy: that level is empty."""
    if recorder.level == "state":
        return lambda: None
    calls = traced.calls = Calls(recorder)
    put: list[tuple[Any, str, Any, Any]] = []
    for owner, name, after in (*_makers(calls), *_draws(), *_archives()):
        put.append((owner, name, vars(owner)[name], after))
        setattr(owner, name, after)
    recorder.followers.append(_given)

    def end() -> None:
        recorder.followers.remove(_given)
        for owner, name, before, after in reversed(put):
            if vars(owner).get(name) is after:  # where someone has wrapped ours meanwhile, it stays below and does nothing
                setattr(owner, name, before)
        if traced.calls is calls:
            traced.calls = None

    return end


def _given(array: Any) -> Any:
    """What `tensor.numpy()` gave, called two frames from here: traced where that is user code."""
    return traced.traced(array, {}) if traced.calls is not None and traced.calls.ready() and user(3) else array


def user(depth: int) -> bool:
    """Is the caller, `depth` frames up, user code: neither a framework, nor detconf, nor an installed or standard library?"""
    frame = sys._getframe(depth)
    # Extensions have no frames: a property of one (the state of a generator) looks as if its user had called.
    return _is_user(frame.f_code.co_filename) and frame.f_code.co_code[frame.f_lasti] not in _ATTRIBUTES


@lru_cache(maxsize=1 << 12)
def _is_user(file: str) -> bool:
    paths = sysconfig.get_paths()
    roots = {os.path.join(paths[name], "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not (file.startswith((_OURS, "<frozen", *roots)) or f"{os.sep}site-packages{os.sep}" in file)


def _makers(calls: Calls) -> Iterator[tuple[Any, str, Any]]:
    for owner, names in ((np, _MAKERS.split()), (np.fft, ("fftfreq", "rfftfreq"))):
        for name in names:
            if name in vars(owner):
                yield owner, name, _maker(calls, vars(owner)[name], f"{owner.__name__}.{name}")


def _maker(calls: Calls, plain: Callable[..., Any], title: str) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        if calls.ready() and user(2):
            return calls.call(title, plain, args, kwargs)
        return plain(*args, **kwargs)

    return named_as(make, plain)


def _draws() -> Iterator[tuple[Any, str, Any]]:
    module = np.random
    for name in generators.draws(module):
        yield module, name, _draw(name, vars(module)[name])
    for name in generators.STATES:
        yield module, name, named_as(generators.unseen(vars(module)[name]), vars(module)[name])
    kind = generators.standing(module.Generator, user, lambda self: self.bit_generator)
    yield module, "Generator", kind
    yield module, "RandomState", generators.standing(module.RandomState, user, lambda self: self.get_state(legacy=False))
    plain = module.default_rng

    def default_rng(seed: Any = None) -> Any:
        return generators.generator(plain, kind, seed) if user(2) else plain(seed)

    yield module, "default_rng", named_as(default_rng, plain)


def _draw(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(*args: Any, **kwargs: Any) -> Any:
        if user(2):
            return generators.draw(name, plain, generators.legacy_state, args, kwargs)
        return plain(*args, **kwargs)

    return named_as(drawn, plain)


def _archives() -> Iterator[tuple[Any, str, Any]]:
    """Arrays of an .npz file are read when they are asked for."""
    try:
        archive: Any = loaded("numpy.lib.npyio").NpzFile
        plain = vars(archive)["__getitem__"]
    except Exception:  # noqa: BLE001  # another version: arrays of archives come untraced
        return

    @functools.wraps(plain)
    def getitem(self: Any, key: str) -> Any:
        calls = traced.calls
        if calls is not None and calls.ready() and user(2):
            return calls.call("numpy.load", functools.partial(plain, self), (key,), {})
        return plain(self, key)

    yield archive, "__getitem__", getitem


def named_as(function: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, looking like `plain`, pickling by its name as well."""
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        value = getattr(plain, attribute, None)
        if value is not None:
            setattr(function, attribute, value)
    return function
