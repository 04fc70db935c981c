"""What the native libraries in this process say of themselves, asked through their C interfaces."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

from detconf.facts import cpu_flags, gather, start_environ
from detconf.lookup import in_fork, mapped
from detconf.values import Value

_OPENMP = ("libgomp", "libiomp5", "libomp")
_MKL = ("libtorch_cpu", "libmkl_rt", "libmklml")
# mkl_serv_cbwr_get(1) answers a branch number; MKL's own header mkl_types.h names them.
_BRANCHES = {1: "OFF", 2: "AUTO", 3: "COMPATIBLE", 4: "SSE2", 7: "SSE4_1", 8: "SSE4_2", 9: "AVX", 10: "AVX2", 12: "AVX512", 14: "AVX512_E1"}
_STRICT = 0x10000


@cache
def _library(path: str) -> Any:
    return ctypes.CDLL(path)


def ask(libraries: tuple[str, ...], function: str, *arguments: int) -> list[int]:
    """What `function` answers in each loaded library that exports it."""
    answers = []
    for path in mapped(libraries):
        found = getattr(_library(path), function, None)
        if found is not None:
            answers.append(int(found(*arguments)))
    return answers


def _common(answers: list[int]) -> str | None:
    """The one answer, several joined by a comma, or None for none."""
    return ",".join(map(str, sorted(set(answers)))) or None


def openmp_threads() -> str | None:
    """Threads of the next parallel region, by every OpenMP runtime in this process."""
    return _common(ask(_OPENMP, "omp_get_max_threads"))


def openmp_dynamic() -> str | None:
    """May an OpenMP runtime shrink teams by load? "TRUE" or "FALSE"."""
    answers = ask(_OPENMP, "omp_get_dynamic")
    return ("TRUE" if any(answers) else "FALSE") if answers else None


def mkl_threads() -> str | None:
    """Threads of MKL: torch's own copy, a shared MKL, and Paddle's MKL-ML."""
    answers = ask(_MKL, "mkl_serv_get_max_threads") + ask(("libmklml", "libmkl_rt"), "MKL_Get_Max_Threads")
    return _common(answers)


def mkl_dynamic() -> str | None:
    """May a copy of MKL take fewer threads than it has? "TRUE" or "FALSE"."""
    answers = ask(_MKL, "mkl_serv_get_dynamic") + ask(("libmklml", "libmkl_rt"), "MKL_Get_Dynamic")
    return ("TRUE" if any(answers) else "FALSE") if answers else None


def mkl_branch_for(level: Value) -> Value:
    """For `serves`: the branch of a dispatch level. AMD processors refuse all but AUTO and COMPATIBLE."""
    return ("AVX2" if gather().vendor == "GenuineIntel" else "AUTO") if level == "x86-64-v3" else NotImplemented


def mkl_branch() -> str | None:
    """The code branch that MKL is bound to (MKL_CBWR), in the variable's words; asking makes MKL read the variable.

    On an AMD processor AVX2, AVX512 and STRICT answer AUTO; an unknown value answers AUTO everywhere.
    """
    answers = {
        f"{_BRANCHES.get(answer & ~_STRICT, answer & ~_STRICT)}{',STRICT' if answer & _STRICT else ''}"
        for answer in ask(_MKL, "mkl_serv_cbwr_get", -1)
    }
    return ",".join(sorted(answers)) or None


def cpu_capability() -> str | None:
    """ATen's CPU dispatch level in the words of ATEN_CPU_CAPABILITY; asking fixes it for the process."""
    torch = sys.modules.get("torch")
    return str(torch.backends.cpu.get_cpu_capability()).lower() if torch else None


def _openblas(key: str) -> str | None:
    from threadpoolctl import threadpool_info

    found = {str(pool[key]) for pool in threadpool_info() if pool.get("internal_api") == "openblas" and pool.get(key) is not None}
    return ",".join(sorted(found)) or None


def openblas_threads() -> str | None:
    """Threads of OpenBLAS."""
    return _openblas("num_threads")


def openblas_core() -> str | None:
    """The processor type whose kernels OpenBLAS took; an unknown OPENBLAS_CORETYPE is ignored in silence."""
    return _openblas("architecture")


def set_openblas_threads(value: int) -> None:
    """Set the threads of every OpenBLAS in this process."""
    from threadpoolctl import ThreadpoolController

    for library in ThreadpoolController().select(internal_api="openblas").lib_controllers:
        library.set_num_threads(value)


def get_openblas_threads() -> int:
    """Threads of OpenBLAS as a number; the largest, where several are loaded."""
    return max(map(int, (openblas_threads() or "0").split(",")))


def machine() -> dict[str, str]:
    """What chooses kernels and the order of sums in the loaded libraries, as they answer."""
    found = {
        "OpenBLAS kernels": openblas_core(),
        "OpenBLAS threads": openblas_threads(),
        "OpenMP threads": openmp_threads(),
        "MKL threads": mkl_threads(),
        **_dispatch(),
    }
    return {name: answer for name, answer in found.items() if answer is not None}


def _dispatch() -> dict[str, str | None]:
    """Kernels of ATen, MKL and oneDNN. The first two are asked in a forked copy: asking would fix them.

    oneDNN cannot be asked: what it was told counts, or else what this processor has.
    """
    if not {"torch", "paddle"} & set(sys.modules):
        return {}
    limit = in_fork(lambda: [cpu_capability(), mkl_branch()]) or [None, None]
    told = start_environ().get("ONEDNN_MAX_CPU_ISA") or os.environ.get("ONEDNN_MAX_CPU_ISA")
    return {"ATen kernels": limit[0], "MKL branch": limit[1], "oneDNN limit": told or _level()}


@cache
def _level() -> str:
    """The widest vectors of this processor."""
    flags = cpu_flags()
    widest = ("amx_tile", "avx512_fp16", "avx512_bf16", "avx512f", "avx2", "avx")
    return next((flag for flag in widest if flag in flags), "none")
