"""Rows of a table in one kernel; ``taking.py`` defines them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mstar_core.launch import launch

BLOCK = 1024
"""Values that one program copies, at most."""
OPTIONS = {"enable_fp_fusion": False}
"""Nothing is computed here; said because Triton warns of a default that will change."""


@triton.jit
def take_kernel(table_ptr, index_ptr, out_ptr, index_token, X, BLOCK: tl.constexpr):
    """One program per token and block of its row."""
    token, x = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(index_ptr + token * index_token)
    tl.store(out_ptr + token * X + x, tl.load(table_ptr + row * X + x, mask=x < X), mask=x < X)


def take(table_R: Tensor, index_T: Tensor) -> Tensor:
    """``taking.take``."""
    out_T = torch.empty(
        (len(index_T), *table_R.shape[1:]), dtype=table_R.dtype, device=table_R.device
    )
    if out_T.numel():
        X = out_T.numel() // len(index_T)
        block = min(BLOCK, triton.next_power_of_2(X))
        launch(
            take_kernel[(len(index_T), triton.cdiv(X, block))],
            table_R, index_T, out_T, index_T.stride(0), X, BLOCK=block,
            num_warps=4 if block == BLOCK else 1, **OPTIONS,
        )  # fmt: skip
    return out_T
