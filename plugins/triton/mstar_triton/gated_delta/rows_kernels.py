"""Device functions that the kernels of the delta rule share: gates, norms, windows."""

from __future__ import annotations

import triton
import triton.language as tl

FULL = tl.constexpr(16384.0)
"""The largest of what is kept in fp16 over a bound of it."""
LONG = tl.constexpr(256.0)
"""The length of queries in a prefill: what decays of their scores is no subnormal soon."""


@triton.jit
def silu(x):
    """fp32."""
    return x * tl.sigmoid(x)


@triton.jit
def l2(x_D):
    """A vector over its length; zero stays zero."""
    return x_D * tl.rsqrt(tl.sum(x_D * x_D, 0) + 1e-6)


@triton.jit
def log_decay(a, a_log, dt_bias):
    """The log of the decay: ``-exp(A_log) * softplus(a + dt_bias)``, all fp32."""
    x = a + dt_bias
    softplus = tl.maximum(x, 0) + tl.log(1 + tl.exp(-tl.abs(x)))
    return -tl.exp(a_log) * softplus


@triton.jit
def held_window(window_ptr, c, held, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """``[C, BLOCK_K]``: the K - 1 inputs that are held of each channel."""
    j = tl.arange(0, BLOCK_K)[None, :]
    mask = held[:, None] & (j < K - 1)
    old = window_ptr + c[:, None] * (K - 1) + j
    return tl.load(old, mask=mask, other=0, cache_modifier=".cg")


@triton.jit
def with_newest(held, qkv_ptr, c, ok, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """``[C, BLOCK_K]``: :func:`held_window`, then the newest input."""
    j = tl.arange(0, BLOCK_K)[None, :]
    new = tl.load(qkv_ptr + c[:, None] + 0 * j, mask=ok[:, None] & (j == K - 1), other=0)
    return tl.where(j == K - 1, new.to(held.dtype), held)


@triton.jit
def keep_newest(window_ptr, window, c, ok, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """Store all but the oldest of :func:`with_newest`; behind a barrier after its load."""
    j = tl.arange(0, BLOCK_K)[None, :]
    to = window_ptr + c[:, None] * (K - 1) + j - 1
    tl.store(to, window, mask=ok[:, None] & (j > 0) & (j < K))


@triton.jit
def window_taps(taps_ptr, c, ok, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """``[C, BLOCK_K]``: the weights of each channel's convolution."""
    j = tl.arange(0, BLOCK_K)[None, :]
    return tl.load(taps_ptr + c[:, None] * K + j, mask=ok[:, None] & (j < K), other=0)


@triton.jit
def convolved(window, taps):
    """fp32 ``[C]``: the convolution over a window, through SiLU."""
    return silu(tl.sum(window.to(tl.float32) * taps.to(tl.float32), 1))


@triton.jit
def slide_window(
    qkv_ptr, window_ptr, c, ok, held, q_row, length, K: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    """The window behind ``length`` tokens, which begin at ``qkv_ptr``, stored over the old one."""
    j = tl.arange(0, BLOCK_K)[None, :]
    in_window = ok[:, None] & (j < K - 1)
    token = length - (K - 1) + j
    at = token.to(tl.int64) * q_row + c[:, None]
    new = tl.load(qkv_ptr + at, mask=in_window & (token >= 0), other=0)
    place = window_ptr + c[:, None] * (K - 1) + j
    old = tl.load(place + length, mask=in_window & (token < 0) & held[:, None], other=0)
    tl.debug_barrier()  # a place is read by one thread and written by another
    tl.store(place, tl.where(token >= 0, new.to(old.dtype), old), mask=in_window)
