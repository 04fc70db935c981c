"""Knobs of torch that choose between implementations of an operation: attention, products, einsum, quantized, TorchScript."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

from detconf.access import Access, Attr, Call
from detconf.knob import Knob, Pattern, Span, Timing
from detconf.lookup import resolve
from detconf.values import Value

_HERE = "detconf.frameworks.torch.selectors"
_C = "torch._C"
_BACKENDS = "https://docs.pytorch.org/docs/stable/backends.html"
_SDPA = "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"
_AMP = "https://docs.pytorch.org/docs/stable/amp.html"
_JIT = "https://docs.pytorch.org/docs/stable/jit.html"
_TUNABLE = "https://docs.pytorch.org/docs/stable/cuda.tunable.html"
_CONTEXT = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/Context.h"
_ALL, _GPU = "cpu|cuda|rocm", "cuda|rocm"

_knob = partial(Knob, framework="torch")
# torch.backends.cuda.SDPBackend, by number.
_SDP = ("math", "flash", "efficient", "cudnn", "overrideable")


def sdp_order() -> str:
    """Attention kernels, the preferred first, joined by commas."""
    return ",".join(_SDP[number] for number in resolve(f"{_C}:_get_sdp_priority_order")())


def set_sdp_order(order: str) -> None:
    resolve(f"{_C}:_set_sdp_priority_order")([_SDP.index(name) for name in order.split(",")])


def rocm_attention() -> str:
    """The preferred attention library on ROCm, in the words that its setter takes."""
    return str(resolve("torch.backends.cuda:preferred_rocm_fa_library")()).rpartition(".")[2].lower()


def autocast_dtype(device: str) -> str:
    torch = sys.modules["torch"]
    getter = getattr(torch, "get_autocast_dtype", None)  # 2.4 and newer; the older pair warns there
    dtype = getter(device) if getter else getattr(torch, f"get_autocast_{_LEGACY[device]}_dtype")()
    return str(dtype).rpartition(".")[2]


def set_autocast_dtype(device: str, name: str) -> None:
    torch = sys.modules["torch"]
    setter = getattr(torch, "set_autocast_dtype", None)
    dtype = getattr(torch, name)
    if setter:
        setter(device, dtype)
    else:
        getattr(torch, f"set_autocast_{_LEGACY[device]}_dtype")(dtype)


_LEGACY = {"cpu": "cpu", "cuda": "gpu"}


def fusion_strategy() -> str:
    """TorchScript's fusion strategy; its setter returns the old one and there is no getter."""
    setter = resolve(f"{_C}:_jit_set_fusion_strategy")
    found = setter([("STATIC", 0)])
    setter(found)
    return ",".join(f"{kind}:{depth}" for kind, depth in found)


def set_fusion_strategy(text: str) -> None:
    pairs = (item.partition(":") for item in text.split(","))
    resolve(f"{_C}:_jit_set_fusion_strategy")([(kind, int(depth)) for kind, _, depth in pairs])


@dataclass(frozen=True)
class AutocastDtype(Access):
    """The dtype that autocast computes in on one kind of device."""

    device: str
    module: str = "torch"

    def read(self) -> Value:
        return autocast_dtype(self.device)

    def write(self, value: Value) -> None:
        set_autocast_dtype(self.device, value)


@dataclass(frozen=True)
class FlashImplementation(Access):
    """The package behind flash attention: one function activates, another puts torch's own back."""

    module: str = "torch.nn.attention"

    def read(self) -> Value:
        return resolve("torch.nn.attention:current_flash_attention_impl")()

    def write(self, value: Value) -> None:
        if value is None:
            resolve("torch.nn.attention:restore_flash_attention_impl")()
        else:
            resolve("torch.nn.attention:activate_flash_attention_impl")(value)


def _call(name: str, getter: str, setter: str, accepts: Any, governs: str, summary: str, docs: str, **more: Any) -> Knob:  # noqa: PLR0913, PLR0917  # a row of a table
    return _knob(
        name=name, access=Call(getter, setter, needs="torch"), accepts=accepts, governs=governs, summary=summary, docs=docs, **more
    )


