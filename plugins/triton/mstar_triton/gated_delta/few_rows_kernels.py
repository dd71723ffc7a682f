"""One token of each of a few rows in one kernel: convolution, delta rule and gated norm."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from mstar_triton.gated_delta.rows_kernels import l2, log_decay, silu


@triton.jit
def neighbours(ptr, c, ok, COUNT: tl.constexpr):
    """COUNT neighbours of each channel, ``[C]`` each: the inputs that it holds, or its weights."""
    found = ()
    for j in tl.static_range(COUNT):
        x = tl.load(ptr + c * COUNT + j, mask=ok, other=0, cache_modifier=".cg")
        found = found + (x,)  # noqa: RUF005 (no stars)
    return found


@triton.jit
def convolution(window, new, taps, K: tl.constexpr):
    """fp32 ``[C]``: over K - 1 inputs and the newest, through SiLU."""
    y = new.to(tl.float32) * taps[K - 1].to(tl.float32)
    for j in tl.static_range(K - 1):
        y += window[j].to(tl.float32) * taps[j].to(tl.float32)
    return silu(y)


@triton.jit
def move(ptr, window, new, c, ok, K: tl.constexpr):
    """Store all but the oldest, and the newest: once every reader has the window."""
    for j in tl.static_range(1, K - 1):
        tl.store(ptr + c * (K - 1) + j - 1, window[j], mask=ok)
    if K > 1:
        tl.store(ptr + c * (K - 1) + K - 2, new.to(ptr.dtype.element_ty), mask=ok)


@triton.jit
def few_rows_kernel(
    qkv_ptr, z_ptr, b_ptr, a_ptr, taps_ptr, a_log_ptr, dt_bias_ptr, norm_ptr,
    conv_ptr, ssm_ptr, slots_ptr, fresh_ptr, lead_ptr, o_ptr, arrived_ptr, out_ptr,
    qkv_row, z_row, b_row, a_row, slots_row, conv_slot, ssm_slot, eps,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, E: tl.constexpr, K: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, PART_E: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row, value head and part of its width, ``S [D, PART_E]``.

    ``k . S`` and ``q . S`` are read from the state before its update, in one pass. States and
    windows are of earlier steps, so they are read before the wait, and no other kernel begins
    before they are stored. Each part convolves q and k for itself. The heads of a key head count
    their parts together: whichever comes last norms these heads, and moves the windows of q and k,
    which no other reads any more.
    """
    part, h, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    PARTS: tl.constexpr = R * ((E + PART_E - 1) // PART_E)
    g, H = h // R, G * R
    slot = tl.load(slots_ptr + row * slots_row)
    live = slot > 0
    held = live & (tl.load(fresh_ptr + row) == 0)
    d, e = tl.arange(0, BLOCK_D), part * PART_E + tl.arange(0, PART_E)
    in_d, in_e = d < D, e < E
    held_d, held_e = d < tl.where(held, D, 0), e < tl.where(held, E, 0)
    live_d, live_e = d < tl.where(live, D, 0), e < tl.where(live, E, 0)
    at = ssm_ptr + slot * ssm_slot + h * D * E + d[:, None] * E + e[None, :]
    state = tl.load(at, mask=held_d[:, None] & in_e[None, :], other=0, cache_modifier=".cg")
    q_c, k_c, v_c = g * D + d, (G + g) * D + d, 2 * G * D + h * E + e
    conv_ptr += slot * conv_slot
    q_window = neighbours(conv_ptr, q_c, held_d, K - 1)
    k_window = neighbours(conv_ptr, k_c, held_d, K - 1)
    v_window = neighbours(conv_ptr, v_c, held_e, K - 1)
    q_taps = neighbours(taps_ptr, q_c, in_d, K)
    k_taps = neighbours(taps_ptr, k_c, in_d, K)
    v_taps = neighbours(taps_ptr, v_c, in_e, K)
    a_log = tl.load(a_log_ptr + h).to(tl.float32)
    dt_bias = tl.load(dt_bias_ptr + h).to(tl.float32)
    if PDL:
        cuda.gdc_wait()
    if lead_ptr is not None:
        if row >= tl.load(lead_ptr):
            return
    b = tl.load(b_ptr + row * b_row + h).to(tl.float32)
    a = tl.load(a_ptr + row * a_row + h).to(tl.float32)
    qkv_ptr += row * qkv_row
    q_new = tl.load(qkv_ptr + q_c, mask=in_d, other=0)
    k_new = tl.load(qkv_ptr + k_c, mask=in_d, other=0)
    v_new = tl.load(qkv_ptr + v_c, mask=in_e, other=0)
    q = l2(convolution(q_window, q_new, q_taps, K)) * (D**-0.5)
    k = l2(convolution(k_window, k_new, k_taps, K))
    v = convolution(v_window, v_new, v_taps, K)
    decay = tl.exp(log_decay(a, a_log, dt_bias))
    k_read = tl.sum(k[:, None] * state, 0) * decay
    q_read = tl.sum(q[:, None] * state, 0) * decay
    delta = tl.sigmoid(b) * (v - k_read)
    o = q_read + tl.sum(q * k, 0) * delta
    state = state * decay + k[:, None] * delta[None, :]
    tl.store(at, state, mask=live_d[:, None] & in_e[None, :])
    if PARTS > 1:
        tl.store(o_ptr + (row * H + h) * E + e, o, mask=in_e)
    tl.debug_barrier()  # every thread's part is stored and every window read
    move(conv_ptr, v_window, v_new, v_c, live_e, K)
    if PARTS > 1:
        if tl.atomic_add(arrived_ptr + row * G + g, 1, sem="acq_rel") < PARTS - 1:
            return
        tl.store(arrived_ptr + row * G + g, 0)
    move(conv_ptr, q_window, q_new, q_c, live_d, K)
    move(conv_ptr, k_window, k_new, k_c, live_d, K)
    e = tl.arange(0, BLOCK_E)
    in_e = e < E
    norm = tl.load(norm_ptr + e, mask=in_e, other=0).to(tl.float32)
    for r in tl.static_range(R):
        head = g * R + r
        z = tl.load(z_ptr + row * z_row + head * E + e, mask=in_e, other=0).to(tl.float32)
        to = (row * H + head) * E + e
        if PARTS > 1:
            o = tl.load(o_ptr + to, mask=in_e, other=0, cache_modifier=".cg")
        y = o * tl.rsqrt(tl.sum(o * o, 0) / E + eps) * norm * silu(z)
        tl.store(out_ptr + to, y.to(out_ptr.dtype.element_ty), mask=in_e)
