"""Samples as the bytes of each format."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from mstar_core.serving.media import encode
from mstar_core.serving.media.encode import MEDIA, encoder, offered
from mstar_core.testing.sound import tone


def written(style, rate, *pieces):
    made = encoder(style, rate)
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


def test_sound_of_no_samples_is_no_bytes_or_a_header_alone():
    assert written("pcm", 8_000) == b""
    assert len(written("wav", 8_000)) == 44


def test_without_the_library_only_what_needs_none_is_offered(monkeypatch):
    assert offered() == tuple(MEDIA)
    monkeypatch.setattr(encode, "find_spec", lambda name: None)
    assert offered() == ("pcm", "wav")
