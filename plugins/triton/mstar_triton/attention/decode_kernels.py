"""One query of each row over its pages: keys split over programs, the last of which sums."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from mstar_triton.attention.rows_kernels import (
    angles_of,
    cells_of,
    gate_of,
    met,
    read,
    weights_of,
)

AT_ONCE = tl.constexpr(32)
"""Parts of a row's keys that are asked for together when they are summed. Twice as many took a
compiler five times as long, 18 s."""


@triton.jit(do_not_specialize=("width",))
def decode_kernel(
    q_ptr, k_ptr, v_ptr, k_pool_ptr, v_pool_ptr, gate_ptr, o_ptr, part_ptr, stat_ptr, arrived_ptr,
    pages_ptr, lens_ptr, write_ptr, lead_ptr, q_norm_ptr, k_norm_ptr, cos_ptr, sin_ptr,
    q_row, q_head, k_row, k_head, v_row, v_head, gate_row, gate_head, cell, kv_head,
    width, page_tokens, scale, eps,
    N: tl.constexpr, R: tl.constexpr, D: tl.constexpr, ROT: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
    WHOLE: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row, key head and split; the R query heads of a key head go together.

    With ``k_ptr`` this step's key and value come from there and not from the pool: the last program
    that is used, whose share is the smallest, counts them in and writes their cell, which no other
    reads. WHOLE: a tile of keys lies in one page, and the page of the next tile is looked up while
    this one is read.
    """
    b, g, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    if lead_ptr is not None:
        if b >= tl.load(lead_ptr):
            return
    kv_len = tl.load(lens_ptr + b)
    old = kv_len
    if k_ptr is not None:
        old = tl.maximum(kv_len - 1, 0)
    share = tl.maximum((old + SPLITS * BLOCK_S - 1) // (SPLITS * BLOCK_S), 1) * BLOCK_S
    used = (old + share - 1) // share
    if k_ptr is not None:
        used += 1
    used = tl.minimum(tl.maximum(used, 1), SPLITS)
    first, last = split * share, tl.minimum(split * share + share, old)
    m, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    n, in_d = g * R + m, d < D
    ok = (m < R)[:, None] & in_d[None, :]
    pages_ptr += b * width
    k_pool_ptr += g * kv_head
    v_pool_ptr += g * kv_head
    page = page_of(pages_ptr, first, last, page_tokens)
    angles = angles_of(cos_ptr, sin_ptr, b * ROT, d, ROT)
    q_weights = weights_of(q_norm_ptr, d, D, ROT)
    k_weights = weights_of(k_norm_ptr, d, D, ROT)
    if PDL:
        cuda.gdc_wait()
    if split >= used:
        return
    q = read(q_ptr, b * q_row + n * q_head, d, ok, ROT)
    if k_ptr is not None:
        at_1, mine = tl.zeros((1,), tl.int64) + b * k_row + g * k_head, split == used - 1
        in_1 = (d < tl.where(mine, D, 0))[None, :]
        k_new = read(k_ptr, at_1, d, in_1, ROT)
        v_new = tl.load(v_ptr + b * v_row + g * v_head + d[None, :], mask=in_1, other=0)
        to = tl.load(write_ptr + b) * cell + d[None, :]
    if SPLITS == 1:
        if gate_ptr is not None:
            gate = gate_of(gate_ptr, b * gate_row + n * gate_head, d, ok)
    q = met(q, q_weights, angles, q_norm_ptr, eps, D, ROT)
    best = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    if k_ptr is not None:
        if mine:
            k_1 = met(k_new, k_weights, angles, k_norm_ptr, eps, D, ROT)
            k_1 = k_1.to(k_pool_ptr.dtype.element_ty)
            v_1 = v_new.to(v_pool_ptr.dtype.element_ty)
            tl.store(k_pool_ptr + to, k_1, mask=in_1)
            tl.store(v_pool_ptr + to, v_1, mask=in_1)
            if kv_len > 0:
                best = tl.sum(q.to(tl.float32) * k_1.to(tl.float32), 1) * scale
                total += 1
                acc += v_1.to(tl.float32)
    for start in range(first, last, BLOCK_S):
        at, there = tile_of(pages_ptr, page, start, last, page_tokens, BLOCK_S, WHOLE)
        if WHOLE:
            page = page_of(pages_ptr, start + BLOCK_S, last, page_tokens)
        at *= cell
        k_ok, v_ok = in_d[:, None] & there[None, :], there[:, None] & in_d[None, :]
        k = tl.load(k_pool_ptr + at[None, :] + d[:, None], mask=k_ok, other=0)
        weights, fade, best = weighed(q, k, there, best, scale, PRECISION)
        v = tl.load(v_pool_ptr + at[:, None] + d[None, :], mask=v_ok, other=0)
        mixed = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        acc, total = acc * fade[:, None] + mixed, total * fade + tl.sum(weights, 1)
    if SPLITS == 1:
        o = acc / tl.where(total > 0, total, 1)[:, None]
        if gate_ptr is not None:
            o = o / (1 + tl.exp(-gate))
        to_o = (b * N + n)[:, None] * D + d[None, :]
        tl.store(o_ptr + to_o, o.to(o_ptr.dtype.element_ty), mask=ok)
    else:
        at_m = (b * N + n) * SPLITS + split
        tl.store(stat_ptr + 2 * at_m, best, mask=m < R)
        tl.store(stat_ptr + 2 * at_m + 1, total, mask=m < R)
        tl.store(part_ptr + at_m[:, None] * D + d[None, :], acc, mask=ok)
        tl.debug_barrier()  # every thread's part is stored before one thread says so
        arrived_ptr += b * tl.num_programs(1) + g
        if tl.atomic_add(arrived_ptr, 1, sem="acq_rel") < used - 1:
            return
        tl.store(arrived_ptr, 0)
        if PDL:
            cuda.gdc_launch_dependents()
        combined(
            part_ptr, stat_ptr, gate_ptr, o_ptr, b, g, used, gate_row, gate_head,
            N, R, D, SPLITS, BLOCK_R, BLOCK_D,
        )  # fmt: skip


@triton.jit
def page_of(pages_ptr, start, last, page_tokens):
    """The page that a tile of keys begins in, if there is one."""
    return tl.load(pages_ptr + start // page_tokens, mask=start < last, other=0)


@triton.jit
def tile_of(pages_ptr, page, start, last, page_tokens, BLOCK_S: tl.constexpr, WHOLE: tl.constexpr):
    """``(int64 cells, whether each may be read)`` of a tile of keys; WHOLE: all are in ``page``."""
    position = start + tl.arange(0, BLOCK_S)
    seen = position < last
    if WHOLE:
        return page.to(tl.int64) * page_tokens + position % page_tokens, seen
    return cells_of(pages_ptr, position, seen, page_tokens), seen


@triton.jit
def weighed(q, k, seen, best, scale, PRECISION: tl.constexpr):
    """``(weights [M, S], fade [M], best [M])`` of a tile of keys ``[D, S]``."""
    scores = tl.dot(q.to(k.dtype), k, input_precision=PRECISION) * scale
    scores = tl.where(seen[None, :], scores, float("-inf"))
    above = tl.maximum(best, tl.max(scores, 1))
    return tl.exp2(scores - above[:, None]), tl.exp2(best - above), above


@triton.jit
def combined(
    part_ptr, stat_ptr, gate_ptr, o_ptr, b, g, used, gate_row, gate_head,
    N: tl.constexpr, R: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The parts of a row's heads, each by its weight and in their order, then the gate."""
    r, d = tl.arange(0, BLOCK_R), tl.arange(0, BLOCK_D)
    n = g * R + r
    ok = (r < R)[:, None] & (d < D)[None, :]
    if gate_ptr is not None:
        gate = gate_of(gate_ptr, b * gate_row + n * gate_head, d, ok)
    best = tl.full((BLOCK_R,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_R,), tl.float32)
    acc = tl.zeros((BLOCK_R, BLOCK_D), tl.float32)
    for first in tl.range(0, SPLITS, AT_ONCE, num_stages=1):
        for i in tl.static_range(min(SPLITS, AT_ONCE)):
            split = first + i
            in_r = r < tl.where(split < used, R, 0)
            at = (b * N + n) * SPLITS + split
            stat = stat_ptr + 2 * at
            high = tl.load(stat, mask=in_r, other=-1e30, cache_modifier=".cg")
            count = tl.load(stat + 1, mask=in_r, other=0, cache_modifier=".cg")
            at_part = part_ptr + at[:, None] * D + d[None, :]
            part = tl.load(
                at_part, mask=in_r[:, None] & (d < D)[None, :], other=0, cache_modifier=".cg"
            )
            high = tl.maximum(high, -1e30)
            above = tl.maximum(best, high)
            fade, weight = tl.exp2(best - above), tl.exp2(high - above)
            acc = acc * fade[:, None] + part * weight[:, None]
            total = total * fade + count * weight
            best = above
    o = acc / tl.where(total > 0, total, 1)[:, None]
    if gate_ptr is not None:
        o = o / (1 + tl.exp(-gate))
    to = (b * N + n)[:, None] * D + d[None, :]
    tl.store(o_ptr + to, o.to(o_ptr.dtype.element_ty), mask=ok)
