"""The controls of torch whose public functions are not enough, each with the reason.

Every function here runs only when torch is imported, and takes it from `sys.modules`.
"""

from __future__ import annotations

import sys
from ctypes import string_at
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from detconf.access import Access, Call
from detconf.frameworks.native.controls import ask
from detconf.lookup import Missing, assign, loaded, resolve
from detconf.values import Value, same


def _torch() -> Any:
    return loaded("torch")


def devices() -> frozenset[str]:
    """The device kinds that this build of torch can drive, by what it was compiled with."""
    version = getattr(_torch(), "version", None)
    found = {"cpu", "x86"}
    if getattr(version, "cuda", None):
        found.add("cuda")
    if getattr(version, "hip", None):
        found.add("rocm")
    return frozenset(found)


DEBUG_MODES = ("none", "warn", "error")


@dataclass(frozen=True)
class DeterministicAlgorithms(Access):
    """The eager flag behind `torch.use_deterministic_algorithms`.

    The public function also imports `torch._inductor` (1.15 s of CPU time became 2.05 s, measured on 2.13) to set that
    module's own `deterministic`. The flag it stands on is set directly, and the inductor half is a knob of its own,
    written when that module is imported; where the private name is gone, the public function is called.
    """

    module: str = "torch"

    def read(self) -> Value:
        return DEBUG_MODES[_torch().get_deterministic_debug_mode()]

    def write(self, value: Value) -> None:
        self.load((value != "none", value == "warn"))

    def save(self) -> Any:
        torch = _torch()
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    def load(self, saved: Any) -> None:
        enabled, warn_only = saved
        setter = getattr(_torch()._C, "_set_deterministic_algorithms", _torch().use_deterministic_algorithms)
        setter(enabled, warn_only=warn_only)

    def unchanged(self, saved: Any) -> bool:
        return bool(self.save() == saved)


@dataclass(frozen=True)
class Precision(Access):
    """One node of the float32 precision tree (`fp32_precision`, torch 2.9 and newer).

    Written through the one uniform function, because the public `torch.backends.mkldnn.fp32_precision` writes the
    root of the tree instead of its own node (2.13, `torch/backends/mkldnn/__init__.py`).
    """

    backend: str
    operation: str
    module: str = "torch"

    def _function(self, name: str) -> Any:
        function = getattr(_torch()._C, name, None)
        if function is None:
            msg = f"this torch has no fp32_precision (torch._C.{name})"
            raise Missing(msg)
        return function

    def read(self) -> Value:
        return self._function("_get_fp32_precision_getter")(self.backend, self.operation)

    def write(self, value: Value) -> None:
        self._function("_set_fp32_precision_setter")(self.backend, self.operation, value)

    def own(self) -> Value:
        """What is written at this node itself: "none" where it takes its parent's value, which `read` cannot tell."""
        reading, parent = self.read(), self._parent()
        if parent is None or reading == "none":
            return reading
        kept = parent.own()
        try:
            parent.write("tf32" if reading == "ieee" else "ieee")
            return reading if self.read() == reading else "none"
        finally:
            parent.write(kept)

    def _parent(self) -> Precision | None:
        if self.operation != "all":
            return Precision(self.backend, "all")
        return Precision("generic", "all") if self.backend != "generic" else None


@dataclass(frozen=True)
class Legacy(Access):
    """A setting of the older TF32 API, whose getter raises once the newer API contradicts it.

    The value below the contradiction is found by making the leaves agree with each possible value in turn, asking,
    and putting the leaves back, inheritance included; otherwise `restore` could not bring a mixed state back.

    Attributes:
        getter: path of the function or attribute that is read.
        setter: path of a function; empty where the getter's attribute is assigned.
        leaves: value -> {(backend, operation): precision} under which the getter does not raise for it. Never "none":
            that reads as what the parents say, and they may be what contradicts the value.
    """

    getter: str
    leaves: tuple[tuple[Value, tuple[tuple[str, str, str], ...]], ...]
    setter: str = ""
    module: str = "torch"

    def read(self) -> Value:
        found = resolve(self.getter)
        return found() if callable(found) else found

    def write(self, value: Value) -> None:
        if self.setter:
            resolve(self.setter)(value)
        else:
            assign(self.getter, value)

    def save(self) -> Any:
        try:
            return self.read()
        except RuntimeError:
            return self._below()

    def _below(self) -> Value:
        nodes = {Precision(backend, operation) for _, rows in self.leaves for backend, operation, _ in rows}
        kept = {node: node.own() for node in nodes}
        try:
            for value, rows in self.leaves:
                for backend, operation, precision in rows:
                    Precision(backend, operation).write(precision)
                try:
                    if self.read() == value:
                        return value
                except RuntimeError:
                    continue
        finally:
            for node, precision in kept.items():
                node.write(precision)
        msg = "contradicts the newer fp32_precision API in a way that cannot be taken apart"
        raise RuntimeError(msg)


