"""Knobs of graph mode: the keys of torch._inductor.config, torch._dynamo.config and torch._functorch.config.

A key that is not here chooses nothing that reaches bits, or is listed in `refused` with the reason. Most keys of the
long tail serve no policy: what they should be is a matter of the experiment, not of repeatability.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from detconf.frameworks.torch.config import Setting
from detconf.knob import Knob, Outranks, Pattern, Span, Timing
from detconf.lookup import resolve
from detconf.values import Value

_INDUCTOR = "https://github.com/pytorch/pytorch/blob/main/torch/_inductor/config.py"
_DYNAMO = "https://github.com/pytorch/pytorch/blob/main/torch/_dynamo/config.py"
_FUNCTORCH = "https://github.com/pytorch/pytorch/blob/main/torch/_functorch/config.py"

_graph = partial(
    Knob,
    framework="torch",
    timing=Timing.AT_COMPILE,
    undo="graphs compiled meanwhile keep what they were compiled with; torch._dynamo.reset() drops them",
)


@dataclass(frozen=True)
class _Optional(Setting):
    """A key for which None is a value: "as torch thinks best"."""

    def read(self) -> Value:
        return resolve(self.path)


def _config(module: str, key: str, docs: str, accepts: object, summary: str, **more: object) -> Knob:
    return _graph(name=f"{module}.{key}", access=Setting(f"{module}:{key}"), accepts=accepts, summary=summary, docs=docs, **more)  # type: ignore[arg-type]  # passed through to Knob


_I, _D, _F = "torch._inductor.config", "torch._dynamo.config", "torch._functorch.config"
_ON_OFF = {False: False, True: True}
_MAIN = (
    _config(
        _I, "deterministic", _INDUCTOR, bool, "No choice of generated kernels by timing where it would change bits.",
        serves={"deterministic": {"none": False, "warn": True, "error": True}}, governs="cpu|cuda|rocm",
        note="Every compile resets it to the eager flag, so only torch.use_deterministic_algorithms lasts (torch/_dynamo/convert_frame.py).",
    ),
    _config(
        _I, "fallback_random", _INDUCTOR, bool, "Random operations of a compiled graph draw as eager does.",
        serves={"graph.random": {"eager": True, "compiled": False}}, governs="cpu|cuda|rocm", cost="random operations are not fused",
    ),
    _config(
        _I, "emulate_precision_casts", _INDUCTOR, bool, "Keep the low-precision roundings that fusion would drop.",
        serves={"graph.casts": {"eager": True, "fused": False}}, governs="cpu|cuda|rocm",
        note="Makes fused bf16 pointwise chains equal to eager on CPU (measured on 2.13).",
    ),
    _config(
        _I, "eager_numerics.division_rounding", _INDUCTOR, bool, "IEEE division in Triton kernels.",
        serves={"graph.casts": {"eager": True, "fused": False}}, governs="cuda|rocm",
    ),
    _config(
        _I, "eager_numerics.disable_ftz", _INDUCTOR, bool, "Keep denormals in Triton kernels.",
        serves={"graph.casts": {"eager": True, "fused": False}}, governs="cuda|rocm",
    ),
    _config(
        _I, "cpp.enable_floating_point_contract_flag", _INDUCTOR, ("off", "on", "fast"), "-ffp-contract of generated C++.",
        serves={"graph.contraction": {False: "off", True: "fast"}}, governs="cpu",
        note="'fast' breaks a*b+c against eager (measured on 2.13).",
    ),
    _config(
        _I, "cpp.enable_unsafe_math_opt_flag", _INDUCTOR, bool, "-funsafe-math-optimizations of generated C++.",
        serves={"graph.contraction": _ON_OFF}, governs="cpu",
    ),
    _config(
        _I, "use_fast_math", _INDUCTOR, bool, "Fast approximations in Triton kernels.",
        absent=False, serves={"graph.contraction": _ON_OFF}, governs="cuda|rocm",
    ),
    _config(
        _I, "max_autotune", _INDUCTOR, bool, "Choose kernels of a compiled graph by timing.",
        serves={"graph.autotune": _ON_OFF, "autotune": _ON_OFF}, governs="cpu|cuda|rocm",
    ),
    _config(
        _I, "max_autotune_gemm", _INDUCTOR, bool, "Choose kernels of matrix products by timing.",
        serves={"graph.autotune": _ON_OFF, "autotune": _ON_OFF}, governs="cpu|cuda|rocm",
    ),
    _config(
        _I, "max_autotune_pointwise", _INDUCTOR, bool, "Choose pointwise kernels by timing.",
        absent=False, serves={"graph.autotune": _ON_OFF, "autotune": _ON_OFF}, governs="cpu|cuda|rocm",
    ),
    _config(
        _I, "coordinate_descent_tuning", _INDUCTOR, bool, "Search kernel configurations by timing.",
        absent=False, serves={"graph.autotune": {False: False}, "autotune": {False: False}}, governs="cuda|rocm",
    ),
    _config(
        _I, "benchmark_fusion", _INDUCTOR, bool, "Decide on fusions by timing.",
        absent=False, serves={"graph.autotune": {False: False}, "autotune": {False: False}}, governs="cuda|rocm",
    ),
    _config(
        _I, "batch_invariant", _INDUCTOR, bool, "Triton reductions that do not depend on the batch size.", governs="cuda|rocm",
        note="No effect on CPU or on cuBLAS.",
    ),
    _config(
        _I, "cpp.fallback_scatter_reduce_sum", _INDUCTOR, bool, "Sums of scatter_reduce without atomic additions.",
        serves={"deterministic": {"warn": True, "error": True}}, governs="cpu",
        note="Does not cover index_add and index_put: compiled, they race on two threads without the master flag (measured on 2.13).",
    ),
    _config(
        _D, "fail_on_recompile_limit_hit", _DYNAMO, bool, "Raise when a function was recompiled too often, instead of running it eagerly from then on.",
        governs="cpu|cuda|rocm",
    ),
    _config(
        _D, "suppress_errors", _DYNAMO, bool, "Run eagerly, in silence, what cannot be compiled.",
        serves={"deterministic": {"error": False}}, governs="cpu|cuda|rocm",
    ),
    _config(
        _D, "use_numpy_random_stream", _DYNAMO, bool, "Draw NumPy's own random numbers in traced NumPy code.",
        serves={"graph.random": {"eager": True, "compiled": False}}, governs="cpu|cuda|rocm",
    ),
    _config(
        _F, "cse", _FUNCTORCH, bool, "Merge equal subexpressions of a graph.", governs="cpu|cuda|rocm",
    ),
)  # fmt: skip

_ALL, _GPU = "cpu|cuda|rocm", "cuda|rocm"
_TIMED: dict[str, dict[Value, Value]] = {"graph.autotune": {False: False}, "autotune": {False: False}}
_LIST = Pattern(r"[A-Za-z0-9_,]*", "names separated by commas")


def _optional(module: str, key: str, docs: str, accepts: object, summary: str, **more: object) -> Knob:
    return _graph(name=f"{module}.{key}", access=_Optional(f"{module}:{key}"), accepts=accepts, summary=summary, docs=docs, **more)  # type: ignore[arg-type]  # passed through to Knob


_LOW_PRECISION = (
    _config(
        _I, "emulate_precision_casts_on_saved_tensors", _INDUCTOR, bool, "Keep those roundings for values saved for the backward pass.",
        serves={"graph.casts": {"eager": True}}, governs=_ALL,
    ),
    _config(
        _I, "eager_numerics.use_pytorch_libdevice", _INDUCTOR, bool, "Triton kernels take pow, erf and their like from the CUDA toolkit, as eager does.",
        serves={"graph.casts": {"eager": True, "fused": False}}, governs="cuda",
    ),
    _config(_I, "align_random_eager", _INDUCTOR, bool, "Fused random operations draw as eager does, on CUDA.", governs="cuda"),
    _config(_I, "triton.codegen_upcast_to_fp32", _INDUCTOR, bool, "Compute fp16 and bf16 pointwise operations in float32.", governs=_GPU),
    _config(
        _I, "rocm.use_fast_math", _INDUCTOR, bool, "-ffast-math of Composable Kernel templates; on by default.",
        serves={"graph.contraction": {False: False}}, governs="rocm",
    ),
    _config(
        _I, "rocm.flush_denormals", _INDUCTOR, bool, "Flush denormals in Composable Kernel templates; on by default.",
        serves={"denormals": {"keep": False, "flush": True}}, governs="rocm",
    ),
    _config(
        _I, "cutlass.use_fast_math", _INDUCTOR, bool, "Fast approximations in CUTLASS templates.",
        absent=False, serves={"graph.contraction": _ON_OFF}, governs="cuda", note="Called cuda.use_fast_math before cutlass had a section of its own.",
    ),
    _config(_I, "cuda.use_fast_math", _INDUCTOR, bool, "Fast approximations in CUTLASS templates.", absent=False, serves={"graph.contraction": _ON_OFF}, governs="cuda"),
)  # fmt: skip

_CHOICE = (
    _config(
        _I, "benchmark_epilogue_fusion", _INDUCTOR, bool, "Decide by timing whether an epilogue is fused into a template.", absent=False, serves=_TIMED, governs=_ALL,
    ),
    _config(_I, "benchmark_combo_kernel", _INDUCTOR, bool, "Decide by timing which kernels are combined.", absent=False, serves=_TIMED, governs=_GPU),
    _config(
        _I, "triton.multi_kernel", _INDUCTOR, (0, 1, 2, 3), "Generate several kernels and choose by timing at run time.",
        absent=0, serves={"graph.autotune": {False: 0}, "autotune": {False: 0}}, governs=_GPU,
    ),
    _config(_I, "incremental_autotune", _INDUCTOR, bool, "Go on timing kernels while they run.", absent=False, serves=_TIMED, governs=_GPU),
    _config(_I, "triton.autotune_pointwise", _INDUCTOR, bool, "Choose the block sizes of pointwise kernels by timing; on by default.", governs=_GPU),
    _config(
        _I, "autotune_local_cache", _INDUCTOR, bool, "Reuse choices made by timing that an earlier process left on disk.", governs=_ALL,
        note="Stored choices are hidden state of the machine.",
    ),
    _optional(_I, "autotune_remote_cache", _INDUCTOR, (None, False, True), "Reuse choices made by timing that another machine left.", governs=_ALL),
    _optional(_I, "bundled_autotune_remote_cache", _INDUCTOR, (None, False, True), "The same, one bundle a graph.", governs=_ALL),
    _config(
        _I, "fx_graph_cache", _INDUCTOR, bool, "Reuse graphs that an earlier process compiled.", governs=_ALL,
        outranked_by=(Outranks("TORCHINDUCTOR_FX_GRAPH_CACHE"),),
        note="Its key holds the deterministic flag, float32 precision of products, thread count and inductor's settings, and not those of oneDNN and cuDNN.",
    ),
    _config(_I, "force_disable_caches", _INDUCTOR, bool, "Compile everything anew.", governs=_ALL, cost="every compilation"),
    _config(_I, "max_autotune_gemm_backends", _INDUCTOR, _LIST, "Libraries among which timing chooses for products.", governs=_ALL),
    _config(_I, "max_autotune_conv_backends", _INDUCTOR, _LIST, "Libraries among which timing chooses for convolutions.", governs=_ALL),
    _config(_I, "max_autotune_gemm_search_space", _INDUCTOR, ("DEFAULT", "EXHAUSTIVE"), "How many kernels of a product are timed.", governs=_GPU),
    _config(_I, "max_autotune_flex_search_space", _INDUCTOR, ("DEFAULT", "EXHAUSTIVE"), "How many kernels of flex_attention are timed.", governs=_GPU),
    _optional(_I, "autoheuristic_use.pad_mm", _INDUCTOR, (None, False, True), "A learned rule decides on padding of products; None is on in deterministic mode.", governs=_GPU),
    _optional(_I, "autoheuristic_use.mixed_mm", _INDUCTOR, (None, False, True), "A learned rule decides on products of mixed types; None is on in deterministic mode.", governs=_GPU),
    _config(
        _I, "write_are_deterministic_algorithms_enabled", _INDUCTOR, bool, "Tell generated kernels that deterministic algorithms are on.",
        serves={"deterministic": {"warn": True, "error": True}}, governs=_GPU,
    ),
)  # fmt: skip

# (key, accepts, governs, what it does)
_ROWS: tuple[tuple[str, object, str, str], ...] = (
    ("split_reductions", bool, _GPU, "Split a long reduction over blocks: the order of its sums."),
    ("min_num_split", Span(0), _GPU, "Fewest parts of a split reduction."),
    ("triton.persistent_reductions", bool, _GPU, "Keep a short reduction in one block."),
    ("triton.cooperative_reductions", bool, _GPU, "Reduce across blocks with a barrier."),
    ("triton.mix_order_reduction", bool, _GPU, "Fuse reductions over different axes into one kernel."),
    ("triton.num_decompose_k_splits", Span(0), _GPU, "Parts along K that a product may be split into."),
    ("triton.native_matmul", bool, _GPU, "Generate products as Triton code of inductor's own."),
    ("dynamic_scale_rblock", bool, _GPU, "Shrink the reduction block when registers run out."),
    ("unroll_reductions_threshold", Span(0), _ALL, "Longest reduction that is written out."),
    ("online_softmax", bool, _GPU, "Softmax in one pass over the data."),
    ("triton.use_two_step_variance_threshold", Span(0), _GPU, "Longest variance that takes two passes."),
    ("cpp.use_two_step_variance_threshold", Span(0), "cpu", "Longest variance that takes two passes."),
    ("cpp.use_decompose_tanh", bool, "cpu", "tanh through exp."),
    ("cpp.threads", Span(-1, 4096), "cpu", "Threads of generated C++; -1 for torch's own number."),
    ("cpp.dynamic_threads", bool, "cpu", "Leave the number of threads to run time."),
    ("cpp.min_chunk_size", Span(1), "cpu", "Fewest elements for a thread."),
    ("cpp.gemm_max_k_slices", Span(0), "cpu", "Parts along K that a product of generated C++ may be split into."),
    ("cpp.enable_grouped_gemm_template", bool, "cpu", "Compute several products of one input in one kernel."),
    ("cpp.enable_tiling_heuristics", bool, "cpu", "Choose by a rule how loops are tiled."),
    ("cpp.enable_loop_tail_vec", bool, "cpu", "Vectorise the tail of a loop too, which then rounds as its body does."),
    ("cpp.max_horizontal_fusion_size", Span(0), "cpu", "Most loops that are fused side by side."),
    ("cpp.weight_prepack", bool, "cpu", "Store weights in oneDNN's layout when frozen."),
    ("freezing", bool, _ALL, "Fold parameters into the graph as constants."),
    ("joint_graph_constant_folding", bool, _ALL, "Compute constants at compile time."),
    ("shape_padding", bool, _GPU, "Pad products to aligned shapes."),
    ("force_shape_pad", bool, _GPU, "Pad them without asking whether it is faster."),
    ("comprehensive_padding", bool, _GPU, "Pad strides to aligned addresses."),
    ("layout_optimization", bool, _ALL, "Turn convolutions to channels-last."),
    ("conv_1x1_as_mm", bool, _ALL, "Compute 1x1 convolutions as products."),
    ("efficient_conv_bn_eval_fx_passes", bool, _ALL, "Fold batch normalisation into convolutions in evaluation."),
    ("pattern_matcher", bool, _ALL, "Rewrite known patterns, attention among them."),
    ("b2b_gemm_pass", bool, _GPU, "Fuse two products in a row."),
    ("decompose_mem_bound_mm", bool, _GPU, "Write small products as sums."),
    ("keep_addmm_fused_for_half_dtypes", bool, _GPU, "Keep product and bias together in fp16 and bf16."),
    ("epilogue_fusion", bool, _ALL, "Fuse pointwise operations into the product before them."),
    ("epilogue_fusion_with_atomic_add", bool, _GPU, "Fuse atomic additions too."),
    ("partitioned_scatter_enabled", bool, _GPU, "Split scatters over partitions to avoid contention."),
    ("combo_kernels", bool, _GPU, "Run independent kernels as one."),
    ("permute_fusion", bool, _GPU, "Fuse transpositions into products."),
    ("batch_fusion", bool, _ALL, "Compute equal operations on several inputs as one batched operation."),
    ("group_fusion", bool, _GPU, "Compute products of several shapes as one grouped product."),
    ("split_cat_fx_passes", bool, _ALL, "Rewrite splits and concatenations."),
    ("max_fusion_size", Span(1), _ALL, "Most nodes in one kernel."),
    ("loop_ordering_after_fusion", bool, _ALL, "Reorder loops so that more of them fuse."),
    ("triton.tiling_prevents_pointwise_fusion", bool, _GPU, "Do not fuse kernels of different tilings."),
    ("triton.prefer_nd_tiling", bool, _GPU, "Tile in as many dimensions as the data has."),
    ("triton.coalesce_tiling_analysis", bool, _GPU, "Choose tilings by how memory is read."),
    ("graph_partition", bool, _ALL, "Split a graph at operations that cannot be captured."),
    ("fallback_by_default", bool, _ALL, "Run every operation as eager does (mode='lite')."),
    ("selective_decompose", bool, _ALL, "Decompose only where a graph asks for it (mode='lite')."),
    ("cpp_wrapper", bool, _ALL, "Call kernels from C++."),
    ("cpu_backend", ("cpp", "halide", "triton", "pallas"), "cpu", "Code generator for CPU."),
    ("cuda_backend", ("triton", "halide", "pallas"), _GPU, "Code generator for GPU."),
    ("triton.cudagraphs", bool, _GPU, "Record and replay CUDA graphs."),
    ("triton.cudagraph_trees", bool, _GPU, "Share memory between recorded graphs."),
    ("triton.cudagraph_or_error", bool, _GPU, "Raise where a graph cannot be recorded, instead of running without."),
    ("triton.cudagraph_skip_dynamic_graphs", bool, _GPU, "Do not record graphs of dynamic shapes."),
    ("reorder_for_compute_comm_overlap", bool, _GPU, "Move collectives, and with them their buckets."),
    ("aten_distributed_optimizations.enable_overlap_scheduling", bool, _GPU, "Schedule and bucket collectives by estimated times."),
)
_TAIL = (
    *(_config(_I, key, _INDUCTOR, accepts, summary, governs=governs) for key, accepts, governs, summary in _ROWS),
    _optional(
        _I, "cpp.simdlen", _INDUCTOR, (None, 0, 1, 128, 256, 512), "Vector bits of generated C++; 1 for scalar code.", governs="cpu",
        note="Scalar code moves further from eager (measured on 2.13).",
    ),
    _optional(_I, "cpp.vec_isa_ok", _INDUCTOR, (None, False, True), "Take the vector instruction set as working, or not, without trying it.", governs="cpu"),
)  # fmt: skip

_DYNAMO_ROWS: tuple[tuple[str, object, str, str], ...] = (
    ("recompile_limit", Span(1), "Recompilations of a function after which it runs eagerly, in other bits.", ""),
    ("accumulated_recompile_limit", Span(1), "The same, for all functions of one code object.", ""),
    ("error_on_recompile", bool, "Raise on any recompilation.", ""),
    ("disable", bool, "Compile nothing: everything runs eagerly.", ""),
    ("assume_static_by_default", bool, "Take sizes as fixed at first.", ""),
    ("automatic_dynamic_shapes", bool, "Take a size that changed as dynamic from then on: other kernels.", ""),
    ("automatic_dynamic_local_pgo", bool, "Remember on disk which sizes are dynamic.", "An earlier process then decides between static and dynamic kernels."),
    ("specialize_int", bool, "Take integers as constants.", ""),
    ("specialize_float", bool, "Take floats as constants.", ""),
    ("capture_scalar_outputs", bool, "Keep .item() in the graph instead of breaking it there.", ""),
    ("allow_rnn", bool, "Trace recurrent layers.", ""),
    ("use_graph_deduplication", bool, "Compile repeated regions once.", ""),
    ("compiled_autograd", bool, "Trace the backward pass as a whole.", ""),
    ("trace_numpy", bool, "Trace NumPy code as torch operations.", ""),
    ("optimize_ddp", (False, True, "ddp_optimizer", "python_reducer", "python_reducer_without_compiled_forward", "no_optimization"), "Split graphs at DDP's buckets.", ""),
    ("enable_compiler_collectives", bool, "Ranks agree on what they compile.", ""),
    ("numpy_default_float", ("float64", "float32"), "Default dtype of traced NumPy code.", ""),
    ("debug_backend_override", Pattern(r"[A-Za-z0-9_:;,. >=-]*", "graph:backend pairs"), "Another backend for some graphs.", ""),
    ("debug_inductor_config_override", Pattern(r"[A-Za-z0-9_:;,. >=-]*", "graph:setting pairs"), "Other inductor settings for some graphs.", ""),
    ("debug_dynamo_config_override", Pattern(r"[A-Za-z0-9_:;,. >=-]*", "graph:setting pairs"), "Other dynamo settings for some graphs.", ""),
)  # fmt: skip
_FUNCTORCH_ROWS: tuple[tuple[str, object, str, str], ...] = (
    ("functionalize_rng_ops", bool, "cuda", "Counter-based random operations in graphs, on CUDA."),
    ("graphsafe_rng_functionalization", bool, "cuda", "Random operations that CUDA graphs can replay."),
    ("activation_memory_budget_runtime_estimator", ("flops", "profile", "testing"), _ALL, "How recomputation is weighed; 'profile' times kernels."),
    ("activation_memory_budget_solver", ("dp", "greedy", "ilp", "dp_knapsack_sliding_hirschberg"), _ALL, "How recomputation is chosen."),
    ("aggressive_recomputation", bool, _ALL, "Recompute what it can: a recomputed value may be fused otherwise than the saved one."),
    ("ban_recompute_used_far_apart", bool, _ALL, "Save what is used much later."),
    ("ban_recompute_long_fusible_chains", bool, _ALL, "Save something in long chains."),
    ("ban_recompute_materialized_backward", bool, _ALL, "Save what the backward pass writes out anyway."),
    ("ban_recompute_not_in_allowlist", bool, _ALL, "Recompute only listed operations."),
    ("ban_recompute_reductions", bool, _ALL, "Save results of reductions."),
    ("recompute_views", bool, _ALL, "Recompute views."),
    ("backward_pass_autocast", ("same_as_forward", "off"), _ALL, "Autocast in the backward pass; eager has none there."),
    ("enable_autograd_cache", bool, _ALL, "Reuse forward and backward graphs of an earlier process."),
    ("donated_buffer", bool, _ALL, "Reuse memory of saved values in the backward pass."),
    ("treat_parameters_as_free_to_save", bool, _ALL, "Never recompute parameters."),
    ("selective_decompose", bool, _ALL, "Decompose only where a graph asks for it."),
)  # fmt: skip
_COMPILER = (
    *(_config(_D, key, _DYNAMO, accepts, summary, governs=_ALL, note=note) for key, accepts, summary, note in _DYNAMO_ROWS),
    *(_config(_F, key, _FUNCTORCH, accepts, summary, governs=governs) for key, accepts, governs, summary in _FUNCTORCH_ROWS),
)

GRAPH = (*_MAIN, *_LOW_PRECISION, *_CHOICE, *_TAIL, *_COMPILER)
