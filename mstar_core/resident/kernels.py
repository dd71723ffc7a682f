"""The three small operations of a resident step, in torch: the definition of each.

``mstar_core.resident.triton`` has the same in Triton, for a GPU. All tensors are contiguous int64:
the store ``[R, C]``, whose row 0 is padding and whose last row is trash; ``slots_B`` names rows of
it, a real row once. Any number of staged cells may lie in ``index_K`` past the count, and no two
before it name the same cell.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from attrs import frozen
from torch import Tensor


def scatter_staged(store_RC: Tensor, index_K: Tensor, value_K: Tensor, count_1: Tensor) -> None:
    """Write the first ``count`` staged cells into the store, and consume them.

    ``index_K`` are flat cells of ``store_RC`` (int64, contiguous). What lies past the count goes
    to the store's last cell, which is trash. The count is then zero: a replay that nothing was
    staged for changes nothing.
    """
    live_K = torch.arange(len(index_K), device=index_K.device) < count_1
    trash = store_RC.numel() - 1
    flat = store_RC.view(-1)
    at_K = torch.where(live_K, index_K, trash)
    flat.index_copy_(0, at_K, torch.where(live_K, value_K, 0))
    count_1.zero_()


def gather_rows(store_RC: Tensor, slots_B: Tensor) -> Tensor:
    """The rows of a step, int64 ``[B, C]``."""
    return store_RC.index_select(0, slots_B)


def advance_rows(store_RC: Tensor, slots_B: Tensor, advance_N: Tensor) -> None:
    """Add ``advance_N`` to the narrow cells of every real row; padding (slot 0) goes to trash."""
    trash = store_RC.shape[0] - 1
    rows_B = torch.where(slots_B == 0, trash, slots_B)
    store_RC[:, : len(advance_N)].index_add_(
        0, rows_B, advance_N.expand(len(slots_B), len(advance_N))
    )


@frozen(kw_only=True)
class TableKernels:
    """One implementation of the three operations."""

    name: str
    scatter_staged: Callable[[Tensor, Tensor, Tensor, Tensor], None]
    gather_rows: Callable[[Tensor, Tensor], Tensor]
    advance_rows: Callable[[Tensor, Tensor, Tensor], None]


TORCH = TableKernels(
    name="torch",
    scatter_staged=scatter_staged,
    gather_rows=gather_rows,
    advance_rows=advance_rows,
)


def kernels_for(device: torch.device) -> TableKernels:
    """Triton's on a GPU where Triton is installed, else the definitions."""
    if device.type != "cuda" or find_spec("triton") is None:
        return TORCH
    from mstar_core.resident.triton import TRITON

    return TRITON
