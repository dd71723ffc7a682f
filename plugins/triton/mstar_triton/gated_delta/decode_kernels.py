"""One token of each of many rows: what its channels become, then each state by parts, normed.

::

    enter      convolution, SiLU, l2 norms, the windows move     rows x heads of q, k and v
    step       gates, delta rule, gated norm                     rows x value heads x parts
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

from mstar_triton.gated_delta.rows_kernels import (
    convolved,
    held_window,
    keep_newest,
    l2,
    log_decay,
    silu,
    window_taps,
    with_newest,
)


@triton.jit
def enter_kernel(
    qkv_ptr, taps_ptr, conv_ptr, slots_ptr, fresh_ptr, lead_ptr, mixed_ptr, arrived_ptr,
    qkv_row, slots_row, conv_slot,
    G: tl.constexpr, D: tl.constexpr, E: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_K: tl.constexpr, EARLY: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row and head of q, k or v: no other reads the windows that it moves.

    Windows are of earlier steps, as the states are in ``step``: both are read before the wait. With
    ``EARLY`` programs of ``step`` begin even before this kernel may go on.
    """
    row, head, i = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, BLOCK_C)
    is_key, width, first = head < 2 * G, E, 2 * G * D + (head - 2 * G) * E
    if is_key:
        width, first = D, head * D
    slot = tl.load(slots_ptr + row * slots_row)
    held = (slot > 0) & (tl.load(fresh_ptr + row) == 0)
    c, held_c = first + i, i < tl.where(held, width, 0)
    conv_ptr += slot * conv_slot
    old = held_window(conv_ptr, c, held_c, K, BLOCK_K)
    taps = window_taps(taps_ptr, c, i < width, K, BLOCK_K)
    if PDL and EARLY:
        cuda.gdc_launch_dependents()
    if PDL:
        cuda.gdc_wait()
        cuda.gdc_launch_dependents()
    if lead_ptr is not None:
        if row >= tl.load(lead_ptr):
            return
    window = with_newest(old, qkv_ptr + row * qkv_row, c, i < width, K, BLOCK_K)
    y = convolved(window, taps)
    if is_key:
        y = l2(y)
        if head < G:
            y = y * (D**-0.5)
    else:
        tl.store(arrived_ptr + row * ((C - 2 * G * D) // E) + head - 2 * G, 0)
    tl.store(mixed_ptr + row * C + c, y, mask=i < width)
    tl.debug_barrier()  # a place is read by one thread and written by another
    keep_newest(conv_ptr, window, c, i < tl.where(slot > 0, width, 0), K, BLOCK_K)


@triton.jit
def step_kernel(
    mixed_ptr, z_ptr, b_ptr, a_ptr, a_log_ptr, dt_bias_ptr, norm_ptr, ssm_ptr, slots_ptr,
    fresh_ptr, lead_ptr, o_ptr, arrived_ptr, out_ptr, z_row, b_row, a_row, slots_row, ssm_slot, eps,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, E: tl.constexpr, C: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, PART_E: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row, value head and part of its width, ``S [D, PART_E]``.

    ``k . S`` and ``q . S`` are read from the state before its update, in one pass. Whichever part
    of a head comes last norms the whole of it.
    """
    part, h, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    PARTS: tl.constexpr = (E + PART_E - 1) // PART_E
    g, H = h // R, G * R
    slot = tl.load(slots_ptr + row * slots_row)
    live = slot > 0
    held = live & (tl.load(fresh_ptr + row) == 0)
    d, e = tl.arange(0, BLOCK_D), part * PART_E + tl.arange(0, PART_E)
    in_e = e < E
    at = ssm_ptr + slot * ssm_slot + h * D * E + d[:, None] * E + e[None, :]
    held_d, live_d = d < tl.where(held, D, 0), d < tl.where(live, D, 0)
    state = tl.load(at, mask=held_d[:, None] & in_e[None, :], other=0, cache_modifier=".cg")
    a_log = tl.load(a_log_ptr + h).to(tl.float32)
    dt_bias = tl.load(dt_bias_ptr + h).to(tl.float32)
    if PDL:
        cuda.gdc_wait()
        cuda.gdc_launch_dependents()
    if lead_ptr is not None:
        if row >= tl.load(lead_ptr):
            return
    mixed_ptr += row * C
    q = tl.load(mixed_ptr + g * D + d, mask=d < D, other=0)
    k = tl.load(mixed_ptr + (G + g) * D + d, mask=d < D, other=0)
    v = tl.load(mixed_ptr + 2 * G * D + h * E + e, mask=in_e, other=0)
    b = tl.load(b_ptr + row * b_row + h).to(tl.float32)
    a = tl.load(a_ptr + row * a_row + h).to(tl.float32)
    decay = tl.exp(log_decay(a, a_log, dt_bias))
    k_read = tl.sum(k[:, None] * state, 0) * decay
    q_read = tl.sum(q[:, None] * state, 0) * decay
    delta = tl.sigmoid(b) * (v - k_read)
    o = q_read + tl.sum(q * k, 0) * delta
    state = state * decay + k[:, None] * delta[None, :]
    tl.store(at, state, mask=live_d[:, None] & in_e[None, :])
    head = row * H + h
    if PARTS > 1:
        tl.store(o_ptr + head * E + e, o, mask=in_e)
        tl.debug_barrier()  # every thread's part is stored before one thread says so
        if tl.atomic_add(arrived_ptr + head, 1, sem="acq_rel") < PARTS - 1:
            return
        e = tl.arange(0, BLOCK_E)
        in_e = e < E
        o = tl.load(o_ptr + head * E + e, mask=in_e, other=0, cache_modifier=".cg")
    z = tl.load(z_ptr + row * z_row + h * E + e, mask=in_e, other=0).to(tl.float32)
    norm = tl.load(norm_ptr + e, mask=in_e, other=0).to(tl.float32)
    o = o * tl.rsqrt(tl.sum(o * o, 0) / E + eps) * norm * silu(z)
    tl.store(out_ptr + head * E + e, o.to(out_ptr.dtype.element_ty), mask=in_e)
