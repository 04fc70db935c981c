"""The words of a profile: its keys, policies and their values, as pydantic models."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class GraphPolicy(_Strict):
    """Graph modes: torch.compile, to_static, static programs."""

    random: Literal["eager", "compiled"] | None = Field(
        default=None, description="random operations of a compiled graph draw as eager does"
    )
    casts: Literal["eager", "fused"] | None = Field(
        default=None, description="keep the roundings of low-precision casts that fusion would drop"
    )
    contraction: bool | None = Field(default=None, description="let compilers contract a*b+c into one fused operation")
    autotune: bool | None = Field(default=None, description="choose generated kernels by timing them")
    order: Literal["program", "any"] | None = Field(default=None, description="order in which a static executor runs operations")
    cinn: bool | None = Field(default=None, description="compile Paddle graphs with CINN")
    primitives: bool | None = Field(default=None, description="decompose Paddle graphs into primitive operations")


class Policy(_Strict):
    """Framework-neutral wishes; each knob that serves one maps it to its own value."""

    deterministic: Literal["none", "warn", "error"] | None = Field(
        default=None, description="deterministic algorithms; warn or raise where there is none"
    )
    autotune: bool | None = Field(default=None, description="choose kernels by timing them at run time")
    tf32: bool | None = Field(default=None, description="let float32 products be computed in TF32, or in bfloat16 on CPU")
    accumulation: Literal["full", "reduced"] | None = Field(
        default=None, description="partial sums of fp16 and bf16 products in float32, or lower"
    )
    uninitialised: Literal["fill", "leave"] | None = Field(default=None, description="fill new memory with NaN or a fixed value")
    attention: Literal["deterministic", "math", "any"] | None = Field(default=None, description="attention kernels that may be chosen")
    denormals: Literal["keep", "flush"] | None = Field(default=None, description="flush denormal numbers to zero")
    threads: Annotated[int, Field(ge=1, le=4096)] | Literal["fixed"] | None = Field(
        default=None, description="threads in every pool; fixed: as many as there are, but never adjusted to the load"
    )
    cpu_dispatch: Literal["x86-64-v3"] | None = Field(default=None, description="highest instruction set that CPU kernels may use")
    collectives: Literal["ring", "tree"] | None = Field(
        default=None, description="algorithm, and with it the order of sums, of NCCL and RCCL"
    )
    graph: GraphPolicy | None = Field(default=None, description="graph modes")
    hash_seed: Annotated[int, Field(ge=0, le=4294967295)] | None = Field(default=None, description="PYTHONHASHSEED")


class Document(_Strict):
    """A profile as written in a file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = Field(description="the profile's name")
    summary: Annotated[str, Field(max_length=500)] = Field(default="", description="one sentence")
    extends: str | None = Field(default=None, description="one parent, by name or path")
    seed: Annotated[int, Field(ge=0, le=4294967295)] | None = Field(default=None, description="seed of every random generator")
    policy: Policy = Field(default_factory=Policy, description="framework-neutral wishes")
    knobs: dict[str, Any] = Field(default_factory=dict, description="exact knob values; they override the policies")


@lru_cache(maxsize=1)
def policy_names() -> tuple[str, ...]:
    """All policies, nested ones joined by a dot."""
    flat = [name for name in Policy.model_fields if name != "graph"]
    return (*flat, *(f"graph.{name}" for name in GraphPolicy.model_fields))
