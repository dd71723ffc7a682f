"""Prompts in chunks of 64 tokens: everything that is independent of the state runs at once.

::

    mix      convolution, SiLU, l2 norms, windows move     tokens x heads     (token_kernels.py)
    chunk    gates, the triangular system of each chunk    chunks x heads
    scan     the state through a row's chunks, in order    rows x heads x parts of the value width
    finish   gated norm                                    tokens x heads     (token_kernels.py)

A chunk belongs to one row; how many there are follows from the tokens and rows of the bucket.

What is mixed in fp16 makes all products of fp16, which is as fine as tf32: of what is bounded by
its norms as it is, of values and states in a unit of their chunk.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mstar_triton.attention.rows_kernels import block_of_row
from mstar_triton.gated_delta.rows_kernels import FULL, LONG, log_decay

CHUNK = tl.constexpr(64)


@triton.jit
def inverse(system, element: tl.constexpr, PRECISION: tl.constexpr):
    """Of a unit lower triangular matrix, given below its diagonal: ``[CHUNK, CHUNK]`` fp32.

    Blocks on the diagonal are joined in pairs, from one row each to all of them. No entry of theirs
    passes 1: each says how much of one token's value a later token takes back.
    """
    i, j = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    solved = tl.where(i // 2 == j // 2, tl.where(i == j, 1.0, -system), 0.0)
    for level in tl.static_range(1, 6):
        size = 2**level
        beside = (i // size != j // size) & (i // (2 * size) == j // (2 * size))
        x = solved.to(element)
        y = tl.dot(tl.where(beside, system, 0.0).to(element), x, input_precision=PRECISION)
        solved -= tl.dot(x, y.to(element), input_precision=PRECISION)
    return solved


@triton.jit(do_not_specialize=("B",))
def chunk_kernel(
    mixed_ptr, tops_ptr, b_ptr, a_ptr, a_log_ptr, dt_bias_ptr, slots_ptr, starts_ptr, lens_ptr,
    lead_ptr, solved_ptr, scores_ptr, since_ptr, left_ptr, most_ptr, b_row, a_row, B,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, C: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_B: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program per chunk and value head.

    With the state S before the chunk, the corrected values are ``solved @ (v - since * (k @ S))``,
    and the output is ``since * (q @ S) + scores @ corrected``, of queries that are ``LONG``;
    ``left`` is what is left at the chunk's end. Its values add at most ``most`` to a state.
    """
    every = tl.arange(0, BLOCK_B)
    slots = tl.load(slots_ptr + every, mask=every < B, other=0)
    starts = tl.load(starts_ptr + every, mask=every < B, other=0)
    lens = tl.load(lens_ptr + every, mask=every < B, other=0)
    row, first = block_of_row(tl.program_id(0), lens_ptr, lead_ptr, B, CHUNK, BLOCK_B)
    here = every == row
    if tl.sum(tl.where(here, slots, 0), 0) == 0:
        return
    h, i, d = tl.program_id(1), tl.arange(0, CHUNK), tl.arange(0, BLOCK_D)
    first *= CHUNK
    g, H, ok = h // R, G * R, first + i < tl.sum(tl.where(here, lens, 0), 0)
    start = tl.sum(tl.where(here, starts, 0), 0).to(tl.int64) + first
    at = mixed_ptr + start * C + g * D + (i[:, None] * C + d[None, :])
    q = tl.load(at, mask=ok[:, None] & (d < D)[None, :], other=0)
    k = tl.load(at + G * D, mask=ok[:, None] & (d < D)[None, :], other=0)
    b = tl.load(b_ptr + (start + i) * b_row + h, mask=ok, other=0).to(tl.float32)
    a = tl.load(a_ptr + (start + i) * a_row + h, mask=ok, other=0).to(tl.float32)
    a_log, dt_bias = tl.load(a_log_ptr + h).to(tl.float32), tl.load(dt_bias_ptr + h).to(tl.float32)
    beta = tl.where(ok, tl.sigmoid(b), 0.0)
    decay = tl.where(ok, log_decay(a, a_log, dt_bias), 0.0)
    # In fp64, as a difference of running sums loses small decays behind a large one.
    total = tl.cumsum(tl.maximum(decay, -1000.0).to(tl.float64), 0)
    between = (total[:, None] - total[None, :]).to(tl.float32)
    between = tl.exp(tl.where(i[:, None] >= i[None, :], between, -1000.0))
    place = (tl.program_id(0) * H + h).to(tl.int64)
    if tops_ptr is not None:
        tops = tl.load(tops_ptr + (start + i) * H + h, mask=ok, other=0)
        tl.store(most_ptr + place, tl.sum(tops, 0) * FULL)
    kept = place * CHUNK + i
    tl.store(since_ptr + kept, tl.exp(total.to(tl.float32)))
    tl.store(left_ptr + kept, tl.exp((tl.min(total, 0) - total).to(tl.float32)))
    square = kept[:, None] * CHUNK + i[None, :]
    k_t = tl.trans(k)
    scores = tl.dot(q, k_t, input_precision=PRECISION) * between
    tl.store(scores_ptr + square, scores.to(k.dtype))
    system = tl.dot(k, k_t, input_precision=PRECISION) * between * beta[:, None]
    system = tl.where(i[:, None] > i[None, :], system, 0.0)
    solved = inverse(system, k.dtype, PRECISION) * beta[None, :]
    tl.store(solved_ptr + square, solved.to(k.dtype))


