"""Variables of the native libraries: OpenMP, MKL, oneDNN, OpenBLAS, cuBLAS, cuDNN, ROCm's libraries, NCCL.

None of these can be set once the library has read them. The rows for CUDA and ROCm were taken from public
documentation and source and never tried on a device here.
"""

from __future__ import annotations

from functools import partial

from detconf.access import Call, Env
from detconf.frameworks.base import Framework
from detconf.frameworks.native.controls import mkl_branch_for
from detconf.frameworks.native.variables import VARIABLES
from detconf.knob import Knob, Pattern, Span, Timing, count, count_text
from detconf.late import Imported, Mapped, Says, Unknowable

_HERE = "detconf.frameworks.native.controls"
_CUDA = "https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility"
_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_MIOPEN = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/reference/env_variables.html"
_ROCBLAS = "https://rocm.docs.amd.com/projects/rocBLAS/en/latest/reference/env-variables.html"
_GOMP = "https://gcc.gnu.org/onlinedocs/libgomp/Environment-Variables.html"
_MKL_DOCS = (
    "https://www.intel.com/content/www/us/en/docs/onemkl/developer-guide-linux/current/obtaining-numerically-reproducible-results.html"
)
_ONEDNN = "https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html"
_TORCH_CUDA = "https://docs.pytorch.org/docs/stable/cuda_environment_variables.html"

_KEPT = "the library keeps what it read"
_knob = partial(Knob, framework="native", timing=Timing.BEFORE_IMPORT, undo=_KEPT)
_first_use = partial(Knob, framework="native", timing=Timing.BEFORE_FIRST_USE, undo=_KEPT)

_COUNT = Pattern(r"[1-9][0-9]{0,3}", "a number of threads")
_FLAG = ("0", "1")
_OPENMP = Mapped(("libgomp", "libiomp5", "libomp"))
_OPENBLAS = Mapped(("libopenblas", "libscipy_openblas"), brought_by=("numpy",))
_CUDA_STARTED = Says("torch.cuda:is_initialized")
_NVIDIA_LOADED = Mapped(("libcublas", "libcudnn"), brought_by=("torch", "paddle"))
_FIRST_GPU_USE = Says("torch.cuda:is_initialized")

