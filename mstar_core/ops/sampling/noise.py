"""Noise without state: a Gumbel value of (seed, position, draw, vocabulary id).

The arithmetic is that of unsigned integers, written in torch's signed ones: a product wraps the
same way, and a shift to the right is masked. First one 64-bit key per row::

    z = seed · A + position · B + draw · C            wraps at 2**64
    z = splitmix64 finaliser of z;  k0, k1 = low, high 32 bits of z

then 32 bits per vocabulary id, with two keyed rounds, so that no two keys give the same values in
another order::

    h = id · 0x9E3779B1 + k0
    h ^= h >> 16;  h *= 0x7FEB352D;  h ^= k1
    h ^= h >> 15;  h *= 0x846CA68B
    h ^= h >> 16;  h *= 0x2C1B3C6D
    h ^= h >> 16

``u = (h + 0.5) / 2**32`` in fp32, at most 1 - 2**-24, is made exponential as ``-log1p(-u)``:
small values, which win, keep their full precision. The Gumbel value is its negative logarithm.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


SEED, POSITION, DRAW = (
    _signed(x, 64) for x in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7)
)
FINAL = tuple(_signed(x, 64) for x in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
SPREAD, FIRST, SECOND, THIRD = (
    _signed(x, 32) for x in (0x9E3779B1, 0x7FEB352D, 0x846CA68B, 0x2C1B3C6D)
)


def row_keys(seed_B: Tensor, position_B: Tensor, draw: int) -> tuple[Tensor, Tensor]:
    """``(k0_B, k1_B)`` int32, from int64 seeds and positions and the number of the draw."""
    z = seed_B * SEED + position_B * POSITION + _wrapped(draw)
    z = (z ^ _shifted(z, 30, 64)) * FINAL[0]
    z = (z ^ _shifted(z, 27, 64)) * FINAL[1]
    z = z ^ _shifted(z, 31, 64)
    low, high = (z << 32) >> 32, z >> 32
    return low.to(torch.int32), high.to(torch.int32)


def random_bits(k0_B: Tensor, k1_B: Tensor, ids_BV: Tensor) -> Tensor:
    """int32 ``[B, V]``: 32 random bits for each id under each row's key; ids are int32."""
    h = ids_BV * SPREAD + k0_B[:, None]
    h = ((h ^ _shifted(h, 16, 32)) * FIRST) ^ k1_B[:, None]
    h = (h ^ _shifted(h, 15, 32)) * SECOND
    h = (h ^ _shifted(h, 16, 32)) * THIRD
    return h ^ _shifted(h, 16, 32)


def gumbel(seed_B: Tensor, position_B: Tensor, draw: int, ids_BV: Tensor) -> Tensor:
    """fp32 ``[B, V]``: standard Gumbel noise of each id; ``ids_BV`` int32, its B may be 1."""
    bits = random_bits(*row_keys(seed_B, position_B, draw), ids_BV)
    word = bits.long() & 0xFFFFFFFF
    u = ((word.float() + 0.5) * 2.0**-32).clamp_max(1 - 2.0**-24)
    return -(-torch.log1p(-u)).log()


def _wrapped(draw: int) -> int:
    return _signed(draw * DRAW & (1 << 64) - 1, 64)


def _shifted(x: Tensor, by: int, bits: int) -> Tensor:
    """A shift to the right that brings in zeros."""
    return (x >> by) & ((1 << (bits - by)) - 1)
