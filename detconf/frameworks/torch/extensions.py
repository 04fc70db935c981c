"""Variables of packages beside torch whose kernels its deterministic-algorithms flag does not reach.

None of them was tried here: they need a device.
"""

from __future__ import annotations

from typing import Any

from detconf.access import Env
from detconf.knob import Knob, Pattern, Timing
from detconf.late import Imported, Late
from detconf.values import Value

_TE = "https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/envvars.html"
_FLASH = "https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_flash_attention_utils.py"
_CONV = "https://github.com/Dao-AILab/causal-conv1d/releases"
_MAMBA = "https://github.com/state-spaces/mamba/blob/main/mamba_ssm/utils/determinism.py"
_TRITON = "https://github.com/triton-lang/triton#tips-for-hacking"
_SWITCH, _PATH = ("0", "1"), Pattern(r"[\x21-\x7e][\x20-\x7e]*", "a folder")


def _one(words: str) -> dict[str, dict[Value, Value]]:
    return {"deterministic": {"warn": words, "error": words}}


# (variable, accepts, how it serves, the package that reads it at import, what it does, its documentation, note)
_ROWS: tuple[tuple[str, object, dict[str, dict[Value, Value]], str, str, str, str], ...] = (
    (
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO", _SWITCH, _one("0"), "transformer_engine", "Non-deterministic kernels of Transformer Engine; on by default.", _TE,
        "torch's own flag does not reach them.",
    ),
    ("NVTE_FLASH_ATTN", _SWITCH, {}, "transformer_engine", "Allow flash attention in Transformer Engine.", _TE, ""),
    ("NVTE_FUSED_ATTN", _SWITCH, {}, "transformer_engine", "Allow cuDNN's fused attention in Transformer Engine.", _TE, ""),
    ("NVTE_UNFUSED_ATTN", _SWITCH, {}, "transformer_engine", "Allow plain attention in Transformer Engine.", _TE, ""),
    (
        "FLASH_ATTENTION_DETERMINISTIC", _SWITCH, _one("1"), "transformers.modeling_flash_attention_utils", "Deterministic backward of the flash-attn package, as transformers calls it.", _FLASH,
        "The package itself takes it as the argument deterministic=.",
    ),
    ("CAUSAL_CONV1D_DETERMINISTIC", _SWITCH, _one("1"), "", "Deterministic backward of the causal-conv1d package.", _CONV, "Read at each call; unset, it follows torch's flag."),
    ("MAMBA_DETERMINISTIC", _SWITCH, _one("1"), "", "Deterministic kernels of the mamba-ssm package.", _MAMBA, "Read at each call; unset, it follows torch's flag."),
    ("TRITON_CACHE_AUTOTUNING", _SWITCH, {}, "triton", "Keep choices of triton.autotune on disk.", _TRITON, "Kept, a choice made by timing repeats on this machine."),
    ("TRITON_CACHE_DIR", _PATH, {}, "triton", "Where compiled kernels and those choices are kept.", _TRITON, "An empty folder of one's own is free of other runs' choices."),
)  # fmt: skip


def _late(package: str) -> dict[str, Any]:
    late: Late = Imported(package)
    return {"timing": Timing.BEFORE_IMPORT, "late": late, "undo": "the package keeps what it read"} if package else {}


EXTENSIONS = tuple(
    Knob(
        name=f"env.{variable}", framework="torch", access=Env(variable), accepts=accepts, serves=serves, governs="cuda|rocm",
        summary=summary, docs=docs, note=note, **_late(package),
    )
    for variable, accepts, serves, package, summary, docs, note in _ROWS
)  # fmt: skip
