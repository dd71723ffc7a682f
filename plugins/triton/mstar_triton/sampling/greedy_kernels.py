"""The likeliest id, its log probability and whether all is finite, in one pass over the logits."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def survey_kernel(
    logits_ptr, best_ptr, id_ptr, total_ptr, finite_ptr, logits_row, V,
    SPAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per row and span of the vocabulary: its largest logit, where, and the rest.

    Each lane keeps its own largest and its own sum; lanes meet once, behind the loop.
    """
    row, span = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    at = span * SPAN + lane
    total = tl.zeros((BLOCK,), tl.float32)
    finite = tl.full((BLOCK,), 1, tl.int32)
    for start in range(span * SPAN, tl.minimum(span * SPAN + SPAN, V), BLOCK):
        v = start + lane
        x = tl.load(logits_ptr + row * logits_row + v, mask=v < V, other=float("-inf"))
        x = x.to(tl.float32)
        finite = tl.where((v < V) & ((tl.abs(x) < float("inf")) == 0), 0, finite)
        above = tl.maximum(best, x)
        base = tl.where(above == float("-inf"), 0.0, above)
        total = total * tl.exp(best - base) + tl.exp(x - base)
        at = tl.where(x > best, v, at)
        best = above
    highest = tl.max(best, 0)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    chosen = tl.min(tl.where(best == highest, at, V - 1), 0)
    to = row * tl.num_programs(1) + span
    tl.store(best_ptr + to, highest)
    tl.store(id_ptr + to, chosen)
    tl.store(total_ptr + to, tl.sum(total * tl.exp(best - base), 0))
    tl.store(finite_ptr + to, tl.min(finite, 0))


@triton.jit
def settle_kernel(
    best_ptr, id_ptr, total_ptr, finite_ptr, ids_ptr, logprob_ptr, log_total_ptr, all_finite_ptr,
    V, SPANS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per row: its spans together. Of equals the lowest id wins."""
    row, s = tl.program_id(0), tl.arange(0, BLOCK)
    at, ok = row * SPANS + s, s < SPANS
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
    tl.store(logprob_ptr + row, highest - log_total)
    tl.store(log_total_ptr + row, log_total)
    tl.store(all_finite_ptr + row, tl.min(finite, 0) > 0)
