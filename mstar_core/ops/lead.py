"""A step in two halves: the lead, its leading run of one-token rows, and all other rows.

::

    token      0  1  2 | 3  4  5  6  7  8       rows 0 to 2 are the lead, rows 3 and 4 are not
    row        0  1  2 | 3  3  3  3  4  4
    decode     a  b  c | -                      the first ``lead_rows`` rows, in place
    prefill    .  .  . | d  e  f  g  h  i       every token; rows of the lead have no queries
    joined     a  b  c | d  e  f  g  h  i

Nothing is gathered or moved: row i of the lead owns token i. The length of the lead is a value on
the device; its bound is ``lead_rows``, so the decode half is as wide as its bucket says. The order
bounds capacity only: a one-token row behind another row is right on the prefill half.
"""

from __future__ import annotations

import torch
from torch import Tensor


def in_lead(num_lead_1: Tensor, count: int) -> Tensor:
    """bool ``[count]``: the first ``num_lead_1`` places."""
    return torch.arange(count, device=num_lead_1.device) < num_lead_1


def joined(lead_L: Tensor, decoded: Tensor, packed: Tensor) -> Tensor:
    """``packed`` ``[T, …]``, but ``decoded`` ``[L, …]`` at the places that are in the lead."""
    L = len(lead_L)
    taken_L = lead_L.view(L, *[1] * (packed.dim() - 1))
    return torch.cat([torch.where(taken_L, decoded, packed[:L]), packed[L:]])
