"""torch's knobs, in the order in which they must be written and put back: see `precision`, whose come first."""

from __future__ import annotations

from functools import partial

from detconf.access import Attr, Call, Rng
from detconf.frameworks.base import Framework
from detconf.frameworks.torch.controls import DeterministicAlgorithms, PreferredBlas, devices
from detconf.frameworks.torch.extensions import EXTENSIONS
from detconf.frameworks.torch.graph import GRAPH
from detconf.frameworks.torch.precision import ACCUMULATION, PRECISION
from detconf.frameworks.torch.selectors import SELECTORS
from detconf.frameworks.workers import AS_WRITTEN, Workers
from detconf.knob import Knob, Outranks, Span, Timing, count

_HERE = "detconf.frameworks.torch.controls"
_BACKENDS = "https://docs.pytorch.org/docs/stable/backends.html"
_RANDOMNESS = "https://docs.pytorch.org/docs/stable/notes/randomness.html"
_NUMERICAL = "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html"

_knob = partial(Knob, framework="torch")

_ALGORITHMS = (
    _knob(
        name="torch.use_deterministic_algorithms",
        access=DeterministicAlgorithms(),
        accepts=("none", "warn", "error"),
        serves={"deterministic": {"none": "none", "warn": "warn", "error": "error"}},
        governs="cpu|cuda|rocm",
        summary="Choose deterministic algorithms; warn or raise where an operation has none.",
        docs="https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html",
        cost="CPU: none measured at one thread; CUDA: some operations take another kernel (" + _RANDOMNESS + ")",
        note="Does not touch TF32, cudnn.benchmark, seeds or threads. With 'warn', CUDA attention keeps its non-deterministic backward.",
    ),
    _knob(
        name="torch.utils.deterministic.fill_uninitialized_memory",
        access=Attr("torch.utils.deterministic:fill_uninitialized_memory"),
        accepts=bool,
        serves={"uninitialised": {"fill": True, "leave": False}},
        governs="cpu|cuda|rocm",
        summary="Fill new memory with NaN or the largest integer while deterministic algorithms are on.",
        docs="https://docs.pytorch.org/docs/stable/deterministic.html",
        cost="a write per allocation: about 13 % of a step for Megatron-LM (NVIDIA/Megatron-LM#6253)",
        note="Inductor ignores it for torch.empty (pytorch/pytorch#174386).",
    ),
    _knob(
        name="torch.backends.cudnn.deterministic",
        access=Attr("torch.backends.cudnn:deterministic"),
        accepts=bool,
        serves={"deterministic": {"none": False, "warn": True, "error": True}},
        governs="cuda|rocm",
        summary="Only deterministic convolution algorithms of cuDNN; on ROCm the MIOpen attribute of the same meaning.",
        docs=_BACKENDS,
    ),
    _knob(
        name="torch.backends.cudnn.benchmark",
        access=Attr("torch.backends.cudnn:benchmark"),
        accepts=bool,
        serves={"autotune": {False: False, True: True}},
        governs="cuda|rocm",
        summary="Time cuDNN or MIOpen algorithms at run time and keep the fastest.",
        docs=_BACKENDS,
        note="The deterministic-algorithms flag does not turn it off (pytorch/pytorch#15359); choices made while on stay cached.",
    ),
    _knob(
        name="torch.backends.cudnn.benchmark_limit",
        access=Attr("torch.backends.cudnn:benchmark_limit"),
        accepts=Span(0),
        governs="cuda",
        summary="How many cuDNN algorithms benchmarking tries; 0 for all.",
        docs=_BACKENDS,
        note="Without cuDNN it reads None and stores whatever is assigned: a false success, reported as unsupported.",
    ),
    _knob(
        name="torch.backends.cudnn.enabled",
        access=Attr("torch.backends.cudnn:enabled"),
        accepts=bool,
        governs="cuda|rocm",
        summary="Use cuDNN or MIOpen at all; native kernels have other bits.",
        docs=_BACKENDS,
    ),
    _knob(
        name="torch.backends.cudnn.depthwise_kernel",
        access=Attr("torch.backends.cudnn:depthwise_kernel"),
        accepts=("auto", "cudnn", "native"),
        governs="cuda",
        summary="Kernel of depthwise convolutions.",
        docs=_BACKENDS,
    ),
    _knob(
        name="torch.backends.miopen.immediate",
        access=Attr("torch.backends.miopen:immediate"),
        accepts=bool,
        serves={"autotune": {False: True, True: False}},
        governs="rocm",
        summary="MIOpen takes the first suitable solver instead of searching by timing.",
        docs=_BACKENDS,
    ),
    _knob(
        name="torch.backends.mkldnn.enabled",
        access=Attr("torch.backends.mkldnn:enabled"),
        accepts=bool,
        governs="cpu",
        summary="Use oneDNN for convolutions, recurrent layers, bfloat16 products and GELU.",
        docs=_BACKENDS,
    ),
    _knob(
        name="torch.backends.mkldnn.deterministic",
        access=Attr("torch.backends.mkldnn:deterministic"),
        accepts=bool,
        serves={"deterministic": {"none": False, "warn": True, "error": True}},
        governs="cpu",
        summary="oneDNN's deterministic attribute.",
        docs=_BACKENDS,
        note="No effect on CPU in 2.13 (none of 116 operations changed); meant for Intel GPUs (pytorch/pytorch#127277).",
    ),
    _knob(
        name="torch.backends.nnpack",
        access=Call(f"{_HERE}:nnpack_enabled", f"{_HERE}:set_nnpack", needs="torch"),
        accepts=bool,
        governs="cpu",
        summary="NNPACK convolutions.",
        docs=_BACKENDS,
    ),
    _knob(
        name="torch.backends.opt_einsum.enabled",
        access=Attr("torch.backends.opt_einsum:enabled"),
        accepts=bool,
        governs="cpu|cuda|rocm",
        summary="Let the opt_einsum package choose the contraction order of einsum with three operands or more.",
        docs=_BACKENDS,
        note="Whether the package is installed changes bits by itself (torch takes it when it finds it).",
    ),
    _knob(
        name="torch.backends.mha.fastpath",
        access=Call("torch.backends.mha:get_fastpath_enabled", "torch.backends.mha:set_fastpath_enabled"),
        accepts=bool,
        governs="cpu|cuda|rocm",
        summary="Fused inference path of TransformerEncoderLayer and MultiheadAttention.",
        docs=_BACKENDS,
        note="On and off differ by 7e-7 in evaluation on CPU (measured on 2.13).",
    ),
)

