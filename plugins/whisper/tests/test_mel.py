"""Log-mel features against the reference extractor."""

from __future__ import annotations

import numpy as np
import pytest
from mstar_whisper.mel import log_mel, mel_bank


def sounds():
    rng = np.random.default_rng(3)
    time = np.arange(16000 * 5) / 16000
    return {
        "noise": rng.standard_normal(16000 * 3) * 0.1,
        "voice": sum(0.2 / k * np.sin(2 * np.pi * 220 * k * time) for k in range(1, 30))
        + rng.standard_normal(len(time)) * 0.01,
        "silence": np.zeros(16000),
        "one sample": np.array([0.7]),
        "full window": rng.standard_normal(480_000) * 0.3,
    }


@pytest.mark.parametrize("mel_bins", [80, 128])
@pytest.mark.parametrize("name", sorted(sounds()))
def test_features_are_the_reference_extractors(mel_bins, name):
    from transformers import WhisperFeatureExtractor

    samples = sounds()[name].astype(np.float32)
    want = WhisperFeatureExtractor(feature_size=mel_bins)(
        samples, sampling_rate=16000, return_tensors="np"
    ).input_features[0]
    got = log_mel(samples, mel_bins, 3000)
    assert got.shape == want.shape == (mel_bins, 3000)
    assert got.dtype == np.float32
    assert np.abs(got - want).max() <= 2e-5


def test_a_short_window_is_the_beginning_of_a_long_one_in_silence():
    samples = sounds()["voice"][:8000]
    short, long = log_mel(samples, 80, 100), log_mel(samples, 80, 200)
    assert np.abs(short[:, :98] - long[:, :98]).max() < 1e-6


def test_sound_longer_than_the_window_is_refused_not_cut():
    """WH-04."""
    with pytest.raises(ValueError, match="16001 samples do not fit a window of 16000"):
        log_mel(np.zeros(16001), 80, 100)


@pytest.mark.parametrize("mel_bins", [80, 128])
def test_every_filter_hears_something(mel_bins):
    assert (mel_bank(mel_bins).sum(1) > 0).all()
