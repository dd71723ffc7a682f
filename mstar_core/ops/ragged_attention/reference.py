"""The definition of ``ragged_attention``: each row's tokens laid out as padded keys."""

from __future__ import annotations

import torch
from torch import Tensor

from mstar_core.ops.attend import Mix, Rows, attend_rows, mix_exactly, readable
from mstar_core.ops.ragged_attention.contract import RaggedPlan


def attend(
    q_TND: Tensor,
    k_TGD: Tensor,
    v_TGD: Tensor,
    plan: RaggedPlan,
    *,
    scale: float,
    causal: bool,
    mix: Mix = mix_exactly,
) -> Tensor:
    """See :class:`~mstar_core.ops.ragged_attention.contract.Attend`; ``mix`` is its inner part."""
    at_BS = plan.q_starts_B[:, None].long() + readable(plan.max_q, plan.q_lens_B)
    at_BS = at_BS.clamp_max(q_TND.shape[0] - 1)
    rows = Rows(
        kv_lens_B=plan.q_lens_B,
        before_B=torch.zeros_like(plan.q_lens_B) if causal else None,
        q_starts_B=plan.q_starts_B,
        q_lens_B=plan.q_lens_B,
        max_q=plan.max_q,
        decode=0,
    )
    return attend_rows(q_TND, k_TGD[at_BS], v_TGD[at_BS], rows, scale, mix)
