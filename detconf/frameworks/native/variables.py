"""The long tail of variables of native libraries, one row each; those that profiles set stand in `knobs`.

Rows for CUDA and ROCm were taken from public documentation and source and never tried on a device here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from detconf.access import Env
from detconf.knob import Knob, Pattern, Timing
from detconf.late import Imported, Late, Mapped, Says
from detconf.values import Value

_SWITCH = ("0", "1")
_NUMBER = Pattern(r"[0-9]{1,12}", "a number")
_PATH = Pattern(r"[\x21-\x7e][\x20-\x7e]*", "a path")
_WORKSPACE = Pattern(r"(:[0-9]+:[0-9]+)+", "':SIZE:COUNT', several in a row")
_ALLOC = Pattern(r"[a-z0-9_]+:[A-Za-z0-9_.\[\]:>-]+(,[a-z0-9_]+:[A-Za-z0-9_.\[\]:>-]+)*", "option:value, separated by commas")

_OPENMP = Mapped(("libiomp5", "libomp"))
_MKL = Mapped(("libtorch_cpu", "libmkl", "libmklml"), brought_by=("torch", "paddle"))
_ONEDNN = Mapped(("libtorch_cpu", "libdnnl", "libmkldnn"), brought_by=("torch", "paddle"))
_CUBLAS = Mapped(("libcublas",), brought_by=("torch", "paddle"))
_NCCL_LOADED = Mapped(("libnccl", "librccl"), brought_by=("torch", "paddle"))
_GPU_STARTED = Says("torch.cuda:is_initialized")
_TORCH = Imported("torch")

_MKL_DOCS = "https://www.intel.com/content/www/us/en/docs/onemkl/developer-guide-linux/current/"
_ONEDNN_DOCS = "https://uxlfoundation.github.io/oneDNN/"
_TORCH_CUDA = "https://docs.pytorch.org/docs/stable/cuda_environment_variables.html"
_TORCH_BLAS = "https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cuda.preferred_blas_library"
_TORCH_LINALG = "https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cuda.preferred_linalg_library"
_TORCH_ALLOC = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
_TUNABLE = "https://docs.pytorch.org/docs/stable/cuda.tunable.html"
_HIP = "https://docs.pytorch.org/docs/stable/notes/hip.html"
_EMULATION = "https://docs.nvidia.com/cuda/cublas/index.html#floating-point-emulation"
_CUDA_ENV = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables"
_CUDNN_SOURCE = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cudnn/Conv_v8.cpp"
_MKLDNN_SOURCE = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/mkldnn/Matmul.cpp"
_MIOPEN = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/reference/env_variables.html"
_ROCBLAS = "https://rocm.docs.amd.com/projects/rocBLAS/en/latest/reference/env-variables.html"
_HIPBLASLT = "https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/env-variables.html"
_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_ALLOCATOR = "The allocator decides on addresses and on running out of memory, and so on which algorithm fits; it does no arithmetic."


@dataclass(frozen=True, slots=True)
class _Row:
    variable: str
    accepts: Any
    late: Late
    governs: str
    summary: str
    docs: str
    serves: dict[str, dict[Value, Value]] = field(default_factory=dict)
    note: str = ""
    default: str = ""


_CPU = (
    _Row("MKL_DOMAIN_NUM_THREADS", Pattern(r"[A-Za-z0-9_=:, ]+", "MKL_DOMAIN_BLAS=1 and its like"), _MKL, "x86", "Threads of MKL by kind of function; outranks MKL_NUM_THREADS.", _MKL_DOCS),
    _Row(
        "MKL_ENABLE_INSTRUCTIONS", ("SSE4_2", "AVX", "AVX2", "AVX512", "AVX512_E1", "AVX512_E2", "AVX512_E3", "AVX512_E4"), _MKL, "x86",
        "Highest instruction set of MKL's kernels on Intel processors.", _MKL_DOCS, note="No effect on AMD processors (measured); MKL_CBWR is what profiles set.",
    ),
    _Row("DNNL_MAX_CPU_ISA", Pattern(r"[A-Z0-9_]+", "a name that ONEDNN_MAX_CPU_ISA takes"), _ONEDNN, "x86", "ONEDNN_MAX_CPU_ISA by its older name.", f"{_ONEDNN_DOCS}dev_guide_cpu_dispatcher_control.html"),
    _Row("ONEDNN_CPU_ISA_HINTS", ("NO_HINTS", "PREFER_YMM"), _ONEDNN, "x86", "Prefer narrower vectors in oneDNN's kernels.", f"{_ONEDNN_DOCS}dev_guide_cpu_isa_hints.html"),
    _Row("DNNL_DEFAULT_FPMATH_MODE", ("STRICT", "BF16", "F16", "TF32", "ANY"), _ONEDNN, "x86", "ONEDNN_DEFAULT_FPMATH_MODE by its older name.", f"{_ONEDNN_DOCS}dev_guide_attributes_fpmath_mode.html", default="STRICT"),
    _Row("TORCH_MKLDNN_MATMUL_MIN_DIM", _NUMBER, _TORCH, "cpu", "Smallest matrices that go to oneDNN.", _MKLDNN_SOURCE),
    _Row("TORCH_MKLDNN_MATMUL_MIN_SIZE", _NUMBER, _TORCH, "cpu", "Smallest products that go to oneDNN.", _MKLDNN_SOURCE),
    _Row(
        "KMP_DETERMINISTIC_REDUCTION", Pattern(r"(?i)true|false|0|1", "TRUE, FALSE"), _OPENMP, "cpu", "Fixed order of OpenMP reductions in Intel's and LLVM's runtime.",
        "https://www.intel.com/content/www/us/en/docs/dpcpp-cpp-compiler/developer-guide-reference/current/supported-environment-variables.html",
        note="GNU's runtime, which torch's wheels bring, does not know it. Paddle brings Intel's.",
    ),
)  # fmt: skip

_NVIDIA = (
    _Row("TORCH_CUBLASLT_UNIFIED_WORKSPACE", _SWITCH, _GPU_STARTED, "cuda", "One workspace for cuBLAS and cuBLASLt.", _TORCH_CUDA),
    _Row("TORCH_BLAS_PREFER_CUBLASLT", _SWITCH, _TORCH, "cuda", "cuBLASLt in place of cuBLAS.", _TORCH_BLAS),
    _Row("TORCH_LINALG_PREFER_CUSOLVER", _SWITCH, _TORCH, "cuda", "cuSOLVER for decompositions and solvers.", _TORCH_LINALG),
    _Row("TORCH_CUDNN_V8_API_DISABLED", _SWITCH, _GPU_STARTED, "cuda", "Choose convolutions by cuDNN's older interface.", _CUDNN_SOURCE),
    _Row(
        "CUBLAS_EMULATE_SINGLE_PRECISION", _SWITCH, _CUBLAS, "cuda", "Compute float32 products from bfloat16 pieces.", _EMULATION, {"tf32": {False: None}},
        "CUDA 12.9 and newer; no getter of torch shows it.",
    ),
    _Row(
        "CUBLAS_EMULATE_DOUBLE_PRECISION", _SWITCH, _CUBLAS, "cuda", "Compute float64 products from integer pieces.", _EMULATION, {"tf32": {False: None}},
        "CUDA 13 and newer; no getter of torch shows it.",
    ),
    _Row("CUBLAS_EMULATION_STRATEGY", ("performant", "eager"), _CUBLAS, "cuda", "When products are emulated.", _EMULATION),
    _Row("CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT", _NUMBER, _CUBLAS, "cuda", "Bits of emulated float64 products.", _EMULATION),
    _Row("CUDA_DEVICE_MAX_CONNECTIONS", _NUMBER, _GPU_STARTED, "cuda", "Queues between host and device; 1 keeps the order of launches.", _CUDA_ENV),
    _Row("PYTORCH_ALLOC_CONF", _ALLOC, _GPU_STARTED, "cuda|rocm", "torch's allocator.", _TORCH_ALLOC, note=_ALLOCATOR),
    _Row("PYTORCH_CUDA_ALLOC_CONF", _ALLOC, _GPU_STARTED, "cuda", "torch's allocator, by its older name.", _TORCH_ALLOC, note=_ALLOCATOR),
    _Row("PYTORCH_NO_CUDA_MEMORY_CACHING", _SWITCH, _GPU_STARTED, "cuda|rocm", "Give every tensor memory of its own.", _TORCH_CUDA, note=_ALLOCATOR),
    _Row(
        "TORCH_DISABLE_NATIVE_JIT", _SWITCH, _TORCH, "cuda", "No replacement of eager operations by Triton or CuteDSL kernels.",
        "https://github.com/pytorch/pytorch/blob/main/torch/_native/common_utils.py",
    ),
    _Row("PYTORCH_TUNABLEOP_TUNING", _SWITCH, _GPU_STARTED, "cuda|rocm", "Time products that the file does not know.", _TUNABLE),
    _Row("PYTORCH_TUNABLEOP_FILENAME", _PATH, _GPU_STARTED, "cuda|rocm", "The file of choices made by timing: hidden state of the machine unless it is pinned.", _TUNABLE),
    _Row("PYTORCH_TUNABLEOP_ROCBLAS_ENABLED", _SWITCH, _GPU_STARTED, "rocm", "rocBLAS among the kernels that are timed.", _TUNABLE),
    _Row("PYTORCH_TUNABLEOP_HIPBLASLT_ENABLED", _SWITCH, _GPU_STARTED, "rocm", "hipBLASLt among the kernels that are timed.", _TUNABLE),
)  # fmt: skip

_AMD = (
    _Row("HIPBLASLT_ALLOW_TF32", _SWITCH, _TORCH, "rocm", "TF32 on MI300 in torch 2.7 and its neighbours.", _HIP, {"tf32": {False: None}}, "Later versions follow the fp32_precision keys alone."),
    _Row("HIPBLAS_WORKSPACE_CONFIG", _WORKSPACE, _GPU_STARTED, "rocm", "CUBLAS_WORKSPACE_CONFIG by its name on ROCm.", _HIP),
    _Row("ROCBLAS_WORKSPACE_CONFIG", _WORKSPACE, _GPU_STARTED, "rocm", "The same, by an older name.", _HIP),
    _Row("HIPBLASLT_WORKSPACE_SIZE", _NUMBER, _GPU_STARTED, "rocm", "KiB that torch hands to hipBLASLt.", _HIP),
    _Row("TORCH_LINALG_PREFER_HIPSOLVER", _SWITCH, _TORCH, "rocm", "hipSOLVER for decompositions and solvers.", _TORCH_LINALG),
    _Row("TORCH_ROCM_FA_PREFER_CK", _SWITCH, _TORCH, "rocm", "Composable Kernel for flash attention.", _HIP, {"deterministic": {"warn": None, "error": None}}, "Its memory-efficient backward is not deterministic (pytorch/pytorch#197771)."),
    _Row("ROCM_ALLOW_GROUP_GEMM_CK", _SWITCH, _TORCH, "rocm", "Composable Kernel for grouped products.", _HIP, note="Read at each call by the versions looked at; an import of torch counts as too late here."),
    _Row("ROCBLAS_USE_HIPBLASLT", _SWITCH, _GPU_STARTED, "rocm", "rocBLAS hands products to hipBLASLt.", _ROCBLAS),
    _Row("TENSILE_SOLUTION_SELECTION_METHOD", ("0", "1", "2"), _GPU_STARTED, "rocm", "How hipBLASLt chooses a kernel: 0 by tuned tables, 2 by a model, with Stream-K.", _HIPBLASLT, note="No effect on MI350, which knows Stream-K only."),
    _Row("TENSILE_SOLUTION_INDEX", Pattern(r"-?[0-9]{1,9}", "a number"), _GPU_STARTED, "rocm", "One kernel for all products.", _HIPBLASLT),
    _Row("HIPBLASLT_TUNING_FILE", _PATH, _GPU_STARTED, "rocm", "Where hipBLASLt writes choices made by timing.", _HIPBLASLT),
    _Row("HIPBLASLT_TUNING_OVERRIDE_FILE", _PATH, _GPU_STARTED, "rocm", "Choices that hipBLASLt takes from a file.", _HIPBLASLT),
    _Row("MIOPEN_USER_DB_PATH", _PATH, _GPU_STARTED, "rocm", "Where MIOpen keeps the results of earlier searches, which outrank its own.", _MIOPEN, note="An empty folder of one's own is free of them."),
    _Row("MIOPEN_DISABLE_CACHE", _SWITCH, _GPU_STARTED, "rocm", "Compile kernels anew.", _MIOPEN),
    *(
        _Row(f"MIOPEN_DEBUG_CONV_{kind}", _SWITCH, _GPU_STARTED, "rocm", f"Allow {words} solvers of convolutions.", _MIOPEN)
        for kind, words in (("FFT", "FFT"), ("DIRECT", "direct"), ("GEMM", "product"), ("WINOGRAD", "Winograd"), ("IMPLICIT_GEMM", "implicit product"))
    ),
    _Row("PYTORCH_MIOPEN_SUGGEST_NHWC", _SWITCH, _GPU_STARTED, "rocm", "Channels-last convolutions.", _HIP),
    _Row("PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM", _SWITCH, _GPU_STARTED, "rocm", "Channels-last batch normalisation.", _HIP),
    _Row("PYTORCH_HIP_ALLOC_CONF", _ALLOC, _GPU_STARTED, "rocm", "torch's allocator, by its older name.", _TORCH_ALLOC, note=_ALLOCATOR),
)  # fmt: skip

_COLLECTIVES = tuple(
    _Row(variable, accepts, _NCCL_LOADED, "cuda|rocm", summary, _NCCL)
    for variable, accepts, summary in (
        ("NCCL_MIN_NCHANNELS", _NUMBER, "Fewest channels, and with them the pieces of a sum."),
        ("NCCL_MAX_NCHANNELS", _NUMBER, "Most channels."),
        ("NCCL_MIN_CTAS", _NUMBER, "Fewest blocks of a collective."),
        ("NCCL_MAX_CTAS", _NUMBER, "Most blocks of a collective."),
        ("NCCL_NTHREADS", ("64", "128", "256", "512"), "Threads of a block."),
        ("NCCL_BUFFSIZE", _NUMBER, "Bytes of a channel's buffer, and with them the chunks."),
        ("NCCL_P2P_DISABLE", _SWITCH, "No direct transport between devices: another topology."),
        ("NCCL_SHM_DISABLE", _SWITCH, "No transport through shared memory: another topology."),
        ("NCCL_TOPO_FILE", _PATH, "Read the topology from a file."),
        ("NCCL_GRAPH_FILE", _PATH, "Read rings and trees from a file."),
        ("NCCL_TUNER_PLUGIN", _PATH, "A plugin that chooses algorithm and protocol."),
    )
)


def _knobs(rows: tuple[_Row, ...]) -> Iterator[Knob]:
    for row in rows:
        at_import = row.late is _TORCH or isinstance(row.late, Mapped)
        yield Knob(
            name=f"env.{row.variable}",
            framework="native",
            access=Env(row.variable, default=row.default),
            accepts=row.accepts,
            serves=row.serves,
            timing=Timing.BEFORE_IMPORT if at_import else Timing.BEFORE_FIRST_USE,
            late=row.late,
            governs=row.governs,
            summary=row.summary,
            docs=row.docs,
            undo="the library keeps what it read",
            note=row.note,
        )


VARIABLES = tuple(_knobs((*_CPU, *_NVIDIA, *_AMD, *_COLLECTIVES)))