_KERNELS = (
    ("flash", {"deterministic": True, "math": False, "any": True}, "The flash kernel also changes bits on CPU (measured on 2.13)."),
    ("mem_efficient", {"deterministic": True, "math": False, "any": True}, ""),
    ("math", {"deterministic": True, "math": True, "any": True}, ""),
    ("cudnn", {"deterministic": False, "math": False, "any": True}, "Its backward has no deterministic form (2.13 randomness note)."),
)
_ATTENTION = tuple(
    _knob(
        name=f"torch.backends.cuda.enable_{kernel}_sdp",
        access=Call(f"torch.backends.cuda:{kernel}_sdp_enabled", f"torch.backends.cuda:enable_{kernel}_sdp"),
        accepts=bool,
        absent=False,
        serves={"attention": serves},
        governs="cpu|cuda|rocm" if kernel in ("flash", "math") else "cuda|rocm",
        summary=f"Allow the {kernel} kernel in scaled_dot_product_attention.",
        docs="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        note=note,
    )
    for kernel, serves, note in _KERNELS
)

_LIBRARIES = (
    _knob(
        name="torch.backends.cuda.preferred_blas_library",
        access=PreferredBlas(f"{_HERE}:preferred_blas", "torch.backends.cuda:preferred_blas_library", needs="torch"),
        accepts=("default", "cublas", "cublaslt", "hipblas", "hipblaslt", "ck"),
        governs="cuda|rocm",
        summary="Library of matrix products.",
        docs=_BACKENDS,
        note="hipBLASLt has no switch for atomics; on ROCm prefer hipblas where reruns must agree.",
    ),
    _knob(
        name="torch.backends.cuda.preferred_linalg_library",
        access=Call(f"{_HERE}:preferred_linalg", "torch.backends.cuda:preferred_linalg_library", needs="torch"),
        accepts=("default", "cusolver", "magma"),
        governs="cuda|rocm",
        summary="Library of decompositions and solvers.",
        docs=_BACKENDS,
        note="A refused value raises and is stored all the same (2.13); detconf puts the old one back.",
    ),
)