@triton.jit(do_not_specialize=("B",))
def scan_kernel(
    mixed_ptr, tops_ptr, solved_ptr, scores_ptr, since_ptr, left_ptr, most_ptr, ssm_ptr,
    slots_ptr, fresh_ptr, starts_ptr, lens_ptr, lead_ptr, o_ptr, ssm_slot, B,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, E: tl.constexpr, C: tl.constexpr,
    BLOCK_D: tl.constexpr, PART_E: tl.constexpr, BLOCK_B: tl.constexpr, PRECISION: tl.constexpr,
    FEW: tl.constexpr,
):  # fmt: skip
    """One program per row, value head and part of the value width; it holds ``S [D, PART_E]``.

    In fp16 a chunk's states and values are in one unit. No state, and no value that is taken from
    one, passes ``bound``: keys are of length 1 and ``beta`` is at most 1, so that a column of S
    grows at most by the values that are added, and shrinks by what decays.

    A program with a multiprocessor to itself (FEW) makes the output behind the next state, for
    which the next chunk waits; two that share one need less memory with queries scaled first.
    """
    row, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    every = tl.arange(0, BLOCK_B)
    lens = tl.load(lens_ptr + every, mask=every < B, other=0)
    if lead_ptr is not None:
        lens = tl.where(every < tl.load(lead_ptr), 0, lens)
    length = tl.sum(tl.where(every == row, lens, 0), 0)
    block = tl.sum(tl.where(every < row, (lens + CHUNK - 1) // CHUNK, 0), 0)
    slot = tl.load(slots_ptr + row)
    g, H, held = h // R, G * R, tl.load(fresh_ptr + row) == 0
    element: tl.constexpr = mixed_ptr.dtype.element_ty
    HALF: tl.constexpr = element == tl.float16
    if (slot == 0) | (length == 0):
        return
    start = tl.load(starts_ptr + row).to(tl.int64)
    i, d = tl.arange(0, CHUNK), tl.arange(0, BLOCK_D)
    e = part * PART_E + tl.arange(0, PART_E)
    in_d, in_e = d < D, e < E
    held_d = d < tl.where(held, D, 0)
    state_ptr = ssm_ptr + slot * ssm_slot + h * D * E + d[:, None] * E + e[None, :]
    state = tl.load(state_ptr, mask=held_d[:, None] & in_e[None, :], other=0)
    unit, inverse_unit, bound = 1.0, 1.0, tl.max(tl.abs(state)) * D**0.5
    for first in range(0, length, CHUNK):
        ok, t = first + i < length, start + first
        k_ok, v_ok = ok[:, None] & in_d[None, :], ok[:, None] & in_e[None, :]
        at = mixed_ptr + t * C + (i[:, None] * C + g * D + d[None, :])
        k = tl.load(at + G * D, mask=k_ok, other=0)
        v_at = mixed_ptr + t * C + (i[:, None] * C + 2 * G * D + h * E + e[None, :])
        new = tl.load(v_at, mask=v_ok, other=0).to(tl.float32)
        place = (block * H + h).to(tl.int64)
        if HALF:
            most = tl.load(most_ptr + place)
            unit = tl.maximum(bound + most, 1e-12) / FULL
            inverse_unit = 1 / unit
            new *= (tl.load(tops_ptr + t * H + i * H + h, mask=ok, other=0) * inverse_unit)[:, None]
        kept = place * CHUNK
        square = kept * CHUNK + (i[:, None] * CHUNK + i[None, :])
        solved = tl.load(solved_ptr + square)
        q = tl.load(at, mask=k_ok, other=0)
        scores = tl.load(scores_ptr + square)
        since, left = tl.load(since_ptr + kept + i), tl.load(left_ptr + kept + i)
        whole = tl.load(since_ptr + kept + CHUNK - 1)
        before = (state * inverse_unit).to(element)
        new -= tl.dot(k, before, input_precision=PRECISION) * since[:, None]
        if not FEW:
            o = tl.dot((q * since[:, None]).to(element), before, input_precision=PRECISION)
        new = tl.dot(solved, new.to(element), input_precision=PRECISION)
        if not FEW:
            o = tl.dot(scores, new.to(element), o, input_precision=PRECISION)
        added = (new * left[:, None]).to(element)
        state = state * whole + tl.dot(tl.trans(k), added, input_precision=PRECISION) * unit
        if FEW:
            o = tl.dot(q, before, input_precision=PRECISION) * since[:, None]
            o += tl.dot(scores, new.to(element), input_precision=PRECISION)
        o *= unit * D**-0.5 / LONG
        to = o_ptr + t * (H * E) + (i[:, None] * (H * E) + h * E + e[None, :])
        tl.store(to, o.to(o_ptr.dtype.element_ty), mask=v_ok)
        if HALF:
            bound = bound * whole + most
        block += 1
    tl.store(state_ptr, state, mask=in_d[:, None] & in_e[None, :])
