"""The kernels of the delta rule with their grids and tiles, which follow from shapes alone."""

from __future__ import annotations

from typing import Any

import torch
import triton
from attrs import frozen
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.ops.gated_delta import GatedDeltaRows, GdnPools, GdnWeights
from mstar_triton.backend import AMD, FUSED, early
from mstar_triton.gated_delta.decode_kernels import enter_kernel, step_kernel
from mstar_triton.gated_delta.prefill_kernels import CHUNK, chunk_kernel, scan_kernel
from mstar_triton.gated_delta.token_kernels import finish_kernel, mix_kernel

MIX_TOKENS, FINISH_TOKENS = 32, 16
FEW_HEADS = 64
"""Of all rows of a decode step: parts of 16 features of so many have a warp each to run in."""
PART_E = 32
"""Value features of one program of the scan: four programs share a head of 128."""


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
    out_TV: Tensor,
) -> None:  # fmt: skip
    """One token of each row, or of each row of the lead, into ``out_TV``."""
    rows = len(plan.slots_B) if plan.num_lead_1 is None else plan.lead_rows
    G, H, D, E = sizes.num_k_heads, sizes.num_v_heads, sizes.k_dim, sizes.v_dim
    C, K = sizes.channels, sizes.conv_taps
    fresh_B = plan.fresh_B.contiguous()
    mixed_BC = torch.empty((rows, C), dtype=torch.float32, device=out_TV.device)
    o_BV = torch.empty((rows, H * E), dtype=torch.float32, device=out_TV.device)
    arrived_BH = torch.empty((rows, H), dtype=torch.int32, device=out_TV.device)
    launch(
        enter_kernel[(rows, 2 * G + H)],
        x.qkv_TC, weights.conv_CK, pools.conv_SCK, plan.slots_B, fresh_B, plan.num_lead_1,
        mixed_BC, arrived_BH, x.qkv_TC.stride(0), plan.slots_B.stride(0), pools.conv_SCK.stride(0),
        G=G, D=D, E=E, C=C, K=K, BLOCK_C=pow2(max(D, E)),
        BLOCK_K=int(triton.next_power_of_2(K)), num_warps=1, **early(x.qkv_TC), **FUSED,
    )  # fmt: skip
    part = decode_options(rows * H, pow2(E))
    launch(
        step_kernel[(triton.cdiv(E, part["PART_E"]), H, rows)],
        mixed_BC, x.z_TV, x.b_TH, x.a_TH, weights.A_log_H, weights.dt_bias_H, weights.norm_D,
        pools.ssm_SHDE, plan.slots_B, fresh_B, plan.num_lead_1, o_BV, arrived_BH, out_TV,
        x.z_TV.stride(0), x.b_TH.stride(0), x.a_TH.stride(0), plan.slots_B.stride(0),
        pools.ssm_SHDE.stride(0), weights.eps,
        **sizes.constants, C=C, BLOCK_D=pow2(D), BLOCK_E=pow2(E), **part,
        **early(x.qkv_TC), **FUSED,
    )  # fmt: skip


def decode_options(heads: int, block_e: int) -> dict[str, int]:
    """How wide a part of a state is: a few heads are cut fine, many are read in whole lines."""
    if heads <= FEW_HEADS or block_e <= 16:
        return {"PART_E": 16, "num_warps": 1}
    return {"PART_E": min(64, block_e), "num_warps": 4}


def prefill(
    sizes: Sizes, x: Projections, weights: GdnWeights, pools: GdnPools, plan: GatedDeltaRows,
    out_TV: Tensor,
) -> None:  # fmt: skip
    """All tokens of rows that are not of the lead into ``out_TV``."""
    T, B, H = len(x.qkv_TC), len(plan.slots_B), sizes.num_v_heads
    D, E, C, K = sizes.k_dim, sizes.v_dim, sizes.channels, sizes.conv_taps
    chunks = -(-T // CHUNK.value) + B
    slots_B, fresh_B = plan.slots_B.contiguous(), plan.fresh_B.contiguous()

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=out_TV.device)

    mixed, o = empty(T, C), empty(T, H * E)
    in_chunk = (chunks, H, CHUNK.value)
    values, reads, scores = empty(*in_chunk, E), empty(*in_chunk, D), empty(*in_chunk, CHUNK.value)
    since, left = (empty(*in_chunk) for _ in range(2))
    tiles = {"BLOCK_D": pow2(D), "BLOCK_E": pow2(E), "BLOCK_B": int(triton.next_power_of_2(B))}
    strides = {"conv_slot": pools.conv_SCK.stride(0), "qkv_row": x.qkv_TC.stride(0)}
    launch(
        mix_kernel[(-(-T // MIX_TOKENS), 2 * sizes.num_k_heads + H)],
        x.qkv_TC, weights.conv_CK, pools.conv_SCK, slots_B, fresh_B, plan.row_T,
        plan.col_T, mixed, T=T, **strides, G=sizes.num_k_heads, D=D, E=E, C=C, K=K,
        BLOCK_T=MIX_TOKENS, BLOCK_C=pow2(max(D, E)), num_warps=4, **FUSED,
    )  # fmt: skip
    launch(
        chunk_kernel[(chunks, H)],
        mixed, x.b_TH, x.a_TH, weights.A_log_H, weights.dt_bias_H, slots_B, plan.q_starts_B,
        plan.q_lens_B, plan.num_lead_1, values, reads, scores, since, left, x.b_TH.stride(0),
        x.a_TH.stride(0), B, **sizes.constants, C=C, **tiles, **precision(x.qkv_TC.dtype),
        num_warps=4, num_stages=1, **FUSED,
    )  # fmt: skip
    launch(
        scan_kernel[(B, H, -(-E // PART_E))],
        x.qkv_TC, mixed, values, reads, scores, since, left, pools.conv_SCK, pools.ssm_SHDE,
        slots_B, fresh_B, plan.q_starts_B, plan.q_lens_B, plan.num_lead_1, o, **strides,
        ssm_slot=pools.ssm_SHDE.stride(0), B=B, **sizes.constants, C=C, K=K, **tiles,
        PART_E=PART_E, BLOCK_K=int(triton.next_power_of_2(K - 1)), **precision(x.qkv_TC.dtype),
        num_warps=4, num_stages=1, **FUSED,
    )  # fmt: skip
    launch(
        finish_kernel[(-(-T // FINISH_TOKENS), H)],
        o, x.z_TV, weights.norm_D, slots_B, plan.row_T, plan.num_lead_1, out_TV,
        x.z_TV.stride(0), weights.eps, T, H=H, E=E, BLOCK_T=FINISH_TOKENS, BLOCK_E=pow2(E),
        num_warps=4, **FUSED,
    )  # fmt: skip


def precision(dtype: torch.dtype) -> dict[str, Any]:
    """Of products of what is kept in fp32: exact for fp32, tf32 for bf16.

    bf16 in place of tf32 would be off by more than the contract allows where an output is small
    before its norm; tf32 is as coarse as fp16, of which more is asked.
    """
    if AMD or dtype == torch.float32:
        return {"PRECISION": "ieee"}
    return {"PRECISION": "tf32" if dtype == torch.bfloat16 else "tf32x3"}
