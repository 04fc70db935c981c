"""Controls of native libraries and of the process that are no knobs, each with the reason."""

from __future__ import annotations

from detconf.frameworks.base import Refused

REFUSED = (
    Refused(("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_BLOCKTIME", "OMP_WAIT_POLICY"), "where threads run and how they wait, not what they sum"),
    Refused(("OMP_SCHEDULE",), "for loops that leave their schedule to run time; torch and Paddle fix theirs"),
    Refused(("LD_PRELOAD",), "another OpenMP or allocator is another build: the record of the environment names it"),
    Refused(("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "ONEDNN_JIT_DUMP", "ONEDNN_CACHE_CONTEXT_UNSAFE"), "how kernels are kept and dumped; no effect seen (2.13)"),
    Refused(("OPENBLAS_VERBOSE", "MIOPEN_ENABLE_LOGGING", "HIPBLASLT_LOG_*", "TENSILE_DB", "NCCL_DEBUG"), "logging"),
    Refused(("MKL_CBWR=...,STRICT on AMD", "mkl_serv_cbwr_set"), "refused by the library: AMD processors take AUTO and COMPATIBLE only"),
    Refused(("ROCBLAS_ATOMICS_MOD",), "a misspelling found in public scripts; rocBLAS does not know it. ROCBLAS_DEFAULT_ATOMICS_MODE is the knob"),
    Refused(("NCCL_DETERMINISTIC",), "set by public scripts; NCCL documents no such variable. NCCL_ALGO, NCCL_PROTO and NCCL_NVLS_ENABLE are the knobs"),
    Refused(("CUDA driver", "cuDNN version", "GPU model", "number of multiprocessors", "CPU model"), "not settable; recorded"),
)  # fmt: skip
