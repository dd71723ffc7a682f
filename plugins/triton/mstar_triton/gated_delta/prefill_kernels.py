"""Prompts in chunks of 64 tokens: everything that is independent of the state runs at once.

::

    mix      convolution, SiLU, l2 norms                   tokens x heads     (token_kernels.py)
    chunk    gates, the triangular system of each chunk    chunks x heads
    scan     the state through a row's chunks, in order    rows x heads x parts of the value width
    finish   gated norm                                    tokens x heads     (token_kernels.py)

A chunk belongs to one row; how many there are follows from the tokens and rows of the bucket.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mstar_triton.attention.rows_kernels import block_of_row
from mstar_triton.gated_delta.rows_kernels import log_decay, slide_window

CHUNK = tl.constexpr(64)
PART = tl.constexpr(16)
"""Rows of a chunk that are solved one after the other; the four parts then by products."""


@triton.jit
def inverse(system, PRECISION: tl.constexpr):
    """Of a unit lower triangular matrix, given below its diagonal: ``[CHUNK, CHUNK]`` fp32.

    The parts on the diagonal are solved row by row, all four at once. What is left is nilpotent
    of four parts, so its geometric series has four terms.
    """
    i, j = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    same = i // PART == j // PART
    solved = tl.where(same, -system, 0.0)
    for r in range(1, PART):
        chosen = i % PART == r
        factor = tl.sum(tl.where(chosen, solved, 0.0), 0)
        more = tl.sum(factor[:, None] * solved, 0)
        solved += tl.where(chosen & same, more[None, :], 0.0)
    solved += tl.where(i == j, 1.0, 0.0)
    left = tl.dot(solved, tl.where(same, 0.0, system), input_precision=PRECISION)
    squared = tl.dot(left, left, input_precision=PRECISION)
    solved += tl.dot(squared, solved, input_precision=PRECISION)
    return solved - tl.dot(left, solved, input_precision=PRECISION)


@triton.jit
def chunk_kernel(
    mixed_ptr, b_ptr, a_ptr, a_log_ptr, dt_bias_ptr, slots_ptr, starts_ptr, lens_ptr, lead_ptr,
    values_ptr, reads_ptr, scores_ptr, since_ptr, left_ptr, b_row, a_row, B,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, E: tl.constexpr, C: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_B: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One program per chunk and value head.

    With the state S before the chunk, the corrected values are ``values - reads @ S``, and the
    output is ``since * (q @ S) + scores @ corrected``; ``left`` is what decays until its end.
    """
    row, place = block_of_row(tl.program_id(0), lens_ptr, lead_ptr, B, CHUNK, BLOCK_B)
    if row >= B:
        return
    if tl.load(slots_ptr + row) == 0:
        return
    h = tl.program_id(1)
    g, H = h // R, G * R
    i, d, e = tl.arange(0, CHUNK), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    t = tl.load(starts_ptr + row).to(tl.int64) + place * CHUNK + i
    ok = place * CHUNK + i < tl.load(lens_ptr + row)
    k_ok, v_ok = ok[:, None] & (d < D)[None, :], ok[:, None] & (e < E)[None, :]
    kept = (tl.program_id(0) * H + h).to(tl.int64) * CHUNK + i
    b = tl.load(b_ptr + t * b_row + h, mask=ok, other=0).to(tl.float32)
    a = tl.load(a_ptr + t * a_row + h, mask=ok, other=0).to(tl.float32)
    a_log, dt_bias = tl.load(a_log_ptr + h).to(tl.float32), tl.load(dt_bias_ptr + h).to(tl.float32)
    beta = tl.where(ok, tl.sigmoid(b), 0.0)
    decay = tl.where(ok, log_decay(a, a_log, dt_bias), 0.0)
    # Summed per pair, as a difference of running sums loses small decays behind a large one.
    later = i[:, None] > i[None, :]
    between = tl.exp(tl.cumsum(tl.where(later, decay[:, None], 0.0), 0))
    between = tl.where(i[:, None] >= i[None, :], between, 0.0)
    since = tl.exp(tl.cumsum(decay, 0))
    tl.store(since_ptr + kept, since)
    left = tl.sum(tl.where(i[:, None] == CHUNK - 1, between, 0.0), 0)
    tl.store(left_ptr + kept, left)
    at = mixed_ptr + t[:, None] * C
    q = tl.load(at + g * D + d[None, :], mask=k_ok, other=0)
    k = tl.load(at + (G + g) * D + d[None, :], mask=k_ok, other=0)
    k_t = tl.trans(k)
    scores = tl.dot(q, k_t, input_precision=PRECISION) * between
    tl.store(scores_ptr + kept[:, None] * CHUNK + i[None, :], scores)
    system = tl.dot(k, k_t, input_precision=PRECISION) * between * beta[:, None]
    solved = inverse(tl.where(later, system, 0.0), PRECISION)
    v = tl.load(at + 2 * G * D + h * E + e[None, :], mask=v_ok, other=0) * beta[:, None]
    values = tl.dot(solved, v, input_precision=PRECISION)
    tl.store(values_ptr + kept[:, None] * E + e[None, :], values, mask=(e < E)[None, :])
    reads = tl.dot(solved, k * (beta * since)[:, None], input_precision=PRECISION)
    tl.store(reads_ptr + kept[:, None] * D + d[None, :], reads, mask=(d < D)[None, :])


