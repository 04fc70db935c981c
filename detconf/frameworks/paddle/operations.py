"""What is known of Paddle's operations from their names: there is no schema in Python.

Operations are named "paddle." and the name of the C++ operation, which `paddle._C_ops` and static programs share:
"paddle.matmul", "paddle.adamw_". An operator of tensors bears the name of what it computes: `x + y` is "paddle.add",
also where Paddle runs another kernel for it (`x + 1.0` runs `scale`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

_MOVING = (
    "as_strided assign_out_ detach diagonal expand expand_as flatten flatten_ reshape reshape_ set_ share_data share_data_ slice split "
    "split_with_num squeeze squeeze_ strided_slice transpose transpose_ unbind unsqueeze unsqueeze_ view_dtype view_shape view_slice"
)
_DRAWING = (
    "bernoulli binomial class_center_sample dirichlet dropout dropout_ exponential_ flash_attn flash_attn_qkvpacked flash_attn_unpadded "
    "flash_attn_v3 fused_attention fused_bias_dropout_residual_layer_norm fused_dot_product_attention fused_dropout_add fused_feedforward "
    "fused_multi_transformer_ gaussian gaussian_inplace gaussian_inplace_ graph_khop_sampler graph_sample_neighbors gumbel_softmax "
    "memory_efficient_attention multinomial poisson randint random random_ randperm rnn rrelu standard_gamma top_p_sampling "
    "truncated_gaussian_random uniform uniform_inplace uniform_inplace_ uniform_random_batch_size_like weighted_sample_neighbors"
)
_STEPPING = (
    "adadelta_ adagrad_ adam_ adamax_ adamw_ asgd_ decayed_adagrad dpsgd ftrl fused_adam_ lamb_ lars_momentum_ merged_adam_ "
    "merged_momentum_ momentum_ nadam_ radam_ rmsprop_ rprop_ sgd_ sparse_momentum"
)
_OVERWRITING = "full_ gaussian_inplace_ uniform_inplace_ exponential_ random_ assign_out_ assign_value_ copy_"
MOVES = frozenset(_MOVING.split())
"""They compute nothing: not recorded. What is read through them later is witnessed by its content."""
RANDOM = frozenset(_DRAWING.split())
"""They may draw from the default generator."""
OPTIMIZERS = frozenset(_STEPPING.split())
"""They make the step of an optimizer."""
_BLIND = frozenset(_OVERWRITING.split())
"""They do not read what they overwrite."""
_EMPTY = frozenset(("empty", "empty_like"))
SLOTS = {
    "__add__": "add", "__radd__": "add", "__sub__": "subtract", "__rsub__": "subtract", "__mul__": "multiply", "__rmul__": "multiply",
    "__div__": "divide", "__truediv__": "divide", "__rdiv__": "divide", "__rtruediv__": "divide", "__floordiv__": "floor_divide",
    "__rfloordiv__": "floor_divide", "__pow__": "elementwise_pow", "__rpow__": "elementwise_pow", "__mod__": "remainder",
    "__rmod__": "remainder", "__matmul__": "matmul", "__rmatmul__": "matmul", "__gt__": "greater_than", "__ge__": "greater_equal",
    "__lt__": "less_than", "__le__": "less_equal", "__eq__": "equal", "__ne__": "not_equal", "_getitem_dygraph": "getitem",
    "_setitem_dygraph": "setitem_", "clone": "assign", "copy_": "copy_",
}  # fmt: skip
"""Methods of a tensor that are written in C++, and what they compute."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        name: such as "paddle.matmul".
        moves: gives the elements of its argument in another shape or order.
        empty: allocates without writing.
        random: may draw from the default generator.
        in_place: writes into its arguments, and returns those.
        blind: does not read what it overwrites, its first tensor.
        picks: indexing: moves only where the result shares the memory of the argument.
    """

    name: str
    moves: bool = False
    empty: bool = False
    random: bool = False
    in_place: bool = False
    blind: bool = False
    picks: bool = False


@functools.cache
def describe(name: str) -> Operation:
    """The operation that C++ calls `name`."""
    return Operation(
        name=f"paddle.{name}",
        moves=name in MOVES,
        empty=name in _EMPTY,
        random=name in RANDOM,
        in_place=name.endswith("_"),
        blind=name in _BLIND,
        picks=name == "getitem",
    )
