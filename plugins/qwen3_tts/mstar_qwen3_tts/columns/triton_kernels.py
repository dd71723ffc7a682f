"""The kernels of ``codec_columns``: rows joined to what they left, taps as products, a window.

The joined sequence has each row behind its last K columns, so column col of row r lies at
``l + (r + 1) K``, and what a tap reads lies at a fixed distance from it.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def bent(x, alpha, beta):
    """``x + beta sin²(alpha x)``, fp32; the sine by its series over half a turn, within 4e-6."""
    half_turns = x * (alpha * 0.3183098861837907)
    r = half_turns - tl.floor(half_turns + 0.5)
    q = r * r
    series = q * (2.5501640 + q * (-0.5992645 + q * 0.0821459)) - 5.1677128
    sine = r * (3.1415927 + q * series)
    return x + beta * sine * sine


@triton.jit(do_not_specialize=("L", "B", "rate", "K"))
def join_kernel(
    x_ptr, memory_ptr, joined_ptr, alpha_ptr, beta_ptr, row_ptr, starts_ptr, lens_ptr, slots_ptr,
    fresh_ptr, L, B, rate, C, K,
    BLOCK_L: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The first B programs take a row's memory over and renew it, the others a block of columns."""
    part, c = tl.program_id(0), (tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]
    in_c = c < C
    if alpha_ptr is not None:
        alpha = tl.load(alpha_ptr + c, mask=in_c, other=0).to(tl.float32)
        beta = tl.load(beta_ptr + c, mask=in_c, other=0).to(tl.float32)
    if part < B:
        slot = tl.load(slots_ptr + part)
        if slot == 0:
            return  # a row of padding
        k = tl.arange(0, BLOCK_K)[:, None]
        first, added = tl.load(starts_ptr + part) * rate, tl.load(lens_ptr + part) * rate
        had = tl.where(tl.load(fresh_ptr + part) > 0, 0, K)
        old_ptr = memory_ptr + slot * K * C
        ok = (k < K) & in_c
        old = tl.load(old_ptr + k * C + c, mask=in_c & (k < had), other=0)
        tl.store(joined_ptr + (first + part * K + k) * C + c, old, mask=ok)
        late = k + added
        still = tl.load(old_ptr + late * C + c, mask=in_c & (late < had), other=0)
        new = tl.load(x_ptr + (first + late - K) * C + c, mask=ok & (late >= K), other=0)
        new = new.to(tl.float32)
        if alpha_ptr is not None:
            new = bent(new, alpha, beta)
        kept = tl.where(late < K, still.to(tl.float32), new)
        tl.debug_barrier()  # all is read before any of it is written
        tl.store(old_ptr + k * C + c, kept.to(memory_ptr.dtype.element_ty), mask=ok)
    else:
        col = (part - B) * BLOCK_L + tl.arange(0, BLOCK_L)[:, None]
        inside = (col < L) & in_c
        row = tl.load(row_ptr + col // rate, mask=col < L, other=0)
        x = tl.load(x_ptr + col * C + c, mask=inside, other=0).to(tl.float32)
        if alpha_ptr is not None:
            x = bent(x, alpha, beta)
        to = joined_ptr + (col + (row + 1) * K) * C + c
        tl.store(to, x.to(joined_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=("L", "rate", "taps", "dilation"))
def taps_kernel(
    x_ptr, weight_ptr, bias_ptr, alpha_ptr, beta_ptr, added_ptr, row_ptr, out_ptr,
    L, rate, taps, dilation, C, N,
    BLOCK_L: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """A block of columns and channels: a product per tap, of weights ``[taps, C, N]``.

    Without ``row_ptr`` there is one tap, and columns are not joined to anything.
    """
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    col = tl.program_id(1) * BLOCK_L + tl.arange(0, BLOCK_L)
    c = tl.arange(0, BLOCK_C)
    in_l, in_n = (col < L)[:, None], (n < N)[None, :]
    at = col
    if row_ptr is not None:
        row = tl.load(row_ptr + col // rate, mask=col < L, other=0).to(tl.int32)
        at = col + row * ((taps - 1) * dilation)
    x_at = x_ptr + at[:, None] * C + c[None, :]
    w_at = weight_ptr + c[:, None] * N + n[None, :]
    blocks = (C + BLOCK_C - 1) // BLOCK_C
    acc = tl.zeros((BLOCK_L, BLOCK_N), tl.float32)
    for i in range(taps * blocks):
        tap, start = i // blocks, i % blocks * BLOCK_C
        in_c = start + c < C
        x = tl.load(x_at + (tap * dilation * C + start), mask=in_l & in_c[None, :], other=0)
        w = tl.load(w_at + (tap * C + start) * N, mask=in_c[:, None] & in_n, other=0)
        acc = tl.dot(x, w, acc)
    acc += tl.load(bias_ptr + n, mask=n < N, other=0).to(tl.float32)[None, :]
    if alpha_ptr is not None:
        alpha = tl.load(alpha_ptr + n, mask=n < N, other=0).to(tl.float32)[None, :]
        beta = tl.load(beta_ptr + n, mask=n < N, other=0).to(tl.float32)[None, :]
        acc = bent(acc, alpha, beta)
    to = col[:, None] * N + n[None, :]
    if added_ptr is not None:
        acc += tl.load(added_ptr + to, mask=in_l & in_n, other=0).to(tl.float32)
    tl.store(out_ptr + to, acc.to(out_ptr.dtype.element_ty), mask=in_l & in_n)


@triton.jit(do_not_specialize=("L", "rate"))
def depth_kernel(
    x_ptr, weight_ptr, bias_ptr, row_ptr, out_ptr, L, rate, C,
    TAPS: tl.constexpr, DILATION: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Each channel by itself, of weights ``[TAPS, C]``."""
    col = tl.program_id(0) * BLOCK_L + tl.arange(0, BLOCK_L)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    ok = (col < L)[:, None] & (c < C)[None, :]
    row = tl.load(row_ptr + col // rate, mask=col < L, other=0)
    at = (col + row * ((TAPS - 1) * DILATION))[:, None] * C + c[None, :]
    acc = tl.zeros((BLOCK_L, BLOCK_C), tl.float32)
    acc += tl.load(bias_ptr + c, mask=c < C, other=0).to(tl.float32)[None, :]
    for tap in tl.static_range(TAPS):
        w = tl.load(weight_ptr + tap * C + c, mask=c < C, other=0).to(tl.float32)
        acc += tl.load(x_ptr + at + tap * DILATION * C, mask=ok, other=0) * w[None, :]
    to = out_ptr + col[:, None] * C + c[None, :]
    tl.store(to, acc.to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def turn_kernel(
    q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, turned_ptr, kv_ptr, q_row, k_row, v_row,
    N: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program per column and part: q and k turned, k and v one behind the other."""
    t, part = tl.program_id(0), tl.program_id(1)
    n, d = tl.arange(0, BLOCK_N)[:, None], tl.arange(0, BLOCK_D)[None, :]
    HALF: tl.constexpr = D // 2
    at, in_d = n * D + d, d < HALF
    if part == 0:
        from_ptr, to_ptr, heads = q_ptr + t * q_row, turned_ptr + t * N * D, N
    elif part == 1:
        from_ptr, to_ptr, heads = k_ptr + t * k_row, kv_ptr + t * 2 * G * D, G
    else:
        from_ptr, to_ptr, heads = v_ptr + t * v_row, kv_ptr + (t * 2 + 1) * G * D, G
    ok = in_d & (n < heads)
    low, high = tl.load(from_ptr + at, mask=ok), tl.load(from_ptr + at + HALF, mask=ok)
    if part < 2:
        cos = tl.load(cos_ptr + t * D + d, mask=in_d, other=0)
        sin = tl.load(sin_ptr + t * D + d, mask=in_d, other=0)
        a, b = low.to(tl.float32), high.to(tl.float32)
        low = (a * cos - b * sin).to(low.dtype)
        high = (b * cos + a * sin).to(high.dtype)
    tl.store(to_ptr + at, low, mask=ok)
    tl.store(to_ptr + at + HALF, high, mask=ok)


@triton.jit
def window_kernel(
    q_ptr, joined_ptr, row_ptr, index_ptr, out_ptr, scale,
    N: tl.constexpr, G: tl.constexpr, D: tl.constexpr, SIZE: tl.constexpr,
    BLOCK_W: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program per column and head."""
    t, n = tl.program_id(0), tl.program_id(1)
    back, d = tl.arange(0, BLOCK_W), tl.arange(0, BLOCK_D)
    row, index = tl.load(row_ptr + t), tl.load(index_ptr + t)
    seen = (back < SIZE) & (back <= index)
    column = t + (row + 1) * (SIZE - 1) - back
    at = column[:, None] * (2 * G * D) + n // (N // G) * D + d[None, :]
    ok = seen[:, None] & (d < D)[None, :]
    q = tl.load(q_ptr + (t * N + n) * D + d, mask=d < D, other=0).to(tl.float32)
    k = tl.load(joined_ptr + at, mask=ok, other=0).to(tl.float32)
    v = tl.load(joined_ptr + at + G * D, mask=ok, other=0).to(tl.float32)
    score = tl.where(seen, tl.sum(q[None, :] * k, 1) * scale, float("-inf"))
    weight = tl.exp(score - tl.max(score, 0))
    mixed = tl.sum(weight[:, None] * v, 0) / tl.sum(weight, 0)
    to = out_ptr + (t * N + n) * D + d
    tl.store(to, mixed.to(out_ptr.dtype.element_ty), mask=d < D)
