"""Shadows of operations that are not simply the same operation in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from detconf.frameworks.torch.shadow_tensors import floats, wide

Inputs = Mapping[str, Any]
Outputs = list[Any]
Rule = Callable[[Inputs, Inputs, list[Any]], Outputs]
"""(shadow arguments, real arguments, real results) -> shadows of the results; None for integers."""


def real_results(made: list[Any]) -> Outputs:
    """What was drawn is exact."""
    return [each.to(wide(each.dtype), copy=True) if floats(each.dtype) else None for each in made]


def _dropout(inputs: Inputs, real: Inputs, made: list[Any]) -> Outputs:
    """The mask is the real one."""
    shadow, p = inputs["input"], float(inputs["p"])
    # In inference mode there is no mask to see: zeros are either dropped, or were zeros before.
    mask = made[1] if len(made) > 1 else (made[0] != 0) | (real["input"] == 0)
    kept = shadow * mask / (1 - p) if p < 1 else torch.zeros_like(shadow)
    return [kept, None][: len(made)]


def _normal(inputs: Inputs, real: Inputs, made: list[Any]) -> Outputs:
    """Standard normal numbers that were scaled and shifted."""
    [result] = made
    mean, std = real.get("mean", 0.0), real.get("std", 1.0)
    if not (isinstance(mean, torch.Tensor) or isinstance(std, torch.Tensor)):
        return real_results(made)
    drawn = (result.double() - mean) / std
    return [torch.nan_to_num(drawn) * inputs.get("std", 1.0) + inputs.get("mean", 0.0)]


def _leaky(inputs: Inputs, _real: Inputs, made: list[Any]) -> Outputs:
    """rrelu: the random slopes are written to `noise`."""
    noise = made[0].double()
    return [noise, inputs["self"] * noise][: len(made)]


def _along(inputs: Inputs, real: Inputs, made: list[Any]) -> Outputs:
    """(values, indices) along one dimension: the real indices choose."""
    values, indices = made
    source = inputs["self"]
    dim = int(real.get("dim", -1))
    if source.dim() and indices.dim() < source.dim():  # without keepdim
        return [source.gather(dim, indices.unsqueeze(dim)).squeeze(dim), None]
    return [source.gather(dim, indices) if source.dim() else source.reshape(values.shape), None]


def _pool(dims: int) -> Rule:
    def rule(inputs: Inputs, _real: Inputs, made: list[Any]) -> Outputs:
        source, indices = inputs["self"], made[1]
        flat = source.flatten(source.dim() - dims)
        return [flat.gather(-1, indices.flatten(indices.dim() - dims)).reshape(indices.shape), None]

    return rule


def _unique(inputs: Inputs, real: Inputs, made: list[Any]) -> Outputs:
    """Each unique element is one of the elements that it stands for."""
    order = torch.unique(real["self"], return_inverse=True)
    place = torch.zeros(order[0].shape, dtype=torch.int64, device=order[1].device)
    flat = order[1].flatten()
    place.scatter_(0, flat, torch.arange(flat.numel(), device=flat.device))
    found = inputs["self"].flatten()[place]
    if found.shape != made[0].shape or not torch.equal(order[0], made[0]):
        msg = "its elements come in another order"
        raise NotImplementedError(msg)
    return [found, *[None] * (len(made) - 1)]


def _lstm(inputs: Inputs, _real: Inputs, made: list[Any]) -> Outputs:
    """One layer and direction of an LSTM as oneDNN computes it, which does so in float32 only."""
    output, hidden, cell = _layer(inputs, "weight0", "weight1", "weight2", "weight3", "cx_")
    shadows = [output.reshape(made[0].shape), hidden.reshape(made[1].shape), cell.reshape(made[2].shape)]
    # The last is oneDNN's scratch memory: whatever was there.
    return shadows + [torch.zeros(each.shape, dtype=wide(each.dtype)) if floats(each.dtype) else None for each in made[3:]]


def _lstm_backward(inputs: Inputs, _real: Inputs, made: list[Any]) -> Outputs:
    names = ("input", "weight1", "weight2", "weight3", "weight4", "hx_", "cx_tmp")
    with torch.inference_mode(False), torch.enable_grad():
        leaves = {name: inputs[name].clone().requires_grad_() for name in names if isinstance(inputs[name], torch.Tensor)}
        results = _layer({**inputs, **leaves}, "weight1", "weight2", "weight3", "weight4", "cx_tmp")
        pairs = [
            (result, grad.clone().reshape(result.shape))
            for result, grad in zip(results, (inputs["grad_output"], inputs["grad_hy"], inputs["grad_cy"]), strict=True)
            if grad is not None
        ]
        grads = torch.autograd.grad([result for result, _ in pairs], list(leaves.values()), [grad for _, grad in pairs], allow_unused=True)
    found = dict(zip(leaves, grads, strict=True))
    shadows = []
    for name, each in zip(names, made, strict=True):
        grad = found.get(name)
        shadows.append(torch.zeros(each.shape, dtype=torch.float64) if grad is None else grad.detach().reshape(each.shape))
    return shadows


def _layer(inputs: Inputs, ih: str, hh: str, b_ih: str, b_hh: str, cx: str) -> tuple[Any, Any, Any]:  # noqa: PLR0913, PLR0917
    """(output, hidden, cell) of one layer, time first. Gates: input, forget, cell, output."""
    steps = inputs["input"]
    hidden, cell = (inputs[name].reshape(steps.shape[1], -1) for name in ("hx_", cx))
    bias = inputs[b_ih] + inputs[b_hh] if inputs["has_biases"] else 0.0
    outputs = []
    order = range(steps.shape[0])
    for step in reversed(order) if inputs["reverse"] else order:
        gates = steps[step] @ inputs[ih].t() + hidden @ inputs[hh].t() + bias
        enter, forget, new, leave = gates.chunk(4, 1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs[::-1] if inputs["reverse"] else outputs), hidden, cell


def _unscaled(inputs: Inputs, _real: Inputs, made: list[Any]) -> Outputs:
    """Gradients of a loss that was scaled; last, whether one of them is not finite."""
    return [each * inputs["inv_scale"] for each in inputs["self"]] + real_results(made[-1:])


def _decided(_inputs: Inputs, _real: Inputs, made: list[Any]) -> Outputs:
    """Counts, and a scale that is doubled and halved: decisions, and exact."""
    return real_results(made)


def _eigenvectors(inputs: Inputs, real: Inputs, made: list[Any]) -> Outputs:
    """Each eigenvector has a phase of its own, that of the real one."""
    general = "UPLO" not in real
    values, vectors = torch.linalg.eig(inputs["self"]) if general else torch.linalg.eigh(inputs["A"], real["UPLO"])
    if not made[1].numel():
        return [values, vectors.reshape(made[1].shape)]
    return [values, vectors * _phases(vectors, made[1], -2)]


def _singular_vectors(inputs: Inputs, real: Inputs, made: list[Any]) -> Outputs:
    left, values, right = torch.linalg.svd(inputs["A"], real["full_matrices"])
    if not made[0].numel() or not made[2].numel():
        return [torch.zeros_like(each, dtype=wide(each.dtype)) if not each.numel() else values for each in made]
    count = values.shape[-1]
    phases = _phases(left[..., :count], made[0][..., :count], -2)
    left = torch.cat([left[..., :count] * phases, left[..., count:]], -1)
    right = torch.cat([right[..., :count, :] * phases.conj().transpose(-2, -1), right[..., count:, :]], -2)
    return [left, values, right]


def _phases(vectors: Any, real: Any, dim: int) -> Any:
    """What turns each vector into the direction of the real one.

    Raises:
        NotImplementedError: they are other vectors: of a space of which any basis will do.
    """
    overlap = (vectors.conj() * real.to(vectors.dtype)).sum(dim, keepdim=True)
    size = overlap.abs()
    if bool((size < 1 - 1e-2).any()):
        msg = "vectors of equal values are chosen at will"
        raise NotImplementedError(msg)
    return overlap / size


DRAWS: Mapping[str, Rule] = {
    "native_dropout": _dropout,
    "dropout": _dropout,
    "normal": _normal,
    "rrelu_with_noise": _leaky,
}
"""Of operations that draw random numbers. All others of these: what was drawn."""

_DRAWN = (
    "bernoulli normal uniform random exponential cauchy geometric log_normal rand randn rand_like randn_like randint randint_like "
    "randperm multinomial poisson binomial _standard_gamma _sample_dirichlet"
)
"""Their results are what they drew, and nothing else."""
PURE = frozenset(_DRAWN.split())

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("sort", "topk", "kthvalue", "mode", "cummax", "cummin"), _along),
    "max_pool2d_with_indices": _pool(2),
    "max_pool3d_with_indices": _pool(3),
    "adaptive_max_pool2d": _pool(2),
    "adaptive_max_pool3d": _pool(3),
    "fractional_max_pool2d": _pool(2),
    "fractional_max_pool3d": _pool(3),
    "_unique2": _unique,
    "_amp_foreach_non_finite_check_and_unscale": _unscaled,
    **dict.fromkeys(("_amp_update_scale", "histc", "histogram"), _decided),
    "_linalg_eigh": _eigenvectors,
    "linalg_eig": _eigenvectors,
    "_linalg_svd": _singular_vectors,
    "mkldnn_rnn_layer": _lstm,
    "mkldnn_rnn_layer_backward": _lstm_backward,
}
ALONG = frozenset(("max", "min", "median", "nanmedian"))
"""They give indices in one of their forms."""


def rule(name: str, made: list[Any]) -> Rule | None:
    """The rule for an operation that draws nothing; None for the same in float64."""
    if name in ALONG and len(made) == 2 and made[1].dtype is torch.int64:
        return _along
    return RULES.get(name)
