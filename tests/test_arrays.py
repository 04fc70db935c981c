"""Results of any framework become named bytes; what has no bytes is refused by name."""

from __future__ import annotations

import copy
import dataclasses
import io
import math
import random
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import paddle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from detconf.arrays import Array
from detconf.errors import TargetError
from detconf.results import flatten

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
Pair = namedtuple("Pair", "left right")  # noqa: PYI024  # the untyped kind must work too
NUMBERS = st.sampled_from([np.bool_, np.int8, np.uint64, np.float16, np.float32, np.float64, np.complex64]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@dataclasses.dataclass
class Output:
    """What a model may return."""

    loss: float
    hidden: Any = None


def only(value: Any) -> Array:
    """The one array of a bare result."""
    return flatten(value)["result"]


def shapes(value: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (array.dtype, array.shape) for name, array in flatten(value).items()}


@given(NUMBERS)
def test_bytes_are_in_logical_order(array: Any) -> None:
    """Transposed, reversed and strided views have the digest of their contiguous copies."""
    for view in (array, array.T, array[..., ::-1] if array.ndim else array, array[::2] if array.ndim else array):
        assert only(np.array(view, order="C")).digest == only(view).digest
        assert view.tobytes() == bytes(only(view).data)
        assert view.shape == only(view).shape


@given(hnp.arrays(np.float32, 6, elements=st.floats(width=32), unique=True), st.permutations(range(6)))
def test_digest_sees_permutations_and_signs(array: Any, order: list[int]) -> None:
    """A permutation and a sign flip change the digest, unless they change no byte."""
    assert (only(array).digest == only(array[order]).digest) == (array.tobytes() == array[order].tobytes())
    assert only(array).digest != only(-array).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(np.float32(0.0), np.float32(-0.0), id="sign of zero"),
        pytest.param(np.uint32(0x7FC00000).view("f4"), np.uint32(0x7FC00001).view("f4"), id="payload of NaN"),
        pytest.param(np.zeros(4, "f4"), np.zeros(4, "i4"), id="dtype"),
        pytest.param(np.zeros((2, 3)), np.zeros((3, 2)), id="shape"),
        pytest.param(np.zeros((2, 0)), np.zeros((0, 2)), id="shape without elements"),
        pytest.param(1, 1.0, id="int and float"),
        pytest.param(1, True, id="int and bool"),
        pytest.param("1", b"1", id="text and bytes"),
        pytest.param(None, b"", id="nothing and no bytes"),
        pytest.param(2**63, -(2**63), id="beyond 64 bits"),
    ],
)
def test_digest_tells_apart(one: Any, other: Any) -> None:
    """What differs in dtype, shape or any byte has another digest, and is not equal."""
    assert only(one).digest != only(other).digest
    assert only(one) != only(other)


def test_equal_arrays_are_equal() -> None:
    """Equality and hash go by content; another type is never equal."""
    assert only(np.arange(3)) == only(np.arange(3))
    assert len({only(np.arange(3)), only(np.arange(3))}) == 1
    assert only(1) != 1


@pytest.mark.parametrize("make", [lambda: np.ones(3, "f4"), lambda: torch.ones(3)], ids=["numpy", "torch"])
def test_owned_is_a_copy(make: Callable[[], Any]) -> None:
    """An owned array keeps its bytes when the tensor is changed in place."""
    tensor = make()
    owned = only(tensor).owned()
    tensor += 1
    assert np.ones(3, "f4").tobytes() == owned.data
    assert owned.owned() is owned
    assert owned != only(tensor)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (1.5, {"result": ("float64", ())}),
        (np.float64(1.5), {"result": ("float64", ())}),
        (True, {"result": ("bool", ())}),
        (7, {"result": ("int64", ())}),
        (2**70, {"result": ("int", ())}),
        (1j, {"result": ("complex128", ())}),
        ("text \udc80", {"result": ("str", ())}),
        (bytearray(b"ab"), {"result": ("bytes", ())}),
        (None, {"result": ("none", ())}),
        ([], {}),
        ([1, [2.0]], {"result[0]": ("int64", ()), "result[1][0]": ("float64", ())}),
        ({"loss": 1.0, "grads": (1, 2)}, {"loss": ("float64", ()), "grads[0]": ("int64", ()), "grads[1]": ("int64", ())}),
        ({"model": {"weight": np.zeros((2, 3), "f4")}}, {"model.weight": ("float32", (2, 3))}),
        ({0: {"exp_avg": 1.0}, np.int64(1): 2}, {"result[0].exp_avg": ("float64", ()), "result[1]": ("int64", ())}),
        ({("a", 1): 1, None: 2, "": 3}, {"result[('a', 1)]": ("int64", ()), "result[None]": ("int64", ()), "result['']": ("int64", ())}),
        (Output(1.0, [2]), {"loss": ("float64", ()), "hidden[0]": ("int64", ())}),
        (Pair(1, {"x": 2}), {"left": ("int64", ()), "right.x": ("int64", ())}),
        (OrderedDict(a=range(2)), {"a[0]": ("int64", ()), "a[1]": ("int64", ())}),
    ],
)
def test_names(value: Any, names: dict[str, Any]) -> None:
    """Every leaf is named by its path."""
    assert names == shapes(value)


