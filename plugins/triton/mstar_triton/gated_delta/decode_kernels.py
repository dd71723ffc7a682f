"""One token of each row, from the projections to the gated norm, in one kernel."""

from __future__ import annotations

import triton
import triton.language as tl

from mstar_triton.gated_delta.rows_kernels import (
    convolved,
    keep_newest,
    l2,
    log_decay,
    silu,
    window_with_newest,
)


@triton.jit
def decode_kernel(
    qkv_ptr, z_ptr, b_ptr, a_ptr, taps_ptr, a_log_ptr, dt_bias_ptr, norm_ptr,
    conv_ptr, ssm_ptr, slots_ptr, fresh_ptr, lead_ptr, out_ptr,
    qkv_row, z_row, b_row, a_row, slots_row, conv_slot, ssm_slot, eps,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, E: tl.constexpr, K: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program per row and key head, with all channels that belong to it.

    So no other program reads the windows that it moves, and a whole value head is normed where it
    was computed. ``k . S`` and ``q . S`` are read from the state before its update, in one pass.
    """
    row, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if lead_ptr is not None:
        if row >= tl.load(lead_ptr):
            return
    slot = tl.load(slots_ptr + row * slots_row)
    live = slot > 0
    held = live & (tl.load(fresh_ptr + row) == 0)
    d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    in_d, in_e = d < D, e < E
    held_d, held_e = d < tl.where(held, D, 0), e < tl.where(held, E, 0)
    live_d, live_e = d < tl.where(live, D, 0), e < tl.where(live, E, 0)
    cell = d[:, None] * E + e[None, :]
    qkv_ptr += row * qkv_row
    conv_ptr += slot * conv_slot
    ssm_ptr += slot * ssm_slot
    q_c, k_c = g * D + d, (G + g) * D + d
    q_window = window_with_newest(qkv_ptr, conv_ptr, q_c, in_d, held_d, K, BLOCK_K)
    k_window = window_with_newest(qkv_ptr, conv_ptr, k_c, in_d, held_d, K, BLOCK_K)
    q = l2(convolved(q_window, taps_ptr, q_c, in_d, K, BLOCK_K)) * (D**-0.5)
    k = l2(convolved(k_window, taps_ptr, k_c, in_d, K, BLOCK_K))
    norm = tl.load(norm_ptr + e, mask=in_e, other=0).to(tl.float32)
    met = tl.sum(q * k, 0)
    for r in tl.static_range(R):
        h = g * R + r
        state_ptr = ssm_ptr + h * D * E + cell
        state = tl.load(state_ptr, mask=held_d[:, None] & in_e[None, :], other=0)
        z = tl.load(z_ptr + row * z_row + h * E + e, mask=in_e, other=0).to(tl.float32)
        b = tl.load(b_ptr + row * b_row + h).to(tl.float32)
        a = tl.load(a_ptr + row * a_row + h).to(tl.float32)
        a_log = tl.load(a_log_ptr + h).to(tl.float32)
        v_c = 2 * G * D + h * E + e
        v_window = window_with_newest(qkv_ptr, conv_ptr, v_c, in_e, held_e, K, BLOCK_K)
        v = convolved(v_window, taps_ptr, v_c, in_e, K, BLOCK_K)
        decay = tl.exp(log_decay(a, a_log, tl.load(dt_bias_ptr + h).to(tl.float32)))
        k_read = tl.sum(k[:, None] * state, 0) * decay
        q_read = tl.sum(q[:, None] * state, 0) * decay
        delta = tl.sigmoid(b) * (v - k_read)
        o = q_read + met * delta
        state = state * decay + k[:, None] * delta[None, :]
        tl.store(state_ptr, state, mask=live_d[:, None] & in_e[None, :])
        o = o * tl.rsqrt(tl.sum(o * o, 0) / E + eps) * norm * silu(z)
        to = out_ptr + (row * G * R + h) * E + e
        tl.store(to, o.to(out_ptr.dtype.element_ty), mask=in_e)
        tl.debug_barrier()  # a place is read by one thread and written by another
        keep_newest(conv_ptr, v_window, v_c, live_e, K, BLOCK_K)
    keep_newest(conv_ptr, q_window, q_c, live_d, K, BLOCK_K)
    keep_newest(conv_ptr, k_window, k_c, live_d, K, BLOCK_K)
