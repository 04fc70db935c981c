"""Paddle's knobs. Flags that only GPU builds have are declared all the same: on a CPU build they are unsupported."""

from __future__ import annotations

from functools import partial

from detconf.access import Call, Env, Rng
from detconf.frameworks.base import Framework
from detconf.frameworks.paddle.controls import Flag, Switch, devices, ignored_variables
from detconf.frameworks.paddle.tail import TAIL
from detconf.frameworks.workers import AS_WRITTEN, Workers
from detconf.knob import Knob, Outranks, Pattern, Span, Timing, count
from detconf.late import Imported

_HERE = "detconf.frameworks.paddle.controls"
_FLAGS = "https://www.paddlepaddle.org.cn/documentation/docs/en/guides/flags/flags_en.html"
_SOURCE = "https://github.com/PaddlePaddle/Paddle/blob/develop/paddle/common/flags.cc"
_GPU = "cuda|rocm"
_TRACED = "programs traced or built meanwhile keep what they were built with"


def _flag(name: str, accepts: object, summary: str, **more: object) -> Knob:
    defaults = {"governs": "cpu|cuda|rocm", "docs": _FLAGS}
    return Knob(name=f"paddle.{name}", framework="paddle", access=Flag(name), accepts=accepts, summary=summary, **{**defaults, **more})  # type: ignore[arg-type]  # passed through to Knob


_graph_flag = partial(_flag, timing=Timing.AT_COMPILE, undo=_TRACED, docs=_SOURCE)
_YES = {"none": False, "warn": True, "error": True}

_GPU_FLAGS = (
    _flag(
        "FLAGS_cudnn_deterministic", bool, "Deterministic cuDNN algorithms; also steers embedding, index_add and flash attention.",
        serves={"deterministic": _YES}, governs=_GPU,
        note="MIOpen convolutions ignore it (paddle/phi/kernels/gpudnn/conv_miopen_helper.h): on ROCm and DCU set MIOPEN_DEBUG_CONVOLUTION_DETERMINISTIC.",
    ),
    _flag(
        "FLAGS_embedding_deterministic", (0, 1, 2), "Gradient of embedding: 0 atomic additions, 1 deterministic, 2 one thread.",
        serves={"deterministic": {"none": 0, "warn": 1, "error": 1}}, governs=_GPU,
    ),
    _flag(
        "FLAGS_cudnn_exhaustive_search", bool, "Time all cuDNN convolution algorithms and keep the fastest.",
        serves={"autotune": {False: False, True: True}}, governs=_GPU,
        note="Together with FLAGS_cudnn_deterministic, convolutions raise.",
    ),
    _flag("FLAGS_cudnn_exhaustive_search_times", Span(-1), "How often an algorithm is timed; -1 for the library's choice.", governs=_GPU),
    _flag(
        "FLAGS_cudnn_batchnorm_spatial_persistent", bool, "A faster batch normalisation that uses atomic additions.",
        absent=False, serves={"deterministic": {"warn": False, "error": False}}, governs=_GPU,
    ),
    _flag("FLAGS_conv_workspace_size_limit", Span(0), "Workspace of convolutions in MB, and with it the algorithms to choose from.", governs=_GPU),
    _flag(
        "FLAGS_enable_cublas_tensor_op_math", bool, "Tensor cores for products of float32.",
        serves={"tf32": {False: False, True: True}}, governs="cuda",
    ),
    _flag(
        "FLAGS_gemm_use_half_precision_compute_type", bool, "Accumulate fp16 products in fp16.",
        absent=False, serves={"accumulation": {"full": False, "reduced": True}}, governs=_GPU,
    ),
    _flag(
        "FLAGS_cublaslt_exhaustive_search_times", Span(0), "How often cuBLASLt algorithms are timed; 0 for never.",
        absent=0, serves={"autotune": {False: 0}}, governs="cuda",
    ),
    _flag("FLAGS_use_fast_math", bool, "Fast approximations, such as of GELU.", absent=False, serves={"graph.contraction": {False: False}}, governs=_GPU),
    _flag("FLAGS_conv2d_disable_cudnn", bool, "Convolutions without cuDNN.", governs=_GPU),
    _flag("FLAGS_batch_norm_use_miopen", bool, "Batch normalisation by MIOpen.", governs="rocm"),
    _flag("FLAGS_sync_nccl_allreduce", bool, "Wait for each all-reduce.", governs=_GPU),
)  # fmt: skip