def test_names_start_where_asked() -> None:
    """A given name stands first, whatever is inside."""
    assert list(flatten(1, "out")) == ["out"]
    assert list(flatten({"a": 1, "b": [2]}, "out")) == ["out.a", "out.b[0]"]


TREES = st.recursive(
    st.floats() | st.integers() | st.text(max_size=3) | st.binary(max_size=3) | st.none() | NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


def leaves(tree: Any) -> int:
    if isinstance(tree, (dict, list)):
        return sum(map(leaves, tree.values() if isinstance(tree, dict) else tree))
    return 1


@given(TREES)
def test_every_leaf_has_a_name(tree: Any) -> None:
    """No leaf is lost, and an equal copy flattens to equal arrays."""
    assert leaves(tree) == len(flatten(tree))
    assert flatten(tree) == flatten(copy.deepcopy(tree))


@given(st.dictionaries(st.text(max_size=4) | st.integers(), st.integers()), st.randoms())
def test_order_of_keys_does_not_matter(mapping: dict[Any, int], shuffle: random.Random) -> None:
    """The same mapping in another order has the same names and bytes."""
    items = list(mapping.items())
    shuffle.shuffle(items)
    try:
        expected = flatten(mapping)
    except TargetError:
        with pytest.raises(TargetError, match="have that name"):
            flatten(dict(items))
    else:
        assert expected == flatten(dict(items))


def test_keys_that_print_alike_stay_apart() -> None:
    """1 and "1" are two results; two ways to one path are refused."""
    assert {"result[1]", "1"} == set(flatten({1: 0, "1": 0}))
    with pytest.raises(TargetError, match=r"a\.b: two values"):
        flatten({"a": {"b": 1}, "a.b": 2})


def cycle() -> Any:
    tree: dict[str, Any] = {"a": []}
    tree["a"].append(tree)
    return tree


def deep() -> Any:
    tree: Any = 1
    for _ in range(2000):
        tree = [tree]
    return tree


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (cycle, r"a\[0\]: dict refers to itself"),
        (deep, r"nested more than 100 deep"),
        (lambda: {"a": {3, 1}}, r"a: set cannot be compared\. A set has no order: sort it into a list\. Accepted: arrays"),
        ({1: 2}.keys, r"result: dict_keys cannot be compared\. A set"),
        (lambda: [io.StringIO()], r"result\[0\]: _io\.StringIO cannot be compared\. Accepted: arrays"),
        (lambda: {"f": print}, r"f: builtin_function_or_method cannot"),
        (lambda: (number for number in [1]), r"result: generator cannot"),
        (lambda: {"a": {torch.ones(1): 1}}, r"a: a key of type torch\.Tensor names nothing\. Accepted"),
        (lambda: {"m": torch.nn.Linear}, r"m: type cannot be compared"),
        (lambda: {"o": np.array([object()])}, r"o: an array of dtype object holds pointers"),
        (lambda: {"o": np.zeros(2, [("a", "O")])}, r"o: an array of dtype .* holds pointers"),
        (lambda: {"t": torch.ones(2, device="meta")}, r"t: a meta tensor has a shape and no values\. Accepted"),
    ],
)  # fmt: skip
def test_refusals(value: Callable[[], Any], said: str) -> None:
    """What cannot be compared is refused with its path, what it is, and what is accepted."""
    with pytest.raises(TargetError, match=said):
        flatten(value())


