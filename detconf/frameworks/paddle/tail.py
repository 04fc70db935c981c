"""The long tail of Paddle's knobs, one row each; those that profiles set stand in `knobs`.

Flags that a build lacks are unsupported there: GPU flags on a CPU build, and those of later or earlier releases.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from detconf.access import Call, Env
from detconf.frameworks.paddle.controls import Flag, Switch
from detconf.knob import Knob, Pattern, Span, Timing
from detconf.late import Imported

_HERE = "detconf.frameworks.paddle.controls"
_SOURCE = "https://github.com/PaddlePaddle/Paddle/blob/develop/paddle/common/flags.cc"
_PRIM = "https://github.com/PaddlePaddle/Paddle/blob/develop/python/paddle/base/framework.py"
_DY2ST = "https://github.com/PaddlePaddle/Paddle/blob/develop/python/paddle/jit/dy2static/utils.py"
_SOT = "https://github.com/PaddlePaddle/Paddle/blob/develop/python/paddle/jit/sot/utils/envs.py"
_TF32 = "https://github.com/PaddlePaddle/Paddle/pull/77781"
_LIST = Pattern(r"[A-Za-z0-9_;,. ]*", "names of operations, separated by commas or semicolons")
_SWITCH = Pattern(r"(?i)0|1|true|false", "0, 1, true, false")
_ALL, _GPU = "cpu|cuda|rocm", "cuda|rocm"
_TRACED = "programs traced or built meanwhile keep what they were built with"

_knob = partial(Knob, framework="paddle")


def _flag(name: str, accepts: Any, governs: str, summary: str, **more: Any) -> Knob:
    return _knob(name=f"paddle.{name}", access=Flag(name), accepts=accepts, governs=governs, summary=summary, **{"docs": _SOURCE, **more})


_traced = partial(_flag, timing=Timing.AT_COMPILE, undo=_TRACED)

# (flag, accepts, governs, what it does)
_RUN: tuple[tuple[str, Any, str, str], ...] = (
    ("FLAGS_enable_cudnn_frontend", bool, "cuda", "Choose convolutions by cuDNN's graph interface."),
    ("FLAGS_cudnn_cache_saturation_count", Span(0), "cuda", "Timings after which a choice of cuDNN's graph interface is kept."),
    ("FLAGS_flash_attn_version", Span(1, 4), "cuda", "Version of flash attention; FLAGS_cudnn_deterministic holds it at 2."),
    ("FLAGS_cublaslt_device_best_config", Pattern(r"[\x20-\x7e]*", "a path"), "cuda", "Choices of cuBLASLt algorithms from a file."),
    ("FLAGS_search_cache_max_number", Span(1), _GPU, "How many choices made by timing are kept."),
    ("FLAGS_cuda_core_int8_gemm", bool, "cuda", "Integer products without tensor cores."),
    ("FLAGS_fused_multi_transformer_op_use_mbfmha", bool, "cuda", "Attention over several blocks in the fused transformer."),
    ("FLAGS_multi_block_attention_min_partition_size", Span(1), "cuda", "Smallest part of such an attention."),
    ("FLAGS_use_xqa_optim", bool, "cuda", "A faster grouped-query attention."),
    ("FLAGS_dynamic_static_unified_comm", bool, _GPU, "One library of collectives for both modes."),
    ("FLAGS_enable_auto_parallel_align_mode", bool, _GPU, "Automatic parallelism computes in the order of manual parallelism."),
    ("FLAGS_enable_sparse_inner_gather", bool, "cuda", "Sparse convolutions gather inside the kernel."),
    ("FLAGS_run_kp_kernel", bool, "cuda", "Kernels written in kernel primitives, on Kunlun processors."),
    ("FLAGS_npu_storage_format", bool, "cuda", "Private layouts of NPUs."),
    ("FLAGS_enable_api_kernel_fallback", bool, _ALL, "Run on CPU what a device has no kernel for."),
    ("FLAGS_set_to_1d", bool, _ALL, "Reductions to one element return shape [1]."),
    ("FLAGS_tensor_operants_mode", ("eager", "static", "phi"), _ALL, "Implementation behind operators of tensors in C++."),
    ("FLAGS_use_stride_compute_kernel", bool, _ALL, "Kernels that read strided tensors as they are."),
    ("FLAGS_force_stride_compute_contig_out", bool, _ALL, "Such kernels write contiguous results."),
    ("FLAGS_share_tensor_for_grad_tensor_holder", bool, _ALL, "Gradients share memory instead of being copied."),
    ("FLAGS_alloc_fill_value", Span(-1, 255), _ALL, "Byte that new memory is filled with; -1 leaves it as it is."),
    ("FLAGS_init_allocated_mem", bool, _ALL, "Fill new memory with small numbers; a debugging aid."),
    ("FLAGS_tracer_onednn_ops_on", _LIST, "x86", "Operations that run in oneDNN."),
    ("FLAGS_tracer_onednn_ops_off", _LIST, "x86", "Operations that do not."),
    ("FLAGS_use_default_stream", bool, _GPU, "Run everything in the default stream."),
)
_GRAPHS: tuple[tuple[str, Any, str, str], ...] = (
    ("FLAGS_allow_cinn_ops", _LIST, "cinn", "Operations that CINN compiles, and no others."),
    ("FLAGS_deny_cinn_ops", _LIST, "cinn", "Operations that CINN leaves alone."),
    ("FLAGS_enable_cinn_compile_cache", bool, "cinn", "Reuse programs that CINN compiled."),
    ("FLAGS_enable_cinn_kernel_cache", bool, "cinn", "Reuse kernels that CINN compiled."),
    ("FLAGS_enable_fusion_fallback", bool, "cinn", "Run a fused group without fusion where it is slower."),
    ("FLAGS_merge_all_horizontal_groups", bool, "cinn", "Fuse independent groups side by side."),
    ("FLAGS_pir_apply_shape_optimization_pass", bool, _ALL, "Simplify shapes of a graph."),
    ("FLAGS_pir_apply_inplace_pass", bool, _ALL, "Turn operations of a graph into in-place ones."),
    ("FLAGS_ir_inplace_kernel_blacklist", _LIST, _ALL, "Operations that stay out of place."),
    ("FLAGS_cse_max_count", Span(-1), _ALL, "Most subexpressions that are merged; -1 for all."),
    ("FLAGS_prim_forward_blacklist", _LIST, _ALL, "Operations that are not decomposed."),
    ("FLAGS_prim_skip_dynamic", bool, _ALL, "Do not decompose operations of dynamic shape."),
    ("FLAGS_prim_enable_dynamic", bool, _ALL, "Decompose those all the same."),
    ("FLAGS_comp_skip_default_ops", bool, _ALL, "Leave the operations of the default list whole."),
    ("FLAGS_enable_fuse_parallel_matmul_pass", bool, _ALL, "Fuse products that share an input."),
    ("FLAGS_enable_auto_layout_pass_in_inference", bool, _ALL, "Let inference graphs change the layout of tensors."),
    ("FLAGS_manually_trans_conv_filter", bool, _GPU, "Layout of convolution weights in such graphs."),
    ("FLAGS_specialize_device_in_dy2st", bool, _ALL, "Trace anew for another device."),
    ("FLAGS_parameters_persistent_mode_in_dy2st", bool, _ALL, "Parameters of a traced graph live in its scope."),
    ("FLAGS_enable_pir_with_pt_in_dy2st", bool, _ALL, "Traced graphs run in the present intermediate representation."),
    ("FLAGS_apply_pass_to_program", bool, _ALL, "Rewrite a static program by passes."),
    ("FLAGS_enable_ap", bool, _GPU, "Generate kernels by abstract passes."),
    ("FLAGS_ap_enable_classic_gemm_epilogue", bool, _GPU, "Such kernels fuse what follows a product."),
    ("FLAGS_enable_adjust_op_order", Span(0), _ALL, "Reorder operations of a graph to save memory."),
    ("FLAGS_disable_dyshape_in_train", bool, _ALL, "No dynamic shapes in training graphs."),
    ("FLAGS_new_executor_use_inplace", bool, _ALL, "The executor shares memory of inputs and outputs."),
    ("FLAGS_new_executor_static_build", bool, _ALL, "The executor chooses kernels before it runs."),
    ("FLAGS_new_executor_use_cuda_graph", bool, "cuda", "Record and replay CUDA graphs."),
    ("FLAGS_cuda_graph_blacklist", _LIST, "cuda", "Operations that are not recorded."),
    ("FLAGS_add_dependency_for_communication_op", bool, _GPU, "Collectives of a static program keep their order."),
    ("FLAGS_force_sync_ops", _LIST, _GPU, "Operations of a static program that are waited for."),
)

_SERVING = (
    _flag(
        "FLAGS_enable_blaslt_global_search", bool, "cuda", "Search cuBLASLt algorithms by timing.", serves={"autotune": {False: False}}, absent=False,
    ),
    _flag(
        "FLAGS_enable_all2all_use_fp16", bool, "cuda", "Exchange between ranks in fp16.", serves={"accumulation": {"full": False}}, absent=False,
    ),
    _flag("FLAGS_blha_use_fp32_qk_sum", bool, "cuda", "Sums of block attention in float32, in inference.", serves={"accumulation": {"full": True}}),
    _flag(
        "FLAGS_cublas_allow_tf32", bool, "cuda", "TF32 in cuBLAS products, in releases after 3.3.1.", docs=_TF32, serves={"tf32": {False: False, True: True}},
        instead=("paddle.set_cublas_switch",), note="Off by default there; earlier releases have set_cublas_switch.",
    ),
    _flag(
        "FLAGS_cudnn_allow_tf32", bool, "cuda", "TF32 in cuDNN convolutions, in releases after 3.3.1.", docs=_TF32, serves={"tf32": {False: False, True: True}},
        instead=("paddle.set_cudnn_switch",), note="On by default there; earlier releases have set_cudnn_switch.",
    ),
)  # fmt: skip

# (variable, accepts, governs, what it does, source, note). Read whenever a function is traced, unless the note says otherwise.
_TRACE: tuple[tuple[str, Any, str, str, str, str], ...] = (
    ("ENABLE_FALL_BACK", _SWITCH, _ALL, "to_static breaks a function into several graphs where it must (SOT), instead of translating all of it.", _DY2ST, "On by default."),
    ("MIN_GRAPH_SIZE", Pattern(r"-?[0-9]{1,6}", "a number of operations"), _ALL, "Smallest graph that SOT runs as a graph; below it runs eagerly, in silence.", _SOT, "10 by default: a small model under to_static is often no graph at all (measured on 3.3.1)."),
    ("STRICT_MODE", _SWITCH, _ALL, "SOT raises instead of running eagerly.", _SOT, ""),
    ("SOT_WITH_CONTROL_FLOW", _SWITCH, _ALL, "SOT keeps control flow in the graph.", _SOT, ""),
    ("SOT_ALLOW_DYNAMIC_SHAPE", _SWITCH, _ALL, "SOT takes sizes that changed as dynamic.", _SOT, ""),
    ("SOT_SPECIALIZED_DIM_NUMBERS", Pattern(r"[A-Za-z0-9_]+", "a word of Paddle, such as 0 or no"), _ALL, "Sizes that SOT always takes as fixed.", _SOT, ""),
    ("SOT_FORCE_FALLBACK_SIR_IDS", Pattern(r"[0-9,]+", "numbers separated by commas"), _ALL, "Graphs of SOT that run eagerly.", _SOT, ""),
    ("SOT_ENABLE_0_SIZE_FALLBACK", _SWITCH, _ALL, "SOT runs eagerly where a tensor is empty.", _SOT, ""),
    ("SOT_UNSAFE_CACHE_FASTPATH", _SWITCH, _ALL, "SOT reuses a graph without checking its guards.", _SOT, "Unsafe, as it says."),
    ("SOT_ENABLE_STRICT_GUARD_CHECK", _SWITCH, _ALL, "SOT checks its guards twice.", _SOT, ""),
    ("ENV_SOT_TRACE_NUMPY", _SWITCH, _ALL, "SOT traces NumPy code as Paddle operations.", _SOT, ""),
)  # fmt: skip
_IMPORT: tuple[tuple[str, Any, str, str, str], ...] = (
    ("FLAGS_prim_backward_blacklist", _LIST, _ALL, "Gradients that are not decomposed.", _PRIM),
    ("FLAGS_prim_vjp_skip_default_ops", _SWITCH, _ALL, "Leave the gradients of the default list whole; on by default.", _PRIM),
    ("FLAGS_dist_prim_all", _SWITCH, _ALL, "Decompose distributed graphs into primitive operations.", _PRIM),
    ("FLAGS_new_einsum", _SWITCH, _ALL, "The present implementation of einsum; on by default.", "https://github.com/PaddlePaddle/Paddle/blob/develop/python/paddle/tensor/einsum.py"),
    ("FLAGS_enable_auto_recompute", _SWITCH, _ALL, "Recompute values in the backward pass of a decomposed graph.", _PRIM),
    ("FLAGS_sharding_sort_parameters", _SWITCH, _GPU, "Order of parameters in sharded optimizers.", "https://github.com/PaddlePaddle/Paddle/tree/develop/python/paddle/distributed/fleet/meta_optimizers"),
    ("Flags_mp_aysnc_allreduce", _SWITCH, _GPU, "Tensor parallelism overlaps its all-reduce; the name is spelt so in the source.", "https://github.com/PaddlePaddle/Paddle/blob/develop/python/paddle/distributed/fleet/layers/mpu/mp_layers.py"),
    ("Flags_skip_mp_c_identity", _SWITCH, _GPU, "Tensor parallelism leaves out a copy.", "https://github.com/PaddlePaddle/Paddle/blob/develop/python/paddle/distributed/fleet/layers/mpu/mp_layers.py"),
    ("FLAGS_sync_before_allreduce", _SWITCH, _GPU, "Wait for the device before an all-reduce.", "https://github.com/PaddlePaddle/Paddle/tree/develop/python/paddle/distributed"),
)  # fmt: skip
_VARIABLES = (
    *(
        _knob(name=f"env.{name}", access=Env(name), accepts=accepts, governs=governs, summary=summary, docs=docs, note=note)
        for name, accepts, governs, summary, docs, note in _TRACE
    ),
    *(
        _knob(
            name=f"env.{name}", access=Env(name), accepts=accepts, governs=governs, summary=summary, docs=docs,
            timing=Timing.BEFORE_IMPORT, late=Imported("paddle"), undo="Paddle keeps what it read",
        )
        for name, accepts, governs, summary, docs in _IMPORT
    ),
)  # fmt: skip

_FUNCTIONS = (
    _knob(
        name="paddle.set_default_dtype", access=Call("paddle:get_default_dtype", "paddle:set_default_dtype"),
        accepts=("float16", "bfloat16", "float32", "float64"), governs=_ALL, summary="The dtype of new floating-point tensors and parameters.",
        docs="https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/set_default_dtype_en.html",
    ),
    _knob(
        name="paddle.jit.enable_to_static", access=Call(f"{_HERE}:to_static_enabled", "paddle.jit:enable_to_static", needs="paddle"),
        accepts=bool, governs=_ALL, timing=Timing.AT_COMPILE, summary="Functions under to_static run as graphs; off, everything is eager.",
        docs="https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/jit/enable_to_static_en.html",
    ),
    _knob(
        name="paddle.base.core.set_prim_eager_enabled", access=Switch("_is_eager_prim_enabled", "set_prim_eager_enabled"), accepts=bool, scope="thread", governs=_ALL,
        summary="Compute gradients of gradients in eager mode from primitive operations.", docs=_PRIM,
    ),
)  # fmt: skip

TAIL = (
    *_SERVING,
    *(_flag(*row) for row in _RUN),
    *(_traced(*row) for row in _GRAPHS),
    *_VARIABLES,
    *_FUNCTIONS,
)
