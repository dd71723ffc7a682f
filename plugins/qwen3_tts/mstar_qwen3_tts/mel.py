"""Mel frames of a recording, as the speaker encoder was trained on them. numpy only."""

from __future__ import annotations

from functools import cache

import numpy as np

RATE, FFT, HOP = 24_000, 1024, 256
"""Hertz; samples under one window; samples from one frame to the next."""
FLOOR, LEAST_POWER = 1e-5, 1e-9
_LINEAR_HZ, _LINEAR_MEL = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27.0


def log_mel(samples_T: np.ndarray, bins: int) -> np.ndarray:
    """Samples at 24 kHz, more than ``FFT`` of them → float32 ``[T // HOP, bins]``."""
    beside = (FFT - HOP) // 2
    padded_T = np.pad(samples_T.astype(np.float64), beside, mode="reflect")
    frames_LK = np.lib.stride_tricks.sliding_window_view(padded_T, FFT)[::HOP]
    window_K = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)
    size_LF = np.sqrt(np.abs(np.fft.rfft(frames_LK * window_K)) ** 2 + LEAST_POWER)
    found_LC = np.log(np.maximum(size_LF @ mel_bank(bins).T, FLOOR))
    return np.asarray(found_LC, dtype=np.float32)


@cache
def mel_bank(bins: int) -> np.ndarray:
    """Triangles of equal area on the mel scale, 0 to 12 kHz: ``[bins, FFT // 2 + 1]``."""
    nyquist = RATE / 2
    most = _LINEAR_MEL + np.log(nyquist / _LINEAR_HZ) / _LOG_STEP
    edges = _hertz(np.linspace(0.0, most, bins + 2))
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    heard = np.linspace(0.0, nyquist, FFT // 2 + 1)[None]
    rising, falling = (heard - low) / (middle - low), (high - heard) / (high - middle)
    bank = np.maximum(0.0, np.minimum(rising, falling)) * 2.0 / (high - low)
    bank.flags.writeable = False
    return np.asarray(bank)


def _hertz(mel: np.ndarray) -> np.ndarray:
    """Linear below 1 kHz, logarithmic above."""
    linear = mel * _LINEAR_HZ / _LINEAR_MEL
    above = _LINEAR_HZ * np.exp(_LOG_STEP * (np.maximum(mel, _LINEAR_MEL) - _LINEAR_MEL))
    return np.asarray(np.where(mel < _LINEAR_MEL, linear, above))
