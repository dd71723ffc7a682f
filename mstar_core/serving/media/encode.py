"""Samples as the bytes of a format, as far as they can be told while more samples come."""

from __future__ import annotations

import io
import struct
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from mstar_core.resample import Resampler

MEDIA = {
    "pcm": "audio/pcm",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
}
"""Format → media type."""
RATES: dict[str, tuple[int, ...]] = {
    "mp3": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "opus": (8_000, 12_000, 16_000, 24_000, 48_000),
}
"""Formats that know certain sample rates alone."""
_OPEN_END = 0xFFFFFFFF
"""The length that a WAV file has by its header while it is written."""
_FULL_SCALE = 32767
_FALLBACK = 48_000
_KINDS: dict[str, dict[str, Any]] = {
    "flac": {"format": "FLAC", "subtype": "PCM_16"},
    "mp3": {"format": "MP3", "bitrate_mode": "CONSTANT", "compression_level": 0.5},
    "opus": {"format": "OGG", "subtype": "OPUS"},
}
"""An mp3 has one bit rate, so that its length is known by its size before its header is."""
_LIVE = ("mp3", "opus")
"""Formats that can be read without what is written into their beginning at the end."""


class Encoder(Protocol):
    """One sound on its way out."""

    def push(self, samples_T: np.ndarray) -> bytes:
        """Bytes that ``samples_T`` (float32, full scale 1) add."""
        ...

    def finish(self) -> bytes:
        """The bytes that are left."""
        ...


def offered() -> tuple[str, ...]:
    """The formats that can be written: without soundfile only what needs no library."""
    return tuple(MEDIA) if find_spec("soundfile") is not None else ("pcm", "wav")


def encoder(style: str, rate: int, new_rate: int | None = None, *, whole: bool = False) -> Encoder:
    """What writes ``style``, at ``new_rate``: by default ``rate``, or one that the style knows.

    All but ``flac`` come as the sound does. ``whole``: what is better known at the end, such as a
    length, may be waited for, so ``mp3`` comes then too.
    """
    new_rate = new_rate or default_rate(style, rate)
    made: Encoder
    if style in ("pcm", "wav"):
        made = Pcm(new_rate if style == "wav" else None)
    else:
        made = Compressed(style, new_rate, live=style in _LIVE and not whole)
    return made if rate == new_rate else Resampled(made, Resampler(rate, new_rate))


def default_rate(style: str, rate: int) -> int:
    """The sample rate at which sound of ``rate`` is written."""
    return rate if rate in RATES.get(style, (rate,)) else _FALLBACK


class Pcm:
    """16 bit samples, little endian; behind a WAV header that leaves the length open."""

    def __init__(self, rate: int | None) -> None:
        """``rate``: that of the header; None writes none."""
        self._head = b"" if rate is None else wav_head(rate)

    def push(self, samples_T: np.ndarray) -> bytes:
        head, self._head = self._head, b""
        numbers_T = np.rint(np.clip(samples_T, -1, 1) * _FULL_SCALE)
        return head + bytes(numbers_T.astype("<i2").data)

    def finish(self) -> bytes:
        head, self._head = self._head, b""
        return head


class Compressed:
    """A file of the library's, as it is written or once it is whole."""

    def __init__(self, style: str, rate: int, *, live: bool) -> None:
        """``live``: as it is written."""
        import soundfile

        self._sink = _Sink()
        self._live = live
        self._file = soundfile.SoundFile(self._sink, "w", rate, 1, **_KINDS[style])

    def push(self, samples_T: np.ndarray) -> bytes:
        self._file.write(np.clip(samples_T, -1, 1))
        return self._sink.taken() if self._live else b""

    def finish(self) -> bytes:
        self._file.close()
        return self._sink.taken()


class Resampled:
    """Sound at another rate, on its way into an encoder."""

    def __init__(self, encoder: Encoder, resampler: Resampler) -> None:
        self._encoder = encoder
        self._resampler = resampler

    def push(self, samples_T: np.ndarray) -> bytes:
        return self._encoder.push(self._resampler.push(samples_T))

    def finish(self) -> bytes:
        return self._encoder.push(self._resampler.finish()) + self._encoder.finish()


def wav_head(rate: int, samples: int | None = None) -> bytes:
    """The header of a WAV file of 16 bit samples; None leaves their number open."""
    size = _OPEN_END if samples is None else 2 * samples
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    riff = struct.pack("<4sI4s", b"RIFF", min(size + 36, _OPEN_END), b"WAVE")
    return riff + form + struct.pack("<4sI", b"data", min(size, _OPEN_END))


class _Sink:
    """A file in memory from which bytes are taken; what was taken is not changed any more."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._taken = 0
        """Bytes that were taken; those that are held come behind them."""
        self._at = 0

    def taken(self) -> bytes:
        data = bytes(self._held)
        self._taken += len(data)
        self._held.clear()
        return data

    def write(self, data: bytes) -> int:
        at = self._at - self._taken
        late = data[max(0, -at) :]
        self._held[max(0, at) : max(0, at) + len(late)] = late
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}
        self._at = begin.get(whence, self._taken + len(self._held)) + offset
        return self._at

    def tell(self) -> int:
        return self._at
