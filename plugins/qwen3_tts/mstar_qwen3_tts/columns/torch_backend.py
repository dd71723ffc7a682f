"""``codec_columns`` in torch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mstar_core.ops.backend import Backend, BindRequest
from mstar_core.ops.functional import rope_half_split
from mstar_qwen3_tts.columns.contract import OPERATION, Bend, Columns, Frames, Taps, Window
from mstar_qwen3_tts.packed import PackedRows, extended

BLOCK = 1 << 16
"""Columns that are gathered at once."""


def prepare(weight_NCK: Tensor, *, by_channel: bool) -> Tensor:
    """Taps before channels, ``[N, K C]``; ``[K, C]`` of one by channel."""
    if by_channel:
        return weight_NCK[:, 0].T.contiguous()
    return weight_NCK.transpose(1, 2).flatten(1)


def bent(x_LC: Tensor, bend: Bend | None) -> Tensor:
    """The same shape."""
    if bend is None:
        return x_LC
    turned_LC = (x_LC * bend.alpha_C).sin_()
    return torch.addcmul(x_LC, turned_LC, turned_LC * bend.beta_C)


def convolve(x_LC: Tensor, taps: Taps, rows: PackedRows, added_LN: Tensor | None = None) -> Tensor:
    """See :class:`~mstar_qwen3_tts.columns.contract.Convolve`.

    A product of as many rows as there are columns, so that a row of padding changes no bit.
    """
    x_LC = bent(x_LC, taps.before)
    if taps.memory_SKC is None:
        y_LN = F.linear(x_LC, taps.weight, taps.bias_N)
    else:
        x_EC, at_L = extended(x_LC, taps.memory_SKC, rows)
        back_K = torch.arange(taps.taps - 1, -1, -1, device=x_LC.device) * taps.dilation
        blocks = (x_EC[at_M[:, None] - back_K] for at_M in at_L.split(BLOCK))
        y_LN = torch.cat([_product(x_MKC, taps) for x_MKC in blocks])
    y_LN = bent(y_LN, taps.behind)
    return y_LN if added_LN is None else y_LN + added_LN


def _product(x_MKC: Tensor, taps: Taps) -> Tensor:
    if taps.by_channel:
        return (x_MKC * taps.weight).sum(1) + taps.bias_N
    return F.linear(x_MKC.flatten(1), taps.weight, taps.bias_N)


def attend(q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor, window: Window, frames: Frames) -> Tensor:
    """See :class:`~mstar_qwen3_tts.columns.contract.Attend`."""
    q_TND, k_TGD = (rope_half_split(each, *frames.rope) for each in (q_TND, k_TGD))
    both_TC = torch.cat([k_TGD, v_TGD], 1).flatten(1)
    both_EC, at_T = extended(both_TC, window.memory_SKC, frames.rows)
    back_W = torch.arange(window.size - 1, -1, -1, device=both_EC.device)
    seen_TW = frames.index_T[:, None] >= back_W
    around_TWC = both_EC[at_T[:, None] - back_W]
    k_TWGD, v_TWGD = around_TWC.view(*seen_TW.shape, 2, *k_TGD.shape[1:]).unbind(2)
    mixed_TN1D = F.scaled_dot_product_attention(
        q_TND[:, :, None],
        k_TWGD.transpose(1, 2),
        v_TWGD.transpose(1, 2),
        attn_mask=seen_TW[:, None, None],
        enable_gqa=True,
    )
    return mixed_TN1D.flatten(1)


class TorchColumns(Backend):
    """Runs wherever torch does."""

    operation = OPERATION
    name = "torch"
    owner = "mstar-qwen3-tts"

    def bind(self, request: BindRequest) -> Columns:
        """The functions above."""
        return Columns(prepare=prepare, convolve=convolve, attend=attend)


BACKEND = TorchColumns()
