"""torch's controls that are no knobs, each with the reason."""

from __future__ import annotations

from detconf.frameworks.base import Refused

REFUSED = (
    Refused(("torch.set_deterministic_debug_mode",), "the flag of torch.use_deterministic_algorithms by another name, without inductor's half"),
    Refused(("torch.backends.cuda.matmul.allow_tf32",), "the older view of torch.backends.cuda.matmul.fp32_precision; its getter raises once the two families disagree"),
    Refused(("torch.backends.mkldnn.allow_tf32",), "Intel GPUs only; reads None elsewhere (measured on 2.13)"),
    Refused(("torch.backends.disable_global_flags",), "cannot be undone, and makes later settings raise"),
    Refused(("torch.set_num_interop_threads",), "can be called once, and changed none of 116 operations (measured on 2.13)"),
    Refused(("torch.set_grad_enabled", "torch.inference_mode", "torch.set_autocast_enabled", "torch.set_default_device"), "the program's own code decides, block by block and thread by thread"),
    Refused(("foreach=", "fused=", "memory_format="), "arguments of optimizers and tensors: fused Adam differs from the loop, foreach does not (measured on 2.13)"),
    Refused(("DataLoader(generator=)", "DataLoader(worker_init_fn=)"), "arguments; the order and the workers' seeds come from the default generator, or from a generator of the loader's own"),
    Refused(("torch.backends.cuda.cufft_plan_cache",), "keeps plans, chooses none"),
    Refused(("torch.backends.xnnpack.enabled", "torch.backends.kleidiai"), "read-only"),
    Refused(("torch.backends.mkl.verbose", "torch.backends.mkldnn.verbose", "ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKL_VERBOSE", "TORCH_LOGS"), "logging"),
    Refused(("torch.compiler.set_stance", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"), "switches of an experiment between eager and compiled; torch._dynamo.config.disable is the knob"),
    Refused(("TORCHDYNAMO_SUPPRESS_ERRORS",), "its '0' reads as true; set torch._dynamo.config.suppress_errors"),
    Refused(("TORCHINDUCTOR_*",), "first values of torch._inductor.config, read when that module is imported; the keys are the knobs. TORCHINDUCTOR_DETERMINISTIC alone is reset by the first compile"),
    Refused(("TORCHINDUCTOR_CACHE_DIR", "TORCH_COMPILE_JOB_ID"), "where compiled graphs and sizes seen earlier are kept; torch._inductor.config.force_disable_caches and automatic_dynamic_local_pgo turn them off"),
    Refused(("torch._inductor.config.compile_threads", "torch._inductor.config.worker_start_method"), "how fast it compiles, not what"),
    Refused(("torch._inductor.config.cpp.gemm_cache_blocking", "torch._inductor.config.cpp.gemm_thread_factors"), "text for developers of one kernel template; left at its default it is derived from the machine"),
    Refused(("torch._dynamo.config.verify_correctness", "torch._inductor.compiler_bisector"), "run a graph twice to compare; `detconf.audit` does that"),
    Refused(("torch._functorch.config.activation_memory_budget",), "a fraction that trades memory for recomputation, chosen for each model"),
    Refused(("torch.cuda.tunable.set_filename", "torch.cuda.tunable.record_untuned_enable", "PYTORCH_TUNABLEOP_RECORD_UNTUNED"), "files and logs of tuning; PYTORCH_TUNABLEOP_FILENAME is the knob"),
    Refused(("PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK", "TORCH_NATIVE_SKIP_VERSION_CHECK"), "let another library be loaded, which then has its own bits: the record of the environment names it"),
    Refused(("TORCH_CUDNN_V8_API_DEBUG",), "logging"),
    Refused(("PYTORCH_TENSOREXPR", "PYTORCH_TENSOREXPR_FALLBACK", "PYTORCH_JIT_*"), "debugging of TorchScript; the torch._C._jit_* knobs set the same while the process runs"),
    Refused(("torch._C._jit_set_profiling_executor", "torch._C._jit_set_nvfuser_enabled"), "no getter, or no longer of any effect"),
    Refused(("DistributedDataParallel(bucket_cap_mb=)", "gradient_as_bucket_view="), "arguments; buckets, and with them sums, are rebuilt after the first iteration"),
    Refused(
        ("TORCH_COMPILE_FORCE_DISABLE_CACHES", "TORCH_COMPILE_OVERRIDE_BACKENDS"),
        "first values of torch._inductor.config.force_disable_caches and torch._dynamo.config.debug_backend_override",
    ),
    Refused(
        ("torch.compiler.config.dynamic_sources", "torch._dynamo.config.automatic_dynamic_remote_pgo"),
        "which sizes are dynamic is the program's; the remote memory of it is off outside Meta",
    ),
    Refused(("TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN",), "names a function of the program's own"),
    Refused(("torch.cuda.manual_seed_all",), "torch.manual_seed seeds every device"),
    Refused(("torch.cuda.memory._set_allocator_settings",), "has no getter; PYTORCH_ALLOC_CONF is the knob"),
    Refused(("XLA_FLAGS", "TF_DETERMINISTIC_OPS"), "of frameworks that detconf does not know"),
)  # fmt: skip
