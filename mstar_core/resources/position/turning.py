"""The angles that positions turn queries and keys by.

``mstar_core.resources.position.triton`` has the same in one kernel, for a GPU: a decode step needs
them of a few rows, where four small kernels would be one part of a hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from mstar_core.launch import takes_triton

Turning = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def turn(index_T: Tensor, offset_T: Tensor, frequency_R: Tensor) -> tuple[Tensor, Tensor]:
    """``cos_TR, sin_TR`` float32 of the positions ``index_T + offset_T``, both int64 ``[T]``."""
    angle_TR = (index_T + offset_T)[:, None] * frequency_R
    return angle_TR.cos(), angle_TR.sin()


@cache
def turning_for(device: torch.device) -> Turning:
    """Triton's on a GPU where Triton is installed, else the definition."""
    if not takes_triton(device.type):
        return turn
    from mstar_core.resources.position.triton import turn as kernel

    return kernel
