"""The short convolution over each row's last inputs, and the windows that it leaves."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mstar_core.ops.gated_delta.rows import Rows


def convolve_one(
    qkv_TC: Tensor, conv_CK: Tensor, window_BCK: Tensor, plan: Rows
) -> tuple[Tensor, Tensor]:
    """One token of every row: fp32 ``mixed_TC`` and the windows after it."""
    taken = torch.cat([window_BCK, qkv_TC[..., None].to(window_BCK.dtype)], -1)
    return F.silu((taken.float() * conv_CK.float()).sum(-1)), taken[..., 1:]


def convolve(
    qkv_TC: Tensor, conv_CK: Tensor, window_BCK: Tensor, plan: Rows
) -> tuple[Tensor, Tensor]:
    """Packed rows: fp32 ``mixed_TC`` and the windows after each row's last token.

    What lies ``back`` tokens before a token is in the same row, or else in the row's window.
    """
    T, C = qkv_TC.shape
    B, _, behind = window_BCK.shape
    window = window_BCK.transpose(1, 2).reshape(B * behind, C)
    at_T = torch.arange(T, device=qkv_TC.device)
    row_T, col_T, taps_KC = plan.row_T.long(), plan.col_T.long(), conv_CK.float().t()
    mixed_TC = qkv_TC.float() * taps_KC[behind]
    for back in range(1, behind + 1):
        in_window_T = row_T * behind + (behind - back + col_T).clamp_max(behind - 1)
        earlier_TC = torch.where(
            (col_T >= back)[:, None], qkv_TC[(at_T - back).clamp_min(0)], window[in_window_T]
        )
        mixed_TC = mixed_TC + earlier_TC.float() * taps_KC[behind - back]
    # Place i of the next window is token n - behind + i of the row; below 0 it is in the old one.
    place_K = torch.arange(behind, device=qkv_TC.device)
    lens_B1, starts_B1 = plan.q_lens_B[:, None].long(), plan.q_starts_B[:, None].long()
    token_BK = lens_B1 - behind + place_K
    old_BK = torch.arange(B, device=qkv_TC.device)[:, None] * behind + lens_B1 + place_K
    new = qkv_TC[(starts_B1 + token_BK).clamp(0, T - 1)].to(window.dtype)
    old = window[old_BK.clamp_max(B * behind - 1)]
    next_BKC = torch.where((token_BK >= 0)[..., None], new, old)
    return F.silu(mixed_TC), next_BKC.transpose(1, 2)
