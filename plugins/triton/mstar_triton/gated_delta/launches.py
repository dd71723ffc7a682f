"""The kernels of a decode step with their grids and tiles, which follow from shapes alone."""

from __future__ import annotations

import torch
import triton
from attrs import frozen
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.ops.gated_delta import GatedDeltaRows, GdnPools, GdnWeights
from mstar_triton.backend import FUSED, Cells, early
from mstar_triton.gated_delta.decode_kernels import enter_kernel, step_kernel
from mstar_triton.gated_delta.few_rows_kernels import few_rows_kernel

FEW_HEADS = 64
"""Of all rows of a decode step: the programs of so many run at once."""
EARLY_PROGRAMS = 528
"""So many parts of states are asked for before the product in front of them has ended: 16 rows take
0.94 ms a step instead of 0.96 on an H200, but 64 rows, whose parts do not all fit, 1.73 instead of
1.70."""


def pow2(n: int) -> int:
    """The power of two at or above ``n``, and at least 16: no product is smaller."""
    return max(16, int(triton.next_power_of_2(n)))


@frozen(kw_only=True, eq=False)
class Projections:
    """A step's inputs, each with its last axis contiguous."""

    qkv_TC: Tensor
    z_TV: Tensor
    b_TH: Tensor
    a_TH: Tensor

    @classmethod
    def of(cls, qkv_TC: Tensor, z_TV: Tensor, b_TH: Tensor, a_TH: Tensor) -> Projections:
        """Copies only what is strided along its last axis."""
        given = {"qkv_TC": qkv_TC, "z_TV": z_TV, "b_TH": b_TH, "a_TH": a_TH}
        return cls(**{n: x if x.stride(-1) == 1 else x.contiguous() for n, x in given.items()})


@frozen(kw_only=True)
class Sizes:
    """The heads of one mixer."""

    num_k_heads: int
    num_v_heads: int
    k_dim: int
    v_dim: int
    conv_taps: int

    @property
    def constants(self) -> dict[str, int]:
        """What every kernel knows when it is compiled."""
        G, H = self.num_k_heads, self.num_v_heads
        return {"G": G, "R": H // G, "D": self.k_dim, "E": self.v_dim}

    @property
    def channels(self) -> int:
        """Of the convolution."""
        return 2 * self.num_k_heads * self.k_dim + self.num_v_heads * self.v_dim


def decode(
    sizes: Sizes, x: Projections, weights: GdnWeights, pools: GdnPools, plan: GatedDeltaRows,
    cells: Cells, out_TV: Tensor,
) -> None:  # fmt: skip
    """One token of each row, or of each row of the lead, into ``out_TV``."""
    rows = len(plan.slots_B) if plan.num_lead_1 is None else plan.lead_rows
    if rows * sizes.num_v_heads <= FEW_HEADS:
        few_rows(sizes, x, weights, pools, plan, cells, out_TV)
    else:
        many_rows(sizes, x, weights, pools, plan, out_TV)


def few_rows(
    sizes: Sizes, x: Projections, weights: GdnWeights, pools: GdnPools, plan: GatedDeltaRows,
    cells: Cells, out_TV: Tensor,
) -> None:  # fmt: skip
    """All in one kernel, whose programs count themselves in ``cells``."""
    rows = len(plan.slots_B) if plan.num_lead_1 is None else plan.lead_rows
    G, H, D, E = sizes.num_k_heads, sizes.num_v_heads, sizes.k_dim, sizes.v_dim
    part = min(32, pow2(E))
    parts = triton.cdiv(E, part)
    o_BV = torch.empty((rows, H * E), dtype=torch.float32, device=out_TV.device)
    launch(
        few_rows_kernel[(parts, H, rows)],
        x.qkv_TC, x.z_TV, x.b_TH, x.a_TH, weights.conv_CK, weights.A_log_H, weights.dt_bias_H,
        weights.norm_D, pools.conv_SCK, pools.ssm_SHDE, plan.slots_B, plan.fresh_B.contiguous(),
        plan.num_lead_1, o_BV, cells.of(out_TV.device, rows * G), out_TV, x.qkv_TC.stride(0),
        x.z_TV.stride(0), x.b_TH.stride(0), x.a_TH.stride(0), plan.slots_B.stride(0),
        pools.conv_SCK.stride(0), pools.ssm_SHDE.stride(0), weights.eps,
        **sizes.constants, K=sizes.conv_taps, BLOCK_D=pow2(D), BLOCK_E=pow2(E), PART_E=part,
        num_warps=4, **early(x.qkv_TC), **FUSED,
    )  # fmt: skip


def many_rows(
    sizes: Sizes, x: Projections, weights: GdnWeights, pools: GdnPools, plan: GatedDeltaRows,
    out_TV: Tensor,
) -> None:  # fmt: skip
    """Convolutions in a kernel of their own, then each state by wider parts."""
    rows = len(plan.slots_B) if plan.num_lead_1 is None else plan.lead_rows
    G, H, D, E = sizes.num_k_heads, sizes.num_v_heads, sizes.k_dim, sizes.v_dim
    C, K = sizes.channels, sizes.conv_taps
    fresh_B = plan.fresh_B.contiguous()
    mixed_BC = torch.empty((rows, C), dtype=torch.float32, device=out_TV.device)
    o_BV = torch.empty((rows, H * E), dtype=torch.float32, device=out_TV.device)
    arrived_BH = torch.empty((rows, H), dtype=torch.int32, device=out_TV.device)
    part = {"PART_E": min(64, pow2(E)), "num_warps": 4 if E > 16 else 1}
    parts = triton.cdiv(E, part["PART_E"])
    launch(
        enter_kernel[(rows, 2 * G + H)],
        x.qkv_TC, weights.conv_CK, pools.conv_SCK, plan.slots_B, fresh_B, plan.num_lead_1,
        mixed_BC, arrived_BH, x.qkv_TC.stride(0), plan.slots_B.stride(0), pools.conv_SCK.stride(0),
        G=G, D=D, E=E, C=C, K=K, BLOCK_C=pow2(max(D, E)),
        BLOCK_K=int(triton.next_power_of_2(K)), EARLY=parts * H * rows <= EARLY_PROGRAMS,
        num_warps=1, **early(x.qkv_TC), **FUSED,
    )  # fmt: skip
    launch(
        step_kernel[(parts, H, rows)],
        mixed_BC, x.z_TV, x.b_TH, x.a_TH, weights.A_log_H, weights.dt_bias_H, weights.norm_D,
        pools.ssm_SHDE, plan.slots_B, fresh_B, plan.num_lead_1, o_BV, arrived_BH, out_TV,
        x.z_TV.stride(0), x.b_TH.stride(0), x.a_TH.stride(0), plan.slots_B.stride(0),
        pools.ssm_SHDE.stride(0), weights.eps,
        **sizes.constants, C=C, BLOCK_D=pow2(D), BLOCK_E=pow2(E), **part,
        **early(x.qkv_TC), **FUSED,
    )  # fmt: skip
