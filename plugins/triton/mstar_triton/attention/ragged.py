"""``ragged_attention``: the prefill kernel over keys that are packed beside the queries."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from mstar_core.errors import Refusal
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.paged_attention import AttentionStep
from mstar_core.ops.ragged_attention import RaggedAttention, RaggedPlan
from mstar_core.ops.ragged_attention.contract import OPERATION
from mstar_triton.attention.launches import Heads, prefill
from mstar_triton.backend import TritonBackend


def attend(
    heads: Heads,
    q_TND: Tensor,
    k_TGD: Tensor,
    v_TGD: Tensor,
    plan: RaggedPlan,
    *,
    scale: float,
    causal: bool,
) -> Tensor:
    """See :class:`~mstar_core.ops.ragged_attention.contract.Attend`."""
    out = torch.empty_like(q_TND, memory_format=torch.contiguous_format)
    prefill(heads, q_TND, (k_TGD, v_TGD), plan, AttentionStep(scale=scale, causal=causal), out)
    return out


class TritonRaggedAttention(TritonBackend):
    """Attention of each packed row over itself."""

    operation = OPERATION

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses what every backend here refuses, and heads wider than 256."""
        return self.too_wide(request) or super().supports(request)

    def bind(self, request: BindRequest) -> RaggedAttention:
        """The function above, for the heads of the request."""
        return RaggedAttention(attend=partial(attend, Heads.of(request)))


BACKEND = TritonRaggedAttention()
