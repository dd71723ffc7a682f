"""What a prefill step does to each token alone, before and behind the chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from mstar_triton.gated_delta.rows_kernels import FULL, LONG, silu


@triton.jit(do_not_specialize=("T",))
def mix_kernel(
    qkv_ptr, taps_ptr, conv_ptr, slots_ptr, fresh_ptr, row_ptr, col_ptr, mixed_ptr, tops_ptr,
    qkv_row, conv_slot, T,
    G: tl.constexpr, D: tl.constexpr, E: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One program per block of tokens and head of q, k or v."""
    begin, i = tl.program_id(0).to(tl.int64) * BLOCK_T, tl.arange(0, BLOCK_T)
    head, j = tl.program_id(1), tl.arange(0, BLOCK_C)
    first, width = 2 * G * D + (head - 2 * G) * E, E
    if head < 2 * G:
        first, width = head * D, D
    t, in_t, in_c = begin + i, begin + i < T, j < width
    ok = in_t[:, None] & in_c[None, :]
    col = tl.load(col_ptr + t, mask=in_t, other=K)
    at = qkv_ptr + begin * qkv_row + first + (i[:, None] * qkv_row + j[None, :])
    taps_ptr += first * K
    y = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
    for back in tl.static_range(K):
        tap = tl.load(taps_ptr + j * K + (K - 1 - back), mask=in_c, other=0).to(tl.float32)
        x = tl.load(at - back * qkv_row, mask=ok & (t >= back)[:, None], other=0)
        y += tl.where((col >= back)[:, None], x.to(tl.float32), 0.0) * tap[None, :]
    to = mixed_ptr + begin * C + first + (i[:, None] * C + j[None, :])
    tops_at = t * ((C - 2 * G * D) // E) + head - 2 * G
    if tl.min(col, 0) >= K - 1:
        store_mixed(y, to, ok, tops_ptr, tops_at, in_t, head, G)
    else:  # some row begins here, and its window reaches before this step
        row = tl.load(row_ptr + t, mask=in_t, other=0)
        slot = tl.load(slots_ptr + row, mask=in_t, other=0)
        held = (slot > 0) & (tl.load(fresh_ptr + row, mask=in_t, other=1) == 0)
        window = conv_ptr + (slot * conv_slot + first * (K - 1) + col)[:, None]
        for back in tl.static_range(1, K):
            tap = tl.load(taps_ptr + j * K + (K - 1 - back), mask=in_c, other=0).to(tl.float32)
            before = ok & (held & (col < back))[:, None]
            place = j[None, :] * (K - 1) + (K - 1 - back)
            y += tl.load(window + place, mask=before, other=0).to(tl.float32) * tap[None, :]
        store_mixed(y, to, ok, tops_ptr, tops_at, in_t, head, G)


@triton.jit
def store_mixed(y, to, ok, tops_ptr, tops_at, in_t, head, G: tl.constexpr):
    """What is convolved: through SiLU; keys are stored of length 1, queries of ``LONG``.

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
        tl.store(tops_ptr + tops_at, top, mask=in_t)
        y *= (1 / top)[:, None]
    tl.store(to, y.to(to.dtype.element_ty), mask=ok)


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
