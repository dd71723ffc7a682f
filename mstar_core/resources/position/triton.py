"""The angles of positions in one kernel; ``turning.py`` defines them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mstar_core.launch import launch

OPTIONS = {"enable_fp_fusion": True}
"""As torch's own cosine is compiled; said because Triton warns of a default that will change."""


@triton.jit
def turn_kernel(
    index_ptr, offset_ptr, frequency_ptr, cos_ptr, sin_ptr, index_token, offset_token, R,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per token."""
    token, r = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    position = tl.load(index_ptr + token * index_token) + tl.load(offset_ptr + token * offset_token)
    angle = position.to(tl.float32) * tl.load(frequency_ptr + r, mask=r < R)
    tl.store(cos_ptr + token * R + r, tl.cos(angle), mask=r < R)
    tl.store(sin_ptr + token * R + r, tl.sin(angle), mask=r < R)


def turn(index_T: Tensor, offset_T: Tensor, frequency_R: Tensor) -> tuple[Tensor, Tensor]:
    """``turning.turn``; positions may be strided, frequencies are contiguous."""
    T, R = len(index_T), len(frequency_R)
    both_2TR = torch.empty((2, T, R), dtype=torch.float32, device=index_T.device)
    if T and R:
        launch(
            turn_kernel[(T,)],
            index_T, offset_T, frequency_R, both_2TR[0], both_2TR[1], index_T.stride(0),
            offset_T.stride(0), R, BLOCK=triton.next_power_of_2(R), num_warps=1, **OPTIONS,
        )  # fmt: skip
    return both_2TR[0], both_2TR[1]
