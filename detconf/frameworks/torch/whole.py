"""Functions that PyTorch computes otherwise while any dispatch mode is on, run with it off and seen as one operation.

Such functions are composite: they are taken apart before a mode sees their parts, and some ask then whether a tensor might be a
subclass (ATen's `isTensorSubclassLike`), which is answered with yes wherever a mode is active. The singular values come
from another LAPACK driver then, with other bits, and a batch is multiplied as one matrix. The parts that we would see are
those of another computation, so that we step aside, and see the whole.

Found by running every operation of PyTorch's own test list with and without a mode. Gradients that ask the same question are
`GRADIENTS`: they run in the autograd engine, where nothing can step aside, and their recordings say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import library as registry

Applies = Callable[[Sequence[Any]], bool]
_KEYS = torch._C.DispatchKey
_IMPLICIT = _KEYS.CompositeImplicitAutograd
_Guard = torch._C._SetExcludeDispatchKeyGuard
_ABOVE = ("AutogradCPU", "AutogradCUDA")
"""Where composite functions are taken apart."""

GRADIENTS = {
    "aten.prod": 0,
    "aten.prod.dim_int": 0,
    "aten.prod.dim_Dimname": 0,
    "aten.masked_fill.Tensor": 2,
    "aten.masked_fill_.Tensor": 2,
}
"""Operations, and the argument of which the gradient is computed otherwise under a mode."""


def _no_gradient(args: Sequence[Any]) -> bool:
    """Where a gradient is wanted, vectors are computed with and without a mode."""
    return not (torch.is_grad_enabled() and args[0].requires_grad)


def _spread(args: Sequence[Any]) -> bool:
    """One matrix against a batch of them: several rows of a product then come from one call of another kernel."""
    x, y = args
    return bool(x.dim() == 3 and y.dim() == 3 and x.shape[0] != y.shape[0])


_WHOLE: dict[str, Applies] = {"linalg_svdvals": _no_gradient, "linalg_eigvalsh": _no_gradient, "matmul": _spread}
"""The roots: `linalg.cond`, `linalg.norm`, `linalg.matrix_rank` and others call these."""


def start(trace: type[Any]) -> Callable[[], None]:
    """Let `trace.whole(function, args, kwargs)` run these functions where a mode of that class is the only one.

    Where the user's own mode is on as well, the program meets the same question without us. Returns what ends that.
    """
    kernels = vars(registry)["Library"]("aten", "IMPL")
    for name, applies in _WHOLE.items():
        function = getattr(torch.ops.aten, name).default
        for key in _ABOVE:
            kernels.impl(name, _kernel(function, applies, trace), key)
    end: Callable[[], None] = getattr(kernels, "_destroy", None) or kernels.__del__
    return end


def run(function: Callable[..., Any], tensors: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operation from within a mode so that what it conjugates lazily inside itself is conjugated.

    A mode stands below the keys that do this, and they are left out for all that it calls: `linalg.pinv` of a complex matrix is
    not only another there, but wrong.

    Args:
        function: the operation.
        tensors: those among its arguments.
        args, kwargs: its arguments.
    """
    for tensor in tensors:
        if tensor.is_complex():
            with _Guard(_KEYS.Conjugate, False), _Guard(_KEYS.Negative, False):
                return function(*args, **kwargs)
    return function(*args, **kwargs)


def parts(function: Any) -> Callable[..., Any]:
    """What calling a composite function comes to: its parts."""
    if hasattr(function, "_op_dk"):  # in a quarter of the time
        return lambda *args, **kwargs: function._op_dk(_IMPLICIT, *args, **kwargs)
    decomposed: Callable[..., Any] = function.decompose
    return decomposed


def _kernel(function: Any, applies: Applies, trace: type[Any]) -> Callable[..., Any]:
    composite, depth, at = parts(function), torch._C._len_torch_dispatch_stack, torch._C._get_dispatch_stack_at

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if depth() == 1:
            mode: Any = at(0)
            if type(mode) is trace and applies(args):
                return mode.whole(function, composite, args, kwargs)
        return composite(*args, **kwargs)

    return kernel
