"""What bytes sound like: a tone each, of 10 ms, whose pitch is the byte."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

RATE = 24_000
"""Samples per second."""
SAMPLES = RATE // 100
"""Samples of one tone."""
LOWEST, STEP = 200, 20
"""Hz of the byte 0, and from one byte to the next."""


def tones(text: Sequence[int]) -> np.ndarray:
    """float32 ``[T]``: one tone per byte, in order."""
    if not text:
        return np.empty(0, dtype=np.float32)
    return np.concatenate([_tone(byte) for byte in text])


@cache
def _tone(byte: int) -> np.ndarray:
    at_T = np.arange(SAMPLES) / RATE
    return (0.25 * np.sin(2 * np.pi * (LOWEST + STEP * byte) * at_T)).astype(np.float32)
