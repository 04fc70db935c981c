"""Arrays and generators that user code made before a study: found where functions hold them, followed, and given back.

Looked at, from some functions on: the globals of the module that defines each, closures, defaults, what `functools.partial` and
decorators wrap, what bound methods are bound to; there, and in lists, tuples, dictionaries and objects of user classes in
them, each plain array of numbers is replaced by a followed one of the same memory.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from detconf.frameworks.numpy import draws, followed
from detconf.frameworks.numpy.stores import Store
from detconf.frameworks.numpy.trace import _is_user as is_user_file

if TYPE_CHECKING:
    from detconf.frameworks.numpy.following import Following

_DEPTH = 4
_ATOMS = (str, bytes, int, float, complex, type(None))
_LONG = 1 << 16
"""Elements of a list beyond which it is not searched."""
_DICTIONARIES = (dict, OrderedDict, defaultdict)


class Adoption:
    """See the module.

    Args:
        following: follows the arrays.
        patched: id of what stood where a patch stands now -> the patch: names imported before are replaced too.
    """

    def __init__(self, following: Following, patched: Callable[[], Mapping[int, Any]]) -> None:
        self._following, self._patched = following, patched
        self._undo: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {}
        self._stores: dict[int, Store] = {}
        self._changed: dict[int, Any] = {}
        self._patches: Mapping[int, Any] = {}

    def adopt(self, roots: Sequence[Any]) -> None:
        """Replace what the functions `roots` see."""
        self._patches = self._patched()
        with self._following.silence():
            for root in roots:
                self._look(root, "a root", 0)

    def end(self) -> None:
        """Put the very objects back, last first."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._seen.clear()
        self._changed.clear()

    def _look(self, value: Any, where: str, depth: int) -> Any:
        """`value`, or what replaces it; what it holds is replaced in it."""
        if isinstance(value, _ATOMS):
            return value
        if id(value) in self._changed:
            return self._changed[id(value)]
        found = self._replaced(value, where)
        if found is not value:
            self._changed[id(value)] = found
            self._seen[id(value)] = value
            return found
        if id(value) in self._seen or depth > _DEPTH:
            return value
        self._seen[id(value)] = value
        if isinstance(value, tuple):
            return self._tuple(value, where, depth)
        for name, held, put in self._held(value):
            after = self._look(held, name or where, depth + 1)
            if after is not held:
                self._replace(held, after, put)
        return value

    def _replace(self, before: Any, after: Any, put: Callable[[Any, Any], None]) -> None:
        put(before, after)
        self._undo.append(lambda: put(after, before))

    def _replaced(self, value: Any, where: str) -> Any:
        patch = self._patches.get(id(value))
        if patch is not None:
            return patch
        if type(value) is np.ndarray and value.dtype.kind in "biufc" and value.size:
            return self._array(value, where)
        generator = draws.adopt(value)
        if generator is None:
            return value
        self._undo.append(generator[1])
        return generator[0]

    def _array(self, value: Any, where: str) -> Any:
        """Arrays of one memory have one store."""
        base = value
        while type(base.base) is np.ndarray:
            base = base.base
        if base.dtype != value.dtype:
            base = value
        store = self._stores.get(id(base))
        if store is None:
            first = self._following.leaf(base, where)
            if not isinstance(first, followed.Followed) or first.store is None:
                return value
            store = self._stores[id(base)] = first.store
        return self._following.attach(value, store) if store.covers(value) and store.fits(value) else self._following.leaf(value, where)

    def _tuple(self, value: Any, where: str, depth: int) -> Any:
        items = [self._look(each, where, depth + 1) for each in value]
        if all(item is each for item, each in zip(items, value, strict=True)):
            return value
        found = type(value)(*items) if hasattr(value, "_fields") else tuple(items) if type(value) is tuple else value
        self._changed[id(value)] = found
        return found

    def _held(self, value: Any) -> Iterator[tuple[str, Any, Callable[[Any, Any], None]]]:
        """(in words, what is held, what puts another there if it is still held)."""
        if isinstance(value, types.FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, types.MethodType):
            yield "", value.__func__, _nowhere
            yield "", value.__self__, _nowhere
        elif isinstance(value, functools.partial):
            yield "", value.func, _nowhere
            yield from ((name, each, put) for name, each, put in _of_partial(value))
        else:
            yield from _of_container(value)

    def _of_function(self, value: Any) -> Iterator[tuple[str, Any, Callable[[Any, Any], None]]]:
        if not is_user_file(value.__code__.co_filename):
            if callable(getattr(value, "__wrapped__", None)):
                yield "", value.__wrapped__, _nowhere
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                if isinstance(_content(cell), types.FunctionType):
                    yield f"closure {name}", _content(cell), _nowhere
            return
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield f"closure {name}", _content(cell), _into_cell(cell)
        for index, each in enumerate(value.__defaults__ or ()):
            yield "default", each, _into_defaults(value, index)
        for name, each in (value.__kwdefaults__ or {}).items():
            yield f"default {name}", each, _into(value.__kwdefaults__, name)
        if callable(getattr(value, "__wrapped__", None)):
            yield "", value.__wrapped__, _nowhere
        if id(value.__globals__) not in self._seen:
            self._seen[id(value.__globals__)] = value.__globals__
            yield from _of_mapping(value.__globals__)


