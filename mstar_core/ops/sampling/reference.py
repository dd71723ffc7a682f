"""The definition of ``sampling``. Every part has static shapes and reads nothing back."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from mstar_core.ops.sampling.contract import (
    GREEDY_BELOW,
    LEAST_LOGPROB,
    PenaltyRows,
    Sample,
    Sampled,
)
from mstar_core.ops.sampling.noise import gumbel
from mstar_core.ops.sampling.plans import EnterPlan, PenaltyPlan, SamplePlan


def finite(logits_BV: Tensor) -> Tensor:
    """See :class:`~mstar_core.ops.sampling.contract.Finite`."""
    return logits_BV.isfinite().all(-1)


def enter(rows: PenaltyRows, plan: EnterPlan) -> None:
    """See :class:`~mstar_core.ops.sampling.contract.Enter`."""
    for table in (rows.prompt_RV, rows.count_RV, rows.bias_RV):
        table.index_fill_(0, plan.fresh_row_B, 0)  # padding clears row 0, which is clear
    seen_K = plan.prompt_row_K > 0
    rows.prompt_RV.index_put_((plan.prompt_row_K, plan.prompt_ids_K), seen_K)
    bias_K = torch.where(plan.bias_row_K > 0, plan.bias_K, 0)
    rows.bias_RV.index_put_((plan.bias_row_K, plan.bias_ids_K), bias_K)


def penalise(logits_BV: Tensor, rows: PenaltyRows, plan: PenaltyPlan) -> Tensor:
    """See :class:`~mstar_core.ops.sampling.contract.Penalise`."""
    row_B = plan.penalty_row_B
    x = logits_BV.float() + rows.bias_RV[row_B]
    count_BV = rows.count_RV[row_B]
    repetition_B1 = plan.repetition_B[:, None]
    repeated = torch.where(x > 0, x / repetition_B1, x * repetition_B1)
    x = torch.where(rows.prompt_RV[row_B] | (count_BV > 0), repeated, x)
    x = x - plan.frequency_B[:, None] * count_BV
    return x - plan.presence_B[:, None] * (count_BV > 0)


def count(rows: PenaltyRows, plan: PenaltyPlan, ids_B: Tensor) -> None:
    """See :class:`~mstar_core.ops.sampling.contract.Count`."""
    row_B = plan.penalty_row_B
    flat_B = row_B * rows.count_RV.shape[1] + ids_B
    rows.count_RV.view(-1).scatter_add_(0, flat_B, (row_B > 0).to(rows.count_RV.dtype))


class Draw(Protocol):
    """int64 ``[B]``: ids drawn from fp32 logits, every filter applied, as if no row were greedy.

    A row of NaN or of masked ids alone gives some id of the vocabulary.
    """

    def __call__(self, x_BV: Tensor, plan: SamplePlan, draw: int) -> Tensor: ...


def draw_ids(x_BV: Tensor, plan: SamplePlan, draw: int) -> Tensor:
    """The definition of :class:`Draw`.

    It works on logits in falling order: filters are then prefixes, and noise follows the ids.
    """
    falling_BV, ids_BV = x_BV.sort(dim=-1, descending=True, stable=True)
    x = filtered(scaled(falling_BV, plan.temperature_B), plan)
    noisy = x + gumbel(plan.seed_B, plan.position_B, draw, ids_BV.to(torch.int32))
    chosen_B1 = noisy.argmax(-1, keepdim=True)
    return torch.gather(ids_BV, -1, chosen_B1)[:, 0]


def sample(
    logits_BV: Tensor,
    plan: SamplePlan,
    *,
    finite_B: Tensor | None = None,
    draw: int = 0,
    drawn: Draw = draw_ids,
) -> Sampled:
    """See :class:`~mstar_core.ops.sampling.contract.Sample`; ``drawn`` is its inner part."""
    finite_B = finite(logits_BV) if finite_B is None else finite_B
    x = logits_BV.float()
    ids_B = x.argmax(-1)
    if plan.sampled:
        ids_B = torch.where(plan.temperature_B < GREEDY_BELOW, ids_B, drawn(x, plan, draw))
    total_B1 = x.logsumexp(-1, keepdim=True)
    total_B1 = torch.where(total_B1.isneginf(), 0, total_B1)  # nothing left: -inf, not NaN
    top_ids_BK = top_logprobs_BK = None
    if plan.top_logprobs:
        top_BK, top_ids_BK = x.topk(min(plan.top_logprobs, x.shape[-1]), -1)
        top_logprobs_BK = (top_BK - total_B1).clamp_min(LEAST_LOGPROB)
    return Sampled(
        ids_B=ids_B,
        logprob_B=(x.gather(-1, ids_B[:, None]) - total_B1)[:, 0].clamp_min(LEAST_LOGPROB),
        finite_B=finite_B,
        top_ids_BK=top_ids_BK,
        top_logprobs_BK=top_logprobs_BK,
    )


def head_sample(
    hidden_BH: Tensor,
    weight_VH: Tensor,
    plan: SamplePlan,
    *,
    draw: int = 0,
    sample: Sample = sample,
) -> Sampled:
    """See :class:`~mstar_core.ops.sampling.contract.HeadSample`."""
    return sample(hidden_BH @ weight_VH.t(), plan, draw=draw)


def scaled(falling_BV: Tensor, temperature_B: Tensor) -> Tensor:
    """Falling logits less their largest, over the temperature: nothing overflows upwards."""
    largest_B1 = falling_BV[:, :1]
    largest_B1 = torch.where(largest_B1.isneginf(), 0, largest_B1)
    return (falling_BV - largest_B1) / temperature_B.clamp_min(GREEDY_BELOW)[:, None]


def filtered(x_BV: Tensor, plan: SamplePlan) -> Tensor:
    """Falling, scaled logits with -inf where top-k, top-p or min-p leaves an id out."""
    V = x_BV.shape[-1]
    rank_V = torch.arange(V, device=x_BV.device)
    k_B1 = torch.where(plan.top_k_B > 0, plan.top_k_B, V)[:, None]
    x = torch.where(rank_V < k_B1, x_BV, -torch.inf)
    share_BV = x.softmax(-1)
    before_BV = share_BV.cumsum(-1).roll(1, -1)
    before_BV[:, :1].zero_()
    p_B1, min_B1 = plan.top_p_B[:, None], plan.min_p_B[:, None]
    keep = ((before_BV < p_B1) | (p_B1 >= 1)) & (share_BV >= min_B1 * share_BV[:, :1])
    return torch.where(keep | (rank_V == 0), x, -torch.inf)