_CPU = (
    _knob(
        name="env.OMP_NUM_THREADS",
        access=Env("OMP_NUM_THREADS", effective=f"{_HERE}:openmp_threads"),
        accepts=_COUNT,
        serves={"threads": count_text},
        late=_OPENMP,
        summary="Threads of OpenMP: torch's operations, Paddle's MKL.",
        docs=_GOMP,
        note="`import paddle` sets it to 1 where it is not set, for child processes too (measured on 3.3.1).",
    ),
    _knob(
        name="env.OMP_DYNAMIC",
        access=Env("OMP_DYNAMIC", effective=f"{_HERE}:openmp_dynamic"),
        accepts=Pattern(r"(?i)true|false", "TRUE, FALSE"),
        serves={"threads": lambda _: "FALSE"},
        late=_OPENMP,
        summary="Let OpenMP shrink a team when the machine is loaded.",
        docs=_GOMP,
        note="While it is on, results follow the load although get_num_threads() says otherwise (measured on 2.13).",
    ),
    _knob(
        name="env.OMP_THREAD_LIMIT",
        access=Env("OMP_THREAD_LIMIT"),
        accepts=_COUNT,
        late=_OPENMP,
        summary="A cap on threads that no getter shows.",
        docs=_GOMP,
    ),
    _knob(
        name="env.MKL_NUM_THREADS",
        access=Env("MKL_NUM_THREADS", effective=f"{_HERE}:mkl_threads"),
        accepts=_COUNT,
        serves={"threads": count_text},
        late=Mapped(("libtorch_cpu", "libmkl", "libmklml"), brought_by=("torch", "paddle")),
        governs="x86",
        summary="Threads of MKL; outranks OMP_NUM_THREADS for Paddle.",
        docs=_MKL_DOCS,
    ),
    _knob(
        name="env.MKL_DYNAMIC",
        access=Env("MKL_DYNAMIC", effective=f"{_HERE}:mkl_dynamic"),
        accepts=Pattern(r"(?i)true|false", "TRUE, FALSE"),
        serves={"threads": lambda _: "FALSE"},
        late=Mapped(("libtorch_cpu", "libmkl", "libmklml"), brought_by=("torch", "paddle")),
        governs="x86",
        summary="Let MKL take fewer threads than it has.",
        docs=_MKL_DOCS,
        note="On until torch.set_num_threads is called (measured on 2.13).",
    ),
    _first_use(
        name="env.MKL_CBWR",
        access=Env("MKL_CBWR", effective=f"{_HERE}:mkl_branch", freezes="torch", default="OFF"),
        accepts=Pattern(
            r"(AUTO|COMPATIBLE|SSE2|SSE4_1|SSE4_2|AVX|AVX2|AVX512|AVX512_E1)(,STRICT)?",
            "AUTO, COMPATIBLE, SSE4_2, AVX2, AVX512, each also with ,STRICT",
        ),
        serves={"cpu_dispatch": mkl_branch_for},
        late=Unknowable("MKL's first computation"),
        governs="x86",
        summary="MKL's code branch, and with it freedom from the alignment of arrays.",
        docs=_MKL_DOCS,
        cost="COMPATIBLE is several times slower for matrix products",
        note="On AMD processors only AUTO and COMPATIBLE are taken; others answer AUTO. An unknown value answers AUTO everywhere.",
    ),
    _first_use(
        name="env.ATEN_CPU_CAPABILITY",
        access=Env("ATEN_CPU_CAPABILITY", effective=f"{_HERE}:cpu_capability", freezes="torch"),
        accepts=("default", "avx2", "avx512", "avx512_dpbusd", "amx"),
        serves={"cpu_dispatch": {"x86-64-v3": "avx2"}},
        late=Unknowable("torch's first operation on CPU"),
        governs="x86",
        summary="Instruction set of torch's own CPU kernels.",
        docs="https://docs.pytorch.org/docs/stable/threading_environment_variables.html",
        note="Lower case only; others are ignored with a warning. `default` also changes torch.randn (31 of 116 operations, measured on 2.13).",
    ),
    _first_use(
        name="env.ONEDNN_MAX_CPU_ISA",
        access=Env("ONEDNN_MAX_CPU_ISA"),
        accepts=(
            "SSE41",
            "AVX",
            "AVX2",
            "AVX2_VNNI",
            "AVX2_VNNI_2",
            "AVX512_CORE",
            "AVX512_CORE_VNNI",
            "AVX512_CORE_BF16",
            "AVX512_CORE_FP16",
            "AVX512_CORE_AMX",
            "ALL",
            "DEFAULT",
        ),
        serves={"cpu_dispatch": {"x86-64-v3": "AVX2"}},
        late=Mapped(("libtorch_cpu", "libdnnl", "libmkldnn"), brought_by=("torch", "paddle")),
        governs="x86",
        summary="Instruction set of oneDNN's kernels.",
        docs=_ONEDNN,
        note="Read at the first primitive, which leaves no trace; an import of the library counts as too late here. Invalid values are ignored in silence.",
    ),
    _first_use(
        name="env.ONEDNN_DEFAULT_FPMATH_MODE",
        access=Env("ONEDNN_DEFAULT_FPMATH_MODE", default="STRICT"),
        accepts=("STRICT", "BF16", "F16", "TF32", "ANY"),
        serves={"tf32": {False: "STRICT"}},
        late=Mapped(("libtorch_cpu", "libdnnl", "libmkldnn"), brought_by=("torch", "paddle")),
        governs="x86",
        summary="Let oneDNN compute float32 products in a lower precision.",
        docs="https://uxlfoundation.github.io/oneDNN/dev_guide_attributes_fpmath_mode.html",
    ),
    _knob(
        name="env.OPENBLAS_NUM_THREADS",
        access=Env("OPENBLAS_NUM_THREADS", effective=f"{_HERE}:openblas_threads"),
        accepts=_COUNT,
        serves={"threads": count_text},
        late=_OPENBLAS,
        summary="Threads of NumPy's OpenBLAS.",
        docs="https://github.com/OpenMathLib/OpenBLAS#setting-the-number-of-threads-using-environment-variables",
    ),
    _knob(
        name="env.OPENBLAS_CORETYPE",
        access=Env("OPENBLAS_CORETYPE", effective=f"{_HERE}:openblas_core"),
        accepts=Pattern(r"[A-Za-z0-9_]+", "a core name of OpenBLAS, such as Haswell"),
        serves={"cpu_dispatch": {"x86-64-v3": "Haswell"}},
        late=_OPENBLAS,
        governs="x86",
        summary="Kernels of NumPy's OpenBLAS.",
        docs="https://github.com/OpenMathLib/OpenBLAS/blob/develop/USAGE.md",
        note="An unknown name is ignored in silence.",
    ),
    Knob(
        name="openblas.num_threads",
        framework="native",
        access=Call(f"{_HERE}:get_openblas_threads", f"{_HERE}:set_openblas_threads", needs="numpy"),
        accepts=Span(1, 4096),
        serves={"threads": count},
        summary="Threads of every OpenBLAS in the process, set while it runs.",
        docs="https://github.com/joblib/threadpoolctl",
    ),
)

