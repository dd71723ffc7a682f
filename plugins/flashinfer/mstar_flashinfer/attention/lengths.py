"""Page arrays: of a step's lengths on the host, and of its block table on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch import Tensor
from torch.nn import functional as F


@frozen(kw_only=True, eq=False)
class HostLengths:
    """What a planned kernel must know of a step on the host: lengths, and no page."""

    q_lens_B: Tensor
    """int32, as all here, on the host."""
    kv_lens_B: Tensor
    num_lead: int
    """Leading rows of one token that are planned apart."""
    decode: int

    @classmethod
    def of(cls, plan: Any) -> HostLengths:
        """Of a step's plan whose arrays are numpy's."""
        lead = 0 if plan.num_lead_1 is None else int(plan.num_lead_1[0])
        q_lens_B, kv_lens_B = (
            torch.from_numpy(np.array(x, np.int32)) for x in (plan.q_lens_B, plan.kv_lens_B)
        )
        return cls(q_lens_B=q_lens_B, kv_lens_B=kv_lens_B, num_lead=lead, decode=plan.decode)

    def queries(self, lead: bool) -> Tensor:
        """``[B + 1]``: the bounds of each row's tokens among those of the lead, or of the rest.

        They begin with 0: a plan that splits keys merges its parts from row 0 on. Rows of the other
        half have no tokens.
        """
        bounds, num = starts(self.q_lens_B), self.num_lead
        return bounds.clamp_max(num) if lead else (bounds - num).clamp_min(0)

    def pages(self, page_tokens: int) -> tuple[Tensor, Tensor]:
        """``(bounds [B + 1], last [B])``: each row's pages in the list, tokens in its last page."""
        num_B = -(-self.kv_lens_B // page_tokens)
        last_B = self.kv_lens_B - (num_B - 1).clamp_min(0) * page_tokens
        return starts(num_B), last_B.to(torch.int32)


def starts(lens_B: Tensor) -> Tensor:
    """int32 ``[B + 1]``: sums of what is before each row, and of all."""
    return F.pad(lens_B.cumsum(0), (1, 0)).to(torch.int32)


def page_list(pages_BW: Tensor, kv_lens_B: Tensor, page_tokens: int) -> Tensor:
    """int32 ``[B * W]``: the pages in use of every row, one row behind the other, then others.

    Made on the device from block table and lengths, in shapes that follow from the table's alone.
    """
    B, W = pages_BW.shape
    num_B = ((kv_lens_B + page_tokens - 1) // page_tokens).clamp_max(W)
    place_W = torch.arange(W, device=pages_BW.device)
    at_BW = (num_B.cumsum(0) - num_B)[:, None] + place_W
    at_BW = torch.where(place_W < num_B[:, None], at_BW, B * W)  # the place behind the list
    found = pages_BW.new_zeros(B * W + 1)
    return found.scatter_(0, at_BW.flatten(), pages_BW.flatten())[: B * W]