def test_unreadable_tensors_are_refused_by_name() -> None:
    """Whatever a framework raises names the path and the first line of the reason."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2)
    with pytest.raises(TargetError, match=r"x\[0\]: the bytes of a .*FakeTensor cannot be read: "):
        flatten({"x": [fake]})


TORCH_DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_torch_dtypes(dtype: str, shape: tuple[int, ...]) -> None:
    """Every dtype and shape of torch has its name and its bytes."""
    tensor = torch.ones(shape).to(getattr(torch, dtype))
    assert (dtype, shape) == (only(tensor).dtype, only(tensor).shape)
    assert math.prod(shape) * tensor.element_size() == len(only(tensor).data)


X = torch.arange(12.0).reshape(3, 4)
C = torch.complex(X, X + 1)


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(X.t(), id="transposed"),
        pytest.param(X[::2, 1:], id="strided"),
        pytest.param(X.expand(2, 3, 4), id="expanded"),
        pytest.param(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), id="channels last"),
        pytest.param(C.conj(), id="conjugate view"),
        pytest.param(torch._neg_view(X), id="negative view"),
        pytest.param(C.conj().imag, id="negative view of a conjugate"),
        pytest.param(torch.nn.Parameter(X), id="parameter"),
        pytest.param((torch.nn.Parameter(X) * 2), id="with gradient"),
    ],
)
def test_torch_views(tensor: Any) -> None:
    """Views of torch have the bytes of the values that they show."""
    assert np.array(tensor.detach().resolve_conj().resolve_neg().tolist(), only(tensor).dtype).tobytes() == bytes(only(tensor).data)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (X.to_sparse, ["indices", "values", "size[0]", "size[1]"]),
        (X.to_sparse_csr, ["crow_indices", "col_indices", "values", "size[0]", "size[1]"]),
        (X.to_sparse_csc, ["ccol_indices", "row_indices", "values", "size[0]", "size[1]"]),
        (lambda: X.to_sparse_bsr((1, 2)), ["crow_indices", "col_indices", "values", "size[0]", "size[1]"]),
        (lambda: torch.quantize_per_tensor(X, 0.1, 3, torch.qint8), ["int_repr", "scale", "zero_point"]),
        (
            lambda: torch.quantize_per_channel(X, torch.ones(3), torch.zeros(3), 0, torch.qint8),
            ["int_repr", "per_channel_scales", "per_channel_zero_points", "per_channel_axis"],
        ),
        (X.to_mkldnn, ["dense"]),
    ],
)
def test_torch_components(make: Callable[[], Any], names: list[str]) -> None:
    """Sparse, quantized and oneDNN tensors are their components."""
    assert [f"x.{name}" for name in names] == list(flatten({"x": make()}))
    assert [f"result.{name}" for name in names] == list(flatten(make()))


def test_sparse_duplicates_are_not_added_up() -> None:
    """An uncoalesced tensor is compared as it is stored."""
    tensor = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,), requires_grad=True)
    assert flatten(tensor)["result.values"].shape == (2,)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(layout: Any) -> None:
    """A nested tensor is its parts."""
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
    assert shapes(nested) == {"result[0]": ("float32", (2,)), "result[1]": ("float32", (3,))}


def test_modules_and_optimizers() -> None:
    """A module or optimizer is its state."""
    model = torch.nn.BatchNorm1d(2)
    assert {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"} == set(flatten(model))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    assert {"state[0].exp_avg", "state[0].step", "param_groups[0].lr", "param_groups[0].betas[1]"} <= set(flatten(optimizer))
    layer = paddle.nn.Linear(2, 3)
    assert shapes({"net": layer}) == {"net.weight": ("float32", (2, 3)), "net.bias": ("float32", (3,))}
    adam = paddle.optimizer.Adam(parameters=layer.parameters())
    layer(paddle.ones([1, 2])).sum().backward()
    adam.step()
    assert any("moment1" in name for name in flatten(adam))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2"],
)
def test_paddle_dtypes(dtype: str) -> None:
    """Paddle's dtypes keep their own names and bytes, also where `numpy()` knows neither."""
    values = [[1.0, 0.5, 3.0], [0.0, 2.0, 4.0]]
    expected = np.array(values).astype(getattr(ml_dtypes, dtype, None) or dtype)
    found = only(paddle.to_tensor(values).astype(dtype))
    assert (dtype, (2, 3), expected.tobytes()) == (found.dtype, found.shape, bytes(found.data))


def test_paddle_views() -> None:
    """Strided, transposed, 0-d and empty tensors of paddle, and parameters."""
    x = paddle.arange(12).reshape([3, 4]).astype("float32")
    for tensor in (x.T, x[:, ::2], x[0, 0], paddle.zeros([0, 3]), paddle.create_parameter([2, 2], "float32")):
        assert tuple(tensor.shape) == only(tensor).shape
        assert np.array(tensor.tolist(), "f4").tobytes() == bytes(only(tensor).data)


