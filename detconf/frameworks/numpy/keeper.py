"""Keeps what a study knows of NumPy's arrays and scalars: their stores, new leaves, the noise of a noise run."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from detconf.frameworks.numpy import followed
from detconf.frameworks.numpy.flats import Flat
from detconf.frameworks.numpy.followed import Followed, plain_view
from detconf.frameworks.numpy.precision import floats, shadow_dtype, up
from detconf.frameworks.numpy.rules import MOVES
from detconf.frameworks.numpy.stores import Store, place
from detconf.frameworks.numpy.sums import CONTRACTIONS
from detconf.frameworks.replaced import replaced
from detconf.frameworks.source import line
from detconf.shadows.formats import round_to, unit
from detconf.shadows.normals import Normals
from detconf.shadows.number import Numbers
from detconf.shadows.study import Known, Read, Study, Value

_FOREIGN = (os.path.join(os.path.dirname(np.__file__), ""),)
_STRANGERS = 64
"""Plain arrays that are remembered."""
_INPUT, _OUTPUT = 0.6, 0.4
Disturb = Callable[[Any, Any], Any]


class Keeper:
    """See the module.

    Args:
        study: takes reports.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.active = True
        self.numbers = Numbers(study)
        self.lock = threading.RLock()
        self._local = threading.local()
        self._process = os.getpid()
        self._strangers: OrderedDict[int, Store] = OrderedDict()
        self._by_place: WeakValueDictionary[int, Store] = WeakValueDictionary()
        self._noise = None if study.noise is None else Normals(study.noise)
        self._trial = Normals(0)

    def ready(self) -> bool:
        """The study runs, and this thread is not inside a call that is being reported."""
        if os.getpid() != self._process:  # a fork, in which nobody may be left to release the lock
            self._process, self.lock = os.getpid(), threading.RLock()
        return self.active and not getattr(self._local, "busy", False)

    def silence(self) -> AbstractContextManager[None]:
        """Nothing that this thread does is reported."""
        return replaced(self._local, "busy", True)

    def source(self) -> str:
        """The line of user code that runs now."""
        return line(_FOREIGN) if self.study.sources else ""

    def leaf(self, array: Any, origin: str, shadow: Any = None, lost: str = "") -> Any:
        """A plain array that arises, followed; others than of numbers as they are.

        Args:
            array: the array. Its memory is kept.
            origin: of the leaf.
            shadow: its shadow; None for its own elements.
            lost: see `Study.leaf`.
        """
        if shadow_dtype(array.dtype) is None:
            return array
        return self.attach(array, self._there(array) or self._new(array, origin, shadow, lost))

    def _there(self, array: Any) -> Store | None:
        """The store that covers this memory already."""
        found = self._by_place.get(place(array)[0]) if array.size else None
        return found if found is not None and _suits(found, array) and self.ours(found.value) else None

    def _new(self, array: Any, origin: str, shadow: Any = None, lost: str = "") -> Store:
        with self.lock:
            value, after = self.study.leaf(up(array) if shadow is None else shadow, str(array.dtype), origin, real=array, lost=lost)
        return self.stored(array, after, value)

    def stored(self, array: Any, shadow: Any, value: Value) -> Store:
        """A new store, to be found by its memory."""
        found = Store(array, shadow, value)
        self._by_place[found.low] = found
        return found

    @staticmethod
    def attach(array: Any, store: Store) -> Any:
        """A plain array that lies in the memory of a store, as user code gets it."""
        found: Any = plain_view(array, Followed)
        found.store = store
        return found

    def wrapped(self, array: Any, known: Known) -> Any:
        """A plain array that another framework gave out. One memory has one store as long as somebody holds it."""
        found = self._there(array)
        if found is None:
            found = self.stored(array, known.shadow, known.value)
        else:
            found.write(array, known.shadow, known.value)
        return self.attach(array, found)

    def store(self, value: Any, plain: Any) -> Store:
        """The store of an array of numbers; of one that was never seen, a new leaf.

        Args:
            value: the array.
            plain: the same memory, plain.
        """
        if isinstance(value, Followed):
            found = value.store
            if found is None or not _suits(found, plain):
                found = value.store = self._new(plain, "numpy", lost="made from a followed array by code that is not followed")
            elif not self.ours(found.value):  # kept by the program since an earlier study
                found = value.store = self._new(plain, "an array from before")
        else:
            found = self._stranger(plain)
        if plain.size and found.strayed(plain):
            self.study.lose(f"written by code that is not followed; seen at {self.source()}")
        return found

    def read(self, store: Store, plain: Any) -> Read:
        """What reading an array in a store reads. Assignments to its parts are put together first, into one value."""
        with self.lock:
            mixed = store.mixed(plain)
            if mixed:
                written = [(store.shadow(plain), str(plain.dtype), plain)]
                reads = [Read(each) for each in mixed]
                [(value, after)] = self.study.operation("numpy.setitem", reads, written, source=self.source())
                store.write(plain, after, value)
            return store.read(plain)

    def ours(self, value: Value) -> bool:
        """Is it a value of this study?"""
        values = self.study.values
        return value.index < len(values) and values[value.index] is value

    def _stranger(self, plain: Any) -> Store:
        found = self._strangers.get(id(plain))
        if found is None or not plain.size or not self.ours(found.value) or not _suits(found, plain):
            found = self._there(plain) or self._new(plain, "an array from elsewhere")
        self._strangers[id(plain)] = found
        self._strangers.move_to_end(id(plain))
        if len(self._strangers) > _STRANGERS:
            self._strangers.popitem(last=False)
        return found

    def known(self, thing: Any) -> Known | None:
        """See `Engine.known`."""
        if isinstance(thing, Followed):
            plain = plain_view(thing, np.ndarray)
            if thing.store is None or not _suits(thing.store, plain) or not self.ours(thing.store.value):
                return None
            store = self.store(thing, plain)
            read = self.read(store, plain)
            return Known(np.array(store.shadow(plain)), read.value)
        if isinstance(thing, Flat):
            base = self.known(thing.base)
            return base and Known(base.shadow.reshape(-1), base.value)
        if followed.is_scalar(thing):
            found: Known = thing.known
            return found if self.ours(found.value) else None
        return None if isinstance(thing, np.generic) else self.numbers.known(thing)

    def elsewhere(self, thing: Any) -> Known | None:
        """The shadow of something that is no array of NumPy."""
        return self.study.known(thing)

    @staticmethod
    def reading(known: Known) -> Read:
        """What reading it reads."""
        whole = known.value.shadow
        same = (
            whole is not None and np.shape(whole) == np.shape(known.shadow) and np.array_equal(whole, known.shadow, equal_nan=_nan(whole))
        )
        return Read(known.value, None if same else np.array(known.shadow))

    def disturb(self, name: str, *, trial: bool = False) -> Disturb | None:
        """What is done to the shadow of each float input of an operation; None for nothing.

        Args:
            name: of the operation.
            trial: noise as in a noise run, whatever kind of run this is.
        """
        form = self.study.rounding if name in CONTRACTIONS else ""
        noise = None if name in MOVES else self._trial if trial else self._noise
        if noise is None and not form:
            return None

        def change(shadow: Any, dtype: Any) -> Any:
            if form and shadow.dtype.kind == "f":
                shadow = round_to(shadow, form).astype(shadow.dtype)
            return shadow if noise is None else noisy(noise, shadow, _INPUT * unit(str(dtype)))

        return change

    def disturbed(self, name: str, shadow: Any, dtype: Any, *, trial: bool = False) -> Any:
        """An output's shadow with the noise of its run."""
        noise = None if name in MOVES else self._trial if trial else self._noise
        return shadow if noise is None or not floats(dtype) else noisy(noise, shadow, _OUTPUT * unit(str(dtype)))

    def as_number(self, thing: Any) -> Any:
        """A scalar, or an array that is one, as Python's functions take it."""
        known = self.known(thing) if isinstance(thing, (np.generic, Followed)) and np.ndim(thing) == 0 else None
        return thing if known is None or known.shadow.dtype.kind != "f" else self.numbers.number(float(thing), known)

    def escaped(self, value: float, known: Known | None) -> None:
        """A number left by a door where only a plain float can go; it is known again by its value."""
        if known is not None:
            self.numbers.escape(value, known, seen=True)

    def number(self, value: Any, known: Known) -> Any:
        """What Python gets of a scalar: a float that is followed; others as they are."""
        return self.numbers.number(value, known) if type(value) is float else value


def _nan(array: Any) -> bool:
    return bool(np.asarray(array).dtype.kind in "fc")


def _suits(store: Store, plain: Any) -> bool:
    return plain.size == 0 or (store.covers(plain) and store.fits(plain))


def noisy(generator: Any, shadow: Any, size: float) -> Any:
    """A shadow, each element times (1 + size N)."""
    factor = generator.standard_normal(np.shape(shadow)) * size
    factor += 1.0
    return shadow * factor
