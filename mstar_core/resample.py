"""A change of sample rate, of whole sounds and of sounds that come in pieces. Free of torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mstar_core.errors import RequestError

ZERO_CROSSINGS = 64
"""Zero crossings of the resampler's sinc on either side of its middle."""
PASSBAND = 0.95
"""Middle of the resampler's transition band, as a share of the lower Nyquist frequency."""
KAISER_BETA = 10.0
"""Shape of the sinc's window: what lies beyond the lower Nyquist frequency is 100 dB down."""
MIN_RATE, MAX_RATE = 1_000, 768_000
"""The sample rates that are taken for one, in Hz."""
_COLUMNS = 128
"""Outputs that are computed from one window, by one product of matrices."""
_FILTERS = 640
"""Filters that are kept: all that the usual pairs of rates need."""
_BLOCK = 256
"""Windows that are copied at once."""


def resample(samples_T: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """float32 ``[T]`` at ``rate`` Hz → float32 ``[ceil(T * new_rate / rate)]`` at ``new_rate`` Hz.

    A sinc under a Kaiser window, evaluated exactly at every output (polyphase). Frequencies up to
    0.9 of the lower Nyquist frequency come out within 0.0001 of full scale; those beyond it are
    100 dB down. Raises RequestError for a rate that is not a whole number in the accepted range.
    """
    up, down = _ratio(rate, new_rate)
    if rate == new_rate or len(samples_T) == 0:
        return samples_T.astype(np.float32, copy=False)
    reach = _reach(up, down)
    half = reach[1]
    count = -(-len(samples_T) * up // down)
    times = -(-_COLUMNS // up)
    up, down = up * times, down * times
    out = np.empty((-(-count // up), up), dtype=np.float32)
    behind = len(out) * down + half + 1 - len(samples_T)
    padded_T = np.pad(samples_T.astype(np.float64), (half, behind))
    for first in range(0, up, _COLUMNS):
        start, taps = _columns(range(first, min(up, first + _COLUMNS)), up, down, reach)
        target = out[:, first : first + _COLUMNS]
        for rows, windows in _windows(padded_T[start:], len(out), down, len(taps)):
            target[rows] = windows @ taps
    return out.reshape(-1)[:count]


def resample_blocks(blocks: Iterable[np.ndarray], rate: int, new_rate: int) -> Iterator[np.ndarray]:
    """``resample`` for sound that comes in blocks float32 ``[T]``; together they give the same.

    Each block but the last lasts the same whole number of seconds (5, say), which is longer than
    the filter reaches. At most three blocks are held. Raises RequestError as ``resample`` does.
    """
    up, down = _ratio(rate, new_rate)
    edge = down * -(-(_reach(up, down)[1] + down + 1) // down) if up != down else 0
    before = block = np.empty(0, dtype=np.float32)
    for after in blocks:
        yield _resampled_middle(before, block, after[:edge], (rate, new_rate))
        before, block = block[len(block) - edge :], after
    yield _resampled_middle(before, block, block[:0], (rate, new_rate))


class Resampler:
    """``resample`` for sound that comes in pieces of any length; together they give the same.

    A sample comes out once all is there that it depends on, a hundredth of a second behind it.
    """

    def __init__(self, rate: int, new_rate: int) -> None:
        """Raises RequestError as ``resample`` does."""
        self._rates = rate, new_rate
        self._up, self._down = up, down = _ratio(rate, new_rate)
        self._half = _reach(up, down)[1] if up != down else -1
        self._held_T = np.empty(0, dtype=np.float32)
        self._start = 0
        """The sample that what is held begins with, a multiple of ``down``."""
        self._given = 0
        """Samples that have come out."""

    def push(self, samples_T: np.ndarray) -> np.ndarray:
        """float32 ``[T]`` at the old rate → float32 ``[T]`` at the new one."""
        self._held_T = np.concatenate([self._held_T, samples_T], dtype=np.float32)
        whole = self._start + len(self._held_T) - self._half - 1
        return self._until(whole * self._up // self._down)

    def finish(self) -> np.ndarray:
        """What is left: float32 ``[T]``."""
        return self._until(-(-(self._start + len(self._held_T)) * self._up // self._down))

    def _until(self, count: int) -> np.ndarray:
        if count <= self._given:
            return np.empty(0, dtype=np.float32)
        first = self._start * self._up // self._down
        out_T = resample(self._held_T, *self._rates)[self._given - first : count - first]
        self._given = count
        needed = max(0, count * self._down // self._up - self._half - 1)
        start = needed - needed % self._down
        self._held_T, self._start = self._held_T[start - self._start :], start
        return out_T


def _resampled_middle(
    before: np.ndarray, block: np.ndarray, after: np.ndarray, rates: tuple[int, int]
) -> np.ndarray:
    """What ``block`` gives with its neighbours' samples on either side."""
    if len(block) == 0:
        return block
    up, down = _ratio(*rates)
    start = len(before) * up // down
    out_T = resample(np.concatenate([before, block, after]), *rates)
    return out_T[start : start - (-len(block) * up // down)]


def _ratio(rate: int, new_rate: int) -> tuple[int, int]:
    check_rate(rate)
    check_rate(new_rate)
    common = math.gcd(rate, new_rate)
    return new_rate // common, rate // common


def _reach(up: int, down: int) -> tuple[float, int]:
    """The filter's cutoff, and its samples on either side of the middle."""
    cutoff = PASSBAND * min(1.0, up / down)
    return cutoff, math.ceil(ZERO_CROSSINGS / cutoff)


def check_rate(rate: int) -> None:
    """Raises RequestError for a rate that is not a whole number of Hz in the accepted range."""
    if type(rate) is not int or not MIN_RATE <= rate <= MAX_RATE:
        raise RequestError(
            where="rate",
            got=rate,
            want=f"a whole number from {MIN_RATE} to {MAX_RATE} (samples per second)",
            fix="give the rate at which the samples were taken",
        )


def _columns(
    numbers: range, up: int, down: int, reach: tuple[float, int]
) -> tuple[int, np.ndarray]:
    """Where the outputs ``numbers`` begin to look, and what they make of a window from there.

    float64 ``[window, outputs]``: in each column the filter, where its output is.
    """
    cutoff, half = reach
    places = [divmod(number * down, up) for number in numbers]
    start, width = places[0][0], 2 * half + 1
    taps = np.zeros((places[-1][0] - start + width, len(places)))
    for column, (place, rest) in enumerate(places):
        taps[place - start : place - start + width, column] = _taps(half, cutoff, rest / up)
    return start, taps


@lru_cache(maxsize=_FILTERS)
def _taps(half: int, cutoff: float, fraction: float) -> np.ndarray:
    """The filter ``[2 * half + 1]`` for an output ``fraction`` of a sample after its middle tap."""
    at_K = np.arange(-half, half + 1) - fraction
    window_K = np.i0(KAISER_BETA * np.sqrt(np.maximum(0.0, 1 - (at_K / (half + 1)) ** 2)))
    taps_K = np.sinc(cutoff * at_K) * window_K
    return np.asarray(taps_K / taps_K.sum())


def _windows(
    samples_T: np.ndarray, count: int, hop: int, width: int
) -> Iterator[tuple[slice, np.ndarray]]:
    """``count`` windows of ``width`` samples, ``hop`` apart, a block at a time (a copy of each)."""
    step = samples_T.strides[0]
    for first in range(0, count, _BLOCK):
        rows = min(_BLOCK, count - first)
        view = as_strided(samples_T[first * hop :], (rows, width), (hop * step, step))
        yield slice(first, first + rows), np.ascontiguousarray(view)
