"""Family 1: sound that grows beyond measure while it is decoded.

CVE-2026-54233 / GHSA-6pr9-rp53-2pmc: 25 MB of Opus became 14.9 GB, since the limit came after the
decoding. Here a file is decoded five seconds at a time, by a process of its own that the kernel
bounds, and no further than the limit.
"""

import io
import struct
import threading
import time
import zipfile

import numpy as np
import pytest

from mstar_core.testing.sound import children, encoded, memory_kib, silence, tone

PATH = "/v1/audio/transcriptions"
PROMISED_S = 3
MIB = 1024
"""KiB of one."""
EXTRA_MIB = 150
SECONDS = 1900
"""Sound of each bomb that is honest about its length; the limit is 1800."""


def wav(channels=1, rate=16_000, bits=16, data=b"\0" * 64, said=None, riff=None):
    """A WAV file whose header says what it is told to."""
    block = min(channels * bits // 8, 65535)
    body = struct.pack(
        "<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * block & 0xFFFFFFFF, block, bits
    )
    body += struct.pack("<4sI", b"data", len(data) if said is None else said) + data
    size = len(body) + 4 if riff is None else riff
    return struct.pack("<4sI4s", b"RIFF", size, b"WAVE") + body


def open_ended_flac():
    """A FLAC that leaves its length open, and goes on for long."""
    data = bytearray(silence(SECONDS, 48_000, "FLAC"))
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    return bytes(data)


def zipped():
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.wav", bytes(50 << 20))
    return held.getvalue()


BOMBS = {
    "flac": lambda: silence(SECONDS, 48_000, "FLAC"),
    "flac_open_ended": open_ended_flac,
    "flac_cut": lambda: silence(600, 48_000, "FLAC")[:40_000],
    "opus": lambda: silence(SECONDS, 8_000, "OGG", subtype="OPUS"),
    "ogg_noise": lambda: b"OggS" + np.random.default_rng(0).bytes(1 << 20),
    "mp3": lambda: silence(SECONDS, 8_000, "MP3"),
    "wav_many_channels": lambda: wav(channels=65_535),
    "wav_rate_1": lambda: wav(rate=1, data=bytes(1 << 20)),
    "wav_rate_huge": lambda: wav(rate=4_000_000_000),
    "wav_long_by_its_header": lambda: wav(said=0xFFFFFFF0, riff=0xFFFFFFF0),
    "wav_cut": lambda: encoded(tone(20, 48_000), 48_000)[:300_000],
    "wav_nan": lambda: encoded(np.full(16_000, np.nan, np.float32), 16_000, "WAV", subtype="FLOAT"),
    "wav_bits": lambda: wav(bits=65_535),
    "zip": zipped,
    "empty": lambda: b"",
    "text": lambda: b"this is no sound at all " * 100,
    "mp3_noise": lambda: b"\xff\xfb" + np.random.default_rng(0).bytes(1 << 20),
}


class Peak(threading.Thread):
    """The most memory that the decoder's children and this process have had meanwhile, in KiB."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder
        self.over = False
        self.child = self.own = 0

    def run(self):
        while not self.over:
            self.own = max(self.own, memory_kib("self"))
            if self.decoder._process is not None:
                for pid in children(self.decoder._process.pid):
                    self.child = max(self.child, memory_kib(pid, "VmHWM"))
            time.sleep(0.002)


def form(data):
    head = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
    return head + data + b"\r\n--x--\r\n", [("content-type", "multipart/form-data; boundary=x")]


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_in_little_time_and_memory(rig, bomb):
    """CVE-2026-54233."""
    server = rig()
    body, headers = form(BOMBS[bomb]())
    server.service.decoder.start()
    started = server.ask(PATH, form(encoded(tone(1, 16_000), 16_000))[0], headers=headers)
    assert started.status == 200
    decoder = server.service.decoder
    base, own = memory_kib(decoder._process.pid), memory_kib("self")
    peak = Peak(decoder)
    peak.start()
    try:
        before = time.monotonic()
        told = server.ask(PATH, body, headers=headers)
        spent_s = time.monotonic() - before
    finally:
        peak.over = True
        peak.join()
    assert told.status == 400
    assert told.json()["error"]["code"] in ("invalid_audio", "audio_too_long")
    assert told.json()["error"]["param"] == "file"
    more = (peak.child - base) / MIB
    print(f"{bomb}: {len(body) / 1e6:.2f} MB, {spent_s * 1000:.0f} ms, {more:.0f} MiB more")
    assert spent_s < 5 * PROMISED_S
    assert peak.child - base < EXTRA_MIB * MIB
    assert peak.own - own < EXTRA_MIB * MIB
    server.check_good()


def test_the_limit_is_checked_while_decoding_and_not_behind_it(rig):
    """CVE-2026-54233: a bomb is cut off where the limit is, and what it says has both lengths."""
    body, headers = form(silence(60, 48_000, "OGG", subtype="OPUS"))
    server = rig(limits={"max_audio_seconds": 20.0})
    told = server.ask(PATH, body, headers=headers).json()["error"]
    assert told["code"] == "audio_too_long"
    assert "60.0 s" in told["message"]
    assert "20 s" in told["message"]
    server.check_good()


def test_sound_that_is_let_in_is_counted_and_given_back(rig):
    server = rig(limits={"max_open_audio_seconds": 5.0, "max_audio_seconds": 8.0})
    body, headers = form(encoded(tone(6, 8_000), 8_000))
    assert server.code(PATH, body, headers=headers) == (400, "limit_exceeded")
    body, headers = form(encoded(tone(4, 8_000), 8_000))
    for _ in range(3):
        assert server.ask(PATH, body, headers=headers).status == 200
    server.check_good()


def test_the_longest_sound_that_is_taken_is_decoded_in_bounded_memory(rig):
    """Half an hour, as long as anything may be by default."""
    body, headers = form(silence(1800, 16_000, "FLAC"))
    server = rig()
    server.service.decoder.start()
    peak = Peak(server.service.decoder)
    peak.start()
    try:
        told = server.ask(PATH, body, headers=headers)
    finally:
        peak.over = True
        peak.join()
    assert told.status == 200
    assert told.json()["usage"]["seconds"] == 1800
    assert peak.child < 400 * MIB  # of which 110 MiB are the sound itself, in memory without a name