_NVIDIA = (
    _first_use(
        name="env.CUBLAS_WORKSPACE_CONFIG",
        access=Env("CUBLAS_WORKSPACE_CONFIG"),
        accepts=Pattern(r"(:[1-9][0-9]*:[1-9][0-9]*)+", "':SIZE:COUNT' pairs, such as ':4096:8' or ':16:8'"),
        serves={"deterministic": {"warn": ":4096:8", "error": ":4096:8"}},
        late=_CUDA_STARTED,
        governs="cuda",
        summary="Workspaces of cuBLAS; fixed ones make its results independent of streams.",
        docs=_CUDA,
        note="Neither necessary nor checked by torch 2.10 and newer, which passes its own workspaces (pytorch/pytorch#161749); other libraries still need it. "
        "Sources differ: :4096:8 (most) or :16:8 (transformers; less memory, slower).",
    ),
    _first_use(
        name="env.CUBLASLT_WORKSPACE_SIZE",
        access=Env("CUBLASLT_WORKSPACE_SIZE"),
        accepts=Pattern(r"[0-9]+", "KiB"),
        late=_CUDA_STARTED,
        governs="cuda",
        summary="Workspace of cuBLASLt, and with it the algorithms that it may choose.",
        docs=_TORCH_CUDA,
    ),
    _first_use(
        name="env.NVIDIA_TF32_OVERRIDE",
        access=Env("NVIDIA_TF32_OVERRIDE"),
        accepts=_FLAG,
        serves={"tf32": {False: "0"}},
        late=_NVIDIA_LOADED,
        governs="cuda",
        summary="0 forces TF32 off in all NVIDIA libraries, 1 forces it on, whatever the program says.",
        docs="https://docs.nvidia.com/deeplearning/frameworks/tensorflow-user-guide/index.html#tf_auto_mixed_precision",
        note="Invisible to torch's getters and to Triton kernels.",
    ),
    _knob(
        name="env.TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        access=Env("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
        accepts=_FLAG,
        serves={"tf32": {False: None}},
        late=Imported("torch"),
        governs="cuda",
        summary="Turns TF32 on for products at import of torch.",
        docs=_TORCH_CUDA,
    ),
    _first_use(
        name="env.TORCH_CUDNN_USE_HEURISTIC_MODE_B",
        access=Env("TORCH_CUDNN_USE_HEURISTIC_MODE_B"),
        accepts=_FLAG,
        late=_CUDA_STARTED,
        governs="cuda",
        summary="Heuristic by which cuDNN engines are chosen.",
        docs=_TORCH_CUDA,
    ),
    _first_use(
        name="env.CUDA_LAUNCH_BLOCKING",
        access=Env("CUDA_LAUNCH_BLOCKING"),
        accepts=_FLAG,
        late=_CUDA_STARTED,
        governs="cuda",
        summary="Run one kernel at a time; a debugging aid that hides races between streams.",
        docs=_TORCH_CUDA,
        cost="all overlap of host and device",
    ),
    _first_use(
        name="env.PYTORCH_TUNABLEOP_ENABLED",
        access=Env("PYTORCH_TUNABLEOP_ENABLED"),
        accepts=_FLAG,
        serves={"autotune": {False: "0"}},
        late=_FIRST_GPU_USE,
        governs="cuda|rocm",
        summary="Choose matrix product kernels by timing and keep the choice in a file.",
        docs="https://docs.pytorch.org/docs/stable/cuda.tunable.html",
    ),
)

