"""The definition of ``gated_delta``: window, convolution, gates, delta rule, gated norm."""

from __future__ import annotations

from typing import Protocol

import torch
from attrs import evolve, frozen
from torch import Tensor
from torch.nn import functional as F

from mstar_core.ops.functional import gated_rms_norm, l2_norm
from mstar_core.ops.gated_delta.contract import GatedDeltaRows, GdnPools, GdnWeights
from mstar_core.ops.gated_delta.conv import convolve, convolve_one
from mstar_core.ops.gated_delta.delta import CHUNK, delta_chunks, delta_step
from mstar_core.ops.gated_delta.rows import Rows, gathered, scatter
from mstar_core.ops.lead import in_lead, joined


@frozen(kw_only=True, eq=False)
class Streams:
    """Per token: queries and keys ``[T, G, D]``, values ``[T, H, E]``, gates ``[T, H]``; fp32."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor


class Recur(Protocol):
    """fp32 or narrower ``o_THE`` of convolved tokens; advances the states in place, by slot.

    ``mixed_TC`` fp32 is q | k | v behind the activation, ``b_TH`` and ``a_TH`` are raw. The rules
    of the contract about slots hold: blank rows start from zero by select, slot 0 and the slots of
    rows without tokens stay as they are.
    """

    def __call__(
        self,
        mixed_TC: Tensor,
        b_TH: Tensor,
        a_TH: Tensor,
        weights: GdnWeights,
        ssm_SHDE: Tensor,
        rows: Rows,
    ) -> Tensor: ...


def recur(
    mixed_TC: Tensor,
    b_TH: Tensor,
    a_TH: Tensor,
    weights: GdnWeights,
    ssm_SHDE: Tensor,
    rows: Rows,
) -> Tensor:
    """The definition of :class:`Recur`."""
    held_BHDE, before_BHDE = gathered(ssm_SHDE, rows)
    streams = streams_of(mixed_TC, b_TH, a_TH, weights, ssm_SHDE.shape[1:])
    advance = _recur_one if rows.decode else _recur
    o_THE, after_BHDE = advance(streams, before_BHDE, rows)
    scatter(ssm_SHDE, rows, after_BHDE, held_BHDE)
    return o_THE


@frozen(kw_only=True, eq=False)
class Mixer:
    """The operation around one implementation of its inner part."""

    recur: Recur = recur

    def step(
        self,
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
            schedule=plan.schedule,
        )
        x = (qkv_TC, z_TV, b_TH, a_TH)
        if plan.num_lead_1 is None:
            return self._advance(x, weights, pools, rows)
        L, lead_B = plan.lead_rows, in_lead(plan.num_lead_1, len(rows.slots_B))
        slots_L = torch.where(lead_B, rows.slots_B, 0)[:L]
        one_each = evolve(rows, slots_B=slots_L, fresh_B=rows.fresh_B[:L], decode=1)
        others = evolve(rows, q_lens_B=torch.where(lead_B, 0, rows.q_lens_B))
        half = (qkv_TC[:L], z_TV[:L], b_TH[:L], a_TH[:L])
        decoded = self._advance(half, weights, pools, one_each)
        packed = self._advance(x, weights, pools, others)
        return joined(lead_B[:L], decoded, packed)

    def _advance(
        self,
        x: tuple[Tensor, Tensor, Tensor, Tensor],
        weights: GdnWeights,
        pools: GdnPools,
        rows: Rows,
    ) -> Tensor:
        qkv_TC, z_TV, b_TH, a_TH = x
        held_BCK, window_BCK = gathered(pools.conv_SCK, rows)
        through = convolve_one if rows.decode else convolve
        mixed_TC, window_BCK = through(qkv_TC, weights.conv_CK, window_BCK, rows)
        o_THE = self.recur(mixed_TC, b_TH, a_TH, weights, pools.ssm_SHDE, rows)
        scatter(pools.conv_SCK, rows, window_BCK, held_BCK)
        gate_THE = z_TV.view(o_THE.shape)
        out_THE = gated_rms_norm(o_THE, gate_THE, weights.norm_D, weights.eps)
        return out_THE.flatten(1).to(qkv_TC.dtype)


step = Mixer().step


def heads_of(mixed_TC: Tensor, sizes: torch.Size) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys ``[T, G, D]``, values ``[T, H, E]`` of convolved channels, where they lie.

    ``sizes`` is ``(H, D, E)``.
    """
    T, C = mixed_TC.shape
    H, D, E = sizes
    keys = (C - H * E) // 2
    q, k, v = torch.split(mixed_TC, [keys, keys, H * E], 1)
    return q.view(T, -1, D), k.view(T, -1, D), v.view(T, H, E)


def streams_of(
    mixed_TC: Tensor, b_TH: Tensor, a_TH: Tensor, weights: GdnWeights, sizes: torch.Size
) -> Streams:
    """What meets the states, from convolved channels and raw gates; ``sizes`` is ``(H, D, E)``."""
    q_TGD, k_TGD, v_THE = heads_of(mixed_TC, sizes)
    decay = F.softplus(a_TH.float() + weights.dt_bias_H.float())
    return Streams(
        q=l2_norm(q_TGD) * q_TGD.shape[-1] ** -0.5,
        k=l2_norm(k_TGD),
        v=v_THE,
        g=-weights.A_log_H.float().exp() * decay,
        beta=b_TH.float().sigmoid(),
    )


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
