"""NumPy's generators and Python's own: each draw of user code is a random operation, with the state before it.

A study may ask for another state: then the generator is set to it before it draws.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from detconf.frameworks.numpy import followed
from detconf.frameworks.numpy.generators import STATES, draws, standing

_PYTHON = (
    "betavariate binomialvariate choice choices expovariate gammavariate gauss getrandbits lognormvariate normalvariate paretovariate "
    "randbytes randint random randrange sample shuffle triangular uniform vonmisesvariate weibullvariate"
)
_REORDER = frozenset(("shuffle", "permutation", "permuted", "choice"))
"""They return what they are given, in another order; an array's shadow is reordered alike."""
User = Callable[[int], bool]
Draw = Callable[..., Any]
_get, _set = np.random.get_state, np.random.set_state  # the state that programs draw from
_Legacy, _Modern = np.random.RandomState, np.random.Generator
_python_get, _python_set, _Python = random.getstate, random.setstate, random.Random


class Legacy:
    """The state of a `RandomState`, or of the global one.

    Args:
        owner: it; None for the global one.
    """

    def __init__(self, owner: Any = None) -> None:
        self._owner = owner

    def state(self) -> Any:
        """Opaque."""
        return _get(legacy=False) if self._owner is None else _Legacy.get_state(self._owner, legacy=False)

    def put(self, state: Any) -> None:
        """Set it."""
        if self._owner is None:
            _set(state)
        else:
            _Legacy.set_state(self._owner, state)

    def fixed(self) -> Any:
        """A state that is always the same."""
        return _Legacy(0).get_state(legacy=False)

    def clone(self, state: Any) -> Any:
        """Another generator of its kind in a state."""
        found = _Legacy(0)
        found.set_state(state)
        return found


class Modern:
    """The state of a `Generator`.

    Args:
        owner: it.
    """

    def __init__(self, owner: Any) -> None:
        self._bits = owner.bit_generator

    def state(self) -> Any:
        """Opaque."""
        return self._bits.state

    def put(self, state: Any) -> None:
        """Set it."""
        self._bits.state = state

    def fixed(self) -> Any:
        """A state that is always the same."""
        return type(self._bits)(0).state

    def clone(self, state: Any) -> Any:
        """Another generator of its kind in a state."""
        bits = type(self._bits)(0)
        bits.state = state
        return _Modern(bits)


def draw(name: str, plain: Draw, source: Callable[[], Any], args: Any, kwargs: Any) -> Any:
    """Draw with NumPy, and report it.

    Args:
        name: of the method.
        plain: runs it, without the generator.
        source: gives a `Legacy` or a `Modern`.
        args: of the method.
        kwargs: of the method.
    """
    following = followed.heard(3)
    if following is None:
        return followed.bare(plain, args, kwargs)
    origin = source()
    state = following.drawn_from(origin)
    if name == "shuffle" and args and not isinstance(args[0], np.ndarray):
        return following.drawn(f"numpy.random.{name}", plain, args, kwargs, state)
    again = getattr(origin.clone(state), name) if name in _REORDER and args and isinstance(args[0], np.ndarray) else None
    report = {"state": state, "again": again}
    if name == "shuffle":
        return following.write("numpy.random.shuffle", plain, args, kwargs, report)
    return following.call(f"numpy.random.{name}", plain, args, kwargs, draws=report)


def silent(plain: Draw) -> Draw:
    """`plain`, with nothing of what it does followed."""

    @functools.wraps(plain)
    def run(*args: Any, **kwargs: Any) -> Any:
        return followed.bare(plain, args, kwargs)

    return run


def patches(user: User, named_as: Callable[[Draw, Draw], Draw]) -> Iterator[tuple[Any, str, Any]]:
    """(module, name, what to put there)."""
    module = np.random
    for name in draws(module):
        yield module, name, _global(name, vars(module)[name], user, named_as)
    for name in STATES:
        yield module, name, named_as(silent(vars(module)[name]), vars(module)[name])
    kind = standing(module.Generator, user, Modern, draw, silent)
    yield module, "Generator", kind
    yield module, "RandomState", standing(module.RandomState, user, Legacy, draw, silent)
    yield module, "default_rng", _default_rng(module.default_rng, kind, user, named_as)
    yield random, "Random", standing(random.Random, user, Python, python_draw, lambda plain: plain, _PYTHON.split())
    for name in _PYTHON.split():
        if hasattr(random, name):
            yield random, name, _python(name, getattr(random, name), user, named_as)


def _global(name: str, plain: Draw, user: User, named_as: Callable[[Draw, Draw], Draw]) -> Draw:
    def drawn(*args: Any, **kwargs: Any) -> Any:
        return draw(name, plain, Legacy, args, kwargs) if user(2) else plain(*args, **kwargs)

    return named_as(drawn, plain)


def _default_rng(plain: Draw, kind: Any, user: User, named_as: Callable[[Draw, Draw], Draw]) -> Draw:
    def default_rng(seed: Any = None) -> Any:
        if not user(2) or type(seed) is kind:
            return plain(seed)
        back: dict[int, Any] = {}
        return type.__call__(kind, plain(followed.plain(seed, back)).bit_generator)

    return named_as(default_rng, plain)


class Python:
    """The state of a `random.Random`, or of Python's global generator.

    Args:
        owner: it; None for the global one.
    """

    def __init__(self, owner: Any = None) -> None:
        self._owner = owner

    def state(self) -> Any:
        """Opaque."""
        return _python_get() if self._owner is None else _Python.getstate(self._owner)

    def put(self, state: Any) -> None:
        """Set it."""
        if self._owner is None:
            _python_set(state)
        else:
            _Python.setstate(self._owner, state)

    @staticmethod
    def fixed() -> Any:
        """A state that is always the same."""
        return _Python(0).getstate()


def python_draw(name: str, plain: Draw, source: Callable[[], Any], args: Any, kwargs: Any) -> Any:
    """As `draw`, of a `random.Random`."""
    following = followed.heard(3)
    if following is None:
        return plain(*args, **kwargs)
    return following.drawn(f"random.{name}", plain, args, kwargs, following.drawn_from(source()))


def _python(name: str, plain: Draw, user: User, named_as: Callable[[Draw, Draw], Draw]) -> Draw:
    def drawn(*args: Any, **kwargs: Any) -> Any:
        following = followed.heard(2) if user(2) else None
        if following is None:
            return plain(*args, **kwargs)
        return following.drawn(f"random.{name}", plain, args, kwargs, following.drawn_from(Python()))

    return named_as(drawn, plain)


def adopt(value: Any) -> tuple[Any, Callable[[], None]] | None:
    """A generator that was made before the study, as one whose draws are seen; and what hands its state back.

    None for anything else.
    """
    if type(value) is _Modern:
        return type.__call__(np.random.Generator, value.bit_generator), lambda: None
    if type(value) is _Python:
        copied = type.__call__(random.Random)
        Python(copied).put(value.getstate())
        return copied, lambda: value.setstate(Python(copied).state())
    if type(value) is not _Legacy:
        return None
    state = value.get_state(legacy=False)
    bits = type(value._bit_generator)() if hasattr(value, "_bit_generator") else np.random.MT19937()
    found = type.__call__(np.random.RandomState, bits)
    Legacy(found).put(state)
    return found, lambda: value.set_state(Legacy(found).state())
