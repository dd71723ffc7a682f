"""What a prefill step does to each token alone, before and behind the chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from mstar_triton.gated_delta.rows_kernels import FULL, LONG, silu, slide_window


@triton.jit(do_not_specialize=("T",))
def mix_kernel(
    qkv_ptr, taps_ptr, conv_ptr, slots_ptr, fresh_ptr, starts_ptr, lens_ptr, lead_ptr, col_ptr,
    mixed_ptr, tops_ptr, qkv_row, conv_slot, T,
    G: tl.constexpr, D: tl.constexpr, E: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program per block of tokens and head of q, k or v, then one per row and head.

    The latter are for a row's first K - 1 tokens, which alone reach into the window before this
    step, and move it: no other program reads it.
    """
    block, head, c = tl.program_id(0), tl.program_id(1), tl.arange(0, BLOCK_C)
    blocks = tl.cdiv(T, BLOCK_T)
    first, width = 2 * G * D + (head - 2 * G) * E, E
    if head < 2 * G:
        first, width = head * D, D
    k = tl.arange(0, BLOCK_K)[None, :]
    taps_at = taps_ptr + first * K + c[:, None] * K + k
    taps = tl.load(taps_at, mask=(c < width)[:, None] & (k < K), other=0).to(tl.float32)
    qkv_ptr += first
    if block < blocks:
        begin = block.to(tl.int64) * BLOCK_T
        t = begin + tl.arange(0, BLOCK_T)
        qkv_ptr += begin * qkv_row
        y = convolved_block(qkv_ptr, taps, t, t < T, c < width, qkv_row, K)
        ok = (t < T) & (tl.load(col_ptr + t, mask=t < T, other=0) >= K - 1)
        store_mixed(y, mixed_ptr, tops_ptr, t, ok, c < width, head, first, G, D, E, C)
        return
    row = block - blocks
    slot, length = tl.load(slots_ptr + row), tl.load(lens_ptr + row)
    if lead_ptr is not None:
        length = tl.where(row < tl.load(lead_ptr), 0, length)
    if (slot == 0) | (length == 0):
        return
    begin, held = tl.load(starts_ptr + row).to(tl.int64), tl.load(fresh_ptr + row) == 0
    i, in_c, held_c = tl.arange(0, BLOCK_T), c < width, c < tl.where(held, width, 0)
    ok = i < tl.minimum(length, K - 1)
    qkv_ptr += begin * qkv_row
    conv_ptr += slot * conv_slot + first * (K - 1)
    y = convolved_start(qkv_ptr, conv_ptr, taps, i, ok, in_c, held_c, qkv_row, K)
    store_mixed(y, mixed_ptr, tops_ptr, begin + i, ok, in_c, head, first, G, D, E, C)
    slide_window(qkv_ptr, conv_ptr, c, in_c, held_c, qkv_row, length, K, BLOCK_K)


@triton.jit
def tap_of(taps, back, K: tl.constexpr):
    """The tap of each channel that meets the input so many tokens back."""
    k = tl.arange(0, taps.shape[1])[None, :]
    return tl.sum(tl.where(k == K - 1 - back, taps, 0.0), 1)


@triton.jit
def convolved_block(qkv_ptr, taps, t, in_t, in_c, qkv_row, K: tl.constexpr):
    """fp32 ``[T, C]`` of consecutive tokens, as if of one row; ``qkv_ptr`` is at the first."""
    i, c = tl.arange(0, t.shape[0])[:, None], tl.arange(0, in_c.shape[0])[None, :]
    at = qkv_ptr + (i * qkv_row + c)
    y = tl.zeros((t.shape[0], in_c.shape[0]), tl.float32)
    for back in tl.static_range(K):
        ok = (in_t & (t >= back))[:, None] & in_c[None, :]
        x = tl.load(at - back * qkv_row, mask=ok, other=0).to(tl.float32)
        y += x * tap_of(taps, back, K)[None, :]
    return y


@triton.jit
def convolved_start(
    qkv_ptr, window_ptr, taps, i, in_t, in_c, held, qkv_row, K: tl.constexpr
):  # fmt: skip
    """The same of the tokens that begin a row, behind its window."""
    c = tl.arange(0, in_c.shape[0])[None, :]
    at = qkv_ptr + (i[:, None] * qkv_row + c)
    before = window_ptr + (c * (K - 1) + i[:, None])
    y = tl.zeros((i.shape[0], in_c.shape[0]), tl.float32)
    for back in tl.static_range(K):
        inside = (in_t & (i >= back))[:, None] & in_c[None, :]
        outside = (in_t & (i < back))[:, None] & held[None, :]
        x = tl.load(at - back * qkv_row, mask=inside, other=0).to(tl.float32)
        x += tl.load(before + K - 1 - back, mask=outside, other=0).to(tl.float32)
        y += x * tap_of(taps, back, K)[None, :]
    return y


@triton.jit
def store_mixed(
    y, mixed_ptr, tops_ptr, t, in_t, in_c, head, first,
    G: tl.constexpr, D: tl.constexpr, E: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Through SiLU; keys are stored of length 1, queries of ``LONG``.

    In fp16 a token's values of a head are over the largest of them, which goes to ``tops``.
    """
    y = silu(y)
    if head < 2 * G:
        scale = tl.rsqrt(tl.sum(y * y, 1) + 1e-6)
        if head < G:
            scale *= LONG
        y *= scale[:, None]
    elif tops_ptr is not None:
        top = tl.maximum(tl.max(tl.abs(y), 1), 1e-12) / FULL
        tl.store(tops_ptr + t * ((C - 2 * G * D) // E) + head - 2 * G, top, mask=in_t)
        y *= (1 / top)[:, None]
    to = mixed_ptr + t[:, None] * C + first + tl.arange(0, in_c.shape[0])[None, :]
    tl.store(to, y.to(mixed_ptr.dtype.element_ty), mask=in_t[:, None] & in_c[None, :])


@triton.jit(do_not_specialize=("T",))
def finish_kernel(
    o_ptr, z_ptr, norm_ptr, slots_ptr, row_ptr, lead_ptr, out_ptr, z_row, eps, T,
    H: tl.constexpr, E: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """One program per block of tokens and value head; tokens of padding rows give zeros."""
    t = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    h, e = tl.program_id(1), tl.arange(0, BLOCK_E)
    in_t, in_e = t < T, e < E
    row = tl.load(row_ptr + t, mask=in_t, other=0)
    if lead_ptr is not None:
        in_t = in_t & (row >= tl.load(lead_ptr))
    live = tl.load(slots_ptr + row, mask=in_t, other=0) > 0
    ok = in_t[:, None] & in_e[None, :]
    at = t[:, None] * (H * E) + h * E + e[None, :]
    o = tl.load(o_ptr + at, mask=ok & live[:, None], other=0).to(tl.float32)
    z = tl.load(z_ptr + t[:, None] * z_row + h * E + e[None, :], mask=ok, other=0).to(tl.float32)
    norm = tl.load(norm_ptr + e, mask=in_e, other=0).to(tl.float32)
    o = o * tl.rsqrt(tl.sum(o * o, 1) / E + eps)[:, None] * norm[None, :] * silu(z)
    tl.store(out_ptr + at, o.to(out_ptr.dtype.element_ty), mask=ok)
