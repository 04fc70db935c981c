"""Terms of convolutions and of batched products: found from shapes and numbers, and added up again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from test_accumulating import _recipe, in_hardware, one_by_one, require_accumulator
from torch.nn import functional as F  # noqa: N812  # as everybody calls it

import detconf
from detconf.auditing.attempts.fingerprint import spread
from detconf.auditing.sums.contractions import contraction

_RANDOM = np.random.default_rng(0)


def made(*shape: int) -> Any:
    """Numbers that are the same each time the tests run."""
    return _RANDOM.standard_normal(shape, dtype=np.float32)


X1, W1, B1 = made(2, 12, 40), made(8, 12, 5), made(8)
X2, W2, GROUPED = made(2, 12, 14, 15), made(8, 12, 3, 3), made(9, 4, 3, 5)
A, B = made(3, 2, 20, 60), made(3, 2, 60, 9)
SHARED = made(60, 9)
DEPTH, PATCH, CUBE, TURNED, ADDED = made(12, 1, 3, 3), made(5, 12, 7, 7), made(4, 1, 3, 3, 3), made(12, 6, 3, 3), made(3, 20, 9)


def tensors(*arrays: Any) -> list[Any]:
    return [torch.from_numpy(each.copy()) for each in arrays]


def paddles(*arrays: Any) -> list[Any]:
    return [paddle.to_tensor(each) for each in arrays]


PADDLE = paddle.nn.functional
SUMS: dict[str, Callable[[], Any]] = {
    "conv1d": lambda: F.conv1d(*tensors(X1, W1, B1)),
    "conv1d, stride and dilation": lambda: F.conv1d(*tensors(X1, W1, B1), stride=3, dilation=2, padding=4),
    "conv2d": lambda: F.conv2d(*tensors(X2, W2)),
    "conv2d, padding": lambda: F.conv2d(*tensors(X2, W2, B1), padding=1),
    "conv2d, groups, other strides": lambda: F.conv2d(*tensors(X2, GROUPED), groups=3, stride=(2, 1), padding=(1, 2)),
    "conv2d, depthwise, dilation": lambda: F.conv2d(*tensors(X2, DEPTH), groups=12, dilation=2, padding="same"),
    "conv2d, patches": lambda: F.conv2d(*tensors(X2, PATCH), stride=7),
    "conv3d": lambda: F.conv3d(*tensors(X2[:, None], CUBE), padding=1),
    "transposed convolution": lambda: F.conv_transpose2d(*tensors(X2, TURNED), stride=2, padding=1, output_padding=1),
    "paddle conv1d": lambda: PADDLE.conv1d(*paddles(X1, W1), padding=2),
    "paddle conv2d": lambda: PADDLE.conv2d(*paddles(X2, W2), stride=2, padding=1),
    "paddle conv2d, channels last": lambda: PADDLE.conv2d(*paddles(np.ascontiguousarray(np.moveaxis(X2, 1, -1)), W2), padding=1, data_format="NHWC"),
    "paddle depthwise": lambda: PADDLE.conv2d(*paddles(X2, DEPTH), groups=12),
    "numpy convolve": lambda: np.convolve(X1[0, 0], W1[0, 0], "same"),
    "numpy correlate": lambda: np.correlate(X1[0, 0], W1[0, 0], "full"),
    "bmm": lambda: torch.bmm(*tensors(A[:, 0], B[:, 0])),
    "baddbmm": lambda: torch.baddbmm(*tensors(ADDED, A[:, 0], B[:, 0])),
    "matmul with batches": lambda: torch.matmul(*tensors(A, B)),
    "matmul with batches that are spread": lambda: np.matmul(A, B[:, :1]),
    "matmul, transposed": lambda: torch.from_numpy(A) @ torch.from_numpy(np.ascontiguousarray(B.swapaxes(-1, -2))).transpose(-1, -2),
    "paddle matmul, transposed": lambda: paddle.matmul(*paddles(A, np.ascontiguousarray(B.swapaxes(-1, -2))), transpose_y=True),
    "paddle bmm": lambda: paddle.bmm(*paddles(A[:, 0], B[:, 0])),
    "numpy matmul, one vector per batch": lambda: np.matmul(A, B[..., :1]),
    "numpy dot of batches": lambda: np.dot(A[0], B[0]),
    "numpy inner": lambda: np.inner(A[0], A[1]),
    "einsum": lambda: np.einsum("abij,abjk->abik", A, B),
    "einsum in another order": lambda: np.einsum("abij,abjk->kiab", A, B),
    "einsum over two axes": lambda: np.einsum("abij,abjk->ik", A, B),
    "einsum with dots": lambda: np.einsum("...ij,jk->...ik", A, SHARED),
    "tensordot": lambda: np.tensordot(A, B, axes=([3, 0], [2, 0])),
    "tensordot of the last axes": lambda: np.tensordot(A[0], SHARED, 1),
    "torch einsum": lambda: torch.einsum("abij,abjk->abik", *tensors(A, B)),
    "paddle einsum": lambda: paddle.einsum("abij,abjk->abik", *paddles(A, B)),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_terms_are_found(name: str) -> None:
    """What was read, real, in the order of the terms: added up in float64 it is the result, to rounding."""
    real = np.asarray(SUMS[name](), dtype=np.float64).reshape(-1)
    found, terms = _recipe(lambda: {"r": SUMS[name]()})
    assert found is not None
    assert terms is not None
    scale = np.sum(np.abs(terms.products), axis=0)
    assert np.all(np.abs(terms.exact - real[found.places]) <= 2e-6 * scale)
    assert len(found.places) >= min(real.size, 40)


@given(st.data())
def test_any_geometry_is_found(data: st.DataObject) -> None:
    """Strides, paddings, dilations, groups and sizes of filters."""
    groups, inner, outer = (data.draw(st.integers(1, 3)) for _ in range(3))
    axes = data.draw(st.integers(1, 2))
    sizes, kernel = (data.draw(st.lists(st.integers(1, most), min_size=axes, max_size=axes)) for most in (17, 4))
    stride, dilation = data.draw(st.lists(st.integers(1, 4), min_size=axes, max_size=axes)), [data.draw(st.integers(1, 3))] * axes
    padding = [data.draw(st.integers(0, d * (k - 1))) for k, d in zip(kernel, dilation, strict=True)]
    assume(all(s + 2 * p > d * (k - 1) for s, p, d, k in zip(sizes, padding, dilation, kernel, strict=True)))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, w = random.standard_normal((2, groups * inner, *sizes)), random.standard_normal((groups * outer, inner, *kernel))
    convolve: Any = F.conv1d if axes == 1 else F.conv2d
    options: dict[str, Any] = {"stride": stride, "dilation": dilation, "padding": padding, "groups": groups}
    result = convolve(torch.from_numpy(x), torch.from_numpy(w), **options).numpy()
    places = spread(result.size, 64)
    found = contraction([x, w], result, {}, places, 1e-9)
    assert found is not None
    terms = found.terms([x, w], places)
    assert terms is not None
    assert np.allclose(np.sum(terms[0] * terms[1], axis=0), result.reshape(-1)[places])


def test_another_operation_is_none() -> None:
    """A product of elements, a convolution and something more, an outer product's shape with other numbers."""
    x, w = X2.astype(np.float64), W2.astype(np.float64)
    result = F.conv2d(torch.from_numpy(x), torch.from_numpy(w)).numpy()
    places = spread(result.size, 64)
    assert contraction([x, w], result, {}, places, 1e-9) is not None
    assert contraction([x, w], np.tanh(result), {}, places, 1e-9) is None
    assert contraction([x, x], x * x, {}, spread(x.size, 64), 1e-9) is None
    assert contraction([x, w], result, {0: "NCHW", 1: "a,b"}, places, 1e-9) is not None


