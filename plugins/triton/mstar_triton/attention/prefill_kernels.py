"""Packed queries over the keys of their rows, in pages or packed beside them."""

from __future__ import annotations

import triton
import triton.language as tl

from mstar_triton.attention.rows_kernels import block_of_row, cells_of, keep, prepared


@triton.jit
def prepare_kernel(
    q_ptr, k_ptr, v_ptr, q_out_ptr, k_pool_ptr, v_pool_ptr, write_ptr,
    q_norm_ptr, k_norm_ptr, cos_ptr, sin_ptr,
    q_row, q_head, k_row, k_head, v_row, v_head, cell, kv_head, eps,
    N: tl.constexpr, G: tl.constexpr, D: tl.constexpr, ROT: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program per token: its queries, normed and turned; its key and value into their cell."""
    t, d = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_D)
    if cos_ptr is not None:
        cos_ptr += t * ROT
        sin_ptr += t * ROT
    if q_out_ptr is not None:
        n = tl.arange(0, BLOCK_N)
        ok = (n < N)[:, None] & (d < D)[None, :]
        at = t * q_row + n * q_head
        q = prepared(q_ptr, at, d, ok, q_norm_ptr, cos_ptr, sin_ptr, eps, D, ROT)
        tl.store(q_out_ptr + (t * N + n)[:, None] * D + d[None, :], q, mask=ok)
    if k_ptr is not None:
        g = tl.arange(0, BLOCK_G)
        ok = (g < G)[:, None] & (d < D)[None, :]
        at = t * k_row + g * k_head
        k = prepared(k_ptr, at, d, ok, k_norm_ptr, cos_ptr, sin_ptr, eps, D, ROT)
        v = tl.load(v_ptr + (t * v_row + g * v_head)[:, None] + d[None, :], mask=ok, other=0)
        to = tl.load(write_ptr + t) * cell + g[:, None] * kv_head + d[None, :]
        tl.store(k_pool_ptr + to, k.to(k_pool_ptr.dtype.element_ty), mask=ok)
        tl.store(v_pool_ptr + to, v.to(v_pool_ptr.dtype.element_ty), mask=ok)


@triton.jit(do_not_specialize=("width", "B"))
def prefill_kernel(
    q_ptr, k_ptr, v_ptr, gate_ptr, o_ptr,
    pages_ptr, kv_lens_ptr, before_ptr, starts_ptr, lens_ptr, lead_ptr,
    q_row, q_head, gate_row, gate_head, cell, kv_head, v_cell, v_kv_head,
    width, page_tokens, scale, B,
    N: tl.constexpr, R: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_B: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program per block of a row's queries and key head, whose R query heads go together.

    Without ``pages_ptr`` the keys are those of the row's own tokens.
    """
    row, place = block_of_row(tl.program_id(0), lens_ptr, lead_ptr, B, BLOCK_Q, BLOCK_B)
    if row >= B:
        return
    g, row = tl.program_id(1), row.to(tl.int64)
    m, d = tl.arange(0, BLOCK_Q * BLOCK_R), tl.arange(0, BLOCK_D)
    q_start, q_len = tl.load(starts_ptr + row).to(tl.int64), tl.load(lens_ptr + row)
    col, r = place * BLOCK_Q + m // BLOCK_R, m % BLOCK_R
    in_d, n, t = d < D, g * R + r, q_start + col
    ok = ((col < q_len) & (r < R))[:, None] & in_d[None, :]
    q = tl.load(q_ptr + (t * q_row + n * q_head)[:, None] + d[None, :], mask=ok, other=0)
    kv_len, before = q_len, 0
    if pages_ptr is not None:
        kv_len = tl.load(kv_lens_ptr + row)
        if CAUSAL:
            before = tl.load(before_ptr + row)
    last = kv_len
    if CAUSAL:
        last = tl.minimum(kv_len, before + tl.minimum(place * BLOCK_Q + BLOCK_Q, q_len))
    best = tl.full((BLOCK_Q * BLOCK_R,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q * BLOCK_R,), tl.float32)
    acc = tl.zeros((BLOCK_Q * BLOCK_R, BLOCK_D), tl.float32)
    for start in range(0, last, BLOCK_S):
        position = start + tl.arange(0, BLOCK_S)
        readable = position < last
        if pages_ptr is not None:
            at = cells_of(pages_ptr + row * width, position, readable, page_tokens)
        else:
            at = q_start + position
        k_ok, v_ok = in_d[:, None] & readable[None, :], readable[:, None] & in_d[None, :]
        k_at = (at * cell + g * kv_head)[None, :] + d[:, None]
        k = tl.load(k_ptr + k_at, mask=k_ok, other=0)
        scores = tl.dot(q.to(k.dtype), k, input_precision=PRECISION) * scale
        seen = readable[None, :]
        if CAUSAL:
            seen = seen & (position[None, :] <= (before + col)[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        above = tl.maximum(best, tl.max(scores, 1))
        weights, fade = tl.exp2(scores - above[:, None]), tl.exp2(best - above)
        v_at = (at * v_cell + g * v_kv_head)[:, None] + d[None, :]
        v = tl.load(v_ptr + v_at, mask=v_ok, other=0)
        mixed = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        acc = acc * fade[:, None] + mixed
        total = total * fade + tl.sum(weights, 1)
        best = above
    o = acc / tl.where(total > 0, total, 1)[:, None]
    o = keep(o, gate_ptr, t * gate_row + n * gate_head, d, ok)
    to = o_ptr + (t * N + n)[:, None] * D + d[None, :]
    tl.store(to, o.to(o_ptr.dtype.element_ty), mask=ok)
