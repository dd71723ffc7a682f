"""The cases of ``gated_delta`` in other forms: cut into steps, with states kept another way."""

from __future__ import annotations

import torch
from attrs import evolve
from torch import Tensor

from mstar_core.ops.gated_delta import GatedDelta, GatedDeltaRows, GdnPools, GdnWeights, cases
from mstar_core.ops.gated_delta.contract import Step


def chunk(x: cases.Inputs, first: int, last: int, fresh: bool) -> cases.Inputs:
    """Tokens ``first`` to ``last`` of the only row of ``x``, as a step of their own."""
    n = last - first
    plan = evolve(
        x.plan,
        fresh_B=torch.full_like(x.plan.fresh_B, fresh),
        q_lens_B=torch.full_like(x.plan.q_lens_B, n),
        row_T=x.plan.row_T[:n],
        col_T=x.plan.col_T[:n],
        max_q=n,
        decode=int(n == 1),
    )
    tokens = {name: getattr(x, name)[first:last] for name in ("qkv_TC", "z_TV", "b_TH", "a_TH")}
    return evolve(x, plan=plan, num_real=n, **tokens)


def k_last(ops: GatedDelta) -> Step:
    """The step of a backend of layout ``K_LAST``, for pools as the cases lay them out."""

    def step(
        qkv_TC: Tensor,
        z_TV: Tensor,
        b_TH: Tensor,
        a_TH: Tensor,
        weights: GdnWeights,
        pools: GdnPools,
        plan: GatedDeltaRows,
    ) -> Tensor:
        ssm_SHDE = pools.ssm_SHDE
        turned_SHED = ssm_SHDE.transpose(-1, -2).contiguous()
        kept = evolve(pools, ssm_SHDE=turned_SHED.view(ssm_SHDE.shape))
        out_TV = ops.step(qkv_TC, z_TV, b_TH, a_TH, weights, kept, plan)
        ssm_SHDE.copy_(turned_SHED.transpose(-1, -2))
        return out_TV

    return step
