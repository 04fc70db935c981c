"""What the schema of an operation says about it: does it compute, draw, allocate, and which arguments does it write?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from detconf.frameworks.torch.whole import GRADIENTS

_VIEWS = {"aten._unsafe_view", "aten.lift_fresh"}
"""Views that their schema does not call so, and a constant on its way in."""
_EMPTY = ("aten.empty", "aten.new_empty", "aten._empty", "aten.resize_")
"""Names of operations that allocate and write nothing start so."""
_UNDECLARED = {
    # They update running_mean and running_var, and their schema is silent about it.
    "aten.native_batch_norm": (3, 4),
    "aten.cudnn_batch_norm": (3, 4),
    "aten.miopen_batch_norm": (3, 4),
}
_BLIND = frozenset(
    f"aten.{name}_"
    for name in ("copy", "fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential", "cauchy", "geometric", "log_normal")
) | {"aten._foreach_copy_", "aten._foreach_zero_"}
"""In-place operations that do not read what they overwrite."""
Slot = int | str


@dataclass(frozen=True, slots=True)
class Operation:
    """One overload of an operation.

    Attributes:
        run: the function itself.
        name: such as "aten.mm" or "aten.add.Tensor".
        view: gives another view of its argument and computes nothing, or only marks a time for the profiler.
        counted: PyTorch counts the version of what it writes up.
        empty: allocates without writing.
        random: draws from a generator.
        writes: the arguments that it writes, by position or name.
        blind: it does not read them.
        fresh: which of its results are new tensors; None for all.
        special: any of these but the name,
        probed: the argument whose gradient is computed otherwise under a mode; None for none.
        in_place: but for this: writes its first argument, reads all of them, and does no more. Most of an optimizer.
    """

    run: Any
    name: str
    view: bool = False
    counted: bool = True
    empty: bool = False
    random: bool = False
    writes: tuple[Slot, ...] = ()
    blind: bool = False
    fresh: tuple[bool, ...] | None = None
    special: bool = False
    probed: int | None = None
    in_place: bool = False


def describe(function: Any) -> Operation:
    """The operation that a dispatch mode is called with."""
    schema = getattr(function, "_schema", None)
    if schema is None:  # an operator of higher order, such as flex_attention
        return Operation(function, f"higher_order.{getattr(function, '__name__', function)}")
    base = schema.name.replace("::", ".")
    run = getattr(function, "_op", function)  # what calling it comes to, without a Python frame
    writes = tuple(_writes(schema.arguments)) or _UNDECLARED.get(base, ())
    aliased = [each.alias_info is not None for each in schema.returns]
    empty, random = base.startswith(_EMPTY), torch.Tag.nondeterministic_seeded in function.tags
    blind = base in _BLIND or any(each.is_out for each in schema.arguments)
    in_place = writes == (0,) and str(schema.arguments[0].type) == "Tensor" and not (blind or empty or random) and len(aliased) < 2
    name = f"{base}.{schema.overload_name}" if schema.overload_name else base
    return Operation(
        run,
        name=name,
        view=base.startswith("profiler.") or (not writes and (any(aliased) or base in _VIEWS)),
        counted=base not in _UNDECLARED,
        empty=empty,
        random=random,
        writes=writes,
        blind=blind,
        fresh=tuple(not alias for alias in aliased) if any(aliased) else None,
        special=bool(writes or empty or random) and not in_place,
        probed=GRADIENTS.get(name),
        in_place=in_place,
    )


def _writes(arguments: Sequence[Any]) -> Iterator[Slot]:
    for place, each in enumerate(arguments):
        if each.alias_info is not None and each.alias_info.is_write:
            yield each.name if each.kwarg_only else place


def written(operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The tensors among the arguments that the operation writes, in the order of its signature."""
    found: list[Any] = []
    for slot in operation.writes:
        value = kwargs.get(slot) if isinstance(slot, str) else args[slot] if slot < len(args) else None
        collect(value, found)
    return found


def unwritten(operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The tensors in the arguments that it does not write. One in two arguments may be both: `torch.mul(x, y, out=x)` reads x."""
    found: list[Any] = []
    for slot, value in (*enumerate(args), *kwargs.items()):
        if slot not in operation.writes:
            collect(value, found)
    return found


def collect(value: Any, found: list[Any]) -> None:
    """Append the tensors in `value`: one, or a list or tuple of them."""
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            collect(item, found)


def results(operation: Operation, value: Any) -> list[Any]:
    """The new tensors among what the operation returned."""
    found: list[Any] = []
    if operation.fresh is None:
        collect(value, found)
    elif any(operation.fresh):
        for fresh, item in zip(operation.fresh, value if len(operation.fresh) > 1 else (value,), strict=False):
            if fresh:
                collect(item, found)
    return found