@dataclass(frozen=True)
class ReducedReduction(Access):
    """`allow_{fp16,bf16}_reduced_precision_reduction`: one boolean before torch 2.10, since then a pair with split-K.

    Read and written as the pair (sums in low precision allowed, split-K allowed).
    """

    name: str
    module: str = "torch"

    def _matmul(self) -> Any:
        return resolve("torch.backends.cuda:matmul")

    def read(self) -> Value:
        matmul = self._matmul()
        allowed = getattr(matmul, self.name)
        split_k = getattr(matmul, f"{self.name}_split_k", allowed)
        return bool(allowed), bool(split_k)

    def write(self, value: Value) -> None:
        matmul = self._matmul()
        has_pair = hasattr(matmul, f"{self.name}_split_k")
        setattr(matmul, self.name, tuple(value) if has_pair else value[0])


@dataclass(frozen=True)
class PreferredBlas(Call):
    """The preferred GEMM library: names of ROCm stand for those of CUDA, and "default" reads as the library it means."""

    def holds(self, wanted: Value) -> bool:
        default = getattr(_torch()._C, "_get_blas_default_backend", None)
        if wanted == "default" and default is not None:
            wanted = str(default()).rpartition(".")[2].lower()
        return same(self.read(), str(wanted).replace("hip", "cu"))


def preferred_blas() -> str:
    """The preferred GEMM library, in the words that its setter takes."""
    return str(resolve("torch.backends.cuda:preferred_blas_library")()).rpartition(".")[2].lower()


def preferred_linalg() -> str:
    """The preferred linear algebra library, in the words that its setter takes."""
    return str(resolve("torch.backends.cuda:preferred_linalg_library")()).rpartition(".")[2].lower()


_MKL = ("libtorch_cpu", "libmkl_rt")


def mkl_dynamic() -> bool:
    """May torch's MKL take fewer threads than it has? A build without MKL has nothing to adjust: False.

    torch links MKL statically and exports only its inner names.
    """
    return any(ask(_MKL, "mkl_serv_get_dynamic"))


def set_mkl_dynamic(value: bool) -> None:
    ask(_MKL, "mkl_serv_set_dynamic", int(value))


def nnpack_enabled() -> bool:
    return bool(_torch()._C._get_nnpack_enabled())


def set_nnpack(value: bool) -> None:
    _torch()._C._set_nnpack_enabled(value)


def flush_denormal() -> bool:
    """Are denormals flushed in the calling thread?

    There is no getter. The setting is a bit of the processor's control register, which Python's own floats obey; an
    operation of torch would tell too, but the first one fixes ATEN_CPU_CAPABILITY for the process.
    """
    return sys.float_info.min * 0.5 == 0.0


def default_dtype() -> str:
    return str(_torch().get_default_dtype()).rpartition(".")[2]


def set_default_dtype(name: str) -> None:
    _torch().set_default_dtype(getattr(_torch(), name))


class Generator:
    """torch's default generators: CPU, and CUDA's where CUDA is already in use."""

    def _cuda(self) -> Any:
        cuda = _torch().cuda
        return cuda if cuda.is_initialized() and cuda.is_available() else None

    def seed(self, seed: int) -> None:
        _torch().manual_seed(seed)  # queued for devices that are not initialised yet

    def state(self) -> Any:
        cuda = self._cuda()
        return _torch().get_rng_state(), cuda.get_rng_state_all() if cuda else None

    def restore(self, state: Any) -> None:
        cpu, devices_ = state
        _torch().set_rng_state(cpu)
        cuda = self._cuda()
        if devices_ is not None and cuda:
            cuda.set_rng_state_all(devices_)

    def fresh(self, seed: int) -> bool:
        torch = _torch()
        return bool(torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(seed).get_state()))

    def digest(self) -> str:
        cpu, devices_ = self.state()
        hashed = blake2b(digest_size=8)
        for state in (cpu, *(devices_ or ())):
            hashed.update(string_at(state.data_ptr(), state.numel()))  # contiguous bytes in main memory, as all of them are
        return hashed.hexdigest()


GENERATOR = Generator()
