"""Device functions that the attention kernels share: heads as they meet, rows of a step, pages."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def prepared(ptr, at_M, d, ok, norm_ptr, cos_ptr, sin_ptr, eps, D: tl.constexpr, ROT: tl.constexpr):
    """Heads ``[M, D]`` at offsets ``at_M``, normed and turned, in their dtype.

    A feature is turned with its pair, which is loaded a second time: no exchange between threads.
    """
    x = tl.load(ptr + at_M[:, None] + d[None, :], mask=ok, other=0)
    dtype = x.dtype
    if norm_ptr is not None:
        x32 = x.to(tl.float32)
        inverse = tl.rsqrt(tl.sum(x32 * x32, 1) / D + eps)
        weight = tl.load(norm_ptr + d, mask=d < D, other=0).to(tl.float32)
        x = (x32 * inverse[:, None] * weight[None, :]).to(dtype)
    if cos_ptr is not None:
        turned = d < ROT
        other = tl.where(d < ROT // 2, d + ROT // 2, d - ROT // 2)
        y = tl.load(ptr + at_M[:, None] + other[None, :], mask=ok & turned[None, :], other=0)
        if norm_ptr is not None:
            weight = tl.load(norm_ptr + other, mask=turned, other=0).to(tl.float32)
            y = (y.to(tl.float32) * inverse[:, None] * weight[None, :]).to(dtype)
        cos = tl.load(cos_ptr + d, mask=turned, other=1).to(tl.float32)
        sin = tl.load(sin_ptr + d, mask=turned, other=0).to(tl.float32)
        sin = tl.where(d < ROT // 2, -sin, sin)
        x = (x.to(tl.float32) * cos[None, :] + y.to(tl.float32) * sin[None, :]).to(dtype)
    return x


@triton.jit
def block_of_row(block, lens_ptr, lead_ptr, B, SIZE: tl.constexpr, BLOCK_B: tl.constexpr):
    """``(row, place)`` of a block of SIZE tokens, counted over all rows; row >= B: there is none.

    Rows of the lead have no blocks.
    """
    b = tl.arange(0, BLOCK_B)
    lens = tl.load(lens_ptr + b, mask=b < B, other=0)
    if lead_ptr is not None:
        lens = tl.where(b < tl.load(lead_ptr), 0, lens)
    count = (lens + SIZE - 1) // SIZE
    row = tl.sum((tl.cumsum(count, 0) <= block).to(tl.int32), 0)
    place = block - tl.sum(tl.where(b < row, count, 0), 0)
    return row, place


@triton.jit
def cells_of(pages_ptr, position, ok, page_tokens):
    """int64: the pool's cell of each position of one row."""
    page = tl.load(pages_ptr + position // page_tokens, mask=ok, other=0).to(tl.int64)
    return page * page_tokens + position % page_tokens


@triton.jit
def keep(o_MD, gate_ptr, at_M, d, ok):
    """``o_MD`` times the sigmoid of the gate at ``at_M``; without a gate itself."""
    if gate_ptr is not None:
        gate = tl.load(gate_ptr + at_M[:, None] + d[None, :], mask=ok, other=0).to(tl.float32)
        o_MD = o_MD / (1 + tl.exp(-gate))
    return o_MD
