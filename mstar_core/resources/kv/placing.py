"""Where the tokens of a decode step lie, from the gathered columns of device tables.

``mstar_core.resources.kv.triton`` has the same in one kernel, for a GPU: in a step of some hundred
microseconds six small ones would be one part of a hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from mstar_core.launch import takes_triton

Placing = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor, Tensor, Tensor]]


def place(
    before_B: Tensor, pages_BW: Tensor, real_B: Tensor, page_tokens: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``pages_BW, before_B, after_B`` int32 and ``write_B`` int64 of rows that add one token each.

    ``before_B`` int64 ``[B]`` and ``pages_BW`` int64 ``[B, W]`` are columns, ``real_B`` is bool. A
    padding row has length 0 and page 0, so it writes to cell 0.
    """
    held_B = before_B.int()
    page_B = pages_BW.gather(1, (before_B // page_tokens)[:, None])[:, 0]
    write_B = torch.add(before_B % page_tokens, page_B, alpha=page_tokens)
    return pages_BW.int(), held_B, held_B + real_B, write_B


@cache
def placing_for(device: torch.device) -> Placing:
    """Triton's on a GPU where Triton is installed, else the definition."""
    if not takes_triton(device.type):
        return place
    from mstar_core.resources.kv.triton import place as kernel

    return kernel