_KERNELS = (
    _flag("FLAGS_use_autotune", bool, "Choose kernels by timing.", absent=False, serves={"autotune": {False: False, True: True}}),
    _flag(
        "FLAGS_use_accuracy_compatible_kernel", bool, "Kernels whose bits match torch's, on GPU.", docs=_SOURCE, governs="cuda",
        note="Changed none of the operations tried on CPU (3.3.1).",
    ),
    _flag("FLAGS_use_legacy_gemm", bool, "Products by cuBLAS in place of cuBLASLt.", docs=_SOURCE, governs="cuda"),
    _flag("FLAGS_use_legacy_linear", bool, "Linear as product and sum, in place of one fused product.", docs=_SOURCE, governs="cuda"),
    _flag("FLAGS_sort_sum_gradient", bool, "Sum gradients in the order of creation.", docs=_SOURCE, serves={"deterministic": {"warn": True, "error": True}}),
    _flag("FLAGS_max_inplace_grad_add", Span(0), "Gradients summed in place before a sum of many.", docs=_SOURCE),
    _flag("FLAGS_einsum_opt", bool, "Reuse intermediate results in einsum's gradient.", docs=_SOURCE),
    _flag("FLAGS_use_stride_kernel", bool, "Views share memory.", docs=_SOURCE),
    _flag("FLAGS_inner_op_parallelism", Span(0), "Threads inside one operation.", docs=_SOURCE),
    _flag("FLAGS_check_nan_inf", bool, "Look for NaN and infinity after every operation; a debugging aid."),
    Knob(
        name="paddle.set_cublas_switch",
        framework="paddle",
        access=Switch("get_cublas_switch", "set_cublas_switch"),
        instead=("paddle.FLAGS_cublas_allow_tf32",),
        accepts=bool,
        serves={"tf32": {False: False, True: True}},
        governs="cuda",
        summary="TF32 in cuBLAS products.",
        docs="https://github.com/PaddlePaddle/Paddle/blob/develop/paddle/phi/backends/gpu/cuda/cuda_helper.h",
        outranked_by=(Outranks("NVIDIA_TF32_OVERRIDE", ("1",)),),
        note="Off by default in 3.3.1, on in older releases; kept, without effect, by CPU builds.",
    ),
    Knob(
        name="paddle.set_cudnn_switch",
        framework="paddle",
        access=Switch("get_cudnn_switch", "set_cudnn_switch"),
        instead=("paddle.FLAGS_cudnn_allow_tf32",),
        accepts=bool,
        serves={"tf32": {False: False, True: True}},
        governs="cuda",
        summary="TF32 in cuDNN convolutions; on by default.",
        docs="https://github.com/PaddlePaddle/Paddle/blob/develop/paddle/phi/backends/gpu/cuda/cuda_helper.h",
        outranked_by=(Outranks("NVIDIA_TF32_OVERRIDE", ("1",)),),
    ),
    Knob(
        name="paddle.set_num_threads",
        framework="paddle",
        access=Call(f"{_HERE}:math_threads", f"{_HERE}:set_math_threads", needs="paddle"),
        accepts=Span(1, 4096),
        serves={"threads": count},
        governs="x86",
        summary="Threads of Paddle's own MKL.",
        docs="https://github.com/PaddlePaddle/Paddle/blob/develop/paddle/phi/core/platform/cpu_helper.cc",
        note="threadpoolctl does not reach this MKL; FLAGS_paddle_num_threads has no effect on it (measured on 3.3.1).",
    ),
    Knob(
        name="paddle.mkl.dynamic",
        framework="paddle",
        access=Call(f"{_HERE}:mkl_dynamic", f"{_HERE}:set_mkl_dynamic", needs="paddle"),
        accepts=bool,
        serves={"threads": lambda _: False},
        governs="x86",
        summary="Let Paddle's own MKL take fewer threads than it has: MKL_DYNAMIC, set while the process runs.",
        docs="https://www.intel.com/content/www/us/en/docs/onemkl/developer-reference-c/current/mkl-set-dynamic.html",
    ),
)  # fmt: skip

