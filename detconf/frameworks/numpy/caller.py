"""Follows what NumPy computes: each call runs on plain arrays, then on shadows, and is reported to a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from detconf.frameworks import adds
from detconf.frameworks.numpy import followed, rules
from detconf.frameworks.numpy.arguments import Arguments, by_name, mapped, options
from detconf.frameworks.numpy.keeper import Keeper
from detconf.frameworks.numpy.precision import LONGS, floats, rounded, shadow_dtype, up
from detconf.frameworks.numpy.rules import MOVES, Call
from detconf.frameworks.numpy.stores import Store
from detconf.shadows.study import Known

_UNNAMED = frozenset(("reshape", "compress", "astype"))
_TEMPLATES = {name: getattr(np, name, None) for name in dir(np.ndarray) if name not in _UNNAMED}
Functions = Callable[..., Any]


class Caller(Keeper):
    """Runs calls that give results."""

    def ufunc(self, ufunc: Any, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A universal function or one of its methods: "numpy.add", "numpy.add.reduce"."""
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        name = f"numpy.{ufunc.__name__}" if method == "__call__" else f"numpy.{ufunc.__name__}.{method}"
        return self.call(name, function, inputs, kwargs, template=function)

    def method(self, name: str, plain: Functions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A method of an array or a scalar, named as the function that does the same."""
        title = f"numpy.{name}" if hasattr(np, name) else f"numpy.ndarray.{name}"
        return self.call(title, plain, args, kwargs, template=_TEMPLATES.get(name))

    def call(  # noqa: PLR0913  # a call and what is known of it
        self,
        name: str,
        function: Functions,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        template: Any = None,
        draws: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run `function` and report it.

        Args:
            name: of the operation.
            function: what runs it.
            args: its arguments.
            kwargs: its arguments; what is given as `out` is written.
            template: the function whose parameters it has.
            draws: where it draws: `state` of the generator before; `again`, where shadows are drawn from as well.
        """
        args, kwargs = by_name(template, args, kwargs)
        self._local.busy = True
        try:
            with self.lock:
                read = Arguments(self, disturb=self.disturb(name))
                pairs = [read.pair(each) for each in args]
                named = {key: (read.target(each), None) if key == "out" else read.pair(each) for key, each in kwargs.items()}
            plain, plain_named = [each for each, _ in pairs], {key: each for key, (each, _) in named.items()}
            result = function(*plain, **plain_named)
            with self.lock:
                lifted = {key: each for key, (_, each) in named.items() if key != "out"}
                made = Call(name, function, template, plain, plain_named, [each for _, each in pairs], lifted, result, self.study.altered())
                return self._finish(made, read, draws, options(template, args, kwargs))
        finally:
            self._local.busy = False

    def _finish(self, call: Call, read: Arguments, draws: Mapping[str, Any] | None, given: Mapping[str | int, Any]) -> Any:
        """Report a call where it computed something; its result as user code gets it."""
        items = list(call.result) if isinstance(call.result, (list, tuple)) else [call.result]
        python = items[0] if draws is not None and type(call.result) in (int, float, bool) else None
        if python is not None:  # single draws are Python's numbers
            items = [np.asarray(python)[()]]
        stores = [self._existing(each, read, call) for each in items]
        targets = [index for index, each in enumerate(items) if _numeric(each) and (stores[index] is None or self._is_out(call, each))]
        if targets or draws is not None:
            call.outs = self._kept(call, read)
            shadows, lost = self._shadows(call, targets, items, draws)
            local = self._local_error(call, read, shadows, targets, items) if self.study.local and not lost and not draws else None
            written = [(each, str(items[index].dtype), items[index]) for index, each in zip(targets, shadows, strict=True)]
            made = self.study.operation(
                call.name,
                read.reads,
                written,
                random=draws is not None,
                state=draws["state"] if draws else None,
                options=given,
                source=self.source(),
                local=local,
                decided=self._decided(call, targets, items),
                adds=adds(call.name),
                lost=lost,
            )
            for index, (value, after) in zip(targets, made, strict=True):
                items[index] = self._place(items[index], stores[index], value, after)
        if python is not None:
            return self.number(python, items[0].known) if followed.is_scalar(items[0]) else python
        found = [self._wrapped(each, store, read) for each, store in zip(items, stores, strict=True)]
        return _like(call.result, found)

    def _existing(self, item: Any, read: Arguments, call: Call) -> Store | None:
        """The store that a result lies in already: it is a view of an argument, or what was written."""
        if type(item) is not np.ndarray or shadow_dtype(item.dtype) is None:
            return None
        if id(item) in read.back:
            ours = read.back[id(item)]
            return self._unread(ours, item) if self._is_out(call, item) else self.store(ours, item)
        if self._is_out(call, item):
            return self._stranger(item)
        return next((each for each in read.stores if item.size and each.covers(item) and each.fits(item)), None)

    def _unread(self, ours: Any, item: Any) -> Store:
        store: Store | None = ours.store
        if store is None or not self.ours(store.value) or (item.size and not (store.covers(item) and store.fits(item))):
            store = ours.store = self._new(item, "an array from before")
        return store

    @staticmethod
    def _is_out(call: Call, item: Any) -> bool:
        out = call.plain_named.get("out")
        return out is not None and any(each is item for each in (out if isinstance(out, tuple) else (out,)))

    def _kept(self, call: Call, read: Arguments) -> tuple[Any, ...] | None:
        """Of a universal function that computes some elements only (`where`): what the others are."""
        if not isinstance(call.function, np.ufunc) or call.plain_named.get("where", True) is True:
            return None
        found = []
        for each in rules.arrays(call.result):
            ours = read.back.get(id(each))
            kept = self._unread(ours, each).shadow(each) if ours is not None else up(each)
            found.append(np.array(kept))
        return tuple(found)

    def _shadows(self, call: Call, targets: Sequence[int], items: Sequence[Any], draws: Mapping[str, Any] | None) -> tuple[list[Any], str]:
        """Shadows of what was written, each of its array's shape; and why they are no more than that, where they are."""
        reals = [items[index] for index in targets]
        again = (draws or {}).get("again")
        if (draws is not None and again is None) or not any(floats(each.dtype) for each in reals):
            return [up(each) for each in reals], ""
        try:
            with np.errstate(all="ignore"):
                if any(callable(each) and not isinstance(each, type) for each in (*call.plain, *call.plain_named.values())):
                    return [up(each) for each in reals], f"{call.name} calls a function of the program"
                found = rules.compute(call) if again is None else again(*call.lifted, **call.named)
                parts = found if isinstance(found, (list, tuple)) else [found]
                shadows = [self._formed(call, parts[index], items[index]) for index in targets]
        except Exception as error:  # noqa: BLE001  # whatever it is, the program goes on
            return [up(each) for each in reals], f"{call.name} has no shadow here: {type(error).__name__}: {error}"
        coarse = any(_coarse(parts[index], items[index]) for index in targets) and call.name not in MOVES and _wide(call)
        return shadows, f"{_family(call.name)} has no more precision than float64" if coarse else ""

    def _formed(self, call: Call, shadow: Any, real: Any) -> Any:
        if not floats(real.dtype):
            return real
        if np.shape(shadow) != real.shape:
            msg = f"shape {np.shape(shadow)} where {real.shape} was expected"
            raise ValueError(msg)
        shadow = np.asarray(shadow).astype(shadow_dtype(real.dtype))
        if self.study.casts == "kept" and rules.narrows(call, real.dtype):
            shadow = rounded(shadow, real.dtype)
        return shadow if self.study.local else self.disturbed(call.name, shadow, real.dtype)

    def _local_error(
        self, call: Call, read: Arguments, shadows: Sequence[Any], targets: Sequence[int], items: Sequence[Any]
    ) -> float | None:
        """How far the real result is from that in float64 on the same inputs, in what noise of the unit does to it."""
        change = self.disturb(call.name, trial=True)
        if change is None:
            return None

        def shaken(each: Any) -> Any:
            return mapped(each, lambda array: change(array, read.real_dtype(array)) if floats(array.dtype) else array)

        noised = Call(**{name: getattr(call, name) for name in Call.__slots__})
        noised.lifted, noised.named = [shaken(each) for each in call.lifted], {key: shaken(each) for key, each in call.named.items()}
        try:
            with np.errstate(all="ignore"):
                found = rules.compute(noised)
        except Exception:  # noqa: BLE001  # no yardstick
            return None
        parts = found if isinstance(found, (list, tuple)) else [found]
        off = noise = 0.0
        for index, shadow in zip(targets, shadows, strict=True):
            if floats(items[index].dtype) and np.size(shadow):
                other = self.disturbed(call.name, np.asarray(parts[index]), items[index].dtype, trial=True)
                off += float(np.sum(np.abs(up(items[index]) - shadow) ** 2))
                noise += float(np.sum(np.abs(other - shadow) ** 2))
        return float(np.sqrt(off / noise)) if noise > 0 else None

    def _decided(self, call: Call, targets: Sequence[int], items: Sequence[Any]) -> bool:
        chosen = any(not floats(items[index].dtype) for index in targets)
        read = any(np.asarray(each).dtype.kind in "fc" for each in rules.arrays([*call.plain, *call.plain_named.values()]))
        return (chosen and read) or call.name in rules.DECIDING

    def _place(self, item: Any, store: Store | None, value: Any, after: Any) -> Any:
        """A result with its shadow put where it belongs; arrays stay plain here."""
        if isinstance(item, np.ndarray):
            if store is not None:
                store.write(item, after, value)
                return item
            return self.attach(item, self.stored(item, after, value))
        if floats(item.dtype) and item.dtype in followed.SCALARS:
            known = Known(np.asarray(after), value)
            if item.dtype.kind == "f":
                self.numbers.escape(float(item), known)  # for numpy.float64(x.mean()), which nobody sees
            return followed.scalar(item, known)
        return item

    def _wrapped(self, item: Any, store: Store | None, read: Arguments) -> Any:
        if type(item) is not np.ndarray:
            return item
        ours = read.back.get(id(item))
        if ours is not None:
            return ours
        return item if store is None else self.attach(item, store)


def _numeric(item: Any) -> bool:
    return (type(item) is np.ndarray or isinstance(item, np.generic)) and shadow_dtype(item.dtype) is not None


def _coarse(shadow: Any, real: Any) -> bool:
    wanted = shadow_dtype(real.dtype)
    return floats(real.dtype) and np.asarray(shadow).dtype.itemsize < wanted.itemsize


def _wide(call: Call) -> bool:
    """Are there floats of 64 bits among its inputs, or none at all?"""
    given = [each.dtype for each in rules.arrays([*call.plain, *call.plain_named.values()]) if floats(each.dtype)]
    return not given or any(shadow_dtype(each) in LONGS for each in given)


def _family(name: str) -> str:
    head, _, _ = name.rpartition(".")
    return head if head in ("numpy.linalg", "numpy.fft") else name


def _like(result: Any, items: list[Any]) -> Any:
    if isinstance(result, tuple):
        return type(result)(*items) if hasattr(result, "_fields") else tuple(items) if type(result) is tuple else result
    if type(result) is list:
        return items
    return result if isinstance(result, list) else items[0]