_ATTENTION = (
    _call(
        "torch._C._set_sdp_use_overrideable", f"{_C}:_get_overrideable_sdp_enabled", f"{_C}:_set_sdp_use_overrideable", bool, _ALL,
        "Allow the attention kernel that a device of another maker brings.", _CONTEXT, serves={"attention": {"math": False}}, absent=False,
    ),
    _call(
        "torch._C._set_sdp_use_fa3", f"{_C}:_get_fa3_sdp_enabled", f"{_C}:_set_sdp_use_fa3", bool, "cuda",
        "Allow FlashAttention 3.", _CONTEXT, serves={"attention": {"math": False}}, absent=False,
    ),
    _call(
        "torch._C._set_sdp_priority_order", f"{_HERE}:sdp_order", f"{_HERE}:set_sdp_order",
        ("flash,efficient,math,cudnn,overrideable", "efficient,flash,math,cudnn,overrideable", "math,flash,efficient,cudnn,overrideable", "cudnn,flash,efficient,math,overrideable"),
        _ALL, "Which attention kernel is taken where several are allowed.", _CONTEXT,
        note="sdpa_kernel(..., set_priority=True) sets it for a block.",
    ),
    _call(
        "torch.backends.cuda.preferred_rocm_fa_library", f"{_HERE}:rocm_attention", "torch.backends.cuda:preferred_rocm_fa_library",
        ("default", "aotriton", "ck"), "rocm", "Library of flash attention.", _BACKENDS,
        note="The memory-efficient backward of Composable Kernel is not deterministic whatever is asked for (pytorch/pytorch#197771).",
    ),
    _knob(
        name="torch.nn.attention.activate_flash_attention_impl", access=FlashImplementation(), accepts=(None, "FA3", "FA4"), governs="cuda",
        summary="Package behind flash attention; null for torch's own.", docs="https://docs.pytorch.org/docs/stable/nn.attention.html",
        note="Needs the package and a device; both packages follow the deterministic-algorithms flag.",
    ),
)  # fmt: skip

_PRODUCTS = (
    _call(
        "torch._C._set_cpu_allow_fp16_reduced_precision_reduction", f"{_C}:_get_cpu_allow_fp16_reduced_precision_reduction",
        f"{_C}:_set_cpu_allow_fp16_reduced_precision_reduction", bool, "cpu", "Sums of fp16 matrix-vector products in fp16, on ARM.", _CONTEXT,
        serves={"accumulation": {"full": False}}, absent=False, note="A processor without fp16 arithmetic refuses true (measured on 2.13).",
    ),
    _call(
        "torch._C._set_sm_carveout_experimental", f"{_C}:_get_sm_carveout_experimental", f"{_C}:_set_sm_carveout_experimental", Span(0, 4096), "cuda",
        "Multiprocessors that products leave free, and with them the tiles.", _CONTEXT, note="Warns that it is experimental.",
    ),
    _call(
        "torch.backends.cuda.cublas_workspace_size", "torch.backends.cuda:cublas_workspace_size", "torch.backends.cuda:cublas_workspace_size", Span(0), _GPU,
        "Bytes that torch hands to cuBLAS, and with them the algorithms to choose from; outranks CUBLAS_WORKSPACE_CONFIG.", _BACKENDS,
    ),
    _call(
        "torch.backends.cuda.cublaslt_workspace_size", "torch.backends.cuda:cublaslt_workspace_size", "torch.backends.cuda:cublaslt_workspace_size", Span(0), _GPU,
        "Bytes that torch hands to cuBLASLt.", _BACKENDS,
    ),
    _call(
        "torch.cuda.tunable.enable", "torch.cuda.tunable:is_enabled", "torch.cuda.tunable:enable", bool, _GPU,
        "Choose product kernels by timing or from a file: PYTORCH_TUNABLEOP_ENABLED, set while the process runs.", _TUNABLE,
        serves={"autotune": {False: False}}, absent=False,
    ),
    _call(
        "torch.cuda.tunable.tuning_enable", "torch.cuda.tunable:tuning_is_enabled", "torch.cuda.tunable:tuning_enable", bool, _GPU,
        "Time products that the file does not know; off, a pinned file decides alone.", _TUNABLE,
    ),
    *(
        _knob(
            name=f"torch.backends.python_native.{language}.enabled", access=Attr(f"torch.backends.python_native:{language}.enabled"), accepts=bool, governs="cuda",
            summary=f"Replace eager operations by {language} kernels where that package is installed.",
            docs="https://github.com/pytorch/pytorch/blob/main/torch/backends/python_native/__init__.py",
            note="Product, foreach, RMS normalisation, scatter_add and topk; whether the package is installed changes bits by itself.",
        )
        for language in ("triton", "cutedsl")
    ),
    _knob(
        name="torch.backends.opt_einsum.strategy", access=Attr("torch.backends.opt_einsum:strategy"), accepts=("auto", "greedy", "optimal"), governs=_ALL,
        summary="How the opt_einsum package chooses a contraction order.", docs=_BACKENDS, note="greedy and auto differ with four operands (measured on 2.13).",
    ),
    _knob(
        name="torch.backends.quantized.engine", access=Attr("torch.backends:quantized.engine"), accepts=("fbgemm", "onednn", "qnnpack", "x86"), governs="cpu",
        summary="Kernels of quantized operations.", docs="https://docs.pytorch.org/docs/stable/quantization.html#backend-hardware-support",
    ),
)  # fmt: skip

