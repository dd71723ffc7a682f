"""The streamed kernel with its grid and tiles: where it runs, and in what sizes.

It is written for Hopper's products of a whole warp group (compute capability 9). Tiles were found
by measuring a chain of the products of a decode step (docs/measurements.md).
"""

from __future__ import annotations

from functools import cache

import torch
import triton
from torch import Tensor

from mstar_core.launch import launch
from mstar_triton.backend import AMD, FUSED, Cells, early
from mstar_triton.linear.launches import HEAD, MOST_ROWS, WIDE, Ends, normed, pow2, split
from mstar_triton.linear.streamed_kernels import streamed_kernel

HOPPER = 9
"""Compute capability, without what follows the point."""
PROCESSORS = 132
"""Of an H200."""
LINE = 16
"""Elements that a copy to shared memory counts on: rows begin at a multiple of them."""
PART = 1024
"""Features of one part of K at least, where outputs are too few to fill a device."""
WHOLE = {16: (256, 4), 32: (256, 4), 64: (128, 5), 128: (128, 4)}
"""Rows → ``(depth, stages)`` of a product of many outputs, each over all of K."""
NORMED = 1024
"""Features of a row at most that a program norms itself: it holds them in registers."""


@cache
def hopper(device: torch.device) -> bool:
    """Whether the device multiplies by warp groups as Hopper does."""
    if device.type != "cuda" or AMD:
        return False
    return bool(triton.runtime.driver.active.get_current_target().arch // 10 == HOPPER)


def streams(x_TH: Tensor, weight_FH: Tensor) -> bool:
    """Whether the kernel takes a product of few rows: not the head's, whose weight fills it."""
    aligned = x_TH.stride(0) % LINE == 0 and weight_FH.shape[1] % LINE == 0
    return (
        len(weight_FH) < HEAD
        and aligned
        and x_TH.data_ptr() % LINE == 0
        and weight_FH.data_ptr() % LINE == 0
        and hopper(x_TH.device)
    )


def tiles(T: int, N: int, K: int, gated: bool) -> dict[str, int]:
    """Few outputs are split along K, and over blocks of rows whose parts are sooner summed.

    Programs that all find a multiprocessor take most of its shared memory, more of them half.
    """
    rows, columns, splits = max(16, pow2(T)), triton.cdiv(N, 32 if gated else 64), 1
    block_m, depth, stages = rows, *WHOLE[rows]
    if gated and rows == MOST_ROWS:
        depth, stages = 64, 8
    if N < WIDE and not gated:
        block_m = min(32, rows)
        most, depth, stages = (4, 256, 4) if rows == block_m else (2, 128, 8)
        splits = min(most, triton.cdiv(K, PART), max(1, PROCESSORS // columns))
    if columns * splits > PROCESSORS:
        depth = min(depth, 128)
    count = triton.cdiv(K, splits * depth)
    return {
        "SPLITS": splits,
        "BLOCK_M": block_m,
        "BLOCK_K": depth,
        "TILES": count,
        "STAGES": min(stages, count),
        "X_STAGES": min(stages, count),
    }


def streamed(x_TH: Tensor, weight_FH: Tensor, ends: Ends, cells: Cells) -> Tensor:
    """``[T, F]``, with norm, gate, bias and residual; a norm of many rows is a kernel before."""
    (T, K), N = x_TH.shape, len(weight_FH) // (2 if ends.gated else 1)
    tile, norm_H = tiles(T, N, K, ends.gated), ends.norm_H
    block_m = tile["BLOCK_M"]
    if norm_H is not None and (block_m > 16 or tile["SPLITS"] > 1 or K > NORMED):
        x_TH, norm_H = normed(x_TH, norm_H, ends.eps), None
    if norm_H is not None:
        tile["X_STAGES"] = tile["TILES"]
    out_TF, residual = x_TH.new_empty(T, N), ends.residual_TF
    columns = triton.cdiv(N, 32 if ends.gated else 64)
    grid = (columns, tile["SPLITS"], triton.cdiv(T, block_m))
    parts, arrived = split(cells, x_TH.device, grid, 64 * block_m)
    launch(
        streamed_kernel[grid],
        x_TH, weight_FH, norm_H, ends.bias_F, residual, parts, arrived, out_TF,
        x_TH.stride(0), 0 if residual is None else residual.stride(0), T, ends.eps,
        N=N, K=K, GATED=ends.gated, **tile, num_warps=4, **early(x_TH), **FUSED,
    )  # fmt: skip
    return out_TF
