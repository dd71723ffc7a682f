"""Attention that reads block tables and lengths on the device, and is never planned.

::

    decode, a lead       trtllm_batch_decode_with_kv_cache
    prompts, causal      trtllm_batch_context_with_kv_cache
    prompts, not causal  torch's: these kernels have no such mask

A resident step's table and lengths are columns of the store: inside the graph they are copied to
where the kernels want them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from torch.nn import functional as F

from mstar_core.launch import launch
from mstar_core.ops.attend import mix_fused
from mstar_core.ops.lead import in_lead, joined
from mstar_core.ops.paged_attention import PagedPlan, reference

Pools = tuple[Tensor, Tensor]


@frozen(kw_only=True, eq=False)
class Library:
    """What is used of FlashInfer."""

    decode: Callable[..., Any]
    """``trtllm_batch_decode_with_kv_cache``."""
    context: Callable[..., Any]
    """``trtllm_batch_context_with_kv_cache``."""


@frozen(kw_only=True, eq=False)
class Fmha:
    """One attention, with the workspace that its kernels share."""

    library: Library
    workspace: Tensor
    """Zero before its first use; the kernels leave its counters so."""

    def attend(
        self,
        q_TND: Tensor,
        k_PpGD: Tensor,
        v_PpGD: Tensor,
        plan: PagedPlan,
        *,
        scale: float,
        causal: bool,
    ) -> Tensor:
        """See :class:`~mstar_core.ops.paged_attention.contract.Attend`."""
        pools, pages_BW, lens_B = (k_PpGD, v_PpGD), plan.pages_BW, plan.kv_lens_B
        if plan.decode:
            return self._decoded(q_TND, pools, pages_BW, lens_B, scale)
        if not causal:
            given = (q_TND, k_PpGD, v_PpGD, plan)
            return reference.attend(*given, scale=scale, causal=False, mix=mix_fused)
        packed = self._prompts(q_TND, pools, plan, scale)
        if plan.num_lead_1 is None:
            return packed
        L, lead_B = plan.lead_rows, in_lead(plan.num_lead_1, len(lens_B))
        lens_L = torch.where(lead_B, lens_B, 0)[:L]
        decoded = self._decoded(q_TND[:L], pools, pages_BW[:L], lens_L, scale)
        return joined(lead_B[:L], decoded, packed)

    def _decoded(
        self, q_BND: Tensor, pools: Pools, pages_BW: Tensor, lens_B: Tensor, scale: float
    ) -> Tensor:
        out_BND = torch.empty_like(q_BND, memory_format=torch.contiguous_format)
        at = (pages_BW.contiguous(), read_by(lens_B))
        launch(self._decode, q_BND.contiguous(), pools, at, out_BND, scale)
        return torch.where((lens_B > 0)[:, None, None], out_BND, 0)

    def _prompts(self, q_TND: Tensor, pools: Pools, plan: PagedPlan, scale: float) -> Tensor:
        out_TND = torch.empty_like(q_TND, memory_format=torch.contiguous_format)
        lens_B, end_1 = read_by(plan.kv_lens_B), torch.full_like(plan.q_starts_B[:1], len(q_TND))
        queries = torch.cat([plan.q_starts_B, end_1])
        keys = F.pad(lens_B.cumsum(0), (1, 0)).to(torch.int32)
        at = (plan.pages_BW.contiguous(), lens_B, queries, keys)
        launch(self._context, q_TND.contiguous(), pools, at, out_TND, (scale, plan.max_q))
        readable_T = plan.kv_lens_B[plan.row_T.long()] > 0
        return torch.where(readable_T[:, None, None], out_TND, 0)

    def _decode(
        self, q_BND: Tensor, pools: Pools, at: tuple[Tensor, ...], out_BND: Tensor, scale: float
    ) -> None:
        pages_BW, lens_B = at
        self.library.decode(
            q_BND,
            tuple(pools),
            self.workspace,
            pages_BW,
            lens_B.view(torch.uint32),
            pages_BW.shape[1] * pools[0].shape[1],
            bmm1_scale=scale,
            bmm2_scale=1.0,
            out=out_BND,
            kv_layout="NHD",
            backend="trtllm-gen",
        )

    def _context(
        self,
        q_TND: Tensor,
        pools: Pools,
        at: tuple[Tensor, ...],
        out_TND: Tensor,
        bounds: tuple[float, int],
    ) -> None:
        pages_BW, lens_B, queries, keys = at
        scale, max_q = bounds
        self.library.context(
            q_TND,
            tuple(pools),
            self.workspace,
            pages_BW,
            lens_B.view(torch.uint32),
            max_q,
            pages_BW.shape[1] * pools[0].shape[1],
            scale,
            1.0,
            len(lens_B),
            queries,
            keys,
            out=out_TND,
            kv_layout="NHD",
        )


def read_by(lens_B: Tensor) -> Tensor:
    """Lengths that a kernel may be given: a row without keys reads one cell, and is dropped."""
    return lens_B.clamp_min(1)