def _unfolded(x: Any, w: Any, add: Callable[[Any, Any], Any]) -> Any:
    """A convolution with padding 1, by a product of patches and filters that is added up so."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w.shape[2:], (2, 3))
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, w[0].size)
    found = add(np.ascontiguousarray(rows), np.ascontiguousarray(w.reshape(len(w), -1).T))
    return found.reshape(x.shape[0], *x.shape[2:], len(w)).transpose(0, 3, 1, 2).astype(np.float32)


def convolved() -> dict[str, Any]:
    return {"y": F.conv2d(*tensors(X2, W2), padding=1)}


def convolved_by_paddle() -> dict[str, Any]:
    return {"y": PADDLE.conv2d(*paddles(X2, W2), padding=1)}


def batched() -> dict[str, Any]:
    return {"y": torch.bmm(*tensors(A[:, 0], B[:, 0]))}


def batched_by_numpy() -> dict[str, Any]:
    return {"y": np.einsum("bij,bjk->bik", A[:, 0], B[:, 0])}


def each_batch(form: str) -> dict[str, Any]:
    return {"y": np.stack([one_by_one(a, b, form).astype("f4") for a, b in zip(A[:, 0], B[:, 0], strict=True)])}


REDUCED: dict[str, tuple[Any, Any, str]] = {
    "a convolution in float16": (convolved, {"y": _unfolded(X2, W2, lambda x, w: one_by_one(x, w, "float16"))}, "accumulates in float16: it adds one after the other"),
    "a convolution in bfloat16": (convolved_by_paddle, {"y": _unfolded(X2, W2, lambda x, w: one_by_one(x, w, "bfloat16"))}, "accumulates in bfloat16"),
    "a convolution of a matrix unit": (convolved, {"y": _unfolded(X2, W2, lambda x, w: in_hardware(x, w, "float16", 16, "float16"))}, "after every 16 terms"),
    "a batch in float16": (batched, each_batch("float16"), "accumulates in float16: it adds one after the other"),
    "a batch in bfloat16, against einsum": (batched_by_numpy, each_batch("bfloat16"), "accumulates in bfloat16"),
    "reference arrays of a batch": (each_batch("float16"), batched, "the reference accumulates in float16"),
    "PyTorch's float16 convolution": (convolved, lambda: {"y": F.conv2d(*tensors(X2.astype("f2"), W2.astype("f2")), padding=1).float()}, "to float16"),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCED)
def test_an_accumulator_is_a_dtype(name: str) -> None:
    """As of plain products: the format of the running sum is named, and proved by adding up again."""
    require_accumulator(*REDUCED[name])


def test_orders_are_told() -> None:
    """A batch that is added up term by term; a convolution that is a product of patches."""
    found = detconf.audit(batched, each_batch("float32"))
    assert found.cause == "rounding", found
    assert any("candidate agrees bit for bit with adding one after the other" in each.statement for each in found.evidence), found
    found = detconf.audit(convolved, {"y": _unfolded(X2, W2, lambda x, w: one_by_one(x, w, "float32"))})
    assert found.cause == "rounding", found
    assert any("candidate agrees bit for bit with adding one after the other" in each.statement for each in found.evidence), found


def test_the_orders_of_libraries_are_told() -> None:
    """Those of this machine: what PyTorch and Paddle do with a filter, each in the same way for all elements."""
    found = detconf.audit(convolved, convolved_by_paddle)
    assert found.cause in {"rounding", "equal"}, found
    if "AVX2" not in torch.backends.cpu.get_cpu_capability() and "AVX512" not in torch.backends.cpu.get_cpu_capability():
        return  # other kernels
    said = [each.statement for each in found.evidence if "agrees bit for bit" in each.statement]
    assert found.cause == "equal" or any("reference" in each for each in said), found


@pytest.mark.parametrize("name", ["aten.convolution", "paddle.conv2d", "aten.bmm"])
def test_a_recorded_accumulator_is_told(tmp_path: Path, name: str) -> None:
    """Two recordings, of which one device adds up in float16; nothing says strides or paddings."""
    from test_audit_recordings import Script

    if name == "aten.bmm":
        inputs, right, wrong = [A[:, 0], B[:, 0]], A[:, 0] @ B[:, 0], each_batch("float16")["y"]
    else:
        inputs, right = [X2, W2], F.conv2d(*tensors(X2, W2), padding=1).numpy()
        wrong = _unfolded(X2, W2, lambda x, w: in_hardware(x, w, "float16", 16, "float16"))
    paths = []
    for file, result in (("a.det", right), ("b.det", wrong)):
        script = Script(tmp_path / file)
        paths.append(script.end(y=script.run(name, [each.copy() for each in inputs], result)))
    found = detconf.audit(*paths)
    assert found.cause == "dtype", found
    assert "accumulates in float16" in found.summary
    assert found.proof is not None
    assert found.proof.kind == "re-created"


def test_a_recorded_convolution_with_rounded_inputs(tmp_path: Path) -> None:
    """TF32 inside a longer program that was recorded: the operation is named."""
    from test_audit_recordings import Script

    from detconf.shadows.formats import round_to

    paths = []
    for file, form in (("a.det", "float32"), ("b.det", "tf32")):
        script = Script(tmp_path / file)
        x, w = (round_to(each.astype("f8"), form) for each in (X2, W2))
        made = _unfolded(x, w, lambda x, w: x @ w)
        inner = script.run("aten.convolution", [X2, W2], made)
        paths.append(script.end(y=script.run("aten.tanh", [inner], np.tanh(inner))))
    found = detconf.audit(*paths)
    assert found.cause == "dtype", found
    assert "aten.convolution rounds its inputs to tf32" in found.summary, found
    assert found.proof is not None
    assert found.proof.kind == "re-created"
