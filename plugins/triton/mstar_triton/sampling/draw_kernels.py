"""A drawn id, with exact top-k, top-p and min-p and without a sort.

In falling order (of equals the lower id first) what the filters leave is a prefix. So a candidate,
the best of a prefix with its noise, is either left, or nothing at or behind it is: then the prefix
ends before it, and the best of that is the next candidate. The first candidate is nearly always
left, as it is drawn by the very probabilities of which top-p leaves the larger part.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mstar_triton.sampling.noise_kernels import gumbel, ordered, row_keys

LEAST = tl.constexpr(-(2**31))
"""Below the order of every logit."""


@triton.jit
def inside(key, v, cut, cut_id):
    """Whether ids are of the prefix that ends at ``(cut, cut_id)``, inclusive."""
    return (key > cut) | ((key == cut) & (v <= cut_id))


@triton.jit
def seen(row_ptr, v, V):
    """``(logits, order)`` of ids; past the vocabulary all is least."""
    x = tl.load(row_ptr + v, mask=v < V, other=float("-inf")).to(tl.float32)
    return x, tl.where(v < V, ordered(x), LEAST)


@triton.jit
def largest_k(row_ptr, k, highest, V, BLOCK: tl.constexpr):
    """``(cut, cut_id)`` of the k largest, exactly; three counts a pass narrow four ways."""
    lane = tl.arange(0, BLOCK)
    low, high = tl.cast(highest, tl.int64) * 0 + LEAST, tl.cast(highest, tl.int64) + 1
    at_least, above = highest * 0 + V, highest * 0
    while (high - low > 1) & (at_least != k):
        m1, m2, m3 = low + (high - low) // 4, low + (high - low) // 2, low + (high - low) * 3 // 4
        c1, c2, c3 = (
            tl.zeros((BLOCK,), tl.int32),
            tl.zeros((BLOCK,), tl.int32),
            tl.zeros((BLOCK,), tl.int32),
        )
        for start in range(0, V, BLOCK):
            _, key = seen(row_ptr, start + lane, V)
            c1 += (key >= m1).to(tl.int32)
            c2 += (key >= m2).to(tl.int32)
            c3 += (key >= m3).to(tl.int32)
        n1, n2, n3 = tl.sum(c1, 0), tl.sum(c2, 0), tl.sum(c3, 0)
        above = tl.where(n3 >= k, above, tl.where(n2 >= k, n3, tl.where(n1 >= k, n2, n1)))
        high = tl.where(n3 >= k, high, tl.where(n2 >= k, m3, tl.where(n1 >= k, m2, m1)))
        at_least = tl.where(n3 >= k, n3, tl.where(n2 >= k, n2, tl.where(n1 >= k, n1, at_least)))
        low = tl.where(n3 >= k, m3, tl.where(n2 >= k, m2, tl.where(n1 >= k, m1, low)))
    cut, cut_id = low.to(tl.int32), highest * 0 + V
    if at_least > k:
        places, counted = k - above, highest * 0
        for start in range(0, V, BLOCK):
            v = start + lane
            _, key = seen(row_ptr, v, V)
            equal = (key == cut).to(tl.int32)
            rank = counted + tl.cumsum(equal, 0)
            last = tl.where((equal > 0) & (rank == places), v, V)
            cut_id = tl.minimum(cut_id, tl.min(last, 0))
            counted += tl.sum(equal, 0)
    return cut, cut_id


@triton.jit
def mass(row_ptr, base, rate, cut, cut_id, V, BLOCK: tl.constexpr):
    """The sum of ``exp((x - base) * rate)`` over a prefix."""
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, V, BLOCK):
        x, key = seen(row_ptr, start + lane, V)
        within = inside(key, start + lane, cut, cut_id)
        total += tl.where(within, tl.exp((x - base) * rate), 0.0)
    return tl.sum(total, 0)


@triton.jit
def candidate(row_ptr, base, rate, min_p, k0, k1, cut, cut_id, V, BLOCK: tl.constexpr):
    """``(noisy, id)``: the best of a prefix with its noise; -inf where min-p leaves none."""
    lane = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    at = lane
    for start in range(0, V, BLOCK):
        v = start + lane
        x, key = seen(row_ptr, v, V)
        within = inside(key, v, cut, cut_id)
        if tl.max(within.to(tl.int32), 0) > 0:
            scaled = (x - base) * rate
            noisy = tl.where(within & (tl.exp(scaled) >= min_p), scaled, float("-inf"))
            noisy += gumbel(k0, k1, v)
            at = tl.where(noisy > best, v, at)
            best = tl.where(noisy > best, noisy, best)
    highest = tl.max(best, 0)
    return highest, tl.min(tl.where(best == highest, at, V), 0)


@triton.jit
def draw_kernel(
    logits_ptr, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr, seed_ptr, position_ptr,
    log_total_ptr, ids_ptr, logprob_ptr, temperature_row, top_k_row, top_p_row, min_p_row,
    seed_row, position_row, logits_row, V, draw, GREEDY_BELOW: tl.constexpr,
    LEAST_LOGPROB: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per row; it replaces the likeliest id, unless the row is greedy."""
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperature_ptr + row * temperature_row)
    if temperature < GREEDY_BELOW:
        return
    row_ptr = logits_ptr + row * logits_row
    likeliest = tl.load(ids_ptr + row)
    base = tl.load(row_ptr + likeliest).to(tl.float32)
    rate = 1 / temperature
    k, p, min_p = (
        tl.load(top_k_ptr + row * top_k_row),
        tl.load(top_p_ptr + row * top_p_row),
        tl.load(min_p_ptr + row * min_p_row),
    )
    k0, k1 = row_keys(
        tl.load(seed_ptr + row * seed_row), tl.load(position_ptr + row * position_row), draw
    )
    cut, cut_id = ordered(base) * 0 + LEAST, ordered(base) * 0 + V
    if (k > 0) & (k < V):
        cut, cut_id = largest_k(row_ptr, k, ordered(base), V, BLOCK)
    allowed = base * 0 + float("inf")
    if p < 1:
        allowed = p * mass(row_ptr, base, rate, cut, cut_id, V, BLOCK)
    chosen, searching = likeliest, 1
    while searching > 0:
        noisy, found = candidate(row_ptr, base, rate, min_p, k0, k1, cut, cut_id, V, BLOCK)
        searching = searching * 0
        if noisy > float("-inf"):
            chosen = found.to(tl.int64)
            if p < 1:
                cut = ordered(tl.load(row_ptr + chosen).to(tl.float32))
                cut_id = found - 1
                before = mass(row_ptr, base, rate, cut, cut_id, V, BLOCK)
                searching = ((before >= allowed) & (before > 0)).to(tl.int32)
    tl.store(ids_ptr + row, chosen)
    logprob = tl.load(row_ptr + chosen).to(tl.float32) - tl.load(log_total_ptr + row)
    tl.store(logprob_ptr + row, tl.where(logprob < LEAST_LOGPROB, LEAST_LOGPROB, logprob))
