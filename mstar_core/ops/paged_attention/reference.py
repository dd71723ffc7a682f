"""The definition of ``paged_attention``: gather the pages of each row, mask, softmax in fp32."""

from __future__ import annotations

import torch
from attrs import evolve
from torch import Tensor

from mstar_core.ops.attend import Mix, Rows, attend_rows, mix_exactly, readable
from mstar_core.ops.functional import rms_norm, rope_half_split, sigmoid_gate
from mstar_core.ops.lead import in_lead, joined
from mstar_core.ops.paged_attention.contract import Attend, AttentionStep, PagedPlan


def write(k_TGD: Tensor, v_TGD: Tensor, k_PpGD: Tensor, v_PpGD: Tensor, write_T: Tensor) -> None:
    """See :class:`~mstar_core.ops.paged_attention.contract.Write`."""
    k_PpGD.flatten(0, 1).index_copy_(0, write_T, k_TGD.to(k_PpGD.dtype))
    v_PpGD.flatten(0, 1).index_copy_(0, write_T, v_TGD.to(v_PpGD.dtype))


def attend(
    q_TND: Tensor,
    k_PpGD: Tensor,
    v_PpGD: Tensor,
    plan: PagedPlan,
    *,
    scale: float,
    causal: bool,
    mix: Mix = mix_exactly,
) -> Tensor:
    """See :class:`~mstar_core.ops.paged_attention.contract.Attend`; ``mix`` is its inner part."""
    rows = Rows(
        kv_lens_B=plan.kv_lens_B,
        before_B=plan.before_B if causal else None,
        q_starts_B=plan.q_starts_B,
        q_lens_B=plan.q_lens_B,
        max_q=plan.max_q,
        decode=plan.decode,
    )
    pools, pages_BW = (k_PpGD, v_PpGD), plan.pages_BW.long()
    if plan.num_lead_1 is None:
        return _over_pages(q_TND, pools, pages_BW, rows, scale, mix)
    L, lead_B = plan.lead_rows, in_lead(plan.num_lead_1, len(pages_BW))
    one_each = evolve(
        rows, kv_lens_B=torch.where(lead_B, rows.kv_lens_B, 0)[:L], before_B=None, decode=1
    )
    others = evolve(rows, q_lens_B=torch.where(lead_B, 0, rows.q_lens_B))
    decoded = _over_pages(q_TND[:L], pools, pages_BW[:L], one_each, scale, mix)
    packed = _over_pages(q_TND, pools, pages_BW, others, scale, mix)
    return joined(lead_B[:L], decoded, packed)


def _over_pages(
    q_TND: Tensor,
    pools: tuple[Tensor, Tensor],
    pages_BW: Tensor,
    rows: Rows,
    scale: float,
    mix: Mix,
) -> Tensor:
    k_BSGD, v_BSGD = laid(pools, pages_BW, rows.kv_lens_B)
    return attend_rows(q_TND, k_BSGD, v_BSGD, rows, scale, mix)


def laid(
    pools: tuple[Tensor, Tensor], pages_BW: Tensor, kv_lens_B: Tensor
) -> tuple[Tensor, Tensor]:
    """``k_BSGD, v_BSGD`` of each row's pages (int64), in order; nothing unreadable is touched."""
    page_tokens = pools[0].shape[1]
    at_BS = readable(pages_BW.shape[1] * page_tokens, kv_lens_B)
    cell_BS = pages_BW.gather(1, at_BS // page_tokens) * page_tokens + at_BS % page_tokens
    k_BSGD, v_BSGD = (
        pool.flatten(0, 1).index_select(0, cell_BS.flatten()).view(*at_BS.shape, *pool.shape[2:])
        for pool in pools
    )
    return k_BSGD, v_BSGD


def step(
    q_TND: Tensor,
    k_TGD: Tensor | None,
    v_TGD: Tensor | None,
    pools: tuple[Tensor, Tensor],
    plan: PagedPlan,
    step: AttentionStep,
    *,
    attend: Attend = attend,
) -> Tensor:
    """See :class:`~mstar_core.ops.paged_attention.contract.Step`."""
    q_TND = prepare(q_TND, step.q_norm_D, step)
    if k_TGD is not None and v_TGD is not None:
        write(prepare(k_TGD, step.k_norm_D, step), v_TGD, *pools, plan.write_T)
    o_TND = attend(q_TND, *pools, plan, scale=step.scale, causal=step.causal)
    return o_TND if step.gate_TND is None else sigmoid_gate(o_TND, step.gate_TND)


def prepare(x_TND: Tensor, norm_D: Tensor | None, step: AttentionStep) -> Tensor:
    """Queries or keys as they meet each other: normed per head, then turned."""
    if norm_D is not None:
        x_TND = rms_norm(x_TND, norm_D, step.eps)
    return x_TND if step.rope is None else rope_half_split(x_TND, *step.rope)
