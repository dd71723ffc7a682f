"""One query of each row over its pages: keys split over programs, then one small sum."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from mstar_triton.attention.rows_kernels import cells_of, keep, prepared


@triton.jit
def decode_kernel(
    q_ptr, k_ptr, v_ptr, k_pool_ptr, v_pool_ptr, gate_ptr, o_ptr, part_ptr, stat_ptr,
    pages_ptr, lens_ptr, write_ptr, lead_ptr, q_norm_ptr, k_norm_ptr, cos_ptr, sin_ptr,
    q_row, q_head, k_row, k_head, v_row, v_head, gate_row, gate_head, cell, kv_head,
    width, page_tokens, scale, eps,
    N: tl.constexpr, R: tl.constexpr, D: tl.constexpr, ROT: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One program per row, key head and split; the R query heads of a key head go together.

    With ``k_ptr`` this step's key and value come from there and not from the pool: the first split
    counts them in and writes their cell, which no other program reads.
    """
    b, g, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    if lead_ptr is not None:
        if b >= tl.load(lead_ptr):
            return
    kv_len = tl.load(lens_ptr + b)
    m, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    n, in_d = g * R + m, d < D
    ok = (m < R)[:, None] & in_d[None, :]
    if cos_ptr is not None:
        cos_ptr += b * ROT
        sin_ptr += b * ROT
    if PDL:
        if SPLITS > 1:
            cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    q = prepared(q_ptr, b * q_row + n * q_head, d, ok, q_norm_ptr, cos_ptr, sin_ptr, eps, D, ROT)
    best = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    if k_ptr is not None:
        if split == 0:
            one, first = tl.zeros((1,), tl.int64), in_d[None, :]
            at = one + b * k_row + g * k_head
            k_new = prepared(k_ptr, at, d, first, k_norm_ptr, cos_ptr, sin_ptr, eps, D, ROT)
            v_new = tl.load(v_ptr + b * v_row + g * v_head + d[None, :], mask=first, other=0)
            to = tl.load(write_ptr + b) * cell + g * kv_head + d[None, :]
            k_new = k_new.to(k_pool_ptr.dtype.element_ty)
            v_new = v_new.to(v_pool_ptr.dtype.element_ty)
            tl.store(k_pool_ptr + to, k_new, mask=first)
            tl.store(v_pool_ptr + to, v_new, mask=first)
            if kv_len > 0:
                best = tl.sum(q.to(tl.float32) * k_new.to(tl.float32), 1) * scale
                total += 1
                acc += v_new.to(tl.float32)
        kv_len = tl.maximum(kv_len - 1, 0)
    share = (kv_len + SPLITS - 1) // SPLITS
    share = (share + BLOCK_S - 1) // BLOCK_S * BLOCK_S
    last = tl.minimum(split * share + share, kv_len)
    for start in range(split * share, last, BLOCK_S):
        position = start + tl.arange(0, BLOCK_S)
        seen = position < last
        at = cells_of(pages_ptr + b * width, position, seen, page_tokens) * cell + g * kv_head
        k_ok, v_ok = in_d[:, None] & seen[None, :], seen[:, None] & in_d[None, :]
        k = tl.load(k_pool_ptr + at[None, :] + d[:, None], mask=k_ok, other=0)
        scores = tl.dot(q.to(k.dtype), k, input_precision=PRECISION) * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        above = tl.maximum(best, tl.max(scores, 1))
        weights, fade = tl.exp2(scores - above[:, None]), tl.exp2(best - above)
        v = tl.load(v_pool_ptr + at[:, None] + d[None, :], mask=v_ok, other=0)
        mixed = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        acc = acc * fade[:, None] + mixed
        total = total * fade + tl.sum(weights, 1)
        best = above
    if SPLITS == 1:
        o = acc / tl.where(total > 0, total, 1)[:, None]
        o = keep(o, gate_ptr, b * gate_row + n * gate_head, d, ok)
        to = (b * N + n)[:, None] * D + d[None, :]
        tl.store(o_ptr + to, o.to(o_ptr.dtype.element_ty), mask=ok)
    else:
        at = (b * N + n) * SPLITS + split
        tl.store(stat_ptr + 2 * at, best, mask=m < R)
        tl.store(stat_ptr + 2 * at + 1, total, mask=m < R)
        ok = ok & (total > 0)[:, None]
        tl.store(part_ptr + at[:, None] * D + d[None, :], acc, mask=ok)


@triton.jit
def combine_kernel(
    part_ptr, stat_ptr, gate_ptr, o_ptr, lead_ptr, gate_row, gate_head,
    N: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row and query head: the splits, each by its weight, then the gate."""
    b, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if lead_ptr is not None:
        if b >= tl.load(lead_ptr):
            return
    if PDL:
        cuda.gdc_wait()
    s, d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    at = (b * N + n) * SPLITS + s
    best = tl.load(stat_ptr + 2 * at, mask=s < SPLITS, other=float("-inf"))
    total = tl.load(stat_ptr + 2 * at + 1, mask=s < SPLITS, other=0)
    used = total > 0
    best = tl.where(used, best, -1e30)
    weight = tl.where(used, tl.exp2(best - tl.max(best, 0)), 0)
    ok = used[:, None] & (d < D)[None, :]
    parts = tl.load(part_ptr + at[:, None] * D + d[None, :], mask=ok, other=0)
    whole = tl.sum(weight * total, 0)
    o = tl.sum(parts * weight[:, None], 0)[None, :]
    o = o / tl.where(whole > 0, whole, 1)
    at_1 = tl.zeros((1,), tl.int64) + b * gate_row + n * gate_head
    o = keep(o, gate_ptr, at_1, d, (d < D)[None, :])
    to = o_ptr + (b * N + n) * D + d[None, :]
    tl.store(to, o.to(o_ptr.dtype.element_ty), mask=(d < D)[None, :])
