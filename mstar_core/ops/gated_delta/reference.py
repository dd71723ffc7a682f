"""The definition of ``gated_delta``: window, convolution, gates, delta rule, gated norm."""

from __future__ import annotations

import torch
from attrs import evolve, frozen
from torch import Tensor
from torch.nn import functional as F

from mstar_core.ops.functional import gated_rms_norm, l2_norm
from mstar_core.ops.gated_delta.contract import GatedDeltaRows, GdnPools, GdnWeights
from mstar_core.ops.gated_delta.delta import CHUNK, delta_chunks, delta_step
from mstar_core.ops.lead import in_lead, joined


@frozen(kw_only=True, eq=False)
class Streams:
    """Per token: queries and keys ``[T, G, D]``, values ``[T, H, E]``, gates ``[T, H]``; fp32."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor


@frozen(kw_only=True, eq=False)
class Rows:
    """Which slot and which tokens each row has; see :class:`GatedDeltaRows`."""

    slots_B: Tensor
    fresh_B: Tensor
    q_starts_B: Tensor
    q_lens_B: Tensor
    row_T: Tensor
    col_T: Tensor
    max_q: int
    decode: int


def step(
    qkv_TC: Tensor,
    z_TV: Tensor,
    b_TH: Tensor,
    a_TH: Tensor,
    weights: GdnWeights,
    pools: GdnPools,
    plan: GatedDeltaRows,
) -> Tensor:
    """See :class:`~mstar_core.ops.gated_delta.contract.Step`."""
    rows = Rows(
        slots_B=plan.slots_B.long(),  # int64: slot times stride passes 2**31
        fresh_B=plan.fresh_B,
        q_starts_B=plan.q_starts_B,
        q_lens_B=plan.q_lens_B,
        row_T=plan.row_T,
        col_T=plan.col_T,
        max_q=plan.max_q,
        decode=plan.decode,
    )
    if plan.num_lead_1 is None:
        return _advance(qkv_TC, z_TV, b_TH, a_TH, weights, pools, rows)
    L, lead_B = plan.lead_rows, in_lead(plan.num_lead_1, len(rows.slots_B))
    slots_L = torch.where(lead_B, rows.slots_B, 0)[:L]
    one_each = evolve(rows, slots_B=slots_L, fresh_B=rows.fresh_B[:L], decode=1)
    others = evolve(rows, q_lens_B=torch.where(lead_B, 0, rows.q_lens_B))
    decoded = _advance(qkv_TC[:L], z_TV[:L], b_TH[:L], a_TH[:L], weights, pools, one_each)
    packed = _advance(qkv_TC, z_TV, b_TH, a_TH, weights, pools, others)
    return joined(lead_B[:L], decoded, packed)


def _advance(
    qkv_TC: Tensor,
    z_TV: Tensor,
    b_TH: Tensor,
    a_TH: Tensor,
    weights: GdnWeights,
    pools: GdnPools,
    plan: Rows,
) -> Tensor:
    slots_B = plan.slots_B
    blank_B = plan.fresh_B | (slots_B == 0)
    live_B = slots_B > 0
    if not plan.decode:
        live_B = live_B & (plan.q_lens_B > 0)
    held_BCK, held_BHDE = pools.conv_SCK[slots_B], pools.ssm_SHDE[slots_B]
    window_BCK, state_BHDE = (_select(~blank_B, x, 0) for x in (held_BCK, held_BHDE))
    convolve, recur = (_convolve_one, _recur_one) if plan.decode else (_convolve, _recur)
    mixed_TC, window_BCK = convolve(qkv_TC, weights.conv_CK, window_BCK, plan)
    streams = _streams(mixed_TC, b_TH, a_TH, weights, pools.ssm_SHDE.shape[1:])
    o_THE, state_BHDE = recur(streams, state_BHDE, plan)
    pools.conv_SCK.index_copy_(0, slots_B, _select(live_B, window_BCK, held_BCK))
    pools.ssm_SHDE.index_copy_(0, slots_B, _select(live_B, state_BHDE, held_BHDE))
    out_THE = gated_rms_norm(o_THE, z_TV.view(o_THE.shape), weights.norm_D, weights.eps)
    return out_THE.flatten(1).to(qkv_TC.dtype)


def _select(take_B: Tensor, x: Tensor, other: Tensor | float) -> Tensor:
    return torch.where(take_B.view(-1, *[1] * (x.dim() - 1)), x, other)


def _streams(
    mixed_TC: Tensor, b_TH: Tensor, a_TH: Tensor, weights: GdnWeights, sizes: torch.Size
) -> Streams:
    T, C = mixed_TC.shape
    H, D, E = sizes
    keys = (C - H * E) // 2
    q, k, v = torch.split(mixed_TC, [keys, keys, H * E], -1)
    decay = F.softplus(a_TH.float() + weights.dt_bias_H.float())
    return Streams(
        q=l2_norm(q.reshape(T, -1, D)) * D**-0.5,
        k=l2_norm(k.reshape(T, -1, D)),
        v=v.reshape(T, H, E),
        g=-weights.A_log_H.float().exp() * decay,
        beta=b_TH.float().sigmoid(),
    )


def _convolve_one(
    qkv_TC: Tensor, conv_CK: Tensor, window_BCK: Tensor, plan: Rows
) -> tuple[Tensor, Tensor]:
    """One token of every row: fp32 ``mixed_TC`` and the windows after it."""
    taken = torch.cat([window_BCK, qkv_TC[..., None].to(window_BCK.dtype)], -1)
    return F.silu((taken.float() * conv_CK.float()).sum(-1)), taken[..., 1:]


def _convolve(
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


def _recur_one(streams: Streams, state_BHDE: Tensor, plan: Rows) -> tuple[Tensor, Tensor]:
    s = streams
    return delta_step(s.q, s.k, s.v, s.g, s.beta, state_BHDE)


def _recur(streams: Streams, state_BHDE: Tensor, plan: Rows) -> tuple[Tensor, Tensor]:
    """Lay packed rows out padded with zeros, run the chunks, pack the outputs."""
    T = streams.q.shape[0]
    L = plan.max_q if plan.max_q <= CHUNK else -(-plan.max_q // CHUNK) * CHUNK
    col_L = torch.arange(L, device=state_BHDE.device)
    inside_BL = col_L < plan.q_lens_B[:, None]
    at_BL = (plan.q_starts_B[:, None].long() + col_L).clamp_max(T - 1)

    def lay(x: Tensor) -> Tensor:
        padded = x[at_BL]
        return torch.where(inside_BL.view(*inside_BL.shape, *[1] * (x.dim() - 1)), padded, 0)

    s = streams
    padded = (lay(s.q), lay(s.k), lay(s.v), lay(s.g), lay(s.beta))
    o_BLHE, state_BHDE = delta_chunks(*padded, state_BHDE)
    return o_BLHE[plan.row_T.long(), plan.col_T.long()], state_BHDE
