"""Samples as the bytes of a format, as far as they can be told while more samples come."""

from __future__ import annotations

import io
import struct
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from mstar_core.resample import resample

MEDIA = {
    "pcm": "audio/pcm",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
}
"""Format → media type."""
_OPEN_END = 0xFFFFFFFF
"""The length that a WAV file has by its header while it is written."""
_FULL_SCALE = 32767
_FALLBACK = 48_000
_KINDS = {"flac": ("FLAC", "PCM_16"), "mp3": ("MP3", None), "opus": ("OGG", "OPUS")}
_RATES = {
    "flac": None,
    "mp3": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "opus": (8_000, 12_000, 16_000, 24_000, 48_000),
}


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


def encoder(style: str, rate: int) -> Encoder:
    """What writes ``style``. ``pcm`` and ``wav`` come as the sound does, others at its end."""
    return Pcm(rate if style == "wav" else None) if style in ("pcm", "wav") else Whole(style, rate)


class Pcm:
    """16 bit samples, little endian; behind a WAV header that leaves the length open."""

    def __init__(self, rate: int | None) -> None:
        """``rate``: that of the header; None writes none."""
        self._head = b"" if rate is None else _wav_head(rate)

    def push(self, samples_T: np.ndarray) -> bytes:
        head, self._head = self._head, b""
        numbers_T = np.rint(np.clip(samples_T, -1, 1) * _FULL_SCALE)
        return head + bytes(numbers_T.astype("<i2").data)

    def finish(self) -> bytes:
        head, self._head = self._head, b""
        return head


class Whole:
    """A compressed file, written once all samples are there."""

    def __init__(self, style: str, rate: int) -> None:
        self._style = style
        self._rate = rate
        self._parts: list[np.ndarray] = []

    def push(self, samples_T: np.ndarray) -> bytes:
        self._parts.append(samples_T)
        return b""

    def finish(self) -> bytes:
        import soundfile

        samples_T = np.concatenate([np.empty(0, dtype=np.float32), *self._parts])
        rate, rates = self._rate, _RATES[self._style]
        if rates is not None and rate not in rates:
            samples_T, rate = resample(samples_T, rate, _FALLBACK), _FALLBACK
        held = io.BytesIO()
        kind, subtype = _KINDS[self._style]
        soundfile.write(held, np.clip(samples_T, -1, 1), rate, format=kind, subtype=subtype)
        return held.getvalue()


def _wav_head(rate: int) -> bytes:
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    riff = struct.pack("<4sI4s", b"RIFF", _OPEN_END, b"WAVE")
    return riff + form + struct.pack("<4sI", b"data", _OPEN_END)
