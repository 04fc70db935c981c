"""What a study of shadows has to know of Paddle's operations beyond `operations`: names of options, kinds, draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from detconf.frameworks.paddle.operations import MOVES, RANDOM

PICKS = {
    "topk": ("axis", 2),
    "argsort": ("axis", 1),
    "kthvalue": ("axis", 2),
    "mode": ("axis", 1),
    "cummax": ("axis", 1),
    "cummin": ("axis", 1),
}
"""They give elements of their input and the places of these along an axis: name and position of that argument."""
WRITES_OUT = frozenset(("assign_out_", "set_"))
"""Among the operations that move elements: they write into memory that exists."""
OPAQUE = frozenset(("view_dtype",))
VIEWS = MOVES - WRITES_OUT - OPAQUE
_COPYING = (
    "assign assign_value_ assign_value cast concat stack gather gather_nd index_select embedding tile pad pad3d flip roll where "
    "getitem setitem_ copy_ full full_ full_like full_with_tensor zeros ones zeros_like ones_like empty empty_like unstack "
    "masked_select take_along_axis put_along_axis tril triu tril_indices triu_indices one_hot set_value set_value_ "
    "set_value_with_tensor set_value_with_tensor_ share_data scatter scatter_ fill_ fill fill_diagonal fill_diagonal_ fill_any_like "
    "repeat_interleave broadcast_tensors meshgrid real imag complex as_complex as_real index_put index_put_ shape shape64 numel eye "
    "channel_shuffle pixel_shuffle pixel_unshuffle unfold masked_fill masked_fill_ tensor_unfold diag diag_embed contiguous "
    "unique unique_consecutive max_pool2d_with_index"
)
COPIES = VIEWS | WRITES_OUT | OPAQUE | frozenset(PICKS) | frozenset(_COPYING.split())
"""They compute nothing: no rounding, no noise."""
DECISIONS = frozenset(("argmax", "argmin", "nonzero", "searchsorted", "bucketize", "unique", "unique_consecutive", "sign", *PICKS))
UNDECLARED: Mapping[str, tuple[int, ...]] = {"batch_norm": (1, 2)}
"""Positions of arguments that an operation writes without being in place by its name."""
LOCATED = frozenset(("linear_interp", "bilinear_interp", "trilinear_interp", "bicubic_interp"))
"""Their kernels form coordinates in single precision, for numbers of double precision too (`interpolate_kernel.cc`)."""
MASKED = frozenset(("dropout",))
"""They set elements to zero, and scale the rest."""
REPLAYED = frozenset(("dropout", "dropout_", "fused_dropout_add", "rnn", "rrelu", "gumbel_softmax"))
"""They draw, and compute with their inputs: from the same state of the generator their twins draw the same."""

_NAMES = """
add x y|subtract x y|multiply x y|divide x y|floor_divide x y|elementwise_pow x y|remainder x y|maximum x y|minimum x y
equal x y|not_equal x y|less_than x y|less_equal x y|greater_than x y|greater_equal x y
abs x|adadelta_ param grad avg_squared_grad avg_squared_update learning_rate master_param rho epsilon multi_precision
adagrad_ param grad moment learning_rate master_param epsilon multi_precision
adam_ param grad learning_rate moment1 moment2 moment2_max beta1_pow beta2_pow master_param skip_update beta1 beta2 epsilon lazy_mode min_row_size multi_precision use_global_beta_pow amsgrad
adamax_ param grad learning_rate moment inf_norm beta1_pow master_param beta1 beta2 epsilon multi_precision
adamw_ param grad learning_rate moment1 moment2 moment2_max beta1_pow beta2_pow master_param skip_update beta1 beta2 epsilon lr_ratio weight_decay with_decay lazy_mode min_row_size multi_precision use_global_beta_pow amsgrad
addmm input x y beta alpha|arange start end step dtype|argmax x axis keepdim flatten dtype|argmin x axis keepdim flatten dtype
argsort x axis descending stable|assign_value_ output shape dtype values
batch_norm x mean variance weight bias is_test momentum epsilon data_format use_global_stats trainable_statistics
bicubic_interp x out_size size_tensor scale_tensor data_format out_d out_h out_w scale interp_method align_corners align_mode
bilinear_interp x out_size size_tensor scale_tensor data_format out_d out_h out_w scale interp_method align_corners align_mode
linear_interp x out_size size_tensor scale_tensor data_format out_d out_h out_w scale interp_method align_corners align_mode
nearest_interp x out_size size_tensor scale_tensor data_format out_d out_h out_w scale interp_method align_corners align_mode
trilinear_interp x out_size size_tensor scale_tensor data_format out_d out_h out_w scale interp_method align_corners align_mode
cast x dtype|celu x alpha|clip x min max|concat x axis
conv2d input filter strides paddings padding_algorithm dilations groups data_format
conv3d input filter strides paddings padding_algorithm groups dilations data_format
depthwise_conv2d input filter strides paddings padding_algorithm groups dilations data_format
conv2d_transpose x filter strides paddings output_padding output_size padding_algorithm groups dilations data_format
cross_entropy_with_softmax input label soft_label use_softmax numeric_stable_mode ignore_index axis
cummax x axis dtype|cummin x axis dtype|cumsum x axis flatten exclusive reverse|cumprod x dim exclusive reverse
diagonal x offset axis1 axis2|dropout x seed_tensor p is_test mode seed fix_seed
elu x alpha|embedding x weight padding_idx sparse|einsum operands equation|expand x shape|flatten x start_axis stop_axis|flip x axis
full shape value dtype|full_ output shape value dtype|full_like x value dtype|gather x index axis
gaussian shape mean std seed dtype|gelu x approximate|group_norm x scale bias epsilon groups data_format
hardsigmoid x slope offset|hardshrink x threshold|hardtanh x min max|huber_loss input label delta|index_select x index axis
instance_norm x scale bias epsilon|kldiv_loss x label reduction log_target|kthvalue x k axis keepdim|label_smooth label prior_dist epsilon
layer_norm x scale bias epsilon begin_norm_axis|leaky_relu x negative_slope|linspace start stop number dtype
log_loss input label epsilon|log_softmax x axis|logsumexp x axis keepdim reduce_all|matmul x y transpose_x transpose_y
max x axis keepdim|mean x axis keepdim|min x axis keepdim|mish x lambda|mode x axis keepdim
momentum_ param grad velocity learning_rate master_param mu use_nesterov regularization_method regularization_coeff multi_precision rescale_grad
multinomial x num_samples replacement|nll_loss input label weight ignore_index reduction|norm x axis epsilon is_test
one_hot x num_classes|p_norm x porder axis epsilon keepdim asvector|pad x paddings pad_value|pad3d x paddings mode pad_value data_format
pixel_shuffle x upscale_factor data_format|pow x y|prelu x alpha data_format mode|prod x axis keepdim reduce_all
pool2d x kernel_size strides paddings ceil_mode exclusive data_format pooling_type global_pooling adaptive padding_algorithm
pool3d x kernel_size strides paddings ceil_mode exclusive data_format pooling_type global_pooling adaptive padding_algorithm
max_pool2d_with_index x kernel_size strides paddings global_pooling adaptive ceil_mode
randint low high shape dtype|randperm n dtype|relu6 x|reshape x shape
rmsprop_ param mean_square grad moment learning_rate mean_grad master_param epsilon decay momentum centered multi_precision
rms_norm x scale normalized_shape epsilon
rnn x pre_state weight_list sequence_length dropout_state dropout_prob is_bidirec input_size hidden_size num_layers mode seed is_test
roll x shifts axis|scale x scale bias bias_after_scale|scatter x index updates overwrite|selu x scale alpha|sgd_ param learning_rate grad master_param multi_precision
softmax x axis|softplus x beta threshold|softshrink x threshold|split x sections axis|squared_l2_norm x|squeeze x axis|stack x axis
sum x axis dtype keepdim|swish x|take_along_axis x index axis|thresholded_relu x threshold value|tile x repeat_times|topk x k axis largest sorted
transpose x perm|tril x diagonal|triu x diagonal|uniform shape dtype min max seed|unsqueeze x axis
var x axis keepdim unbiased correction
"""
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    words[0]: tuple(words[1:]) for words in (entry.split() for entry in _NAMES.strip().replace("\n", "|").split("|"))
}
"""Names of the arguments by operation, in order: Paddle's own, of its ops.yaml, which is not in the wheel."""


def option_key(operation: str, position: int) -> str | int:
    """The name of an argument, or its position where that is not known."""
    names = ARGUMENTS.get(operation, ())
    return names[position] if position < len(names) else position


def draws(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Does this call of an operation use the generator? Dropout that is off does not."""
    if name not in RANDOM:
        return False
    if name in ("dropout", "dropout_"):
        return not (value("dropout", "is_test", args, kwargs) or value("dropout", "p", args, kwargs) in (0, 1))
    if name == "rnn":
        return not (value("rnn", "is_test", args, kwargs) or not value("rnn", "dropout_prob", args, kwargs))
    return True


def value(operation: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An argument of a call by its name, which `ARGUMENTS` has to know."""
    position = ARGUMENTS[operation].index(name)
    return args[position] if position < len(args) else kwargs.get(name)
