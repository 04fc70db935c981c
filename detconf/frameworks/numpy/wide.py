"""What becomes of each call of NumPy while a program runs whole in float64 (`widening`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from detconf.frameworks.base import Widened
from detconf.frameworks.numpy import followed
from detconf.frameworks.numpy.arguments import by_name
from detconf.frameworks.numpy.doubles import Memory, any_floats, discrete, in_float64, narrow, widened
from detconf.frameworks.numpy.followed import Followed, plain_getitem, plain_setitem, plain_view
from detconf.frameworks.numpy.following import WRITERS
from detconf.frameworks.numpy.precision import DOUBLE, doubled, floats, shadow_dtype
from detconf.frameworks.numpy.trace import user
from detconf.frameworks.replaced import replaced

_NUMBER: Any = object()
"""Stands where a followed scalar has its shadow."""
Functions = Callable[..., Any]


class Wide:
    """Stands where `Following` stands in a study: what user code does with arrays comes here.

    Args:
        seen: what cannot be widened, drawn, or is decided.
    """

    def __init__(self, seen: Widened) -> None:
        self.seen = seen
        self._memories: list[Memory] = []
        self._local = threading.local()

    @property
    def anyhow(self) -> Any:
        """Itself, where a `Following` is asked for: those who ask call nothing else than what there is here."""
        return self

    # --- when to listen

    def ready(self) -> bool:
        """This thread is not at work for us."""
        return not getattr(self._local, "silent", False)

    def silence(self) -> AbstractContextManager[None]:
        """What this thread does is ours."""
        return replaced(self._local, "silent", True)

    def outside(self) -> AbstractContextManager[None]:
        """Arrays that come in here are somebody else's: what is written to them is put back in the end."""
        return replaced(self._local, "keeping", True)

    def end(self) -> None:
        """Put back what was written to memory from outside."""
        if sum(each.put_back() for each in self._memories):
            self._lose("NumPy writes to an array from outside")

    def _lose(self, words: str) -> None:
        self.seen.lost = self.seen.lost or words

    # --- arrays that come in

    def leaf(self, array: Any, origin: str, shadow: Any = None, lost: str = "") -> Any:  # noqa: ARG002  # as `Keeper.leaf`
        """An array that arises, in float64 if it is less; `shadow` is what it would be there."""
        if shadow_dtype(array.dtype) is None:
            return array
        if not getattr(self._local, "keeping", False):
            if doubled(array.dtype) != array.dtype:
                array = (array if shadow is None else shadow).astype(doubled(array.dtype))
            return plain_view(array, Followed)
        memory = Memory(array, array, _NUMBER)
        if memory.buffer is not None:
            self._memories.append(memory)
        return self.attach(array, memory)

    @staticmethod
    def attach(array: Any, store: Any) -> Any:
        """An array that lies in a memory, in float64."""
        found: Any = plain_view(store.shadow(array), Followed)
        found.store = store
        return found

    def from_outside(self, array: Any) -> Any:
        """An array that another framework gives to the program."""
        if type(array) is not np.ndarray or not self.ready() or not user(3):
            return array
        with self.outside(), self.silence():
            return self.leaf(array, "another framework")

    @staticmethod
    def elsewhere(_: Any) -> None:
        """Nothing has a shadow."""

    known = elsewhere

    # --- what is done with them

    def ufunc(self, ufunc: Any, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A universal function, or one of its methods."""
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        if method == "at":
            return self.in_place(ufunc.__name__, function, inputs, kwargs)
        return self.call(ufunc.__name__, function, inputs, kwargs, template=function)

    def function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A function of NumPy that takes arrays."""
        if function.__name__ in WRITERS and args and isinstance(args[0], np.ndarray):
            return self.in_place(function.__name__, function, args, kwargs)
        if any(callable(each) and not isinstance(each, (type, np.ndarray)) for each in (*args, *kwargs.values())):
            self._lose(f"numpy.{function.__name__} calls a function of the program")
        return self.call(function.__name__, function, args, kwargs, template=function)

    def method(self, name: str, plain: Functions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A method of an array or a scalar."""
        if name == "astype":
            given = args[1:2] or (kwargs["dtype"],)
            args, kwargs = (args[0], widened(given[0]), *args[2:]), {key: each for key, each in kwargs.items() if key != "dtype"}
        return self.call(name, plain, args, kwargs, template=getattr(np, name, None))

    def call(  # noqa: PLR0913  # as `Caller.call`
        self,
        name: str,
        function: Functions,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        template: Any = None,
        draws: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run `function` in float64; a draw as the program draws, its numbers in float64 afterwards."""
        back: dict[int, Any] = {}
        if draws is not None:
            self.seen.draws += 1
            result = function(
                *[followed.plain(each, back) for each in args], **{key: followed.plain(each, back) for key, each in kwargs.items()}
            )
            return self._given(result, back)
        args, kwargs = by_name(template, args, kwargs)
        own = [self._taken(each, back) for each in args]
        named = {key: self._target(name, each, back) if key == "out" else self._taken(each, back) for key, each in kwargs.items()}
        in_float64(template, own, named)
        result = function(*own, **named)
        if type(result) is np.ndarray and result.dtype is DOUBLE and id(result) not in back:
            return plain_view(result, Followed)  # nearly always
        if not self.seen.decides:
            self.seen.decides = discrete(result) and any_floats((own, list(named.values())))
        if not self.seen.lost and narrow(result) and not any_floats(own):
            self._lose(f"numpy.{name} makes of integers what has less than float64")
        return self._given(result, back)

    def in_place(self, name: str, function: Functions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Something that writes into its first argument."""
        back: dict[int, Any] = {}
        target = self._target(name, args[0], back)
        own, named = [self._taken(each, back) for each in args[1:]], {key: self._taken(each, back) for key, each in kwargs.items()}
        self._assigned(target, (own, list(named.values())))
        return function(target, *own, **named)

    def write(self, name: str, function: Functions, args: Sequence[Any], kwargs: Mapping[str, Any], draws: Any = None) -> Any:
        """The same; `draws` where it draws."""
        self.seen.draws += draws is not None
        return self.in_place(name, function, args, kwargs)

    def getitem(self, array: Any, key: Any) -> Any:
        """`array[key]`."""
        back: dict[int, Any] = {}
        return self._given(plain_getitem(followed.plain(array, back), followed.plain(key, back)), back)

    def setitem(self, array: Any, key: Any, value: Any) -> None:
        """`array[key] = value`."""
        back: dict[int, Any] = {}
        target, given = followed.plain(array, back), self._taken(value, back)
        self._assigned(target, given)
        plain_setitem(target, followed.plain(key, back), given)

    def set_flat(self, array: Any, key: Any, value: Any) -> None:
        """`array.flat[key] = value`."""
        back: dict[int, Any] = {}
        target, given = followed.plain(array, back), self._taken(value, back)
        self._assigned(target, given)
        target.flat[followed.plain(key, back)] = given

    def viewed(self, result: Any) -> Any:
        """The result of `x.view(...)`, which may read bits as another type."""
        whole = result.base
        if isinstance(whole, np.ndarray) and whole.dtype != result.dtype and (floats(whole.dtype) or floats(result.dtype)):
            self._lose("bits are read as another type")
        return result

    # --- what leaves them

    def element(self, value: Any, array: Any, _: tuple[Any, ...]) -> Any:
        """What `array.item(...)` gave."""
        return self._left(value, array)

    def numbers_of(self, values: Any, array: Any) -> Any:
        """What `array.tolist()` gave."""
        return self._left(values, array)

    def number(self, value: Any, _: Any) -> Any:
        """What Python gets of a scalar."""
        self.chosen()
        return value

    def escaped(self, _value: float, _known: Any) -> None:
        """A number left by a door where only a plain float can go."""
        self.chosen()

    def chosen(self, *_: Any) -> None:
        """The program chooses by a number, or takes it to Python."""
        self.seen.decides = True

    def _left(self, value: Any, array: Any) -> Any:
        self.seen.decides = self.seen.decides or array.dtype.kind in "fc"
        return value

    # --- draws

    @staticmethod
    def drawn_from(source: Any) -> Any:
        """The state from which a draw starts."""
        return source.state()

    def drawn(self, _name: str, plain: Functions, args: Sequence[Any], kwargs: Mapping[str, Any], _state: Any) -> Any:
        """A draw of Python's."""
        self.seen.draws += 1
        return plain(*args, **kwargs)

    # --- arguments and results

    def _taken(self, value: Any, back: dict[int, Any]) -> Any:
        """An argument in float64, plain."""
        if isinstance(value, Followed) and value.dtype is DOUBLE:
            own = plain_view(value, np.ndarray)
            back[id(own)] = value
            return own
        if type(value) in (list, tuple):
            return type(value)([self._taken(each, back) for each in value])
        if isinstance(value, (np.ndarray, np.generic)):
            own = followed.plain(value, back)
            return own if own.dtype == doubled(own.dtype) else own.astype(doubled(own.dtype))
        return widened(value) if isinstance(value, (np.dtype, type)) else value

    def _target(self, name: str, value: Any, back: dict[int, Any]) -> Any:
        """An argument that is written: what is less than float64 is somebody else's, and is rounded into."""
        if isinstance(value, tuple):
            return tuple(self._target(name, each, back) for each in value)
        own = followed.plain(value, back)
        if isinstance(own, np.ndarray) and own.dtype != doubled(own.dtype):
            self._lose(f"numpy.{name} writes to an array from outside")
        return own

    def _assigned(self, target: Any, values: Any) -> None:
        if not floats(target.dtype) and any_floats(values):
            self.seen.decides = True

    def _given(self, value: Any, back: Mapping[int, Any]) -> Any:
        """A result as user code gets it."""
        if type(value) is np.ndarray:
            found = back.get(id(value))
            return found if found is not None else self.leaf(value, "") if not value.dtype.hasobject else value
        if isinstance(value, np.generic):
            wide = value if value.dtype == doubled(value.dtype) else value.astype(doubled(value.dtype))
            return followed.scalar(wide, _NUMBER) if wide.dtype in followed.SCALARS else wide
        if isinstance(value, tuple):
            items = [self._given(each, back) for each in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items) if type(value) is tuple else value
        return [self._given(each, back) for each in value] if type(value) is list else value
