"""The float64 twins of Paddle's tensors, and which value of a study each tensor holds.

A real float tensor has a *twin*: a float64 tensor (complex128 likewise) that the same operations made of the twins of
their inputs, so that Paddle's autograd keeps a graph of the twins beside that of the real ones. Tensors that share memory
(views) have twins that share memory, and one `Store`, which says what was written there last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ref

import numpy as np
import paddle

from detconf.frameworks.paddle.apart import Apart
from detconf.frameworks.paddle.contents import digest
from detconf.shadows.formats import ROUNDINGS, round_to
from detconf.shadows.study import Known, Read, Study, Value

_core = paddle.base.core
_NARROW = frozenset(("bfloat16", "float8_e4m3fn", "float8_e5m2"))
_WIDE = dict.fromkeys(("float16", "float32", "float64", *_NARROW), paddle.float64)
_WIDE |= dict.fromkeys(("complex64", "complex128"), paddle.complex128)
_NAME = "detconf_shadow"
_names: dict[Any, str] = {}
_NEAR = 1e-2
NO_BETTER = "paddle has no more precision than float64"


def dtype_of(tensor: Any) -> str:
    """As `arrays.Array` spells it."""
    kind = tensor.dtype
    name = _names.get(kind)
    if name is None:
        name = _names[kind] = str(kind).rpartition(".")[2]
    return name


class Store:
    """Memory, and what was last written there.

    Attributes:
        value: of the study.
        shape: stands for the geometry in which it was written: who has the same one holds the value as a whole.
        writes: how often that was.
    """

    __slots__ = ("shape", "value", "writes")

    def __init__(self, value: Value, shape: object) -> None:
        self.value, self.shape, self.writes = value, shape, 0

    def write(self, value: Value, shape: object) -> None:
        """Another value is there now."""
        self.value, self.shape, self.writes = value, shape, self.writes + 1


class Flow:
    """An operation in the graph.

    Attributes:
        name, reads, source: of the operation.
        gradients: of what it gave, as far as they arrived: number of the pass, value; None where a pass starts.
    """

    __slots__ = ("gradients", "name", "reads", "source")

    def __init__(self, name: str, reads: Sequence[Read], source: str) -> None:
        self.name, self.reads, self.source = name, list(reads), source
        self.gradients: list[tuple[int, Value | None]] = []


class Record:
    """What is known of a tensor.

    Attributes:
        twin: in float64; None for integers, booleans, and in local runs.
        store: the memory.
        shape: the geometry, see `Store`.
        gradient: of a leaf: the record of its gradient, once that was seen.
        seen: number of backward passes when that was.
        hooks: of the program on the gradient: their numbers -> those of their counterparts on the twin.
        flow: the operation that made it, in the graph; None for a leaf.
        readers: the operations that read it or a view of it.
        arrived: the last gradient that arrived there.
        digest, writes: of the real bytes, and of the memory, when they were last seen.
    """

    __slots__ = ("arrived", "digest", "flow", "gradient", "hooks", "readers", "seen", "shape", "store", "twin", "writes")

    def __init__(self, twin: Any, store: Store, shape: object) -> None:
        self.twin, self.store, self.shape = twin, store, shape
        self.gradient: Record | None = None
        self.hooks: dict[Any, Any] = {}
        self.flow: Flow | None = None
        self.readers: list[Flow] = []
        self.arrived: Value | None = None
        self.seen = -1
        self.digest, self.writes = b"", -1

    def met(self, tensor: Any) -> bool:
        """Is `tensor`, whose record this is, as it was when it was last met, but for what the study saw?"""
        before, self.digest = self.digest, digest(tensor)
        seen, self.writes = self.writes, self.store.writes
        return seen != self.writes or before == self.digest


class Twins(Apart):
    """The tensors of one study.

    Args:
        study: where values are noted.
    """

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self._records: dict[int, tuple[Any, Record]] = {}
        self.numpy: Any = vars(paddle.Tensor)["numpy"]
        self.grad: Any = vars(paddle.Tensor)["grad"]

    # --- conversions, to be called quietly

    def elements(self, tensor: Any) -> Any:
        """A tensor as a NumPy array: floats in float64, the rest as it is. Owned."""
        name = dtype_of(tensor)
        if tensor.is_selected_rows():  # a gradient of some rows only: those
            return np.array(tensor.get_selected_rows().get_tensor(), dtype=np.float64)
        if name in _NARROW:
            tensor = paddle.cast(tensor, "float32")
        array = self.numpy(tensor)
        wide = _WIDE.get(name)
        if wide is None:
            return np.array(array)
        return array.astype(np.float64 if wide is paddle.float64 else np.complex128)

    def real(self, tensor: Any) -> Any:
        """The real array, where the study keeps those: in its own dtype, but for formats that NumPy has not."""
        if not self.study.keep_real or not readable(tensor):
            return None
        odd = tensor.is_selected_rows() or dtype_of(tensor) in _NARROW
        return self.elements(tensor) if odd else np.array(self.numpy(tensor))

    def tensor(self, array: Any, like: Any, *, stop_gradient: bool = True) -> Any:
        """A float64 (complex128) array as a tensor where `like` is."""
        array = np.asarray(array)
        array = np.ascontiguousarray(array, dtype=np.complex128 if np.iscomplexobj(array) else np.float64).reshape(array.shape)
        return _core.eager.Tensor(
            value=array, place=like.place, persistable=False, zero_copy=False, name=_NAME, stop_gradient=stop_gradient
        )

    def overwrite(self, twin: Any, array: Any) -> None:
        """Other elements for a twin, in its memory; the graph that it is part of stays."""
        source = self.tensor(np.asarray(array).reshape(twin.shape), twin)
        kept = twin.stop_gradient
        with self.quietly(graph=False):
            alias = twin.detach()
            alias.copy_(source, True)
        twin.stop_gradient = kept

    # --- records

    def find(self, tensor: Any) -> Record | None:
        """The record of a tensor, if it has one."""
        found = self._records.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def keep(self, tensor: Any, record: Record) -> Record:
        """This is the record of that tensor."""
        key, records = id(tensor), self._records
        record.met(tensor)
        records[key] = ref(tensor, lambda _: records.pop(key, None)), record
        return record

    def forget(self) -> None:
        """No tensor has a record any more."""
        self._records.clear()

    def followed(self, tensor: Any) -> Record | None:
        """The record of a tensor that an operation reads; a leaf from outside where there is none yet. Call quietly.

        None for a tensor without elements of its own: sparse, or never filled.
        """
        record = self.find(tensor)
        if record is None:
            return self.leaf(tensor, None, "outside")
        if not record.met(tensor) and not self._alike(tensor, record):
            self.replaced(tensor, None, "written outside paddle's operations")
        twin = record.twin
        if twin is not None and twin.stop_gradient != tensor.stop_gradient and twin.is_leaf:
            twin.stop_gradient = tensor.stop_gradient
        return record

    def _alike(self, tensor: Any, record: Record) -> bool:
        """Is a twin near its tensor? Then an operation that nobody knows to write there has written both."""
        if record.twin is None:
            return False
        real, shadow = self.elements(tensor), self.elements(record.twin)
        return bool(real.shape == shadow.shape and np.allclose(real, shadow, rtol=_NEAR, atol=_NEAR * np.max(np.abs(real), initial=0.0)))

    def leaf(self, tensor: Any, shadow: Any, origin: str, lost: str = "") -> Record | None:
        """A tensor from outside. Call quietly.

        Args:
            shadow: what it is in float64, or None for its real elements.
        """
        if not readable(tensor):
            return None
        real = self.elements(tensor)
        if shadow is None or np.shape(shadow) != real.shape or real.dtype.kind not in "fc":
            shadow = real
        value, kept = self.study.leaf(shadow, dtype_of(tensor), origin, real=self.real(tensor), lost=lost)
        return self.made(tensor, kept, value)

    def made(self, tensor: Any, shadow: Any, value: Value, twin: Any = None) -> Record:
        """`tensor` holds `value`: a record with a twin of its own. Call quietly."""
        shape = object()
        if twin is None and not self.study.local and dtype_of(tensor) in _WIDE:
            twin = self.tensor(shadow, tensor, stop_gradient=tensor.stop_gradient)
        record = Record(twin, Store(value, shape), shape)
        return self.keep(tensor, record)

    def arrived(self, tensor: Any, known: Known, origin: str) -> Record | None:
        """A copy of something whose shadow is known. Call quietly."""
        real = self.elements(tensor) if readable(tensor) else None
        if real is None or np.shape(known.shadow) != real.shape:
            return self.leaf(tensor, None, origin)
        shadow = real if real.dtype.kind not in "fc" else self.kept(np.asarray(known.shadow), dtype_of(tensor))
        record = self.made(tensor, shadow, known.value)
        if real.dtype.kind not in "fc" or self.study.casts == "kept" or real.shape != known.value.shape:
            record.shape = object()
        return record

    def replaced(self, tensor: Any, known: Known | None, origin: str, shadow: Any = None) -> None:
        """A tensor got other elements, in its own memory. Call quietly."""
        before = self.find(tensor)
        made = self.leaf(tensor, shadow, origin) if known is None else self.arrived(tensor, known, origin)
        if before is None or made is None:
            return
        if before.twin is not None and made.twin is not None and list(before.twin.shape) == list(made.twin.shape):
            self.overwrite(before.twin, self.elements(made.twin))
        before.store.write(made.store.value, before.shape if made.shape is made.store.shape else object())
        self.keep(tensor, before)

    def kept(self, shadow: Any, dtype: str) -> Any:
        """A shadow after a cast to `dtype`."""
        shadow = shadow.astype(np.complex128 if np.iscomplexobj(shadow) else np.float64)
        return round_to(shadow, dtype) if self.study.casts == "kept" and dtype in ROUNDINGS and shadow.dtype.kind == "f" else shadow

    # --- shadows

    def shadow(self, tensor: Any, record: Record) -> Any:
        """The elements of a tensor's shadow. Call quietly."""
        return self.elements(tensor if record.twin is None else record.twin)

    def read(self, tensor: Any, record: Record) -> Read:
        """What an operation reads in a tensor. Call quietly."""
        if record.shape is record.store.shape:
            return Read(record.store.value)
        return Read(record.store.value, self.shadow(tensor, record))

    def known(self, tensor: Any) -> Known | None:
        """The shadow of a tensor as it is now."""
        with self.quietly(graph=False):
            record = self.followed(tensor)
            return None if record is None else Known(self.shadow(tensor, record), record.store.value)


def readable(tensor: Any) -> bool:
    """Does a tensor have elements of its own?"""
    return bool((tensor.is_dense() or tensor.is_selected_rows()) and tensor._is_initialized()) and dtype_of(tensor) not in (
        "pstring",
        "none",
    )


def floating(tensor: Any) -> bool:
    """Is it a tensor of floats or complex numbers?"""
    return dtype_of(tensor) in _WIDE
