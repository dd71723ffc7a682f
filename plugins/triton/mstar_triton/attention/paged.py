"""``paged_attention``: what a step does around attention is inside its kernels.

::

    decode     norm, rope, write, attend, gate    one kernel
    prefill    norm, rope, write                  one kernel, over all tokens
               attend, gate                       one kernel; a lead is decoded by one of its own
"""

from __future__ import annotations

import torch
from attrs import evolve, field, frozen
from torch import Tensor

from mstar_core.errors import Refusal
from mstar_core.ops.backend import BindRequest
from mstar_core.ops.paged_attention import AttentionStep, PagedAttention, PagedPlan
from mstar_core.ops.paged_attention.contract import OPERATION
from mstar_triton.attention.decoding import decode
from mstar_triton.attention.launches import Heads, Pools, prefill, prepare
from mstar_triton.backend import Cells, TritonBackend


@frozen(kw_only=True)
class Attention:
    """The operation for heads of one size."""

    heads: Heads
    cells: Cells = field(factory=Cells)

    def write(
        self, k_TGD: Tensor, v_TGD: Tensor, k_PpGD: Tensor, v_PpGD: Tensor, write_T: Tensor
    ) -> None:
        """See :class:`~mstar_core.ops.paged_attention.contract.Write`."""
        prepare(self.heads, (None, k_TGD, v_TGD), (k_PpGD, v_PpGD), write_T, None)

    def attend(
        self, q_TND: Tensor, k_PpGD: Tensor, v_PpGD: Tensor, plan: PagedPlan,
        *, scale: float, causal: bool,
    ) -> Tensor:  # fmt: skip
        """See :class:`~mstar_core.ops.paged_attention.contract.Attend`."""
        bare = AttentionStep(scale=scale, causal=causal)
        return self._attended(q_TND, (k_PpGD, v_PpGD), plan, bare)

    def step(
        self, q_TND: Tensor, k_TGD: Tensor | None, v_TGD: Tensor | None, pools: Pools,
        plan: PagedPlan, step: AttentionStep,
    ) -> Tensor:  # fmt: skip
        """See :class:`~mstar_core.ops.paged_attention.contract.Step`."""
        if plan.decode:
            out = torch.empty_like(q_TND, memory_format=torch.contiguous_format)
            decode(self.heads, self.cells, (q_TND, k_TGD, v_TGD), pools, plan, step, out)
            return out
        turns = step.q_norm_D is not None or step.rope is not None
        if turns or k_TGD is not None:
            given = (q_TND if turns else None, k_TGD, v_TGD)
            turned = prepare(self.heads, given, pools, plan.write_T, step)
            q_TND = q_TND if turned is None else turned
        return self._attended(q_TND, pools, plan, evolve(step, q_norm_D=None, rope=None))

    def _attended(
        self, q_TND: Tensor, pools: Pools, plan: PagedPlan, step: AttentionStep
    ) -> Tensor:
        """Queries as they meet the keys, all of which are in the pools."""
        out = torch.empty_like(q_TND, memory_format=torch.contiguous_format)
        if plan.decode or plan.num_lead_1 is not None:
            decode(self.heads, self.cells, (q_TND, None, None), pools, plan, step, out)
        if not plan.decode:
            prefill(self.heads, q_TND, pools, plan, step, out)
        return out


class TritonPagedAttention(TritonBackend):
    """Decode splits keys over programs and plans nothing on the host."""

    operation = OPERATION

    def supports(self, request: BindRequest) -> Refusal | None:
        """Refuses what every backend here refuses, and heads wider than 256."""
        return self.too_wide(request) or super().supports(request)

    def bind(self, request: BindRequest) -> PagedAttention:
        """The operation for the heads of the request."""
        ops = Attention(heads=Heads.of(request))
        return PagedAttention(step=ops.step, attend=ops.attend, write=ops.write, splits=True)


BACKEND = TritonPagedAttention()