@triton.jit
def scan_kernel(
    qkv_ptr, mixed_ptr, values_ptr, reads_ptr, scores_ptr, since_ptr, left_ptr, conv_ptr, ssm_ptr,
    slots_ptr, fresh_ptr, starts_ptr, lens_ptr, lead_ptr, o_ptr, qkv_row, conv_slot, ssm_slot, B,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, E: tl.constexpr, C: tl.constexpr,
    K: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, PART_E: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_B: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program per row, value head and part of the value width; it holds ``S [D, PART_E]``."""
    row, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    every = tl.arange(0, BLOCK_B)
    lens = tl.load(lens_ptr + every, mask=every < B, other=0)
    if lead_ptr is not None:
        lens = tl.where(every < tl.load(lead_ptr), 0, lens)
    length = tl.sum(tl.where(every == row, lens, 0), 0)
    block = tl.sum(tl.where(every < row, (lens + CHUNK - 1) // CHUNK, 0), 0)
    slot = tl.load(slots_ptr + row)
    if (length == 0) | (slot == 0):
        return
    g, H, held = h // R, G * R, tl.load(fresh_ptr + row) == 0
    start = tl.load(starts_ptr + row).to(tl.int64)
    i, d = tl.arange(0, CHUNK), tl.arange(0, BLOCK_D)
    e = part * PART_E + tl.arange(0, PART_E)
    in_d, in_e = d < D, e < E
    held_d = d < tl.where(held, D, 0)
    state_ptr = ssm_ptr + slot * ssm_slot + h * D * E + d[:, None] * E + e[None, :]
    state = tl.load(state_ptr, mask=held_d[:, None] & in_e[None, :], other=0)
    for first in range(0, length, CHUNK):
        ok, t = first + i < length, start + first + i
        kept = (block * H + h).to(tl.int64) * CHUNK + i
        k_ok = ok[:, None] & in_d[None, :]
        read_at = reads_ptr + kept[:, None] * D + d[None, :]
        value_at = values_ptr + kept[:, None] * E + e[None, :]
        reads = tl.load(read_at, mask=in_d[None, :], other=0)
        values = tl.load(value_at, mask=in_e[None, :], other=0)
        corrected = values - tl.dot(reads, state, input_precision=PRECISION)
        at = mixed_ptr + t[:, None] * C
        q = tl.load(at + g * D + d[None, :], mask=k_ok, other=0)
        since, left = tl.load(since_ptr + kept), tl.load(left_ptr + kept)
        o = tl.dot(q, state, input_precision=PRECISION) * since[:, None]
        scores = tl.load(scores_ptr + kept[:, None] * CHUNK + i[None, :])
        o += tl.dot(scores, corrected, input_precision=PRECISION)
        to = o_ptr + t[:, None] * (H * E) + h * E + e[None, :]
        tl.store(to, o, mask=ok[:, None] & in_e[None, :])
        k = tl.load(at + (G + g) * D + d[None, :], mask=k_ok, other=0)
        whole = tl.sum(tl.where(i == CHUNK - 1, since, 0.0), 0)
        k_left = tl.trans(k * left[:, None])
        state = state * whole + tl.dot(k_left, corrected, input_precision=PRECISION)
        block += 1
    tl.store(state_ptr, state, mask=in_d[:, None] & in_e[None, :])
    if part == 0:
        qkv_ptr += start * qkv_row
        conv_ptr += slot * conv_slot
        every_e = tl.arange(0, BLOCK_E)
        c, ok = 2 * G * D + h * E + every_e, every_e < E
        held_e = every_e < tl.where(held, E, 0)
        slide_window(qkv_ptr, conv_ptr, c, ok, held_e, qkv_row, length, K, BLOCK_K)
        if h % R == 0:
            slide_window(qkv_ptr, conv_ptr, g * D + d, in_d, held_d, qkv_row, length, K, BLOCK_K)
            k_c = (G + g) * D + d
            slide_window(qkv_ptr, conv_ptr, k_c, in_d, held_d, qkv_row, length, K, BLOCK_K)
