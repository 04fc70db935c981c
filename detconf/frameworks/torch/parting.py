"""Two results of one operation on equal inputs: how far apart, whether as rounding allows, and what made them so."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.fx import Node
from torch.utils._pytree import tree_leaves, tree_map

from detconf.frameworks.rungs import Operation, Survey
from detconf.frameworks.source import short
from detconf.frameworks.torch.tensors import to_array

LOW = (torch.float16, torch.bfloat16)
"""Dtypes below float32."""
_KEPT = 8
"""Operations of which both results are kept."""
_LIKE = 16.0
"""A rounding may be so many times another one."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_SELF = re.compile(r"^L\['\w+'\]\.?")


def compare(  # noqa: PLR0913  # what a node is, what it gave, and where that is noted
    node: Node, results: tuple[Any, Any], stage: str, found: Survey, *, backward: bool, again: tuple[Any, Any]
) -> None:
    """Note an operation whose results differ in bits.

    Args:
        results: of eager, and of the graph.
        again: the inputs, by position and by name, to compute it in float64 too.
    """
    found.examined += 1
    made = maker(node)
    for place, (ours, theirs) in enumerate(zip(*map(tree_leaves, results), strict=False)):
        if not (isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)):
            continue
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape or not ours.is_floating_point():
            continue  # a decomposition may keep statistics in another type
        share, scaled = _measure(ours, theirs)
        if share:
            sides = (to_array(ours).owned(), to_array(theirs).owned()) if len(found.operations) < _KEPT else None
            faithful = _faithful(made, place if made is node else int(node.args[1]), ours, theirs, again)
            word = _word(made, ours, stage)
            found.operations.append(Operation(name_of(made), stage, word, source_of(node), sides, scaled, share, backward, faithful))
            return


def maker(node: Node) -> Node:
    """The operation that a node is a result of: itself, or for an element of a tuple what made the tuple."""
    return node.args[0] if node.target is operator.getitem and isinstance(node.args[0], Node) else node


def _faithful(node: Node, place: int, ours: torch.Tensor, theirs: torch.Tensor, again: tuple[Any, Any]) -> bool | None:
    """Is each as far from the operation in float64, on the same inputs, as rounding allows? None where that cannot be computed."""
    wide = tree_map(lambda each: each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each, again)
    try:
        with torch.no_grad():
            exact = [*tree_leaves(node.target(*wide[0], **wide[1]))][place]
        errors = [float((side.double() - exact).abs().max()) for side in (ours, theirs)]
    except Exception:  # noqa: BLE001  # asks for a dtype by name, or is random
        return None
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) or not math.isfinite(sum(errors)):
        return None
    inputs = [each for each in tree_leaves(wide) if isinstance(each, torch.Tensor) and each.is_floating_point() and each.numel()]
    widest = max((each.numel() for each in inputs), default=1)
    length = max(1, widest // max(1, ours.numel()))
    sums = max((float(each.abs().mean()) for each in inputs), default=0.0) * length
    narrow = [each.dtype for each in tree_leaves(again) if isinstance(each, torch.Tensor) and each.is_floating_point()]
    unit = max(torch.finfo(each).eps for each in (ours.dtype, *narrow))  # an input may not have been rounded to its dtype
    scale = float(exact.square().mean().sqrt())
    return bool(errors[1] <= _LIKE * max(errors[0], unit * scale) or (length > 1 and errors[1] <= unit * sums))


def _measure(ours: torch.Tensor, theirs: torch.Tensor) -> tuple[float, float]:
    """(share of elements that differ in bits, their largest difference in roundings of a typical element)."""
    ours, theirs = ours.detach().contiguous(), theirs.detach().contiguous()
    if not ours.numel():
        return 0.0, 0.0
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(ours.element_size(), torch.uint8)
    differing = int((ours.view(size) != theirs.view(size)).sum()) if size != torch.uint8 else int(not torch.equal(ours, theirs))
    if not differing:
        return 0.0, 0.0
    wide, other = ours.double(), theirs.double()
    finite = torch.isfinite(wide) & torch.isfinite(other)
    if not bool(torch.all(finite | (wide == other) | (wide.isnan() & other.isnan()))):
        return differing / ours.numel(), float("inf")
    wide, other = wide[finite], other[finite]
    scale = float(wide.square().mean().sqrt()) if wide.numel() else 0.0
    largest = float((wide - other).abs().max()) if wide.numel() else 0.0
    return differing / ours.numel(), largest / (torch.finfo(ours.dtype).eps * scale) if scale else (float("inf") if largest else 0.0)


def _word(node: Node, result: torch.Tensor, stage: str) -> str:
    """What made it differ, in general words. Tags are PyTorch's own (aten/src/ATen/native/tags.yaml)."""
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags:
        return "generator"
    if stage == "decomposition":
        return "decomposition"
    narrow = any(_dtype(each) in LOW for each in (node, *node.all_input_nodes))
    if narrow:
        return "elided rounding"
    smaller = any(_size(each) > result.numel() for each in node.all_input_nodes)
    if torch.Tag.reduction in tags or (smaller and torch.Tag.pointwise not in tags):
        return "reduction order"
    return "vector math library" if torch.Tag.pointwise in tags else "another kernel"


def _dtype(node: Node) -> Any:
    return getattr(node.meta.get("val"), "dtype", None)


def _size(node: Node) -> int:
    value = node.meta.get("val")
    with suppress(Exception):  # symbolic sizes
        return int(value.numel()) if isinstance(value, torch.Tensor) else 0
    return 0


def name_of(node: Node) -> str:
    return str(node.target).removesuffix(".default")


def source_of(node: Node) -> str:
    """ "model.py:12", from the stack that dynamo kept: the innermost frame that is not PyTorch's own; else the module."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    root = torch.__path__[0]
    own = [f"{short(file)}:{line}" for file, line in frames if not file.startswith(root)]
    if own:
        return own[-1]
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    path, kind = stack[-1]
    return f"{_SELF.sub('', path)}, {getattr(kind, '__name__', kind)}"


def agree(first: Any, other: Any) -> bool:
    ours, theirs = list(_tensors(first)), list(_tensors(other))
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and a.dtype == b.dtype and _measure(a, b)[0] == 0.0 if a.is_floating_point() else torch.equal(a, b)
        for a, b in zip(ours, theirs, strict=True)
    )


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    leaves: Sequence[Any] = tree_leaves(value)
    yield from (each for each in leaves if isinstance(each, torch.Tensor))
