"""The contract's noise, in unsigned integers, and the order of fp32 numbers as integers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def ordered(x):
    """int32 in the order of the fp32 ``x``; both zeros are equal."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def row_keys(seed, position, draw):
    """``(k0, k1)`` uint32 of a row, from int64 seed and position."""
    seed, position = seed.to(tl.uint64), position.to(tl.uint64)
    z = seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03
    z += (position * 0 + draw) * 0x8CB92BA72F3D8DD7
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    z = z ^ (z >> 31)
    return z.to(tl.uint32), (z >> 32).to(tl.uint32)


@triton.jit
def gumbel(k0, k1, ids):
    """fp32 noise of each id. ``log1p`` is a series where a logarithm would lose small values."""
    h = ids.to(tl.uint32) * 0x9E3779B1 + k0
    h = ((h ^ (h >> 16)) * 0x7FEB352D) ^ k1
    h = (h ^ (h >> 15)) * 0x846CA68B
    h = (h ^ (h >> 16)) * 0x2C1B3C6D
    h = h ^ (h >> 16)
    u = tl.minimum((h.to(tl.float32) + 0.5) * (2.0**-32), 1 - 2.0**-24)
    s = u / (2 - u)
    ss = s * s
    series = 1.0 / 17
    for i in tl.static_range(8):
        series = series * ss + 1.0 / (15 - 2 * i)
    exponential = tl.where(u > 0.5, -tl.log(1 - u), 2 * s * series)
    return -tl.log(exponential)
