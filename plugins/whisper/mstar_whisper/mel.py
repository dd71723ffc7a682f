"""Log-mel features, as the model was trained on them. numpy only."""

from __future__ import annotations

from functools import cache

import numpy as np

from mstar_whisper.config import HOP, SAMPLE_RATE

FFT = 400
"""Samples under one analysis window: 25 ms."""
FLOOR = 1e-10
RANGE = 8.0
"""Decades below the loudest bin that are kept."""
_LINEAR_HZ, _LINEAR_MEL = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27.0


def log_mel(samples_T: np.ndarray, mel_bins: int, num_frames: int) -> np.ndarray:
    """Samples ``[T]`` at 16 kHz → float32 ``[mel_bins, num_frames]``.

    Sound shorter than the window ends in silence. Raises ValueError for sound that is longer.
    """
    window = num_frames * HOP
    if len(samples_T) > window:
        raise ValueError(f"{len(samples_T)} samples do not fit a window of {window}")
    padded = np.zeros(window + FFT)
    middle = padded[FFT // 2 : FFT // 2 + window]
    middle[: len(samples_T)] = samples_T
    padded[: FFT // 2] = middle[FFT // 2 : 0 : -1]
    padded[FFT // 2 + window :] = middle[-2 : -FFT // 2 - 2 : -1]
    energy_CT = log_energy(padded[:-HOP], mel_bins)
    return scaled(energy_CT, float(energy_CT.max()))


def log_energy(samples_T: np.ndarray, mel_bins: int) -> np.ndarray:
    """Decades of each bin, float64 ``[mel_bins, frames]``; a frame is ``FFT`` samples, each begins
    ``HOP`` behind the one before, and none reaches beyond the samples ``[T]``."""
    frames_TK = np.lib.stride_tricks.sliding_window_view(samples_T, FFT)[::HOP]
    power_TF = np.abs(np.fft.rfft(frames_TK * _hann(), axis=-1)) ** 2
    return np.asarray(np.log10(np.maximum(mel_bank(mel_bins) @ power_TF.T, FLOOR)))


def scaled(energy_CT: np.ndarray, peak: float) -> np.ndarray:
    """What the model is fed, float32; ``peak`` is the loudest bin of the whole sound."""
    return np.asarray((np.maximum(energy_CT, peak - RANGE) + 4.0) / 4.0, dtype=np.float32)


@cache
def mel_bank(mel_bins: int) -> np.ndarray:
    """Triangles of equal area on the mel scale, 0 to 8 kHz: ``[mel_bins, FFT // 2 + 1]``."""
    nyquist = SAMPLE_RATE / 2
    edges = _hertz(np.linspace(0.0, _mel(nyquist), mel_bins + 2))
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bins = np.linspace(0.0, nyquist, FFT // 2 + 1)[None]
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    bank = np.maximum(0.0, np.minimum(rising, falling)) * 2.0 / (high - low)
    bank.flags.writeable = False
    return np.asarray(bank)


@cache
def _hann() -> np.ndarray:
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT))


def _mel(hertz: float) -> float:
    """Linear below 1 kHz, logarithmic above."""
    if hertz < _LINEAR_HZ:
        return hertz * _LINEAR_MEL / _LINEAR_HZ
    return float(_LINEAR_MEL + np.log(hertz / _LINEAR_HZ) / _LOG_STEP)


def _hertz(mel: np.ndarray) -> np.ndarray:
    linear = mel * _LINEAR_HZ / _LINEAR_MEL
    return np.where(mel < _LINEAR_MEL, linear, _LINEAR_HZ * np.exp(_LOG_STEP * (mel - _LINEAR_MEL)))
