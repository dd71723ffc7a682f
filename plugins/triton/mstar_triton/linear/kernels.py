"""Products of few rows: what limits them is reading the weight, so all else is done on the way.

With ``PDL`` a kernel is set up while the one before it ends: what does not depend on that one comes
first, and ``gdc_wait`` stands before all that reads or writes what others do. One row has a kernel
of its own, without masks; all other counts of a tile share one, or an eager step of a new count
would wait for a compiler.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def silu(x):
    """fp32."""
    return x * tl.sigmoid(x)


@triton.jit
def norm_kernel(
    x_ptr, norm_ptr, out_ptr, x_row, eps, K: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """One program per row, in the dtype of the row."""
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_K)
    norm = tl.load(norm_ptr + k, mask=k < K, other=0).to(tl.float32)
    if PDL:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()
    x = tl.load(x_ptr + row * x_row + k, mask=k < K, other=0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / K + eps) * norm
    tl.store(out_ptr + row * K + k, y.to(out_ptr.dtype.element_ty), mask=k < K)


@triton.jit
def gate_kernel(both_ptr, out_ptr, F: tl.constexpr, BLOCK: tl.constexpr):
    """``silu(gate) * up`` of rows ``[gate | up]``."""
    row, f = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(both_ptr + row * 2 * F + f, mask=f < F, other=0).to(tl.float32)
    up = tl.load(both_ptr + row * 2 * F + F + f, mask=f < F, other=0).to(tl.float32)
    tl.store(out_ptr + row * F + f, (silu(gate) * up).to(out_ptr.dtype.element_ty), mask=f < F)


@triton.jit
def one_row_kernel(
    x_ptr, weight_ptr, norm_ptr, bias_ptr, residual_ptr, out_ptr, eps,
    N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program per few outputs of a single row; no tensor cores, whole lines of the weight.

    The norm is the product's own: squares are summed while x streams, and the root scales the end.
    With GATED the weight has N rows for the gates, then N for what they gate.
    """
    n, k = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    at = weight_ptr + n[:, None].to(tl.int64) * K + k[None, :]
    in_n: tl.constexpr = N % BLOCK_N == 0
    in_k: tl.constexpr = K % BLOCK_K == 0
    acc = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    up = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    squares = tl.zeros((BLOCK_K,), tl.float32)
    if PDL:
        cuda.gdc_launch_dependents()
    for start in tl.static_range(0, K, BLOCK_K):
        ok = (in_n | (n < N)[:, None]) & (in_k | (start + k < K)[None, :])
        w = tl.load(at + start, mask=ok, other=0).to(tl.float32)
        if GATED:
            u = tl.load(at + N * K + start, mask=ok, other=0).to(tl.float32)
        if PDL:
            if start == 0:
                cuda.gdc_wait()
        x = tl.load(x_ptr + start + k, mask=start + k < K, other=0).to(tl.float32)
        if norm_ptr is not None:
            squares += x * x
            x *= tl.load(norm_ptr + start + k, mask=start + k < K, other=0).to(tl.float32)
        acc += w * x[None, :]
        if GATED:
            up += u * x[None, :]
    y = tl.sum(acc, 1)
    scale = 1.0
    if norm_ptr is not None:
        scale = tl.rsqrt(tl.sum(squares, 0) / K + eps)
        y *= scale
    if GATED:
        y = silu(y) * tl.sum(up, 1) * scale
    if bias_ptr is not None:
        y += tl.load(bias_ptr + n, mask=n < N, other=0).to(tl.float32)
    if residual_ptr is not None:
        y += tl.load(residual_ptr + n, mask=n < N, other=0).to(tl.float32)
    tl.store(out_ptr + n, y.to(out_ptr.dtype.element_ty), mask=n < N)


@triton.jit(do_not_specialize_on_alignment=("M",))
def few_rows_kernel(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, part_ptr, arrived_ptr, out_ptr,
    x_row, residual_row, M,
    N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, AHEAD: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One program per block of outputs and part of K, for all rows: the weight is read once.

    AHEAD blocks of the weight are read before the wait. The last of a block's parts to arrive sums
    them all, in their order and not in that of arrival.
    """
    column, part = tl.program_id(0), tl.program_id(1)
    SHARE: tl.constexpr = (K + SPLITS * BLOCK_K - 1) // (SPLITS * BLOCK_K) * BLOCK_K
    first = part * SHARE
    m, lane, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    n = column * BLOCK_N + lane
    row = weight_ptr + n[:, None].to(tl.int64) * K
    in_m, in_n = (m < M)[:, None], (n < N)[:, None]
    if PDL:
        cuda.gdc_launch_dependents()
    ahead = ()
    for i in tl.static_range(AHEAD):
        at = (first + i * BLOCK_K + k)[None, :]
        ahead = ahead + (tl.load(row + at, mask=in_n & (at < K), other=0),)  # noqa: RUF005 (no stars)
    if PDL:
        cuda.gdc_wait()
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    x_at = x_ptr + m[:, None] * x_row
    for i in tl.static_range(AHEAD):
        at = (first + i * BLOCK_K + k)[None, :]
        x = tl.load(x_at + at, mask=in_m & (at < K), other=0)
        acc = tl.dot(x, tl.trans(ahead[i]), acc)
    for start in range(first + AHEAD * BLOCK_K, tl.minimum(first + SHARE, K), BLOCK_K):
        at = (start + k)[None, :]
        in_k = at < K
        x = tl.load(x_at + at, mask=in_m & in_k, other=0)
        w = tl.load(row + at, mask=in_n & in_k, other=0)
        acc = tl.dot(x, tl.trans(w), acc)
        if GATED:
            u = tl.load(row + N * K + at, mask=in_n & in_k, other=0)
            up = tl.dot(x, tl.trans(u), up)
    if SPLITS > 1:
        cell = m[:, None] * BLOCK_N + lane[None, :]
        parts = part_ptr + column * SPLITS * BLOCK_M * BLOCK_N + cell
        tl.store(parts + part * BLOCK_M * BLOCK_N, acc)
        tl.debug_barrier()  # every thread's part is stored before one thread says so
        if tl.atomic_add(arrived_ptr + column, 1, sem="acq_rel") < SPLITS - 1:
            return
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for i in tl.static_range(SPLITS):
            acc += tl.load(parts + i * BLOCK_M * BLOCK_N, cache_modifier=".cg")
        tl.store(arrived_ptr + column, 0)
    if GATED:
        acc = silu(acc) * up
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + n, mask=n < N, other=0).to(tl.float32)[None, :]
    ok = in_m & (n < N)[None, :]
    if residual_ptr is not None:
        residual = residual_ptr + m[:, None] * residual_row + n[None, :]
        acc += tl.load(residual, mask=ok, other=0).to(tl.float32)
    to = out_ptr + m[:, None].to(tl.int64) * N + n[None, :]
    tl.store(to, acc.to(out_ptr.dtype.element_ty), mask=ok)
