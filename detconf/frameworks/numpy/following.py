"""Follows indexing, assignments and whatever else writes into an array that exists; the whole of what user code does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from detconf.frameworks.numpy import followed, rules
from detconf.frameworks.numpy.arguments import Arguments, in_shadows, options
from detconf.frameworks.numpy.caller import Caller
from detconf.frameworks.numpy.followed import Followed, plain_getitem, plain_setitem, plain_view
from detconf.frameworks.numpy.precision import floats, rounded, shadow_dtype, up
from detconf.frameworks.numpy.stores import place
from detconf.shadows.formats import unit
from detconf.shadows.study import Known

WRITERS = frozenset(("copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis"))
"""Functions that write into their first argument."""
_OVERWRITE = frozenset(("numpy.ndarray.fill", "numpy.setitem"))
"""Operations that do not read what they write over."""
_LISTED = 1 << 14
"""Elements of a list whose numbers are followed."""


class Following(Caller):
    """See the module."""

    def ufunc(self, ufunc: Any, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if method == "at":
            return self.in_place(f"{ufunc.__name__}.at", ufunc.at, inputs, kwargs)
        return super().ufunc(ufunc, method, inputs, kwargs)

    def function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A function of NumPy that takes arrays: "numpy.linalg.svd"."""
        name = function.__name__
        if name in WRITERS and args and isinstance(args[0], np.ndarray):
            return self.in_place(name, function, args, kwargs)
        return self.call(f"{function.__module__}.{name}", function, args, kwargs, template=function)

    def in_place(self, name: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Something that writes into its first argument and returns nothing."""
        title = f"numpy.{name}" if hasattr(np, name.partition(".")[0]) and name not in ("sort", "partition") else f"numpy.ndarray.{name}"
        return self.write(title, function, args, kwargs)

    def write(
        self, name: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], draws: Mapping[str, Any] | None = None
    ) -> Any:
        """Run and report something that writes into its first argument, an array."""
        if shadow_dtype(args[0].dtype) is None:
            return followed.bare(function, args, kwargs)
        self._local.busy = True
        try:
            with self.lock:
                read = Arguments(self, disturb=self.disturb(name))
                pairs = [read.pair(each) for each in args]
                named = {key: read.pair(each) for key, each in kwargs.items()}
            target, store = pairs[0][0], read.stores[0]
            before = np.array(target)
            result = function(*[each for each, _ in pairs], **{key: each for key, (each, _) in named.items()})
            with self.lock:
                shadow, lost = self._written(
                    name,
                    (draws or {}).get("again") or function,
                    before,
                    target,
                    pairs,
                    {key: each for key, (_, each) in named.items()},
                )
                [(value, after)] = self.study.operation(
                    name,
                    read.reads[1 if name in _OVERWRITE else 0 :],
                    [(shadow, str(target.dtype), target)],
                    random=draws is not None,
                    state=draws["state"] if draws else None,
                    options=options(None, args, kwargs),
                    source=self.source(),
                    lost=lost,
                )
                store.write(target, after, value)
            return result
        finally:
            self._local.busy = False

    def _written(self, name: str, function: Any, before: Any, target: Any, pairs: Sequence[Any], named: dict[str, Any]) -> tuple[Any, str]:  # noqa: PLR0913, PLR0917
        if not floats(target.dtype):
            return target, ""
        args = [np.array(pairs[0][1]), *[each for _, each in pairs[1:]]]
        try:
            if name.endswith((".sort", ".partition")):
                axis = named.get("axis", args[at] if len(args) > (at := 2 if name.endswith("partition") else 1) else -1)
                return rules.reordered(before, target, args[0], axis), ""
            in_shadows(None, args, named)
            with np.errstate(all="ignore"):
                named |= {"casting": "unsafe"} if name == "numpy.copyto" else {}
                function(*args, **named)
            return self.disturbed(name, args[0], target.dtype), ""
        except Exception as error:  # noqa: BLE001  # whatever it is, the program goes on
            return up(target), f"{name} has no shadow here: {type(error).__name__}: {error}"

    def getitem(self, array: Any, key: Any) -> Any:
        """`array[key]`: a view, a copy of what was picked, or one element."""
        if _picks(key) or shadow_dtype(array.dtype) is None:
            return self.call("numpy.getitem", plain_getitem, (array, key), {})
        plain = plain_view(array, np.ndarray)
        result = plain_getitem(plain, key)
        if type(result) is np.ndarray:
            with self.lock:
                return self.attach(result, self._unread(array, plain))
        if not floats(plain.dtype) or plain.dtype not in followed.SCALARS:
            return result
        with self.lock:
            where = plain_getitem(plain, (*key, ...) if isinstance(key, tuple) else (key, ...))
            store = self.store(array, plain) if array.store is None else self._piece(array, where)
            return followed.scalar(result, Known(np.array(store.shadow(where)), store.read(where).value))  # one element is never mixed

    def _piece(self, array: Any, where: Any) -> Any:
        """The store of a part of an array; only the part is looked at."""
        view = self.attach(where, array.store)
        store = self.store(view, where)
        if store is not array.store:
            store = self.store(array, plain_view(array, np.ndarray))
        return store

    def setitem(self, array: Any, key: Any, value: Any) -> None:
        """`array[key] = value`. What is written is the operation's value."""
        if shadow_dtype(array.dtype) is None:
            followed.bare(plain_setitem, (array, key, value), {})
            return
        self._local.busy = True
        try:
            with self.lock:
                read = Arguments(self)
                plain = plain_view(array, np.ndarray)
                store = self._unread(array, plain)
                own_key, _ = read.pair(key)
                own, shadow = read.pair(value)
                plain_setitem(plain, own_key, own)
                if not _itself(value, own, plain, own_key):
                    self._assigned(store, plain, own_key, own, shadow, read)
        finally:
            self._local.busy = False

    def _assigned(self, store: Any, plain: Any, key: Any, own: Any, shadow: Any, read: Arguments) -> None:  # noqa: PLR0913, PLR0917
        region = plain_getitem(plain, key)
        lost = ""
        if store.buffer is not None and plain.size:
            try:
                lies = store.shadow(plain)
                plain_setitem(lies, key, shadow)
                part = np.asarray(plain_getitem(lies, key))
                if self.study.casts == "kept" and unit(str(getattr(own, "dtype", ""))) not in (0, unit(str(plain.dtype))):
                    part = rounded(part, plain.dtype)
            except Exception as error:  # noqa: BLE001  # as above
                part, lost = up(np.asarray(region)), f"numpy.setitem has no shadow here: {type(error).__name__}: {error}"
        else:
            part = np.asarray(region)
        where: dict[str | int, Any] = {} if _holds(key) else {"key": key}
        real = [(part, str(plain.dtype), region)]
        [(value, after)] = self.study.operation("numpy.setitem", read.reads, real, options=where, source=self.source(), lost=lost)
        whole = type(region) is np.ndarray and plain.size > 0 and place(region) == place(plain)
        store.write(plain, after, value, ... if whole else key)

    def set_flat(self, array: Any, key: Any, value: Any) -> None:
        """`array.flat[key] = value`."""

        def assign(target: Any, key: Any, value: Any) -> None:
            target.flat[key] = value

        self.write("numpy.ndarray.flat", assign, (array, key, value), {})

    def viewed(self, result: Any) -> Any:
        """The result of `x.view(...)`. Bits read as floats are a leaf: nobody knows what they were meant to be."""
        if not isinstance(result, Followed):
            store = getattr(result.base, "store", None)
            return self.attach(result, store) if type(result) is np.ndarray and store is not None else result
        plain, store = plain_view(result, np.ndarray), result.store
        if store is None or shadow_dtype(plain.dtype) is None or not plain.size or (store.covers(plain) and store.fits(plain)):
            return result
        if floats(plain.dtype):
            return self.leaf(plain, "view of integers", lost=f"bits read as {plain.dtype} at {self.source()}")
        return self.leaf(plain, f"view of {store.dtype}")

    def element(self, value: Any, array: Any, args: tuple[Any, ...]) -> Any:
        """What `array.item(*args)` gave."""
        if type(value) is not float:
            return value
        known = self.known(array)
        if known is None:
            return value
        return self.number(value, Known(np.asarray(_item(known.shadow, args)), known.value))

    def numbers_of(self, values: Any, array: Any) -> Any:
        """What `array.tolist()` gave."""
        known = self.known(array) if array.dtype.kind == "f" else None
        if known is None:
            return values
        if array.size > _LISTED:
            self.left("tolist()")
            return values
        return self._listed(values, known.shadow, known.value)

    def _listed(self, values: Any, shadow: Any, value: Any) -> Any:
        if isinstance(values, list):
            return [self._listed(each, shadow[index], value) for index, each in enumerate(values)]
        return self.number(values, Known(np.asarray(shadow), value))

    def drawn_from(self, source: Any) -> Any:
        """The state from which a random operation starts: what the study asks for, else what it is."""
        with self.lock:
            wanted = self.study.drawing(source.fixed())
        if wanted is not None:
            try:
                source.put(wanted)
            except (ValueError, TypeError, KeyError) as error:
                self.study.lose(f"a generator does not take the state that is replayed: {error}")
        return source.state()

    def drawn(self, name: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], state: Any) -> Any:
        """A draw that returns, or shuffles, Python's objects."""
        self._local.busy = True
        try:
            result = function(*args, **kwargs)
        finally:
            self._local.busy = False
        numbers = _numbers(args[0] if result is None and args else result)
        with self.lock:
            written = [] if numbers is None else [(up(numbers), str(numbers.dtype), numbers)]
            given = options(None, args, kwargs)
            made = self.study.operation(name, [], written, random=True, state=state, options=given, source=self.source())
        return self.number(result, Known(np.asarray(made[0][1]), made[0][0])) if made else result

    def chosen(self, name: str = "", operands: Sequence[Any] = (), answer: Any = None) -> None:
        """The program chooses by a number: it is the real one, which shadows follow."""
        if name:
            with self.lock:
                self.study.choose(name, operands, answer, self.source())

    def left(self, how: str) -> None:
        """A number went where it is not followed."""
        self.study.lose(f"{how} takes a number out of NumPy at {self.source()}")