_AUTOCAST = (
    *(
        _knob(
            name=name, access=AutocastDtype(device), accepts=("bfloat16", "float16"), scope="thread", governs=governs,
            summary=f"The dtype that autocast computes in on {words}.", docs=_AMP, note="torch.set_autocast_dtype since 2.4; autocast(dtype=...) outranks it.",
        )
        for name, device, governs, words in (
            ("torch.set_autocast_cpu_dtype", "cpu", "cpu", "CPU"), ("torch.set_autocast_gpu_dtype", "cuda", _GPU, "CUDA and ROCm"),
        )
    ),
    _call(
        "torch.set_autocast_cache_enabled", "torch:is_autocast_cache_enabled", "torch:set_autocast_cache_enabled", bool, _ALL,
        "Cast a parameter once in an autocast block instead of at each use.", _AMP, scope="thread",
    ),
    _call(
        "torch.autograd.set_multithreading_enabled", "torch.autograd:is_multithreading_enabled", "torch.autograd:set_multithreading_enabled", bool, _ALL,
        "One thread for each device in the backward pass; off, everything runs in the calling thread.",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#multithreaded-autograd", scope="thread",
    ),
)  # fmt: skip

_KEPT = "functions that were optimised meanwhile stay as they are"
_SCRIPT = (
    _call(
        "torch._C._jit_set_texpr_fuser_enabled", f"{_C}:_jit_texpr_fuser_enabled", f"{_C}:_jit_set_texpr_fuser_enabled", bool, _ALL,
        "Fuse TorchScript functions after their first runs: the same function then has other bits.", _JIT, timing=Timing.AT_COMPILE, undo=_KEPT,
    ),
    _call(
        "torch._C._jit_override_can_fuse_on_cpu", f"{_C}:_jit_can_fuse_on_cpu", f"{_C}:_jit_override_can_fuse_on_cpu", bool, "cpu",
        "Fuse them on CPU too.", _JIT, timing=Timing.AT_COMPILE, undo=_KEPT,
    ),
    _call(
        "torch._C._jit_override_can_fuse_on_gpu", f"{_C}:_jit_can_fuse_on_gpu", f"{_C}:_jit_override_can_fuse_on_gpu", bool, _GPU,
        "Fuse them on GPU.", _JIT, timing=Timing.AT_COMPILE, undo=_KEPT,
    ),
    _call(
        "torch.jit.enable_onednn_fusion", "torch.jit:onednn_fusion_enabled", "torch.jit:enable_onednn_fusion", bool, "cpu",
        "Fuse TorchScript functions into oneDNN graphs.", "https://docs.pytorch.org/docs/stable/generated/torch.jit.enable_onednn_fusion.html",
        timing=Timing.AT_COMPILE, undo=_KEPT,
    ),
    _call(
        "torch.jit.set_fusion_strategy", f"{_HERE}:fusion_strategy", f"{_HERE}:set_fusion_strategy",
        Pattern(r"(STATIC|DYNAMIC):[0-9]{1,2}(,(STATIC|DYNAMIC):[0-9]{1,2})?", "kinds with depths, such as STATIC:2,DYNAMIC:10"), _ALL,
        "How often TorchScript specialises a function to new shapes.", "https://docs.pytorch.org/docs/stable/generated/torch.jit.set_fusion_strategy.html",
        timing=Timing.AT_COMPILE, undo=_KEPT,
    ),
)  # fmt: skip

SELECTORS = (*_ATTENTION, *_PRODUCTS, *_AUTOCAST, *_SCRIPT)