_AMD = (
    _first_use(
        name="env.MIOPEN_DEBUG_CONVOLUTION_DETERMINISTIC",
        access=Env("MIOPEN_DEBUG_CONVOLUTION_DETERMINISTIC"),
        accepts=_FLAG,
        serves={"deterministic": {"warn": "1", "error": "1"}},
        late=_FIRST_GPU_USE,
        governs="rocm",
        summary="MIOpen leaves out convolution solvers that are not deterministic.",
        docs="https://github.com/ROCm/MIOpen/pull/1377",
        note="The only control that reaches Paddle's convolutions on ROCm and DCU, whose own flag is ignored there. Never tried here.",
    ),
    _first_use(
        name="env.MIOPEN_FIND_ENFORCE",
        access=Env("MIOPEN_FIND_ENFORCE"),
        accepts=Pattern(r"[A-Za-z_0-9]+", "a word of MIOpen, such as NONE or SEARCH"),
        late=_FIRST_GPU_USE,
        governs="rocm",
        summary="Force MIOpen to search, or to use its stored results.",
        docs=_MIOPEN,
    ),
    _first_use(
        name="env.MIOPEN_FIND_MODE",
        access=Env("MIOPEN_FIND_MODE"),
        accepts=Pattern(r"[A-Za-z_0-9]+", "a word of MIOpen, such as NORMAL or FAST"),
        serves={"autotune": {False: "FAST"}},
        late=_FIRST_GPU_USE,
        governs="rocm",
        summary="How MIOpen finds a solver; FAST takes the stored choice without timing.",
        docs=_MIOPEN,
        note="A database of earlier searches in the user's home outranks the system's: hidden state of the machine. Never tried here.",
    ),
    _first_use(
        name="env.ROCBLAS_DEFAULT_ATOMICS_MODE",
        access=Env("ROCBLAS_DEFAULT_ATOMICS_MODE"),
        accepts=_FLAG,
        serves={"deterministic": {"warn": "0", "error": "0"}},
        late=_FIRST_GPU_USE,
        governs="rocm",
        summary="Atomic additions in rocBLAS.",
        docs=_ROCBLAS,
        note="torch overrides it for its own products by the deterministic-algorithms flag. Never tried here.",
    ),
    _knob(
        name="env.TORCH_BLAS_PREFER_HIPBLASLT",
        access=Env("TORCH_BLAS_PREFER_HIPBLASLT"),
        accepts=_FLAG,
        serves={"deterministic": {"warn": "0", "error": "0"}},
        late=Imported("torch"),
        governs="rocm",
        summary="Use hipBLASLt, which has no switch for atomics, in place of rocBLAS.",
        docs="https://docs.pytorch.org/docs/stable/notes/hip.html",
        note="Never tried here.",
    ),
)

_COLLECTIVES = tuple(
    _first_use(
        name=f"env.{variable}",
        access=Env(variable),
        accepts=accepts,
        serves={"collectives": serves} if serves else {},
        late=Mapped(("libnccl", "librccl"), brought_by=("torch", "paddle")),
        governs="cuda|rocm",
        summary=summary,
        docs=_NCCL,
        note=note,
    )
    for variable, accepts, serves, summary, note in (
        (
            "NCCL_ALGO", Pattern(r"[A-Za-z^,:;]+", "a list of algorithms, such as Ring or Tree"), {"ring": "Ring", "tree": "allreduce:tree"},
            "Algorithm of collectives, and with it the order of sums.",
            "Sources differ: Megatron-LM demands Ring and refuses Tree, torchtitan's batch-invariant mode sets allreduce:tree.",
        ),
        ("NCCL_PROTO", Pattern(r"[A-Za-z0-9^,]+", "a list of protocols, such as Simple"), {"ring": "Simple", "tree": "Simple"}, "Protocol, and with it the chunks.", ""),
        ("NCCL_NVLS_ENABLE", ("0", "1", "2"), {"ring": "0", "tree": "0"}, "Sums inside NVLink switches.", ""),
        ("NCCL_COLLNET_ENABLE", _FLAG, {"ring": "0", "tree": "0"}, "Sums inside network switches.", ""),
    )
)  # fmt: skip

FRAMEWORK = Framework(
    name="native",
    knobs=(*_CPU, *_NVIDIA, *_AMD, *_COLLECTIVES, *VARIABLES),
    refused="detconf.frameworks.native.refused",
    machine=f"{_HERE}:machine",
)
