"""torch's knobs of precision: the float32 precision tree with its two older setters, and what products accumulate in.

The order matters for the tree: legacy setters first, then parents, then leaves. That is the only order after which every
reader of both API families works (measured on 2.13; torch/backends/__init__.py and aten/src/ATen/Context.cpp hold the rules).
"""

from __future__ import annotations

from functools import partial

from detconf.access import Attr, Call
from detconf.frameworks.torch.controls import Legacy, Precision, ReducedReduction
from detconf.knob import Knob, Outranks

_BACKENDS = "https://docs.pytorch.org/docs/stable/backends.html"
_NUMERICAL = "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html"

_knob = partial(Knob, framework="torch")
_PRECISION = ("none", "ieee", "tf32")
_PRECISION_CPU = ("none", "ieee", "tf32", "bf16")
_TF32_BEATERS = (Outranks("NVIDIA_TF32_OVERRIDE", ("1",)),)
_FULL, _REDUCED = (False, False), (True, True)
_EXACT = {False: "ieee", True: "tf32"}
# An "already ieee" leaf may only have inherited it, so that its parent's default comes back with the parent's value.
_INHERITS = "a value that was inherited from a parent comes back as the same value, written out"

_MATMUL_LEAVES = (
    ("highest", (("cuda", "matmul", "ieee"), ("mkldnn", "matmul", "ieee"))),
    ("high", (("cuda", "matmul", "tf32"), ("mkldnn", "matmul", "tf32"))),
    ("medium", (("cuda", "matmul", "tf32"), ("mkldnn", "matmul", "bf16"))),
)
_CUDNN_LEAVES = (
    (True, (("cuda", "conv", "tf32"), ("cuda", "rnn", "tf32"))),
    (False, (("cuda", "conv", "ieee"), ("cuda", "rnn", "ieee"))),
)
_TREE = {
    "torch.backends.fp32_precision": ("generic", "all", _PRECISION_CPU, "cpu|cuda|rocm", "Root of the float32 precision tree."),
    "torch.backends.cudnn.fp32_precision": (
        "cuda", "all", _PRECISION, "cuda|rocm", "Float32 precision of all CUDA libraries; despite its name it also governs cuBLAS.",
    ),
    "torch.backends.mkldnn.fp32_precision": ("mkldnn", "all", _PRECISION_CPU, "cpu", "Float32 precision of oneDNN."),
    "torch.backends.cuda.matmul.fp32_precision": ("cuda", "matmul", _PRECISION, "cuda|rocm", "Float32 precision of cuBLAS products."),
    "torch.backends.cudnn.conv.fp32_precision": (
        "cuda", "conv", _PRECISION, "cuda|rocm", "Float32 precision of cuDNN convolutions; TF32 by default on Ampere and newer.",
    ),
    "torch.backends.cudnn.rnn.fp32_precision": (
        "cuda", "rnn", _PRECISION, "cuda|rocm", "Float32 precision of cuDNN recurrent layers; TF32 by default on Ampere and newer.",
    ),
    "torch.backends.mkldnn.matmul.fp32_precision": ("mkldnn", "matmul", _PRECISION_CPU, "cpu", "Float32 precision of oneDNN products."),
    "torch.backends.mkldnn.conv.fp32_precision": ("mkldnn", "conv", _PRECISION_CPU, "cpu", "Float32 precision of oneDNN convolutions."),
    "torch.backends.mkldnn.rnn.fp32_precision": ("mkldnn", "rnn", _PRECISION_CPU, "cpu", "Float32 precision of oneDNN recurrent layers."),
}  # fmt: skip
_LEGACY = ("torch.set_float32_matmul_precision", "torch.backends.cudnn.allow_tf32")

PRECISION = (
    _knob(
        name="torch.set_float32_matmul_precision",
        access=Legacy("torch:get_float32_matmul_precision", _MATMUL_LEAVES, setter="torch:set_float32_matmul_precision"),
        accepts=("highest", "high", "medium"),
        serves={"tf32": {False: "highest", True: "high"}},
        governs="cpu|cuda|rocm",
        summary="Legacy precision of float32 matrix products.",
        docs="https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
        touches=(_LEGACY[1], *_TREE),  # the other one too: what it was told meanwhile may contradict the tree put back
        outranked_by=_TF32_BEATERS,
        note="'HIGH' and other misspellings only warn and have no effect; the getter raises once fp32_precision contradicts it.",
    ),
    _knob(
        name="torch.backends.cudnn.allow_tf32",
        access=Legacy("torch.backends:cudnn.allow_tf32", _CUDNN_LEAVES),
        accepts=bool,
        serves={"tf32": {False: False, True: True}},
        governs="cuda|rocm",
        summary="Legacy switch for TF32 in cuDNN convolutions and recurrent layers; on by default.",
        docs="https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices",
        touches=(_LEGACY[0], *_TREE),
        outranked_by=_TF32_BEATERS,
        note="`with torch.backends.cudnn.flags(enabled=True)` turns it on inside its block: True is that argument's default.",
    ),
    *(
        _knob(
            name=name,
            access=Precision(backend, operation),
            accepts=accepts,
            serves={"tf32": _EXACT},
            governs=governs,
            summary=summary,
            docs=_NUMERICAL,
            undo=_INHERITS,
            instead=_LEGACY,
            touches=(*_LEGACY, *(other for other in _TREE if other != name)),
            outranked_by=_TF32_BEATERS if backend == "cuda" else (),
        )
        for name, (backend, operation, accepts, governs, summary) in _TREE.items()
    ),
)

ACCUMULATION = (
    *(
        _knob(
            name=f"torch.backends.cuda.matmul.allow_{short}_reduced_precision_reduction",
            access=ReducedReduction(f"allow_{short}_reduced_precision_reduction"),
            accepts=(_FULL, (False, True), _REDUCED),
            serves={"accumulation": {"full": _FULL, "reduced": _REDUCED}},
            governs="cuda|rocm",
            summary=f"{short} products of cuBLAS: (partial sums in {short}, split-K), on by default.",
            docs=_NUMERICAL,
            note="A single boolean before torch 2.10; (true, false) does not exist.",
        )
        for short in ("fp16", "bf16")
    ),
    _knob(
        name="torch.backends.cuda.matmul.allow_fp16_accumulation",
        access=Attr("torch.backends.cuda:matmul.allow_fp16_accumulation"),
        accepts=bool,
        absent=False,
        serves={"accumulation": {"full": False, "reduced": True}},
        governs="cuda|rocm",
        summary="Accumulate fp16 products in fp16.",
        docs=_NUMERICAL,
    ),
    _knob(
        name="torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp",
        access=Call("torch.backends.cuda:fp16_bf16_reduction_math_sdp_allowed", "torch.backends.cuda:allow_fp16_bf16_reduction_math_sdp"),
        accepts=bool,
        serves={"accumulation": {"full": False, "reduced": True}},
        governs="cpu|cuda|rocm",
        summary="Reductions of the plain attention kernel in fp16 or bf16.",
        docs=_BACKENDS,
    ),
)
