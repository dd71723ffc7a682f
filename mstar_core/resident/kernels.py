"""How a resident step begins, in torch: the definition of each of its three parts.

``mstar_core.resident.triton`` does all three in one kernel, for a GPU: in a step of some hundred
microseconds each small kernel is one part of five hundred. All tensors are contiguous int64: the
store ``[R, C]``, whose row 0 is padding and whose last row is trash; ``slots_B`` names rows of it,
a real row once. Any number of staged cells may lie in ``index_K`` past the count, and no two before
it name the same cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

from mstar_core.launch import takes_triton

Begun = tuple[Tensor, Tensor, Tensor]
"""The rows of a step before the advance, int64 ``[B, C]``; which are real, and which are padding,
bool ``[B]``."""


class TableKernels(Protocol):
    """One implementation of the beginning of a step."""

    @property
    def name(self) -> str: ...

    def begin(
        self,
        store_RC: Tensor,
        slots_B: Tensor,
        index_K: Tensor,
        value_K: Tensor,
        count_1: Tensor,
        advance_N: Tensor,
    ) -> Begun:
        """Write what was staged, read the step's rows, advance them.

        Staged cells are of rows of the step.
        """
        ...


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
class TorchKernels:
    """The three parts, one after the other."""

    name: str = "torch"
    scatter_staged: Callable[[Tensor, Tensor, Tensor, Tensor], None] = scatter_staged
    gather_rows: Callable[[Tensor, Tensor], Tensor] = gather_rows
    advance_rows: Callable[[Tensor, Tensor, Tensor], None] = advance_rows

    def begin(
        self,
        store_RC: Tensor,
        slots_B: Tensor,
        index_K: Tensor,
        value_K: Tensor,
        count_1: Tensor,
        advance_N: Tensor,
    ) -> Begun:
        self.scatter_staged(store_RC, index_K, value_K, count_1)
        rows_BC = self.gather_rows(store_RC, slots_B)
        self.advance_rows(store_RC, slots_B, advance_N)
        return rows_BC, slots_B != 0, slots_B == 0


TORCH = TorchKernels()


def kernels_for(device: torch.device) -> TableKernels:
    """Triton's on a GPU where Triton is installed, else the definitions."""
    if not takes_triton(device.type):
        return TORCH
    from mstar_core.resident.triton import TRITON

    return TRITON
