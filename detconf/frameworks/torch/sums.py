"""Which of PyTorch's operations add up, and what. Read without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

from detconf.frameworks.base import PRODUCTS, TERMS

OPERANDS: Mapping[str, tuple[str, ...]] = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "_addmm_activation": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "addbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"),
    "addmv": ("mat", "vec"),
    "dot": ("self", "tensor"),
    "vdot": ("self", "other"),
    "matmul": ("self", "other"),
    "linear": ("input", "weight"),
    "convolution": ("input", "weight"),
    "convolution_overrideable": ("input", "weight"),
    "convolution_backward": ("grad_output", "input", "weight"),
    "_scaled_dot_product_flash_attention_for_cpu": ("query", "key", "value"),
    "_scaled_dot_product_flash_attention_for_cpu_backward": ("grad_out", "query", "key", "value"),
    "mkldnn_rnn_layer": ("input", "weight0", "weight1", "hx_"),
    "lstm": ("input", "params"),
    "gru": ("input", "params"),
}
"""Contractions, and those of their arguments that are multiplied with one another."""
_OTHER_PRODUCTS = (
    "inner tensordot einsum bilinear _trilinear chain_matmul linalg_multi_dot linalg_matmul linalg_vecdot conv1d conv2d conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc _convolution _conv_depthwise2d conv_depthwise3d thnn_conv2d "
    "_slow_conv2d_forward _slow_conv2d_backward slow_conv3d slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d "
    "slow_conv_transpose2d slow_conv_transpose3d mkldnn_convolution mkldnn_linear linear_backward mkldnn_linear_backward "
    "cudnn_convolution cudnn_convolution_transpose miopen_convolution _int_mm _scaled_mm _weight_int4pack_mm _weight_int8pack_mm "
    "sspaddmm hspmm _sparse_mm _thnn_fused_lstm_cell mkldnn_rnn_layer_backward rnn_tanh rnn_relu"
)
_SUMMING = (
    "sum nansum sum_to_size mean nanmean var std var_mean std_mean norm linalg_norm linalg_vector_norm linalg_matrix_norm "
    "_foreach_norm frobenius_norm nuclear_norm trace cumsum logcumsumexp logsumexp native_layer_norm native_layer_norm_backward "
    "native_group_norm native_group_norm_backward native_batch_norm native_batch_norm_backward _native_batch_norm_legit "
    "_batch_norm_with_update batch_norm_backward layer_norm group_norm batch_norm instance_norm rms_norm _fused_rms_norm renorm "
    "_weight_norm_interface avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d mse_loss l1_loss "
    "segment_reduce scatter_reduce index_reduce scatter_add index_add"
)
SUMS: Mapping[str, str] = {
    **{f"aten.{name}": TERMS for name in _SUMMING.split()},
    **{f"aten.{name}": PRODUCTS for name in (*OPERANDS, *_OTHER_PRODUCTS.split())},
    "mkldnn._convolution_pointwise": PRODUCTS,
    "mkldnn._linear_pointwise": PRODUCTS,
    "mkl._mkl_linear": PRODUCTS,
}
