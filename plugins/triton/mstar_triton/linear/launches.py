"""The kernels of products with their grids and tiles, which follow from shapes alone."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from attrs import frozen
from torch import Tensor
from torch.nn import functional as F

from mstar_core.launch import launch
from mstar_core.ops.functional import rms_norm
from mstar_triton.backend import AMD, FUSED, Cells, early
from mstar_triton.linear.kernels import few_rows_kernel, gate_kernel, norm_kernel, one_row_kernel

DTYPES = (torch.bfloat16, torch.float16)
MOST_ROWS, MOST_ROWS_HEAD = 128, 32
"""Rows that the kernels take, and of a head: there a library is as fast, and sooner."""
WIDE, HEAD = 4096, 65536
"""Outputs from which there are enough blocks of columns to fill a device, and to fill it often."""
SPLITS = 4
"""Parts of a product of few outputs: 128 programs for 1024 of them."""
MOST_AHEAD = 4
"""Blocks of a weight that a program holds before the wait."""
GATES = 1024
"""Outputs of a program that only gates."""


@frozen(kw_only=True, eq=False)
class Ends:
    """What stands before and behind a product; an absent part is left out."""

    norm_H: Tensor | None = None
    eps: float = 0.0
    gated: bool = False
    bias_F: Tensor | None = None
    residual_TF: Tensor | None = None


def pow2(n: int) -> int:
    """The power of two at or above ``n``."""
    return int(triton.next_power_of_2(n))


def taken(x_TH: Tensor, weight_FH: Tensor) -> bool:
    """Whether the kernels take it, which follows from shapes and strides alone."""
    return (
        0 < len(x_TH) <= (MOST_ROWS_HEAD if len(weight_FH) >= HEAD else MOST_ROWS)
        and x_TH.dim() == 2
        and x_TH.stride(-1) == 1
        and weight_FH.is_contiguous()
        and x_TH.dtype == weight_FH.dtype
        and x_TH.dtype in DTYPES
    )


def normed(x_TH: Tensor, norm_H: Tensor, eps: float) -> Tensor:
    """The RMS norm of each row, in the dtype of x."""
    if x_TH.dtype not in DTYPES or x_TH.dim() != 2 or x_TH.stride(-1) != 1:
        return rms_norm(x_TH, norm_H, eps)
    (T, K), block = x_TH.shape, pow2(x_TH.shape[1])
    out_TH = x_TH.new_empty(T, K)
    launch(
        norm_kernel[(T,)],
        x_TH, norm_H, out_TH, x_TH.stride(0), eps,
        K=K, BLOCK_K=block, num_warps=4 if block <= 4096 else 8, **early(x_TH), **FUSED,
    )  # fmt: skip
    return out_TH


def gated(both_TE: Tensor) -> Tensor:
    """``silu(gate) * up`` of rows ``[gate | up]``."""
    T, width = len(both_TE), both_TE.shape[-1] // 2
    if both_TE.dtype not in DTYPES or both_TE.dim() != 2:
        gate, up = both_TE.chunk(2, -1)
        return F.silu(gate) * up
    out_TF = both_TE.new_empty(T, width)
    if T:
        launch(
            gate_kernel[(T, triton.cdiv(width, GATES))],
            both_TE, out_TF, F=width, BLOCK=GATES, num_warps=4, **FUSED,
        )  # fmt: skip
    return out_TF


def one_row(x_1H: Tensor, weight_FH: Tensor, ends: Ends) -> Tensor:
    """``[1, F]``, with everything before and behind it in one kernel."""
    K, N = x_1H.shape[1], len(weight_FH) // (2 if ends.gated else 1)
    out_1F = x_1H.new_empty(1, N)
    if N < WIDE and not ends.gated:  # more programs, each further ahead
        columns, depth, warps = 2, 1024, 4
    else:
        columns, depth, warps = (2 if ends.gated else 8), 512, 2
    launch(
        one_row_kernel[(triton.cdiv(N, columns),)],
        x_1H, weight_FH, ends.norm_H, ends.bias_F, ends.residual_TF, out_1F, ends.eps,
        N=N, K=K, GATED=ends.gated, BLOCK_N=columns, BLOCK_K=min(depth, pow2(K)),
        num_warps=warps, **early(x_1H), **FUSED,
    )  # fmt: skip
    return out_1F


def tiles(T: int, N: int, K: int, gated: bool) -> dict[str, Any]:
    """A program reads its columns alone, and a part of them where there are few."""
    block_m, columns, depth, warps, stages = max(16, pow2(T)), 32, 128, 4, 4
    splits, ahead = 1, 0
    if N >= HEAD:
        columns, stages = 128, 3
    elif N >= WIDE or gated:
        block_m = max(64, block_m)  # from 64 a product is of the warps together, and faster
        columns = 32 if gated else 64
    else:
        splits, stages = min(SPLITS, triton.cdiv(K, depth)), 6 if block_m <= 32 else 4
        if not AMD and splits == SPLITS:
            share = triton.cdiv(K, splits * depth)
            columns, warps, ahead = narrow(block_m, share)
    if AMD:
        depth, stages = (64 if block_m > 64 else depth), 2
    return {
        "SPLITS": splits,
        "BLOCK_M": block_m,
        "BLOCK_N": columns,
        "BLOCK_K": max(16, min(depth, pow2(K))),
        "AHEAD": ahead,
        "num_warps": warps,
        "num_stages": stages,
    }


def narrow(block_m: int, share: int) -> tuple[int, int, int]:
    """``(columns, warps, blocks read ahead)`` of a program whose part has ``share`` blocks.

    They were found by measuring; where none was better, all is read behind the wait.
    """
    short = share <= MOST_AHEAD
    if block_m == 16:
        return (32, 2, share) if short else (16, 4, MOST_AHEAD)
    if block_m == 64:
        return (32, 4 if short else 8, 1)
    return 32, 4, 0


def split(
    cells: Cells, device: torch.device, grid: tuple[int, ...], size: int
) -> tuple[Tensor | None, Tensor | None]:
    """Where programs ``(blocks, parts, ...)`` keep ``size`` fp32 sums each, and count themselves.

    Whichever of a block's parts comes last sums them. One part needs neither.
    """
    if grid[1] == 1:
        return None, None
    parts = torch.empty((math.prod(grid), size), dtype=torch.float32, device=device)
    return parts, cells.of(device, math.prod(grid) // grid[1])


def few_rows(x_TH: Tensor, weight_FH: Tensor, ends: Ends, cells: Cells) -> Tensor:
    """``[T, F]``, with gate, bias and residual in the same kernel; a norm is a kernel before."""
    if ends.norm_H is not None:
        x_TH = normed(x_TH, ends.norm_H, ends.eps)
    (T, K), N = x_TH.shape, len(weight_FH) // (2 if ends.gated else 1)
    out_TF, tile = x_TH.new_empty(T, N), tiles(T, N, K, ends.gated)
    grid = (triton.cdiv(N, tile["BLOCK_N"]), tile["SPLITS"])
    parts, arrived = split(cells, x_TH.device, grid, tile["BLOCK_M"] * tile["BLOCK_N"])
    launch(
        few_rows_kernel[grid],
        x_TH, weight_FH, ends.bias_F, ends.residual_TF, parts, arrived, out_TF, x_TH.stride(0),
        0 if ends.residual_TF is None else ends.residual_TF.stride(0), T,
        N=N, K=K, GATED=ends.gated, **tile, **early(x_TH), **FUSED,
    )  # fmt: skip
    return out_TF
