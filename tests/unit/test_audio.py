"""Sound files and sample rates."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from mstar_core.audio import mono, read_audio
from mstar_core.errors import ConfigError, RequestError
from mstar_core.resample import Resampler, resample, resample_blocks

soundfile = pytest.importorskip("soundfile", reason="the audio extra is not installed")


def tone(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype("f4")


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 44101, 48000, 96000])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_a_sine_below_nyquist_comes_through_any_rate(rate, share):
    hertz = share * min(rate, 16000) / 2
    got = resample(tone(hertz, rate), rate, 16000)
    want = tone(hertz, 16000)
    assert len(got) == -(-int(rate * 0.5) * 16000 // rate)
    inner = slice(1200, len(want) - 1200)  # the ends hear the silence around the file
    assert np.abs(got[inner] - want[inner]).max() < 1e-4


@pytest.mark.parametrize("rate", [22050, 44100, 48000, 96000])
def test_a_sine_above_the_new_nyquist_is_100_dB_down(rate):
    got = resample(tone(8200, rate), rate, 16000)
    assert np.abs(got[1200:-1200]).max() < 0.5e-5


def test_a_constant_stays_constant_at_every_phase():
    got = resample(np.full(4000, 0.25, "f4"), 44100, 16000)
    assert np.abs(got[200:-200] - 0.25).max() < 1e-6


def test_the_same_rate_changes_nothing_and_one_sample_is_enough():
    samples = tone(440, 16000)
    assert np.array_equal(resample(samples, 16000, 16000), samples)
    assert len(resample(samples[:1], 8000, 16000)) == 2
    assert len(resample(samples[:1], 48000, 16000)) == 1


@pytest.mark.parametrize("rate", [0, -1, 16000.0, True, 10**9])
def test_a_rate_that_cannot_be_is_refused(rate):
    with pytest.raises(RequestError, match="samples per second"):
        resample(tone(440, 16000), rate, 16000)


@pytest.mark.parametrize("kind", ["wav", "flac", "ogg", "mp3"])
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_every_format_and_channel_count_reads_as_mono(folder, kind, channels):
    if kind == "mp3" and channels > 2:
        pytest.skip("mp3 holds two channels")
    samples = tone(440, 44100)
    soundfile.write(folder / f"x.{kind}", np.stack([samples] * channels, 1), 44100)
    audio = read_audio(folder / f"x.{kind}")
    assert audio.rate == 44100
    assert audio.samples_T.dtype == np.float32
    assert audio.samples_T.ndim == 1
    assert audio.seconds == pytest.approx(0.5, abs=0.1)
    power = np.abs(np.fft.rfft(audio.samples_T))
    assert power.argmax() * audio.rate / len(audio.samples_T) == pytest.approx(440, abs=3)


def test_a_file_is_read_by_its_content_not_its_name(folder):
    """WH-14."""
    soundfile.write(folder / "x.flac", tone(440, 16000), 16000)
    (folder / "x.flac").rename(folder / "x.wav")
    assert len(read_audio(folder / "x.wav").samples_T) == 8000


def broken(folder, what):
    file = folder / "x.wav"
    if what == "zero bytes":
        file.write_bytes(b"")
    elif what == "text":
        file.write_text("This is a text. " * 40)
    elif what == "zero samples":
        soundfile.write(file, np.zeros(0, "f4"), 16000)
    elif what == "folder":
        file.mkdir()
    elif what.startswith("cut"):
        kind = what.split()[1]
        source = folder / f"whole.{kind}"
        soundfile.write(source, tone(440, 16000, 2.0), 16000)
        file.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    return file


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("missing", "no such file"),
        ("folder", "a folder"),
        ("zero bytes", "0 bytes"),
        ("text", "wav, flac, ogg or mp3"),
        ("zero samples", "zero samples"),
        ("cut wav", "a whole wav, flac"),
        ("cut flac", "a whole wav, flac"),
    ],
)
def test_a_broken_file_is_an_error_that_says_what_is_wrong(folder, what, says):
    """WH-14, WH-17."""
    with pytest.raises(RequestError) as error:
        read_audio(broken(folder, what))
    assert says in str(error.value)
    assert "x.wav" in error.value.where


@pytest.mark.parametrize(
    "samples",
    [np.zeros(0), np.zeros((0, 2)), np.zeros((2, 2, 2)), np.zeros(4, int), np.array([0.0, np.nan])],
)
def test_samples_that_are_not_sound_are_refused(samples):
    with pytest.raises(RequestError, match="at least one sample"):
        mono(samples)


def test_samples_may_overshoot_full_scale_a_little_and_no_more():
    assert mono(np.array([0.0, -1.5])).tolist() == [0.0, -1.5]
    for far in (np.array([0.0, 3e38]), np.array([[0.1, -2.1]]), np.array([32767.0, 12.0])):
        with pytest.raises(RequestError, match="floating point within -1 and 1"):
            mono(far)


def test_without_the_library_the_error_names_the_extra(folder, monkeypatch):
    (folder / "x.wav").write_bytes(b"something")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ConfigError, match=r"mstar-core\[audio\]"):
        read_audio(folder / "x.wav")


def test_the_module_imports_neither_torch_nor_soundfile():
    code = "import sys, mstar_core.audio; print('torch' in sys.modules, 'soundfile' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("rate", [4_000, 11_025, 16_000, 44_100, 48_000, 192_000])
@pytest.mark.parametrize("seconds", [0.003, 4.9, 5, 11.7])
def test_sound_that_comes_in_blocks_is_resampled_as_the_whole_is(rate, seconds):
    """The filter reaches over the borders of the blocks."""
    samples_T = np.random.default_rng(0).uniform(-1, 1, round(seconds * rate)).astype(np.float32)
    blocks = [samples_T[at : at + 5 * rate] for at in range(0, len(samples_T), 5 * rate)]
    got = np.concatenate(list(resample_blocks(blocks, rate, 16_000)))
    want = resample(samples_T, rate, 16_000)
    assert len(got) == len(want)
    assert np.abs(got - want).max() < 1e-6


def test_no_blocks_are_no_sound():
    assert [len(block) for block in resample_blocks([], 8_000, 16_000)] == [0]


@pytest.mark.parametrize("new_rate", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("size", [1, 97, 1920, 30_000])
def test_sound_that_comes_in_pieces_is_resampled_as_if_it_were_whole(new_rate, size):
    """However long they are, and at most a fiftieth of a second later."""
    rate, seconds = 24_000, 0.02 if size == 1 else 0.5
    samples_T = np.random.default_rng(0).normal(0, 0.2, int(seconds * rate)).astype(np.float32)
    made, found, pushed = Resampler(rate, new_rate), [], 0
    for at in range(0, len(samples_T), size):
        found.append(made.push(samples_T[at : at + size]))
        pushed += len(samples_T[at : at + size])
        assert sum(map(len, found)) / new_rate > pushed / rate - 0.02
    found.append(made.finish())
    got_T, want_T = np.concatenate(found), resample(samples_T, rate, new_rate)
    assert got_T.shape == want_T.shape
    assert np.abs(got_T - want_T).max() < 1e-6
