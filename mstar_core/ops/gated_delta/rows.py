"""The rows of one half of a step, and what they may do to the slots of a pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from attrs import frozen
from torch import Tensor


@frozen(kw_only=True, eq=False)
class Rows:
    """Which slot and which tokens each row has; see :class:`GatedDeltaRows`."""

    slots_B: Tensor
    fresh_B: Tensor
    q_starts_B: Tensor
    q_lens_B: Tensor
    row_T: Tensor
    col_T: Tensor
    max_q: int
    decode: int
    schedule: int = 0


def blank(rows: Rows) -> Tensor:
    """bool ``[B]``: rows that start from zero, padding among them."""
    return rows.fresh_B | (rows.slots_B == 0)


def live(rows: Rows) -> Tensor:
    """bool ``[B]``: rows whose slot is written."""
    live_B = rows.slots_B > 0
    return live_B if rows.decode else live_B & (rows.q_lens_B > 0)


def select(take_B: Tensor, x: Tensor, other: Tensor | float) -> Tensor:
    """``x`` for the rows of ``take_B``, ``other`` for the rest."""
    return torch.where(take_B.view(-1, *[1] * (x.dim() - 1)), x, other)


def gathered(pool_S: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """``[B, …]`` twice: what the rows' slots hold, and what the rows begin from."""
    held_B = pool_S[rows.slots_B]
    return held_B, select(~blank(rows), held_B, 0)


def scatter(pool_S: Tensor, rows: Rows, after_B: Tensor, held_B: Tensor) -> None:
    """Write what live rows came to into their slots; other slots hold what they held."""
    pool_S.index_copy_(0, rows.slots_B, select(live(rows), after_B, held_B))


@contextmanager
def slots_in_place(pool_S: Tensor, rows: Rows) -> Iterator[None]:
    """Inside, a kernel may take every row's state from its slot and leave it there.

    Slots of blank rows with tokens are zero to begin with, slot 0 too; behind it slot 0 is what
    it was, whatever padding rows wrote. A fill and no product, so NaN goes too.
    """
    null = pool_S[0].clone()
    begins_B = blank(rows) if rows.decode else blank(rows) & (rows.q_lens_B > 0)
    pool_S.index_fill_(0, torch.where(begins_B, rows.slots_B, 0), 0)
    yield
    pool_S[0].copy_(null)
