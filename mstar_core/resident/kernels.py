"""The three small operations of a resident step, in torch: the definition of each.

``mstar_core.resident.triton`` has the same in Triton, for a GPU.
"""

from __future__ import annotations

import torch
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
