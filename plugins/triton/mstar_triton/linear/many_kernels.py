"""Products of many rows, gate and residual inside, by Hopper's tensor memory accelerator."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit(do_not_specialize=("M",))
def many_rows_kernel(
    x_desc, weight_desc, residual_desc, out_desc, M,
    N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per block of rows and of outputs; blocks that meet at a time share their lines.

    With GATED half of a tile of the weight ``[2, BLOCK_N / 2, BLOCK_K]`` are gates, the other half
    what they gate: both are in the registers of one thread when their product is done.
    """
    OUT: tl.constexpr = BLOCK_N // 2 if GATED else BLOCK_N
    tile, blocks_m, blocks_n = tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, OUT)
    first = tile // (GROUP * blocks_n) * GROUP
    size = tl.minimum(blocks_m - first, GROUP)
    place = tile % (GROUP * blocks_n)
    m, n = (first + place % size) * BLOCK_M, place // size * OUT
    if PDL:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        x = x_desc.load([m, k])
        weight = tl.reshape(weight_desc.load([0, n, k]), (BLOCK_N, BLOCK_K))
        acc = tl.dot(x, weight.T, acc)
    if GATED:
        gate, up = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, OUT)), (0, 2, 1)))
        acc = gate * tl.sigmoid(gate) * up
    if residual_desc is not None:
        acc += residual_desc.load([m, n]).to(tl.float32)
    out_desc.store([m, n], acc.to(x_desc.dtype))
