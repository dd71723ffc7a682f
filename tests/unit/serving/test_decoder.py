"""Sound from strangers, decoded by a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mstar_core.config.limits import LimitsConfig
from mstar_core.resample import resample
from mstar_core.serving.errors import ApiError
from mstar_core.serving.media import decoder as module
from mstar_core.serving.media.decoder import Decoder
from mstar_core.testing.sound import children, encoded, memory_file, silence, tone

RATE = 16_000


def run(data, work=None, max_seconds=30.0, rate=RATE, **limits):
    """What ``work(decoder, file)`` gives; by default the sound in ``data``."""
    file = memory_file(data)

    async def decode(decoder, file):
        return await decoder.decode(file, max_seconds=max_seconds, rate=rate)

    async def main():
        decoder = Decoder(LimitsConfig(**limits))
        try:
            return await (work or decode)(decoder, file)
        finally:
            decoder.close()

    try:
        return asyncio.run(main())
    finally:
        os.close(file)


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 44_100, 48_000])
def test_sound_of_any_rate_comes_as_the_model_wants_it(rate):
    heard = run(encoded(tone(11.3, rate), rate, "FLAC", subtype="PCM_24"))
    want = resample(tone(11.3, rate), rate, RATE)
    assert heard.rate == RATE
    assert heard.seconds == round(11.3 * rate) / rate
    assert len(heard.samples_T) == len(want)
    assert np.abs(heard.samples_T - want).max() < 1e-5


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("WAV", {"subtype": "PCM_U8"}),
        ("WAV", {"subtype": "FLOAT"}),
        ("WAVEX", {}),
        ("OGG", {"subtype": "VORBIS"}),
        ("OGG", {"subtype": "OPUS"}),
        ("MP3", {}),
    ],
)
def test_every_format_that_is_promised_is_read(kind, more):
    heard = run(encoded(tone(2, 48_000), 48_000, kind, **more))
    middle = heard.samples_T[8_000:24_000]
    assert 2 <= heard.seconds < 2.2
    assert np.sqrt((middle**2).mean()) == pytest.approx(0.5 / np.sqrt(2), rel=0.03)


def test_channels_are_averaged_and_without_a_wish_the_rate_stays():
    both = np.stack([tone(1, 44_100), np.zeros(44_100, np.float32)], axis=1)
    heard = run(encoded(both, 44_100, "WAV", subtype="FLOAT"), rate=None)
    assert heard.rate == 44_100
    assert np.allclose(heard.samples_T, tone(1, 44_100) / 2, atol=1e-7)


def test_sound_is_taken_up_to_the_limit_and_not_a_sample_longer():
    assert run(encoded(np.zeros(RATE), RATE), max_seconds=1).seconds == 1
    longer = encoded(np.zeros(RATE + 1), RATE)
    with pytest.raises(ApiError) as error:
        run(longer, max_seconds=1)
    assert error.value.code == "audio_too_long"
    with pytest.raises(ApiError) as error:
        run(longer, max_audio_seconds=1.0)
    assert "at most 1 s" in error.value.message


def test_a_file_that_kills_its_decoder_is_refused_and_the_next_is_decoded():
    async def work(decoder, file):
        started = asyncio.ensure_future(decoder.decode(file, max_seconds=1800, rate=RATE))
        while not (pids := decoder._process and children(decoder._process.pid)):
            await asyncio.sleep(0.01)
        os.kill(pids[0], signal.SIGSEGV)
        with pytest.raises(ApiError) as error:
            await started
        good = memory_file(encoded(tone(1, RATE), RATE))
        heard = await decoder.decode(good, max_seconds=30, rate=RATE)
        os.close(good)
        return error.value.code, heard.seconds

    assert run(silence(1200, 48_000, "FLAC"), work) == ("invalid_audio", 1.0)


def test_the_process_that_forks_is_started_again_where_it_has_ended():
    async def work(decoder, file):
        decoder.start()
        first = decoder._process
        first.kill()
        heard = await decoder.decode(file, max_seconds=30, rate=RATE)
        return heard.seconds, decoder._process is not first

    assert run(encoded(tone(1, RATE), RATE), work) == (1.0, True)


def test_decoding_ends_with_its_time():
    """WH-18."""
    started = time.monotonic()
    with pytest.raises(ApiError) as error:
        run(silence(1700, 48_000, "FLAC"), max_seconds=1800, media_timeout_s=0.5)
    assert error.value.message == "The file could not be decoded in 0.5 s."
    assert time.monotonic() - started < 5 * 0.5 + 5


def test_decoding_ends_with_whoever_waits_for_it():
    """WH-18."""

    async def work(decoder, file):
        started = asyncio.ensure_future(decoder.decode(file, max_seconds=1800, rate=RATE))
        while not (decoder._process and children(decoder._process.pid)):
            await asyncio.sleep(0.01)
        started.cancel()
        left = time.monotonic() + 5
        while children(decoder._process.pid) and time.monotonic() < left:
            await asyncio.sleep(0.01)
        return children(decoder._process.pid)

    assert run(silence(1700, 48_000, "FLAC"), work) == []


def test_others_are_decoded_beside_a_file_that_takes_long():
    """WH-18."""
    short = encoded(tone(1, RATE), RATE)

    async def work(decoder, file):
        slow = asyncio.ensure_future(decoder.decode(file, max_seconds=1800, rate=RATE))
        while not (decoder._process and children(decoder._process.pid)):
            await asyncio.sleep(0.01)
        others = [memory_file(short) for _ in range(3)]
        many = [decoder.decode(other, max_seconds=30, rate=RATE) for other in others]
        heard = [each.seconds for each in await asyncio.gather(*many)]
        for other in others:
            os.close(other)
        waits = not slow.done()
        slow.cancel()
        return heard, waits

    assert run(silence(1700, 48_000, "FLAC"), work) == ([1.0, 1.0, 1.0], True)


def test_decoding_has_no_more_memory_than_it_is_given():
    wide = encoded(np.zeros((192_000 * 12, 8), np.float32), 192_000, "WAV", subtype="PCM_U8")
    assert run(wide).seconds == 12
    with pytest.raises(ApiError) as error:
        run(wide, media_memory=64 << 20)
    assert error.value.code == "invalid_audio"


def test_a_few_are_decoded_at_once_and_a_bounded_number_waits():
    data = encoded(tone(1, RATE), RATE)

    async def work(decoder, _):
        files = [memory_file(data) for _ in range(module.MAX_WAITING + 5)]
        many = [decoder.decode(file, max_seconds=30, rate=RATE) for file in files]
        done = await asyncio.gather(*many, return_exceptions=True)
        for file in files:
            os.close(file)
        return [getattr(each, "code", "heard") for each in done]

    assert run(data, work) == ["heard"] * module.MAX_WAITING + ["overloaded"] * 5


def test_the_process_that_decodes_has_nothing_of_the_servers_environment(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")

    async def work(decoder, file):
        await decoder.decode(file, max_seconds=30, rate=RATE)
        told = Path(f"/proc/{decoder._process.pid}/environ").read_bytes()
        return {each.partition(b"=")[0] for each in told.split(b"\0") if each}

    names = run(encoded(tone(1, RATE), RATE), work)
    assert names == {b"PYTHONPATH", b"OPENBLAS_NUM_THREADS"}


def test_nothing_stays_open_behind_a_hundred_sounds():
    async def work(decoder, file):
        await decoder.decode(file, max_seconds=30, rate=RATE)
        before = len(os.listdir("/proc/self/fd"))
        theirs = len(os.listdir(f"/proc/{decoder._process.pid}/fd"))
        for _ in range(100):
            await decoder.decode(file, max_seconds=30, rate=RATE)
        await asyncio.sleep(0.1)
        return (
            len(os.listdir("/proc/self/fd")) - before,
            len(os.listdir(f"/proc/{decoder._process.pid}/fd")) - theirs,
            children(decoder._process.pid),
        )

    assert run(encoded(tone(0.1, RATE), RATE), work) == (0, 0, [])


@settings(max_examples=10, deadline=None)
@given(
    kind=st.sampled_from(["WAV", "FLAC", "OGG", "MP3"]),
    changes=st.lists(
        st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), min_size=1, max_size=6),
        min_size=12,
        max_size=12,
    ),
    cut=st.integers(0, 4000),
)
def test_any_header_is_sound_within_the_limit_or_a_refusal(kind, changes, cut):
    whole = encoded(tone(1, RATE), RATE, kind)

    async def work(decoder, _):
        for change in changes:
            data = bytearray(whole)
            for at, value in change:
                data[at] = value
            file = memory_file(bytes(data[: len(data) - cut]))
            (heard,) = await asyncio.gather(
                decoder.decode(file, max_seconds=30, rate=RATE), return_exceptions=True
            )
            os.close(file)
            if isinstance(heard, ApiError):
                assert heard.code in ("invalid_audio", "audio_too_long")
            else:
                assert len(heard.samples_T) <= 30 * RATE
                assert np.isfinite(heard.samples_T).all()

    run(whole, work)
