"""Products of many rows that end in a gate or a residual: where they run, and in what tiles.

A library's product is faster by itself, but writes what a kernel behind it reads again, or copies
the residual before it.
"""

from __future__ import annotations

import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from mstar_core.launch import launch
from mstar_triton.backend import FUSED, early
from mstar_triton.linear.launches import DTYPES, MOST_ROWS
from mstar_triton.linear.many_kernels import many_rows_kernel
from mstar_triton.linear.streamed import PROCESSORS, hopper

COLUMNS, DEPTH, GROUP = 128, 64, 4
"""Outputs of a tile (half of them gates where there are any), its part of K, tiles side by side."""
TILES = ((2, 128, 3), (1, 128, 6), (1, 64, 8))
"""``(programs on a multiprocessor, rows, stages)``, as they were best where the first is full.

Of two that share one, one multiplies while the other writes.
"""
FULL = 0.7
"""Of the places of a tile that must be taken: with fewer a library's product was faster."""
GATED_DEPTH, RESIDUAL_DEPTH = 1024, 3584
"""The longest rows that were measured: a library's loop is faster, so longer ones gain less."""
ALIGNED = 8
"""Elements that a row begins at a multiple of, as the accelerator asks."""


def many(
    x_TH: Tensor, weight_FH: Tensor, residual_TF: Tensor | None = None
) -> tuple[int, int] | None:
    """The tile of a product that the kernel takes, which follows from shapes, strides, addresses.

    Without a residual half of the weight's rows are gates. None is a library's.
    """
    given = [t for t in (x_TH, weight_FH, residual_TF) if t is not None]
    if (
        x_TH.dim() == 2
        and len(x_TH) > MOST_ROWS
        and x_TH.dtype in DTYPES
        and len(weight_FH) % (2 * ALIGNED) == 0
        and all(laid(t) and t.dtype == x_TH.dtype for t in given)
        and weight_FH.is_contiguous()
        and hopper(x_TH.device)
    ):
        return tile_of(*x_TH.shape, len(weight_FH), gated=residual_TF is None)
    return None


def tile_of(T: int, K: int, F: int, *, gated: bool) -> tuple[int, int] | None:
    """``(rows, stages)`` of the first tile that fills the device, in one round unless it shares."""
    if (GATED_DEPTH if gated else RESIDUAL_DEPTH) < K:
        return None
    for beside, rows, stages in TILES[: 1 if gated else None]:
        places = PROCESSORS * beside
        rounds = triton.cdiv(triton.cdiv(T, rows) * triton.cdiv(F, COLUMNS), places)
        filled = T * F / (rounds * places * rows * COLUMNS)
        if filled >= FULL and (rounds == 1 or beside > 1):
            return rows, stages
    return None


def laid(x_TH: Tensor) -> bool:
    """Whether the accelerator copies blocks of it."""
    aligned = x_TH.stride(0) % ALIGNED == 0 and x_TH.data_ptr() % (2 * ALIGNED) == 0
    return x_TH.stride(1) == 1 and aligned


def many_rows(
    x_TH: Tensor, weight_FH: Tensor, tile: tuple[int, int], residual_TF: Tensor | None = None
) -> Tensor:
    """``[T, F]`` with a residual, or else gated; the tile is of :func:`many`."""
    (T, K), (rows, stages), gated = x_TH.shape, tile, residual_TF is None
    halves = 2 if gated else 1
    N, out = len(weight_FH) // halves, COLUMNS // halves
    out_TF = x_TH.new_empty(T, N)
    launch(
        many_rows_kernel[(triton.cdiv(T, rows) * triton.cdiv(N, out),)],
        blocks_of(x_TH, rows, DEPTH), blocks_of(weight_FH.view(halves, N, K), halves, out, DEPTH),
        None if residual_TF is None else blocks_of(residual_TF, rows, out),
        blocks_of(out_TF, rows, out), T,
        N=N, K=K, GATED=gated, BLOCK_M=rows, BLOCK_N=COLUMNS, BLOCK_K=DEPTH, GROUP=GROUP,
        num_warps=4, num_stages=stages, **early(x_TH), **FUSED,
    )  # fmt: skip
    return out_TF


def blocks_of(x: Tensor, *shape: int) -> TensorDescriptor:
    """``x`` as the accelerator copies it: in blocks of a shape, zeros beyond its ends."""
    return TensorDescriptor(x, list(x.shape), list(x.stride()), list(shape))
