"""Every operation of PyTorch's own test list, with and without a recorder: prints those whose bits differ. Run by test_observer.

Arguments: a dtype, and the most samples per operation.
"""

from __future__ import annotations

import itertools
import json
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree

import detconf

sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # type: ignore[arg-type]  # PyTorch's list wants it
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402  # once it is there

_REPEATS = 4
"""Plain runs that must agree first: some operations are not stable without a recorder either."""


def bits(value: Any) -> Any:
    """What is compared of a result."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return str(value.dtype), tuple(value.shape), plain.view(torch.uint8).numpy().tobytes()


def once(operation: Any, sample: Any, *, gradient: bool) -> list[Any]:
    """The results of one sample, and the gradients of its inputs."""
    torch.manual_seed(0)

    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().requires_grad_(gradient and value.requires_grad)

    first, args, kwargs = _pytree.tree_map(own, (sample.input, sample.args, sample.kwargs))
    with torch.set_grad_enabled(gradient):
        results = [each for each in _pytree.tree_leaves(operation(first, *args, **kwargs)) if isinstance(each, torch.Tensor)]
    found = list(map(bits, results))
    ends = [each for each in results if each.requires_grad and each.layout is torch.strided]
    leaves = [each for each in _pytree.tree_leaves((first, args, kwargs)) if isinstance(each, torch.Tensor) and each.requires_grad]
    if ends and leaves:
        torch.autograd.backward(ends, [torch.linspace(0.1, 1.7, each.numel()).view(each.shape).to(each.dtype) for each in ends])
        found += [None if each.grad is None else bits(each.grad) for each in leaves]
    return found


def differs(operation: Any, sample: Any, *, gradient: bool) -> bool:
    """Does a recorder change the bits? False where they are not stable without one."""
    plain = once(operation, sample, gradient=gradient)
    if any(once(operation, sample, gradient=gradient) != plain for _ in range(1)):
        return False
    with detconf.record(sys.argv[3]):
        recorded = once(operation, sample, gradient=gradient)
    return recorded != plain and all(once(operation, sample, gradient=gradient) == plain for _ in range(_REPEATS))


def survey(dtype: torch.dtype, most: int) -> Iterator[str]:
    """The operations that differ, a gradient with that word behind it; and how many samples were run."""
    count = 0
    for operation, gradient in itertools.product(op_db, (False, True)):
        if dtype not in operation.dtypes or (gradient and not operation.supports_autograd):
            continue
        for sample in itertools.islice(operation.sample_inputs("cpu", dtype, requires_grad=gradient), most):
            try:
                found = differs(operation, sample, gradient=gradient)
            except Exception:  # noqa: BLE001  # samples that need what is not installed, or are meant to fail
                continue
            count += 1
            if found:
                yield f"{operation.name}{' gradient' if gradient else ''}"
                break
    yield str(count)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(json.dumps(list(survey(getattr(torch, sys.argv[1]), int(sys.argv[2])))))
