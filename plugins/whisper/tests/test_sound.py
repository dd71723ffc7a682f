"""Windows of long sound: the features of the whole, in little memory."""

from __future__ import annotations

import numpy as np
import pytest
from mstar_whisper.sound import Windows

from mstar_core.errors import RequestError
from mstar_core.model.transcription import Sound
from mstar_core.resample import resample

WINDOW = 3000


def noisy(seconds, rate=16000, seed=0):
    draw = np.random.default_rng(seed)
    time = np.arange(int(seconds * rate)) / rate
    envelope = 0.05 + 0.3 * np.sin(time) ** 2
    return (envelope * draw.standard_normal(len(time))).clip(-1, 1).astype(np.float32)


def extracted(samples_T, bins, **how):
    from transformers import WhisperFeatureExtractor

    extract = WhisperFeatureExtractor(feature_size=bins)
    return extract(samples_T, sampling_rate=16000, return_tensors="np", **how).input_features[0]


@pytest.mark.parametrize("bins", [80, 128])
def test_windows_of_long_sound_are_cut_from_the_features_of_the_whole(bins):
    """WH-04: to the last whole frame, scaled by the loudest bin of all of it."""
    samples = noisy(65.5)
    samples[:16000] *= 1e-3
    whole = extracted(samples, bins, truncation=False, padding="longest")
    windows = Windows(Sound.of(samples, 16000), bins, WINDOW)
    windows.measure()
    assert windows.num_frames == 6550 == whole.shape[1]
    for first in (0, 2, 2950, 5555):
        num = min(WINDOW, 6550 - first)
        mel = windows.mel(first, num)
        assert mel.shape == (bins, WINDOW)
        assert np.abs(mel[:, :num] - whole[:, first : first + num]).max() < 2e-5
        assert (mel[:, num:] == 0).all()


def test_sound_of_less_than_a_window_ends_in_silence():
    samples = noisy(2.0)
    windows = Windows(Sound.of(samples, 16000), 80, WINDOW)
    windows.measure()
    assert windows.num_frames == 200
    whole = extracted(samples, 80)
    assert np.abs(windows.mel(0, 200) - whole).max() < 2e-5
    later = windows.mel(100, 100)
    assert np.abs(later[:, :2900] - whole[:, 100:]).max() < 2e-5
    assert (later[:, 2900:] == 0).all()


@pytest.mark.parametrize("count", [1, 160, 1599])
def test_a_few_samples_are_a_frame_at_least(count):
    """WH-17."""
    windows = Windows(Sound.of(noisy(1)[:count], 16000), 80, WINDOW)
    windows.measure()
    assert windows.num_frames == max(1, count // 160)
    assert np.isfinite(windows.mel(0, windows.num_frames)).all()


@pytest.mark.parametrize("rate", [8000, 44100])
def test_sound_at_another_rate_is_resampled_block_by_block(rate):
    samples = noisy(61, rate)
    windows = Windows(Sound.of(samples, rate), 80, WINDOW)
    windows.measure()
    once = Windows(Sound.of(resample(samples, rate, 16000), 16000), 80, WINDOW)
    once.measure()
    assert windows.num_samples == once.num_samples == 61 * 16000
    for first, num in ((0, WINDOW), (3100, WINDOW)):
        assert np.abs(windows.mel(first, num) - once.mel(first, num)).max() < 1e-4


def test_a_long_sound_is_held_in_pieces():
    """Two readings of twenty minutes, each with a few blocks in memory."""
    block, held = noisy(10, 4000), []

    def blocks():
        for _ in range(120):
            yield block
            if windows._samples is not None:
                held.append(len(windows._samples._kept))

    windows = Windows(Sound(rate=4000, blocks=blocks), 80, 300)
    windows.measure()
    assert windows.seconds == 1200
    for first in range(0, windows.num_frames, 290):
        windows.mel(first, min(300, windows.num_frames - first))
    assert 0 < max(held) <= 25 * 16000


def test_no_sound_and_what_is_none_are_refused():
    """WH-17: nothing at all is an error; WH-06: silence is not."""
    for blocks in ([], [np.zeros(0, np.float32)], [np.full(9, np.nan, np.float32)]):
        windows = Windows(Sound(rate=16000, blocks=lambda b=blocks: iter(b)), 80, WINDOW)
        with pytest.raises(RequestError) as caught:
            windows.measure()
        assert caught.value.where == "audio"


def test_the_quietest_place_is_found():
    samples = noisy(60)
    samples[24 * 16000 : 24 * 16000 + 8000] *= 0.01
    windows = Windows(Sound.of(samples, 16000), 80, WINDOW)
    windows.measure()
    assert 2410 <= windows.quietest(2000, 3000) <= 2440
    assert np.abs(windows.mel(0, 2420)).max() > 0


def test_a_level_says_how_loud_it_is_and_how_far_it_goes_apart():
    draw = np.random.default_rng(1)
    noise = (0.01 * draw.standard_normal(16000 * 5)).astype(np.float32)
    windows = Windows(Sound.of(noise, 16000), 80, WINDOW)
    windows.measure()
    steady = windows.level(0, 500)
    assert -40.5 < steady.loudest_db < -39
    assert steady.spread_db < 1.0
    still = Windows(Sound.of(np.zeros(16000, np.float32), 16000), 80, WINDOW)
    still.measure()
    assert still.level(0, 100).loudest_db == -200
