"""Which of Paddle's operations add up, and what. Read without Paddle."""

from __future__ import annotations

from collections.abc import Mapping

from detconf.frameworks.base import PRODUCTS, TERMS

_MULTIPLYING = (
    "matmul linear linear_v2 mv dot bmm addmm addmm_ baddbmm baddbmm_ einsum bilinear multi_dot conv2d conv3d depthwise_conv2d "
    "conv2d_transpose conv3d_transpose depthwise_conv2d_transpose conv2d_transpose_bias fused_gemm_epilogue rnn matmul_with_flatten "
    "deformable_conv"
)
_SUMMING = (
    "sum mean mean_all nansum var std norm p_norm frobenius_norm squared_l2_norm l1_norm trace cumsum logcumsumexp logsumexp "
    "reduce_as layer_norm fused_layer_norm batch_norm batch_norm_ sync_batch_norm_ group_norm instance_norm rms_norm renorm add_n "
    "clip_by_norm segment_pool index_add scatter_nd_add"
)
CONTRACTIONS = frozenset(_MULTIPLYING.split())
"""Products and convolutions: what hardware may compute in another format than their inputs'."""
SUMS: Mapping[str, str] = {
    **{f"paddle.{name}": TERMS for name in _SUMMING.split()},
    **{f"paddle.{name}": PRODUCTS for name in CONTRACTIONS},
}
