"""Samples as the bytes of each format."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from mstar_core.resample import resample
from mstar_core.serving.media import encode
from mstar_core.serving.media.encode import MEDIA, encoder, offered, wav_head
from mstar_core.testing.sound import tone


def written(style, rate, *pieces, **options):
    made = encoder(style, rate, **options)
    return b"".join([*(made.push(piece) for piece in pieces), made.finish()])


@pytest.mark.parametrize("style", sorted(MEDIA))
def test_the_pieces_in_which_sound_comes_do_not_matter(style):
    whole = tone(0.5, 24_000)
    pieces = [whole[:1], whole[1:1], whole[1:7_000], whole[7_000:]]
    one, many = written(style, 24_000, whole), written(style, 24_000, *pieces)
    if style == "opus":  # a stream of ogg has a number drawn for it
        one, many = (soundfile.read(io.BytesIO(data))[0].tobytes() for data in (one, many))
    assert one == many


def test_pcm_is_16_bit_and_clipped():
    data = written("pcm", 8_000, np.array([0, 1, -1, 0.5, 3, -3], np.float32))
    assert np.frombuffer(data, "<i2").tolist() == [0, 32767, -32767, 16384, 32767, -32767]


def test_a_wav_comes_as_it_is_made_behind_a_header_that_leaves_its_length_open():
    made = encoder("wav", 8_000)
    first = made.push(tone(0.1, 8_000))
    assert len(first) == 44 + 2 * 800
    assert len(made.push(tone(0.1, 8_000))) == 2 * 800
    assert made.finish() == b""
    samples, rate = soundfile.read(io.BytesIO(first))
    assert (len(samples), rate) == (800, 8_000)


@pytest.mark.parametrize(("style", "rate"), [("opus", 22_050), ("mp3", 11_000)])
def test_a_rate_that_a_format_does_not_know_is_changed_to_one_that_it_does(style, rate):
    data = written(style, rate, tone(1, rate))
    samples, got = soundfile.read(io.BytesIO(data))
    assert got == 48_000
    assert len(samples) / got == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("style", ["mp3", "opus"])
def test_a_compressed_sound_comes_while_it_is_made_and_can_be_read(style):
    sound = tone(4, 24_000)
    made = encoder(style, 24_000)
    pieces = [made.push(sound[at : at + 1920]) for at in range(0, len(sound), 1920)]
    assert any(pieces[:20])
    assert len([piece for piece in pieces if piece]) > 2
    end = made.finish()
    assert len(end) < len(b"".join(pieces)) / 2
    samples, rate = soundfile.read(io.BytesIO(b"".join([*pieces, end])))
    assert (rate, len(samples) / rate) == (24_000, pytest.approx(4, abs=0.1))


@pytest.mark.parametrize("style", ["flac", "mp3"])
def test_a_sound_that_may_be_waited_for_has_its_length_in_its_head(style):
    sound = tone(3, 24_000)
    made = encoder(style, 24_000, whole=True)
    assert made.push(sound) == b""
    samples, _ = soundfile.read(io.BytesIO(made.finish()))
    assert len(samples) == len(sound)


@pytest.mark.parametrize(("style", "new_rate"), [("pcm", 16_000), ("wav", 44_100), ("flac", 8_000)])
def test_sound_is_written_at_the_rate_that_is_asked_for(style, new_rate):
    sound = tone(0.5, 24_000)
    pieces = [sound[at : at + 777] for at in range(0, len(sound), 777)]
    data = written(style, 24_000, *pieces, new_rate=new_rate)
    want = resample(sound, 24_000, new_rate)
    if style == "pcm":
        got = np.frombuffer(data, "<i2") / 32768
    else:
        got, rate = soundfile.read(io.BytesIO(data))
        assert rate == new_rate
    assert len(got) == len(want)
    assert np.abs(got - want).max() < 2e-4


def test_a_wav_whose_length_is_known_says_it():
    body = written("pcm", 8_000, tone(0.25, 8_000))
    whole = wav_head(8_000, 2_000) + body
    assert soundfile.info(io.BytesIO(whole)).frames == 2_000
    assert int.from_bytes(whole[4:8], "little") == len(whole) - 8
    assert wav_head(8_000, 1 << 40) == wav_head(8_000)


def test_sound_of_no_samples_is_no_bytes_or_a_header_alone():
    assert written("pcm", 8_000) == b""
    assert len(written("wav", 8_000)) == 44


def test_without_the_library_only_what_needs_none_is_offered(monkeypatch):
    assert offered() == tuple(MEDIA)
    monkeypatch.setattr(encode, "find_spec", lambda name: None)
    assert offered() == ("pcm", "wav")
