"""The kernels of a prefill step with their grids and tiles, which follow from shapes alone."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.ops.gated_delta import GatedDeltaRows, GdnPools, GdnWeights
from mstar_triton.backend import AMD, FUSED
from mstar_triton.gated_delta.launches import Projections, Sizes, pow2
from mstar_triton.gated_delta.prefill_kernels import CHUNK, chunk_kernel, scan_kernel
from mstar_triton.gated_delta.token_kernels import finish_kernel, mix_kernel

TOKENS = 16
"""Of a block that is finished, or mixed: there a window's tokens fit too, however many."""
NARROWEST = 64
"""Features of a tile of fp16 that is multiplied: those of 32 ended in faults of memory."""
FEW_PROGRAMS = 132
"""Multiprocessors of an H200: a scan of so many programs has each to itself."""


def prefill(
    sizes: Sizes, x: Projections, weights: GdnWeights, pools: GdnPools, plan: GatedDeltaRows,
    out_TV: Tensor,
) -> None:  # fmt: skip
    """All tokens of rows that are not of the lead into ``out_TV``."""
    T, B, H = len(x.qkv_TC), len(plan.slots_B), sizes.num_v_heads
    G, D, E, K = sizes.num_k_heads, sizes.k_dim, sizes.v_dim, sizes.conv_taps
    C, chunks, mixing = sizes.channels, triton.cdiv(T, CHUNK.value) + B, max(TOKENS, pow2(K - 1))
    rows = (plan.slots_B.contiguous(), plan.fresh_B.contiguous())
    at, half = (plan.q_starts_B, plan.q_lens_B, plan.num_lead_1), out_TV.dtype == torch.bfloat16
    element = torch.float16 if half else torch.float32

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=out_TV.device)

    mixed, squares = empty(T, C, dtype=element), (chunks, H, CHUNK.value, CHUNK.value)
    tops, most = (empty(T, H), empty(chunks, H)) if half else (None, None)
    solved, scores = empty(*squares, dtype=element), empty(*squares, dtype=element)
    since, left = empty(*squares[:3]), empty(*squares[:3])
    o = out_TV if half else empty(T, H * E)
    tiles = {
        "BLOCK_D": max(NARROWEST if half else 16, pow2(D)),
        "BLOCK_B": pow2(B),
        "PRECISION": "tf32x3" if out_TV.dtype == torch.float16 and not AMD else "ieee",
    }
    launch(
        mix_kernel[(triton.cdiv(T, mixing) + B, 2 * G + H)],
        x.qkv_TC, weights.conv_CK, pools.conv_SCK, *rows, *at, plan.col_T, mixed, tops,
        x.qkv_TC.stride(0), pools.conv_SCK.stride(0), T, G=G, D=D, E=E, C=C, K=K,
        BLOCK_T=mixing, BLOCK_C=pow2(max(D, E)), BLOCK_K=int(triton.next_power_of_2(K)),
        num_warps=4, **FUSED,
    )  # fmt: skip
    launch(
        chunk_kernel[(chunks, H)],
        mixed, tops, x.b_TH, x.a_TH, weights.A_log_H, weights.dt_bias_H, rows[0], *at, solved,
        scores, since, left, most, x.b_TH.stride(0), x.a_TH.stride(0), B, G=G, R=H // G, D=D,
        C=C, **tiles, num_warps=4, num_stages=1, **FUSED,
    )  # fmt: skip
    part = scan_options(B * H, E, half)
    launch(
        scan_kernel[(B, H, triton.cdiv(E, part["PART_E"]))],
        mixed, tops, solved, scores, since, left, most, pools.ssm_SHDE, *rows, *at, o,
        pools.ssm_SHDE.stride(0), B, **sizes.constants, C=C, **tiles, **part, **FUSED,
    )  # fmt: skip
    launch(
        finish_kernel[(triton.cdiv(T, TOKENS), H)],
        o, x.z_TV, weights.norm_D, rows[0], plan.row_T, plan.num_lead_1, out_TV,
        x.z_TV.stride(0), weights.eps, T, H=H, E=E, BLOCK_T=TOKENS, BLOCK_E=pow2(E), num_warps=4,
        **FUSED,
    )  # fmt: skip


def scan_options(heads: int, width: int, half: bool) -> dict[str, int]:
    """The part of a head that a program has, and how many chunks ahead it loads."""
    if not half:
        return {"PART_E": 32, "FEW": True, "num_warps": 4, "num_stages": 1}
    few = AMD or heads * triton.cdiv(width, NARROWEST) <= FEW_PROGRAMS
    ahead = 1 if AMD else 3 if few else 2
    return {"PART_E": NARROWEST, "FEW": few, "num_warps": 4, "num_stages": ahead}