_PROCESS_WIDE = (
    _knob(
        name="torch.set_num_threads",
        access=Call("torch:get_num_threads", "torch:set_num_threads"),
        accepts=Span(1, 4096),
        serves={"threads": count},
        scope="thread",
        governs="cpu",
        summary="Threads of one operation.",
        docs="https://docs.pytorch.org/docs/stable/generated/torch.set_num_threads.html",
        outranked_by=(Outranks("OMP_THREAD_LIMIT"), Outranks("OMP_DYNAMIC", ("TRUE",))),
        cost="one thread: the other cores",
        touches=("torch.mkl.dynamic",),
        note="17 of 116 operations change bits from 1 to 2 threads, also with deterministic algorithms on (measured on 2.13).",
    ),
    _knob(
        name="torch.mkl.dynamic",
        access=Call(f"{_HERE}:mkl_dynamic", f"{_HERE}:set_mkl_dynamic", needs="torch"),
        accepts=bool,
        serves={"threads": lambda _: False},
        governs="x86",
        summary="Let torch's own MKL take fewer threads than it has: MKL_DYNAMIC, set while the process runs.",
        undo="once torch.set_num_threads was called, torch turns it off in each thread that starts",
        docs="https://www.intel.com/content/www/us/en/docs/onemkl/developer-reference-c/current/mkl-set-dynamic.html",
        note="On until torch.set_num_threads is called (measured on 2.13).",
    ),
    _knob(
        name="torch.set_flush_denormal",
        access=Call(f"{_HERE}:flush_denormal", "torch:set_flush_denormal", needs="torch"),
        accepts=bool,
        serves={"denormals": {"keep": False, "flush": True}},
        timing=Timing.BEFORE_FIRST_USE,
        scope="thread",
        governs="x86",
        summary="Flush denormal numbers to zero, in the calling thread and threads that it starts.",
        docs="https://docs.pytorch.org/docs/stable/generated/torch.set_flush_denormal.html",
        undo="threads of the OpenMP pool keep the setting they were started with",
    ),
    _knob(
        name="torch.set_default_dtype",
        access=Call(f"{_HERE}:default_dtype", f"{_HERE}:set_default_dtype", needs="torch"),
        accepts=("float16", "bfloat16", "float32", "float64"),
        governs="cpu|cuda|rocm",
        summary="The dtype of new floating-point tensors.",
        docs="https://docs.pytorch.org/docs/stable/generated/torch.set_default_dtype.html",
    ),
    _knob(
        name="torch.utils.data.DataLoader.num_workers",
        access=Workers("torch.utils.data.dataloader:DataLoader"),
        accepts=Span(0, 64, word=AS_WRITTEN),
        governs="cpu|cuda|rocm",
        summary="Worker processes of every DataLoader that is made from now on, in place of its argument.",
        docs="https://docs.pytorch.org/docs/stable/data.html",
        undo="loaders made meanwhile keep theirs",
        note="Numbers that a dataset draws change between 0, 1 and 2 workers; seed by the index of the sample. A number forces it, for experiments: detconf wraps the constructor.",
    ),
    _knob(
        name="torch.manual_seed",
        access=Rng(f"{_HERE}:GENERATOR", "torch"),
        accepts=Span(0, 4294967295),
        serves={"seed": int},
        governs="cpu|cuda|rocm",
        summary="torch's default generators, on every device.",
        docs=_RANDOMNESS,
        watched=False,
        note="randn and kaiming_uniform_ of one seed differ between CPU dispatch levels (measured on 2.13).",
    ),
)

FRAMEWORK = Framework(
    name="torch",
    module="torch",
    knobs=(*PRECISION, *_ALGORITHMS, *ACCUMULATION, *_ATTENTION, *_LIBRARIES, *_PROCESS_WIDE, *SELECTORS, *EXTENSIONS, *GRAPH),
    refused="detconf.frameworks.torch.refused",
    devices=devices,
    tensors="detconf.frameworks.torch.tensors",
    on_step="detconf.frameworks.torch.steps:watch",
    on_begin="detconf.frameworks.torch.begins:watch",
    launcher=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node"),
    admits=(
        r"^(.+?) does not have a deterministic implementation",
        r"^(.+?) defaults to a non-deterministic algorithm",
        r"this operation is not deterministic because it (uses CuBLAS)",
    ),
    modes="detconf.frameworks.torch.modes:watch",
    seeds="detconf.frameworks.torch.seeds:fixed",
    tracer="detconf.frameworks.torch.trace",
    shadow="detconf.frameworks.torch.shadow",
    ladder="detconf.frameworks.torch.ladder",
    uncaptured="detconf.frameworks.torch.uncaptured",
    widening="detconf.frameworks.torch.widening:widening",
    sums="detconf.frameworks.torch.sums",
)
