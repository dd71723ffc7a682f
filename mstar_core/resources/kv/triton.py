"""The places of a decode step in one kernel; ``placing.py`` defines them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mstar_core.launch import launch

BLOCK = 1024
"""Pages that one program copies at a time, at most."""
OPTIONS = {"enable_fp_fusion": False}
"""Nothing here is a float; said because Triton warns of a default that will change."""


@triton.jit
def place_kernel(
    before_ptr, pages_ptr, real_ptr, out_ptr, lens_ptr, write_ptr, before_row, pages_row,
    B, W, page_tokens, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per row and block of pages; the first of a row does its lengths."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    w = block * BLOCK + tl.arange(0, BLOCK)
    pages = tl.load(pages_ptr + row * pages_row + w, mask=w < W)
    tl.store(out_ptr + row * W + w, pages.to(tl.int32), mask=w < W)
    if block == 0:
        before = tl.load(before_ptr + row * before_row)
        real = tl.load(real_ptr + row).to(tl.int32)
        page = tl.load(pages_ptr + row * pages_row + before // page_tokens)
        tl.store(lens_ptr + row, before.to(tl.int32))
        tl.store(lens_ptr + B + row, before.to(tl.int32) + real)
        tl.store(write_ptr + row, page * page_tokens + before % page_tokens)


def place(
    before_B: Tensor, pages_BW: Tensor, real_B: Tensor, page_tokens: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``placing.place``; columns may be strided, pages of a row are contiguous."""
    (B, W), device = pages_BW.shape, pages_BW.device
    out_BW = torch.empty((B, W), dtype=torch.int32, device=device)
    lens_2B = torch.empty((2, B), dtype=torch.int32, device=device)
    write_B = torch.empty(B, dtype=torch.int64, device=device)
    block = min(BLOCK, triton.next_power_of_2(W))
    launch(
        place_kernel[(B, triton.cdiv(W, block))],
        before_B, pages_BW, real_B, out_BW, lens_2B, write_B, before_B.stride(0),
        pages_BW.stride(0), B, W, page_tokens, BLOCK=block, num_warps=1, **OPTIONS,
    )  # fmt: skip
    return out_BW, lens_2B[0], lens_2B[1], write_B
