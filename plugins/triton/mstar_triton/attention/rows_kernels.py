"""Device functions that the attention kernels share: heads as they meet, rows of a step, pages."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pair_of(d, ROT: tl.constexpr):
    """The feature that each of the first ROT is turned with."""
    return tl.where(d < ROT // 2, d + ROT // 2, d - ROT // 2)


@triton.jit
def read(ptr, at_M, d, ok, ROT: tl.constexpr):
    """Heads ``[M, D]`` at offsets ``at_M``, and for each feature its pair.

    Pairs are loaded a second time: no exchange between threads.
    """
    x = tl.load(ptr + at_M[:, None] + d[None, :], mask=ok, other=0)
    y = x
    if ROT > 0:
        at = at_M[:, None] + pair_of(d, ROT)[None, :]
        y = tl.load(ptr + at, mask=ok & (d < ROT)[None, :], other=0)
    return x, y


@triton.jit
def weights_of(norm_ptr, d, D: tl.constexpr, ROT: tl.constexpr):
    """fp32 ``[D]``: the norm's weight of each feature and of its pair, where there is a norm."""
    weight = tl.zeros(d.shape, tl.float32)
    pair = weight
    if norm_ptr is not None:
        weight = tl.load(norm_ptr + d, mask=d < D, other=0).to(tl.float32)
        if ROT > 0:
            pair = tl.load(norm_ptr + pair_of(d, ROT), mask=d < ROT, other=0).to(tl.float32)
    return weight, pair


@triton.jit
def angles_of(cos_ptr, sin_ptr, at, d, ROT: tl.constexpr):
    """fp32 ``[D]``: what each feature is turned by, if any is."""
    cos = tl.zeros(d.shape, tl.float32)
    sin = cos
    if ROT > 0:
        cos = tl.load(cos_ptr + at + d, mask=d < ROT, other=1).to(tl.float32)
        sin = tl.load(sin_ptr + at + d, mask=d < ROT, other=0).to(tl.float32)
        sin = tl.where(d < ROT // 2, -sin, sin)
    return cos, sin


@triton.jit
def met(heads, weights, angles, norm_ptr, eps, D: tl.constexpr, ROT: tl.constexpr):
    """What was :func:`read`, normed and turned, in its dtype."""
    x, y = heads
    dtype = x.dtype
    if norm_ptr is not None:
        x32 = x.to(tl.float32)
        inverse = tl.rsqrt(tl.sum(x32 * x32, 1) / D + eps)[:, None]
        x = (x32 * inverse * weights[0][None, :]).to(dtype)
        y = (y.to(tl.float32) * inverse * weights[1][None, :]).to(dtype)
    if ROT > 0:
        cos, sin = angles
        x = (x.to(tl.float32) * cos[None, :] + y.to(tl.float32) * sin[None, :]).to(dtype)
    return x


@triton.jit
def prepared(ptr, at_M, d, ok, norm_ptr, cos_ptr, sin_ptr, eps, D: tl.constexpr, ROT: tl.constexpr):
    """Heads ``[M, D]`` at offsets ``at_M``, normed and turned, in their dtype."""
    heads = read(ptr, at_M, d, ok, ROT)
    weights = weights_of(norm_ptr, d, D, ROT)
    return met(heads, weights, angles_of(cos_ptr, sin_ptr, 0, d, ROT), norm_ptr, eps, D, ROT)


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
def gate_of(gate_ptr, at_M, d, ok):
    """fp32: the gate at ``at_M``, before its sigmoid."""
    return tl.load(gate_ptr + at_M[:, None] + d[None, :], mask=ok, other=0).to(tl.float32)


@triton.jit
def keep(o_MD, gate_ptr, at_M, d, ok):
    """``o_MD`` times the sigmoid of the gate at ``at_M``; without a gate itself."""
    if gate_ptr is not None:
        o_MD = o_MD / (1 + tl.exp(-gate_of(gate_ptr, at_M, d, ok)))
    return o_MD