def _of_container(value: Any) -> Iterator[tuple[str, Any, Callable[[Any, Any], None]]]:
    if isinstance(value, type):
        if is_user_class(value):
            yield from ((f"{value.__name__}.{key}", each, _onto(value, key)) for key, each in list(vars(value).items()) if key[:2] != "__")
    elif type(value) is list:
        if len(value) <= _LONG:
            yield from (("", each, _into(value, index)) for index, each in enumerate(list(value)))
    elif type(value) in _DICTIONARIES:
        yield from (("", each, _into(value, key)) for key, each in list(value.items()))
    elif isinstance(value, types.ModuleType):
        if _is_user_module(value):
            yield from _of_mapping(vars(value))
    elif is_user_class(type(value)) and isinstance(getattr(value, "__dict__", None), dict):
        yield from ((f"attribute {key}", each, _into(vars(value), key)) for key, each in list(vars(value).items()))
    elif callable(getattr(value, "__wrapped__", None)):
        yield "", value.__wrapped__, _nowhere


def _of_mapping(names: dict[str, Any]) -> Iterator[tuple[str, Any, Callable[[Any, Any], None]]]:
    for key, each in list(names.items()):
        if not key.startswith("__"):
            yield f"module {key}", each, _into(names, key)


def _of_partial(value: Any) -> Iterator[tuple[str, Any, Callable[[Any, Any], None]]]:
    def into(index: int) -> Callable[[Any, Any], None]:
        def put(_: Any, after: Any) -> None:
            function, args, named, attributes = value.__reduce__()[2]
            value.__setstate__((function, (*args[:index], after, *args[index + 1 :]), named, attributes))

        return put

    for index, each in enumerate(value.args):
        yield "partial", each, into(index)
    for name, each in list(value.keywords.items()):
        yield f"partial {name}", each, _into(value.keywords, name)


def _nowhere(_before: Any, _after: Any) -> None:
    """It cannot be replaced, only what it holds."""


def _into(container: Any, key: Any) -> Callable[[Any, Any], None]:
    def put(before: Any, after: Any) -> None:
        try:
            if container[key] is before:
                container[key] = after
        except (KeyError, IndexError, TypeError):
            return

    return put


def _onto(kind: type, key: str) -> Callable[[Any, Any], None]:
    def put(before: Any, after: Any) -> None:
        if vars(kind).get(key) is before:
            setattr(kind, key, after)

    return put


def _into_cell(cell: Any) -> Callable[[Any, Any], None]:
    def put(before: Any, after: Any) -> None:
        if _content(cell) is before:
            cell.cell_contents = after

    return put


def _into_defaults(function: Any, index: int) -> Callable[[Any, Any], None]:
    def put(_: Any, after: Any) -> None:
        values = function.__defaults__
        function.__defaults__ = (*values[:index], after, *values[index + 1 :])

    return put


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return None


def _is_user_module(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file) and is_user_file(str(file))


def is_user_class(kind: type) -> bool:
    """Is it a class that user code defines?"""
    return _is_user_module(sys.modules.get(kind.__module__))
