"""Paddle's controls that are no knobs. Every flag of a build is a knob or stands here; a test compares with the flags of 3.3.1."""

from __future__ import annotations

from detconf.frameworks.base import Refused


def _flags(names: str) -> tuple[str, ...]:
    return tuple(f"FLAGS_{name}" for name in names.split())


REFUSED = (
    Refused(
        _flags(
            "alignment_size allocator_strategy auto_growth_chunk_size_in_mb *auto_growth* *pool_size_in_mb *pre_alloc* *_memory_in_mb fraction_of_* "
            "gpu_allocator_retry_time gpu_memory_limit_mb cur_allocated_threshold_in_gb max_reserved_threshold_in_gb free_idle_chunk free_when_no_cache_hit "
            "use_cuda_malloc_async_allocator cuda_malloc_async_pool_memory_throttle_ratio use_cuda_managed_memory use_pinned_memory pinned_memory_as_cpu_backend "
            "use_stream_safe_cuda_allocator use_system_allocator vmm_* native_compact enable_compact_mem try_allocate offload_inplace_tensor offload_retry_times "
            "auto_free_cudagraph_allocations_on_launch deep_ep_comm_prealloc_in_mb *eager_delet* local_exe_sub_scope_limit cache_inference_while_scope "
            "new_executor_use_local_scope pir_interpreter_record_stream_for_gc_cache"
        ),
        "memory: where tensors live and when they are freed; no arithmetic depends on it",
    ),
    Refused(
        _flags(
            "accuracy_check_* benchmark call_stack_level check_cuda_error check_infer_symbolic check_nan_inf_level disable_logging_op_attr_list dump_* dygraph_debug "
            "enable_dependency_builder_debug_info enable_dump_main_program enable_record_memory enable_unique_name executor_log_deps_every_microseconds "
            "enable_cinn_accuracy_check enable_fusion_result_check enable_collect_shape enable_pir_in_executor_trace_run host_trace_level log_memory_stats "
            "logging_* low_precision_op_list multiple_of_cupti_buffer_size prim_check_ops print_* record_alloc_event save_* "
            "static_runtime_data_save_path static_executor_perfstat_filepath sync_after_alloc tensor_md5_checksum_* tracer_profile_fname "
            "reader_queue_speed_test_mode async_trace_count enable_async_trace"
        ),
        "debugging, logging and profiling: it watches, and a profile of settings is not the place for it",
    ),
    Refused(
        _flags("*_dir cinn_kernel_cache_save_path"),
        "where libraries and files lie: another library is another build, which belongs into the record of the environment",
    ),
    Refused(
        _flags(
            "gpugraph_* graph_* communicator_* enable_graph_multi_node_sampling enable_neighbor_list_use_uva enable_opt_get_features "
            "multi_node_sample_use_gpu_table query_dest_rank_by_multi_node enable_exit_when_partial_worker"
        ),
        "the parameter server and graph engine, whose sampling and asynchronous updates no flag makes repeatable",
    ),
    Refused(
        _flags(
            "dist_threadpool_size eager_communication_connection get_host_by_name_time tcp_* enable_auto_detect_gpu_topo enable_auto_rdma_trans "
            "enable_tracker_all2all allreduce_record_one_event dataloader_use_file_descriptor use_shm_cache nccl_blocking_wait benchmark_nccl"
        ),
        "transport and waiting: the same sums in the same order",
    ),
    Refused(
        _flags("all_blocks_convert_trt convert_all_blocks trt_* enable_custom_engine jit_engine_type"),
        "inference engines beside Paddle, chosen when a model is exported",
    ),
    Refused(_flags("fuse_parameter_groups_size fuse_parameter_memory_size"), "fused communication of the older executor, which 3.x no longer runs"),
    Refused(_flags("enable_pir_in_executor"), "set by `import paddle` itself; FLAGS_enable_pir_api is the control"),
    Refused(_flags("pir_broadcast_tree_limit"), "a limit of the compiler's symbolic analysis"),
    Refused(_flags("paddle_num_threads"), "no effect on MKL (measured on 3.3.1); use paddle.set_num_threads"),
    Refused(_flags("prim_log trace_api"), "logging, read from the environment alone"),
    Refused(_flags("shard_*"), "names what a parallel program does with its optimizer; part of the program"),
    Refused(
        ("paddle.enable_static", "paddle.disable_static"),
        "whether a program is dynamic or static is the program; `detconf.audit` compares the two",
    ),
    Refused(
        ("BuildStrategy.sequential_run", "ExecutionStrategy"),
        "ignored under the present representation (3.3.1), or gone; use FLAGS_new_executor_sequential_run",
    ),
    Refused(
        ("Program.random_seed",),
        "each run of a program then repeats one mask, and differs from eager with the same paddle.seed; leave it 0",
    ),
    Refused(("paddle.incubate.autotune.set_config",), "writes FLAGS_use_autotune, which is the knob"),
    Refused(("paddle.amp.debugging.TensorCheckerConfig",), "seeds paddle, numpy and random again, and sets FLAGS_cudnn_deterministic: it changes the run that it watches"),
    Refused(("SOT_LOG_LEVEL", "SOT_EXPORT", "SOT_COLLECT_INFO", "SOT_SERIALIZE_INFO", "SOT_EVENT_LEVEL"), "logging of SOT"),
    Refused(
        ("SOT_ENABLE_FASTER_GUARD", "SOT_ENABLE_GUARD_TREE", "SOT_ENABLE_COMPILE_TIME_LIMIT", "SOT_CE_DEBUG_MODE"),
        "how fast SOT finds a graph again, not which one it is",
    ),
)  # fmt: skip