def _item(shadow: Any, args: tuple[Any, ...]) -> Any:
    index = 0 if not args else args[0] if len(args) == 1 else args
    return shadow.reshape(-1)[index] if isinstance(index, int) else shadow[index]


def _numbers(value: Any) -> Any:
    """Python's numbers, or a list of them, as an array; None for anything else."""
    if isinstance(value, (bool, int, float)) or (
        isinstance(value, (list, tuple)) and value and all(isinstance(each, (bool, int, float)) for each in value)
    ):
        found = np.array(value)
        return found if found.dtype.kind in "biuf" else None
    return None


def _picks(key: Any) -> bool:
    """Is this advanced indexing, which computes a new array?"""
    if isinstance(key, tuple):
        return any(isinstance(each, (np.ndarray, list)) for each in key)
    return isinstance(key, (np.ndarray, list))


def _itself(value: Any, own: Any, plain: Any, key: Any) -> bool:
    """Is it the second half of `x[key] += y`, which puts back what was written through a view?"""
    if not isinstance(value, Followed) or own.dtype != plain.dtype or _picks(key):
        return False
    region = plain_getitem(plain, key)
    return type(region) is np.ndarray and place(region) == place(own)


def _holds(key: Any) -> bool:
    return any(isinstance(each, np.ndarray) for each in (key if isinstance(key, tuple) else (key,)))
