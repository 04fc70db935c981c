"""What the shadow of an operation needs to know of it, from its schema and from lists of what only moves numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from detconf.frameworks.torch.operations import Operation, collect, describe
from detconf.frameworks.torch.sums import OPERANDS

_MOVING = (
    "clone copy _to_copy to contiguous cat concat concatenate stack hstack vstack dstack index index_select gather take "
    "take_along_dim masked_select slice_scatter select_scatter diagonal_scatter as_strided_scatter scatter masked_scatter "
    "index_copy index_fill where masked_fill fill zero flip fliplr flipud roll rot90 repeat tile repeat_interleave constant_pad_nd "
    "pad reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d tril triu "
    "diag_embed neg abs sign relu threshold hardtanh clamp clamp_min clamp_max maximum minimum max min amax amin aminmax sort topk "
    "kthvalue median nanmedian mode cummax cummin max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d "
    "adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d select_backward slice_backward threshold_backward embedding "
    "unfold im2col pixel_shuffle pixel_unshuffle channel_shuffle zeros ones full empty eye zeros_like ones_like full_like "
    "new_zeros new_ones new_full scalar_tensor arange complex view_as_real_copy real imag expand_copy permute_copy t_copy "
    "transpose_copy view_copy unsqueeze_copy squeeze_copy slice_copy select_copy detach_copy alias_copy split_copy unbind_copy "
    "lift nan_to_num _unique2 unique_dim unique_consecutive reshape flatten unflatten isnan isinf"
)
"""Operations whose results are among their inputs: they round nothing."""
_MOVES = frozenset(_MOVING.split())
CASTS = frozenset(("_to_copy", "copy", "to"))
_REAL = frozenset(("state_steps", "grad_scale", "found_inf"))
"""Arguments that a fused kernel reads as float32, whatever the others are."""
_RENAMING = "t_ transpose_ squeeze_ unsqueeze_ swapaxes_ swapdims_ as_strided_ detach_ set_ requires_grad_"
"""These change which elements a tensor shows, not the elements."""
_RENAMED = frozenset(_RENAMING.split())


_DENSE = frozenset(("flex_attention", "flex_attention_backward", "while_loop", "associative_scan"))
"""Operations of higher order whose own code calls the functions that it is given, and may do so under a mode."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An argument of an operation.

    Attributes:
        name: in the schema.
        keyword: it can be given by name only.
        default: of one that has a default.
        real: give it as it is.
        multiplied: an operand of a contraction.
        generator: it is a random generator.
        tensor: it is one tensor.
        written: it is written.
    """

    name: str
    keyword: bool
    default: Any
    real: bool = False
    multiplied: bool = False
    generator: bool = False
    tensor: bool = False
    written: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """One overload of an operation.

    Attributes:
        operation: what the recorder knows of it.
        name: "addmm": without namespace, overload, and the mark of in-place.
        slots: its arguments; None where there is no schema.
        view: nothing is computed.
        moves: it rounds nothing.
        native: it belongs to PyTorch: it may be computed again, without effects beside its results.
        strict: places of tensors that may not be given as Python numbers. A mode gets a number for a tensor that was made
            of one, as there are in traced graphs.
    """

    operation: Operation
    name: str
    slots: tuple[Slot, ...] | None
    view: bool
    moves: bool
    native: bool
    strict: tuple[int, ...] = ()


def plan(function: Any) -> Plan:
    """The plan for what a dispatch mode is called with."""
    operation = describe(function)
    schema = getattr(function, "_schema", None)
    if schema is None:
        return Plan(operation, operation.name, None, view=False, moves=False, native=False)
    space, _, raw = schema.name.partition("::")
    name = raw.removeprefix("_foreach_").rstrip("_") if raw.startswith("_foreach_") or not raw.startswith("__") else raw
    products = OPERANDS.get(name, ())
    slots = tuple(
        Slot(
            each.name,
            bool(each.kwarg_only),
            each.default_value if each.has_default_value() else None,
            real=each.name in _REAL,
            multiplied=each.name in products,
            generator=str(each.type) in ("Generator", "Optional[Generator]"),
            tensor=str(each.type) in ("Tensor", "Optional[Tensor]"),
            written=place in operation.writes or each.name in operation.writes,
        )
        for place, each in enumerate(schema.arguments)
    )
    view = operation.view or (space == "aten" and raw in _RENAMED)
    native = space in ("aten", "prims", "prim", "torchvision")
    allowed = torch._C._should_allow_numbers_as_tensors(raw)
    strict = () if allowed else tuple(place for place, slot in enumerate(slots) if slot.tensor and not slot.keyword)
    return Plan(operation, name, slots, view=view, moves=name in _MOVES, native=native, strict=strict)


def tensors_for(strict: Sequence[int], args: Sequence[Any]) -> Sequence[Any]:
    """The arguments, with a tensor for each number where only a tensor will do."""
    if not any(place < len(args) and type(args[place]) in (float, int, bool, complex) for place in strict):
        return args
    wide = {float: torch.float64, int: torch.int64, bool: torch.bool, complex: torch.complex128}
    return [
        torch.scalar_tensor(each, dtype=wide[type(each)]) if place in strict and type(each) in wide else each
        for place, each in enumerate(args)
    ]


def inner_code(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """What computes an operation of somebody's, or of higher order, below all that PyTorch adds; None where that is not known."""
    schema = getattr(function, "_schema", None)
    if schema is None:
        if function.__name__ == "cond":
            return _branch
        found: Callable[..., Any] | None = function.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
        return found if function.__name__ in _DENSE else None
    tensors: list[Any] = []
    collect([*args, *kwargs.values()], tensors)
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    for key in (tensors[0].device.type.upper() if tensors else "CPU", "CompositeExplicitAutograd"):
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
            return functools.partial(function._op_dk, getattr(torch._C.DispatchKey, key))
    return None


def _branch(condition: Any, yes: Callable[..., Any], no: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """What `torch.cond` does; its own code refuses to run under a mode."""
    return yes(*operands) if condition else no(*operands)


def bind(slots: Sequence[Slot], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name, defaults filled in."""
    given = len(args)
    return {
        slot.name: args[place] if place < given and not slot.keyword else kwargs.get(slot.name, slot.default)
        for place, slot in enumerate(slots)
    }


def options(slots: Sequence[Slot], bound: Mapping[str, Any]) -> dict[str | int, Any]:
    """The arguments that are no tensors."""
    return {slot.name: _told(bound[slot.name]) for slot in slots if not (slot.generator or _has_tensor(bound[slot.name]))}


def _told(value: Any) -> Any:
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return str(value).removeprefix("torch.")
    return list(value) if isinstance(value, (list, tuple)) else value


def _has_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_tensor, value))
    return isinstance(value, torch.Tensor)
