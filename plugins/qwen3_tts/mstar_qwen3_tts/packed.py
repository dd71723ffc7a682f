"""Rows of different lengths in one sequence, each behind what it left over from its last step.

::

    items of the step       a0 a1 a2 b0                  two rows, of 3 and 1 items
    extended, 2 kept     A A a0 a1 a2 B B b0             A, B: the last items of the steps before
    kept for the next              a1 a2 B b0

A causal operation over the extended sequence gives each item exactly what it would give over the
whole of its row, however the row is cut into steps; and no item sees another row. All shapes follow
from the number of rows and items, so nothing is read back.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen
from torch import Tensor


@frozen(kw_only=True, eq=False)
class PackedRows:
    """The rows of a step, and where each keeps what it leaves over."""

    starts_B: Tensor
    """int64, the first item of each row."""
    lens_B: Tensor
    """int64, the items of each row."""
    row_T: Tensor
    """int64, the row of each item."""
    slots_B: Tensor
    """int64, the row's place in every memory."""
    fresh_B: Tensor
    """bool: the row has left nothing yet, and begins behind zeros."""

    @classmethod
    def of(cls, ragged: Any, state: Any) -> PackedRows:
        """From the plans of a ragged attention and of a state."""
        return cls(
            starts_B=ragged.q_starts_B.long(),
            lens_B=ragged.q_lens_B.long(),
            row_T=ragged.row_T.long(),
            slots_B=state.slots_B,
            fresh_B=state.fresh_B,
        )


def extended(x_LC: Tensor, memory_SKC: Tensor, rows: PackedRows) -> tuple[Tensor, Tensor]:
    """``x_LC`` with each row behind its last K columns: ``[L + B K, C]``, and where x lies in it.

    L is a multiple of the step's items: each became as many columns. What the rows leave over is
    written to ``memory_SKC``.
    """
    (L, C), K, B = x_LC.shape, memory_SKC.shape[1], len(rows.slots_B)
    rate = L // len(rows.row_T)
    device = x_LC.device
    row_L = rows.row_T.repeat_interleave(rate)
    at_L = torch.arange(L, device=device) + (row_L + 1) * K
    first_B = rows.starts_B * rate + torch.arange(B, device=device) * K
    kept_BK = first_B[:, None] + torch.arange(K, device=device)
    old_BKC = memory_SKC[rows.slots_B]
    old_BKC = torch.where(rows.fresh_B[:, None, None], torch.zeros_like(old_BKC), old_BKC)
    joined_EC = x_LC.new_empty(L + B * K, C)
    joined_EC.index_copy_(0, at_L, x_LC)
    joined_EC.index_copy_(0, kept_BK.flatten(), old_BKC.flatten(0, 1))
    left_BK = kept_BK + rate * rows.lens_B[:, None]
    memory_SKC.index_copy_(0, rows.slots_B, joined_EC[left_BK])
    return joined_EC, at_L
