"""The beginning of a resident step in one Triton kernel; ``kernels.py`` defines what it does.

It moves 64-bit integers, and every product of a row and a width is 64 bits wide: a store may have
more than 2**31 cells. The launch reads shapes alone, never a value, so a graph may capture it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from attrs import frozen
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.resident.kernels import Begun

BLOCK = 1024
"""Cells that one program moves at a time, at most."""
OPTIONS = {"enable_fp_fusion": False}
"""Nothing here is a float; said because Triton warns of a default that will change."""
STAGED = tl.constexpr(0xFFFFFFFF)
"""The half of the count that says how many cells were staged; the other counts programs."""


@triton.jit
def begin_kernel(
    store_ptr, slots_ptr, index_ptr, value_ptr, count_ptr, advance_ptr, rows_ptr, real_ptr,
    padding_ptr, C, N, BLOCK: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    """One program per row and block of its cells, all of which it alone reads and writes.

    Whoever is the last to have read the count consumes it. Behind the barrier every thread has
    read it, and sees what any thread of the program has scattered. Padding is only read.
    """
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots_ptr + row)
    staged = tl.load(count_ptr) & STAGED
    c = block * BLOCK + tl.arange(0, BLOCK)
    base, first = slot * C, block * BLOCK
    for start in range(0, staged.to(tl.int32), CELLS):
        k = start + tl.arange(0, CELLS)
        at = tl.load(index_ptr + k, mask=k < staged, other=-1) - base
        mine = (at >= first) & (at < first + BLOCK) & (at < tl.where(slot == 0, 0, C))
        tl.store(store_ptr + base + at, tl.load(value_ptr + k, mask=mine), mask=mine)
    tl.debug_barrier()
    cells = tl.load(store_ptr + base + c, mask=c < C)
    tl.store(rows_ptr + row * C + c, cells, mask=c < C)
    added = tl.load(advance_ptr + c, mask=c < N, other=0)
    tl.store(store_ptr + base + c, cells + added, mask=c < tl.where(slot == 0, 0, N))
    if block == 0:
        tl.store(real_ptr + row, slot != 0)
        tl.store(padding_ptr + row, slot == 0)
    if staged > 0:
        programs = tl.num_programs(0).to(tl.int64) * tl.num_programs(1)
        if (tl.atomic_add(count_ptr, STAGED + 1) >> 32) == programs - 1:
            tl.store(count_ptr, 0)


@frozen(kw_only=True)
class TritonKernels:
    """All of the beginning in one launch."""

    name: str = "triton"

    def begin(
        self,
        store_RC: Tensor,
        slots_B: Tensor,
        index_K: Tensor,
        value_K: Tensor,
        count_1: Tensor,
        advance_N: Tensor,
    ) -> Begun:
        B, C, N, device = len(slots_B), store_RC.shape[1], len(advance_N), store_RC.device
        rows_BC = torch.empty((B, C), dtype=torch.int64, device=device)
        real_B, padding_B = torch.empty((2, B), dtype=torch.bool, device=device)
        block = min(BLOCK, triton.next_power_of_2(C))
        launch(
            begin_kernel[(B, triton.cdiv(C, block))],
            store_RC, slots_B, index_K, value_K, count_1, advance_N, rows_BC, real_B, padding_B,
            C, N, BLOCK=block, CELLS=min(BLOCK, triton.next_power_of_2(len(index_K))), **OPTIONS,
        )  # fmt: skip
        return rows_BC, real_B, padding_B


TRITON = TritonKernels()
