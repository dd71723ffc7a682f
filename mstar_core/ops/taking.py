"""Rows of a table by number: the embeddings of tokens, what was carried for a step.

``mstar_core.ops.triton`` has the same in a kernel, for a GPU: of one row, which is most of what a
decode step takes, a kernel for every pattern of indices needs more than twice as long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from mstar_core.launch import takes_triton

Taking = Callable[[Tensor, Tensor], Tensor]


def take(table_R: Tensor, index_T: Tensor) -> Tensor:
    """``[T, *shape]``: rows of a contiguous table ``[R, *shape]``, as int64 ``index_T`` says.

    The index may be strided; each is from 0 to R - 1, which is not looked at on a GPU.
    """
    return table_R[index_T]


@cache
def taking_for(device: torch.device) -> Taking:
    """Triton's on a GPU where Triton is installed, else the definition."""
    if not takes_triton(device.type):
        return take
    from mstar_core.ops.triton import take as kernel

    return kernel