_GRAPH = (
    _graph_flag(
        "FLAGS_new_executor_sequential_run", bool, "Operations of a static program run in program order.",
        serves={"graph.order": {"program": True, "any": False}}, cost="no overlap of independent operations",
        note="Dropout beside another random operation races without it (2 to 17 results of 60 runs on CPU, 3.3.1). Fixed when an executor is built.",
    ),
    _flag(
        "FLAGS_new_executor_serial_run", bool, "Operations of a static program run in one thread.", docs=_SOURCE,
        undo="turning it off breaks executors built while it was on (Workqueue of index 0 is not initialized)",
        note="Cures the same race as FLAGS_new_executor_sequential_run, which can be put back and is preferred.",
    ),
    _graph_flag("FLAGS_prim_forward", bool, "Decompose a graph's forward into primitive operations.", absent=False, serves={"graph.primitives": {False: False, True: True}}),
    _graph_flag(
        "FLAGS_prim_backward", bool, "Decompose a graph's backward into primitive operations.",
        absent=False, serves={"graph.primitives": {False: False, True: True}}, note="Changes gradients of normalisation, GELU, attention and dropout (3.3.1).",
    ),
    _graph_flag("FLAGS_use_mkldnn", bool, "oneDNN in static graphs, by its older name; either name enables it.", note="Crashes several trainings on 3.3.1."),
    _graph_flag("FLAGS_use_onednn", bool, "oneDNN in static graphs; either name enables it.", note="Crashes several trainings on 3.3.1."),
    _graph_flag("FLAGS_use_cinn", bool, "Compile graphs with CINN.", absent=False, serves={"graph.cinn": {False: False, True: True}}, governs="cinn"),
    _graph_flag("FLAGS_enable_cinn_auto_tune", bool, "CINN chooses schedules by timing.", absent=False, serves={"graph.autotune": {False: False, True: True}}, governs="cinn"),
    _graph_flag("FLAGS_enable_cse_in_dy2st", bool, "Merge equal subexpressions when a graph is traced."),
    _graph_flag("FLAGS_enable_auto_layout_pass", bool, "Let graphs change the layout of tensors."),
    Knob(
        name="env.FLAGS_enable_pir_api",
        framework="paddle",
        access=Env("FLAGS_enable_pir_api"),
        accepts=("0", "1"),
        timing=Timing.BEFORE_IMPORT,
        late=Imported("paddle"),
        summary="The present intermediate representation of graphs, or the older one.",
        docs=_SOURCE,
        undo="Paddle keeps what it read",
        note="set_flags changes the value and nothing else.",
    ),
    Knob(
        name="env.FLAGS_prim_all",
        framework="paddle",
        access=Env("FLAGS_prim_all"),
        accepts=Pattern(r"(?i)0|1|true|false", "0, 1, true, false"),
        serves={"graph.primitives": {False: None, True: "1"}},
        timing=Timing.BEFORE_IMPORT,
        late=Imported("paddle"),
        summary="Decompose graphs into primitive operations, forward and backward.",
        docs=_SOURCE,
        undo="Paddle keeps what it read",
    ),
    Knob(
        name="env.ENABLE_CINN_IN_DY2ST",
        framework="paddle",
        access=Env("ENABLE_CINN_IN_DY2ST"),
        accepts=Pattern(r"(?i)0|1|true|false", "0, 1, true, false"),
        serves={"graph.cinn": {False: "0"}},
        governs="cinn",
        summary="to_static compiles with CINN where the build has it.",
        docs="https://github.com/PaddlePaddle/Paddle/pull/71838",
        note="Read at each trace, so it may be set at any time.",
    ),
)  # fmt: skip

_WORKERS = Knob(
    name="paddle.io.DataLoader.num_workers",
    framework="paddle",
    access=Workers("paddle.io.reader:DataLoader"),
    accepts=Span(0, 64, word=AS_WRITTEN),
    governs="cpu|cuda|rocm",
    summary="Worker processes of every DataLoader that is made from now on, in place of its argument.",
    docs="https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/io/DataLoader_en.html",
    undo="loaders made meanwhile keep theirs",
    note="A number forces it, for experiments: detconf wraps the constructor.",
)

_SEED = Knob(
    name="paddle.seed",
    framework="paddle",
    access=Rng(f"{_HERE}:GENERATOR", "paddle"),
    accepts=Span(0, 4294967295),
    serves={"seed": int},
    governs="cpu|cuda|rocm",
    summary="Paddle's default generators, on every device.",
    docs="https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/seed_en.html",
    watched=False,
    note="A shuffling DataLoader takes its order from NumPy's global generator instead.",
)

FRAMEWORK = Framework(
    name="paddle",
    module="paddle",
    knobs=(*_GPU_FLAGS, *_KERNELS, *_GRAPH, *TAIL, _WORKERS, _SEED),
    refused="detconf.frameworks.paddle.refused",
    devices=devices,
    strays=ignored_variables,
    writes={"OMP_NUM_THREADS": "1"},
    tensors="detconf.frameworks.paddle.tensors",
    on_step="detconf.frameworks.paddle.steps:watch",
    on_begin="detconf.frameworks.paddle.begins:watch",
    modes="detconf.frameworks.paddle.modes:watch",
    seeds="detconf.frameworks.paddle.seeds:fixed",
    tracer="detconf.frameworks.paddle.trace",
    shadow="detconf.frameworks.paddle.shadow",
    ladder="detconf.frameworks.paddle.ladder",
    uncaptured="detconf.frameworks.paddle.uncaptured",
    widening="detconf.frameworks.paddle.widening:widening",
    sums="detconf.frameworks.paddle.sums",
)
