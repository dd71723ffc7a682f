"""What a prefill step does to each token alone, before and behind the chunks."""

from __future__ import annotations

import triton
import triton.language as tl

from mstar_triton.gated_delta.rows_kernels import silu


@triton.jit
def mix_kernel(
    qkv_ptr, taps_ptr, conv_ptr, slots_ptr, fresh_ptr, row_ptr, col_ptr, out_ptr,
    qkv_row, conv_slot, T,
    G: tl.constexpr, D: tl.constexpr, E: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One program per block of tokens and head of q, k or v."""
    t = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    head, i = tl.program_id(1), tl.arange(0, BLOCK_C)
    is_key, width = head < 2 * G, E
    first = 2 * G * D + (head - 2 * G) * E
    if is_key:
        width, first = D, head * D
    c, in_t = first + i, t < T
    ok = in_t[:, None] & (i < width)[None, :]
    row, col = (
        tl.load(row_ptr + t, mask=in_t, other=0),
        tl.load(col_ptr + t, mask=in_t, other=0),
    )
    slot = tl.load(slots_ptr + row, mask=in_t, other=0)
    held = (slot > 0) & (tl.load(fresh_ptr + row, mask=in_t, other=1) == 0)
    newest = tl.min(tl.where(in_t, col, K), 0)
    y = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
    for back in tl.static_range(K):
        tap = tl.load(taps_ptr + c * K + (K - 1 - back), mask=i < width, other=0).to(tl.float32)
        inside = (col >= back)[:, None]
        x = tl.load(qkv_ptr + (t - back)[:, None] * qkv_row + c[None, :], mask=ok & inside, other=0)
        y += x.to(tl.float32) * tap[None, :]
        if newest < back:  # some row begins here, and its window reaches before this step
            place = (slot * conv_slot + (K - 1 - back + col))[:, None] + c[None, :] * (K - 1)
            old = tl.load(conv_ptr + place, mask=ok & (inside == 0) & held[:, None], other=0)
            y += old.to(tl.float32) * tap[None, :]
    y = silu(y)
    if is_key:
        y = y * tl.rsqrt(tl.sum(y * y, 1) + 1e-6)[:, None]
        if head < G:
            y = y * (D**-0.5)
    tl.store(out_ptr + t[:, None] * C + c[None, :], y, mask=ok)


@triton.jit
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
    o = tl.load(o_ptr + at, mask=ok & live[:, None], other=0)
    z = tl.load(z_ptr + t[:, None] * z_row + h * E + e[None, :], mask=ok, other=0).to(tl.float32)
    norm = tl.load(norm_ptr + e, mask=in_e, other=0).to(tl.float32)
    o = o * tl.rsqrt(tl.sum(o * o, 1) / E + eps)[:, None] * norm[None, :] * silu(z)
    tl.store(out_ptr + at, o.to(out_ptr.dtype.element_ty), mask=ok)
