"""``[rows, K] @ [N, K].T`` with the norm before it and the bias and residual behind it.

A norm is the product's own: squares are summed while x streams, x is multiplied by the norm's
weight on its way, and the root scales the sums at the end.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def one_row_kernel(
    x_ptr, weight_ptr, norm_ptr, bias_ptr, residual_ptr, out_ptr, eps,
    N: tl.constexpr, K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program per few columns of a single row; no tensor cores, whole lines of the weight."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    squares = tl.zeros((BLOCK_K,), tl.float32)
    row = weight_ptr + n[:, None].to(tl.int64) * K
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        w = tl.load(row + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0)
        x = tl.load(x_ptr + k, mask=k < K, other=0).to(tl.float32)
        if norm_ptr is not None:
            squares += x * x
            x *= tl.load(norm_ptr + k, mask=k < K, other=0).to(tl.float32)
        acc += w.to(tl.float32) * x[None, :]
    y = tl.sum(acc, 1)
    if norm_ptr is not None:
        y *= tl.rsqrt(tl.sum(squares, 0) / K + eps)
    if bias_ptr is not None:
        y += tl.load(bias_ptr + n, mask=n < N, other=0).to(tl.float32)
    if residual_ptr is not None:
        y += tl.load(residual_ptr + n, mask=n < N, other=0).to(tl.float32)
    tl.store(out_ptr + n, y.to(out_ptr.dtype.element_ty), mask=n < N)


@triton.jit
def few_rows_kernel(
    x_ptr, weight_ptr, norm_ptr, bias_ptr, residual_ptr, out_ptr, x_row, residual_row, M, eps,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program per block of columns, for all rows: the weight is read once."""
    m, n = tl.arange(0, BLOCK_M), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    squares = tl.zeros((BLOCK_M,), tl.float32)
    x_at, weight_at = x_ptr + m[:, None] * x_row, weight_ptr + n[:, None].to(tl.int64) * K
    in_m, in_n = (m < M)[:, None], (n < N)[:, None]
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        in_k = (k < K)[None, :]
        x = tl.load(x_at + k[None, :], mask=in_m & in_k, other=0)
        w = tl.load(weight_at + k[None, :], mask=in_n & in_k, other=0)
        if norm_ptr is not None:
            x32 = x.to(tl.float32)
            squares += tl.sum(x32 * x32, 1)
            norm = tl.load(norm_ptr + k, mask=k < K, other=0).to(tl.float32)
            x = (x32 * norm[None, :]).to(x.dtype)
        acc = tl.dot(x, tl.trans(w), acc)
    if norm_ptr is not None:
        acc *= tl.rsqrt(squares / K + eps)[:, None]
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + n, mask=n < N, other=0).to(tl.float32)[None, :]
    ok = in_m & (n < N)[None, :]
    if residual_ptr is not None:
        residual = residual_ptr + m[:, None] * residual_row + n[None, :]
        acc += tl.load(residual, mask=ok, other=0).to(tl.float32)
    to = out_ptr + m[:, None].to(tl.int64) * N + n[None, :]
    tl.store(to, acc.to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def norm_kernel(x_ptr, norm_ptr, out_ptr, x_row, eps, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """One program per row: the norm alone, for a product that is a library's."""
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_K)
    x = tl.load(x_ptr + row * x_row + k, mask=k < K, other=0).to(tl.float32)
    norm = tl.load(norm_ptr + k, mask=k < K, other=0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / K + eps) * norm
    tl.store(out_ptr + row * K + k, y.to(out_ptr.dtype.element_ty), mask=k < K)
