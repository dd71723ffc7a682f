"""The operations of a resident step in Triton; ``kernels.py`` defines what each does.

They move 64-bit integers, and every product of a row and a width is 64 bits wide: a store may have
more than 2**31 cells. Launches read shapes alone, never a value, so a graph may capture them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mstar_core.launch import launch
from mstar_core.resident.kernels import TableKernels

BLOCK = 1024
"""Cells that one program moves at a time, at most."""
OPTIONS = {"enable_fp_fusion": False}
"""Nothing here is a float; said because Triton warns of a default that will change."""


@triton.jit
def scatter_kernel(
    store_ptr, index_ptr, value_ptr, count_ptr, K: tl.constexpr, BLOCK: tl.constexpr
):
    """One program for all cells: it alone reads the count, so it may consume it.

    The exchange is the read: no thread can see the zero that another one wrote, as with a load
    followed by a store.
    """
    count = tl.atomic_xchg(count_ptr, 0)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        at = tl.load(index_ptr + k, mask=k < count)
        tl.store(store_ptr + at, tl.load(value_ptr + k, mask=k < count), mask=k < count)


@triton.jit
def gather_kernel(store_ptr, slots_ptr, rows_ptr, C, BLOCK: tl.constexpr):
    """One program per row and block of cells."""
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots_ptr + row)
    cells = tl.load(store_ptr + slot * C + c, mask=c < C)
    tl.store(rows_ptr + row * C + c, cells, mask=c < C)


@triton.jit
def advance_kernel(store_ptr, slots_ptr, advance_ptr, C, N, trash, BLOCK: tl.constexpr):
    """One program per row. Real rows differ; padding rows may collide, on a row nobody reads."""
    slot = tl.load(slots_ptr + tl.program_id(0))
    slot = tl.where(slot == 0, trash, slot)
    n = tl.arange(0, BLOCK)
    at = store_ptr + slot * C + n
    added = tl.load(advance_ptr + n, mask=n < N)
    tl.store(at, tl.load(at, mask=n < N) + added, mask=n < N)


def scatter_staged(store_RC: Tensor, index_K: Tensor, value_K: Tensor, count_1: Tensor) -> None:
    """``kernels.scatter_staged``; what lies past the count is not read, and trash not written."""
    K = len(index_K)
    block = min(BLOCK, triton.next_power_of_2(K))
    launch(scatter_kernel[(1,)], store_RC, index_K, value_K, count_1, K=K, BLOCK=block, **OPTIONS)


def gather_rows(store_RC: Tensor, slots_B: Tensor) -> Tensor:
    """``kernels.gather_rows``."""
    num_rows, num_cells = len(slots_B), store_RC.shape[1]
    rows_BC = torch.empty((num_rows, num_cells), dtype=store_RC.dtype, device=store_RC.device)
    block = min(BLOCK, triton.next_power_of_2(num_cells))
    grid = (num_rows, triton.cdiv(num_cells, block))
    launch(gather_kernel[grid], store_RC, slots_B, rows_BC, num_cells, BLOCK=block, **OPTIONS)
    return rows_BC


def advance_rows(store_RC: Tensor, slots_B: Tensor, advance_N: Tensor) -> None:
    """``kernels.advance_rows``."""
    num_rows, num_cells = store_RC.shape
    sizes = (num_cells, len(advance_N), num_rows - 1)
    block = triton.next_power_of_2(len(advance_N))
    kernel = advance_kernel[(len(slots_B),)]
    launch(kernel, store_RC, slots_B, advance_N, *sizes, BLOCK=block, num_warps=1, **OPTIONS)


TRITON = TableKernels(
    name="triton",
    scatter_staged=scatter_staged,
    gather_rows=gather_rows,
    advance_rows=advance_rows,
)