def test_paddle_components() -> None:
    """Sparse tensors and sparse gradients of paddle are their components."""
    coo = paddle.sparse.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], [3, 3])
    csr = paddle.sparse.sparse_csr_tensor([0, 1, 2], [1, 2], [1.0, 2.0], [2, 3])
    assert list(flatten(coo)) == ["result.indices", "result.values", "result.size[0]", "result.size[1]"]
    assert list(flatten(csr)) == ["result.crows", "result.cols", "result.values", "result.size[0]", "result.size[1]"]
    embedding = paddle.nn.Embedding(5, 3, sparse=True)
    embedding(paddle.to_tensor([1, 2, 1])).sum().backward()
    found = flatten({"grad": embedding.weight.grad})
    assert [int(np.frombuffer(found[f"grad.rows[{row}]"].data, "i8")[0]) for row in range(3)] == [1, 2, 1]
    assert found["grad.values"].shape == (3, 3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int64", "bool"])
def test_frameworks_agree(dtype: str) -> None:
    """The same values have the same digest in all three frameworks."""
    values = [[1.0, 0.5, 2.0]]
    array = np.array(values).astype(getattr(ml_dtypes, dtype, None) or dtype)
    tensor = torch.tensor(values).to(getattr(torch, dtype))
    assert only(array).digest == only(tensor).digest == only(paddle.to_tensor(values).astype(dtype)).digest


def test_big_endian_is_made_native() -> None:
    """Byte order is no difference; NaN payloads survive its change."""
    assert only(np.arange(3, dtype="<f4")) == only(np.arange(3, dtype=">f4"))
    assert only(np.array("ab", "<U2")) == only(np.array("ab", ">U2"))
    nan = np.array([0x7FA00001], "<u4").view("<f4")
    assert only(nan) == only(nan.view("<u4").astype(">u4").view(">f4"))


def test_padding_is_no_value() -> None:
    """What lies between the fields of a record, or behind a long double, does not count."""
    record = np.dtype([("a", "i1"), ("b", ">f8"), ("c", [("d", "i1"), ("e", "f4")])], align=True)
    zeros: Any = np.zeros(2, record)
    filled = np.frombuffer(b"\xff" * zeros.nbytes, record).copy()
    for array in (zeros, filled):
        array["a"], array["b"] = 1, 2.5
        array["c"]["d"], array["c"]["e"] = 3, 4.5
    assert zeros.tobytes() != filled.tobytes()
    assert only(zeros) == only(filled)
    long: Any = np.zeros((2, 3), np.longdouble)
    noisy = np.frombuffer(b"\xff" * long.nbytes, np.longdouble).reshape(2, 3).copy()
    noisy[:] = long
    assert only(long) == only(noisy.T.copy().T)


def test_masked_arrays() -> None:
    """What lies under a mask does not count; the mask does."""
    one: Any = np.ma.masked_array([1.0, 2.0], [False, True])
    other: Any = np.ma.masked_array([1.0, 9.0], [False, True])
    assert flatten(one) == flatten(other)
    assert list(flatten({"m": one})) == ["m.data", "m.mask"]
    assert flatten(one) != flatten(np.ma.masked_array([1.0, 2.0], [True, False]))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.array(["a", "bc"]), "<U2"),
        (np.array(b"ab"), "|S2"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64[D]"),
        (np.zeros(2, [("a", "<i4")]), "[('a', '<i4')]"),
        (np.array([1.0]).view(np.recarray), "float64"),
        (np.array(["", ""]), "<U1"),
        (ml_dtypes.bfloat16(1), "bfloat16"),
    ],
)
def test_other_numpy_types(value: Any, dtype: str) -> None:
    """Text, times, records and subclasses of numpy have bytes too."""
    assert dtype == only(value).dtype


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy before 2.0")
def test_numpy_strings_of_any_length_are_refused() -> None:
    """numpy's variable-length text holds pointers."""
    with pytest.raises(TargetError, match="holds pointers"):
        flatten(np.array(["a"], np.dtypes.StringDType()))


@settings(max_examples=20)
@given(hnp.arrays(np.float32, (2, 3)))
def test_looking_changes_nothing(array: Any) -> None:
    """Flattening leaves values, gradients and generators alone."""
    tensor = torch.tensor(array, requires_grad=True)

    def states() -> Any:
        return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())  # noqa: NPY002  # the global generator is the subject

    before = states()
    flatten([tensor, array, paddle.to_tensor(array)])
    assert array.tobytes() == tensor.detach().numpy().tobytes()
    assert tensor.requires_grad
    assert before == states()


def test_no_framework_is_imported(fresh: Callable[..., Any]) -> None:
    """Flattening plain values imports no framework."""
    code = "import json, sys; from detconf.results import flatten; flatten({'a': [1, 'b']})['a[0]'].digest\n"
    assert not {"numpy", "torch", "paddle"} & set(fresh(code + "print(json.dumps(list(sys.modules)))"))


def test_digests_are_fixed() -> None:
    """Digests are kept in files and compared across versions and machines: these must never change."""
    assert only(np.arange(3, dtype="<f4")).digest == "3b48fbcb6962a918ed7255609e8e57a9"
    assert only("\u00e9").digest == "9a4d34e155cac4d8c49ac80635e79084"
