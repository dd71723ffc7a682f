"""The likeliest id, its log probability and whether all is finite, in one pass over the logits."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def survey_kernel(
    logits_ptr, best_ptr, id_ptr, total_ptr, finite_ptr, logits_row, V,
    BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row and block of the vocabulary: its largest logit, where, and the rest.

    The block is held while its largest is found, so each logit is raised once.
    """
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if PDL:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    v = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * logits_row + v, mask=v < V, other=float("-inf"))
    x = x.to(tl.float32)
    highest = tl.max(x, 0)
    lowest = tl.min(tl.where(v < V, x, float("inf")), 0)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    total = tl.sum(tl.exp2(x * LOG2_E - base * LOG2_E), 0)
    bounded = (highest < float("inf")) & (lowest > float("-inf")) & (total == total)
    to = row * tl.num_programs(1) + block
    tl.store(best_ptr + to, highest)
    tl.store(id_ptr + to, tl.min(tl.where(x == highest, v, V - 1), 0))
    tl.store(total_ptr + to, total)
    tl.store(finite_ptr + to, bounded.to(tl.int32))


@triton.jit
def settle_kernel(
    best_ptr, id_ptr, total_ptr, finite_ptr, ids_ptr, logprob_ptr, log_total_ptr, all_finite_ptr,
    V, LEAST: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per row: its blocks together. Of equals the lowest id wins."""
    row, s = tl.program_id(0), tl.arange(0, BLOCK)
    if PDL:
        cuda.gdc_wait()
    at, ok = row * BLOCKS + s, s < BLOCKS
    best = tl.load(best_ptr + at, mask=ok, other=float("-inf"))
    ids = tl.load(id_ptr + at, mask=ok, other=V - 1)
    total = tl.load(total_ptr + at, mask=ok, other=0)
    finite = tl.load(finite_ptr + at, mask=ok, other=1)
    highest = tl.max(best, 0)
    nothing = highest == float("-inf")
    base = tl.where(nothing, 0.0, highest)
    whole = tl.sum(total * tl.exp(best - base), 0)
    log_total = tl.where(nothing, 0.0, base + tl.log(tl.where(nothing, 1.0, whole)))
    tl.store(ids_ptr + row, tl.min(tl.where(best == highest, ids, V - 1), 0).to(tl.int64))
    logprob = highest - log_total
    tl.store(logprob_ptr + row, tl.where(logprob < LEAST, LEAST, logprob))
    tl.store(log_total_ptr + row, log_total)
    tl.store(all_finite_ptr + row, tl.min(finite, 0) > 0)
