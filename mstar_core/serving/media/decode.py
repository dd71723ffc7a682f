"""One file of sound, block by block, to mono float32 in another file: what is read, and no more.

Nothing here trusts a header: what it promises is checked before, and counted while decoding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from mstar_core.audio import WAV_HEAD, is_cut_wav, mono
from mstar_core.errors import RequestError
from mstar_core.resample import resample_blocks
from mstar_core.serving.media.order import Decoded, Order, Refused

READ = "wav, flac, ogg (vorbis, opus) and mp3"
BLOCK_S = 5
MAX_CHANNELS = 8
MIN_RATE, MAX_RATE = 4_000, 192_000
"""Samples per second that are taken from a stranger's header."""
CONTAINERS = {"WAV": "wav", "WAVEX": "wav", "FLAC": "flac", "OGG": "ogg", "MP3": "mp3"}
_HEAD = 16
_UNKNOWN = 1 << 62
"""Frames from here on are the library's word for a length that the header leaves open."""
_OTHERS = (
    (4, b"ftyp", "an mp4 (m4a)"),
    (0, b"\x1aE\xdf\xa3", "a webm or matroska"),
    (0, b"PK", "a zip"),
    (0, b"RF64", "an rf64"),
    (0, b"FORM", "an aiff"),
    (0, b".snd", "an au"),
    (0, b"%PDF", "a pdf"),
)


class Unreadable(Exception):
    """The file is not taken; ``refused`` says why, in words of ours."""

    def __init__(self, message: str, code: str = "invalid_audio") -> None:
        super().__init__(message)
        self.refused = Refused(code=code, message=message)


def decode(file: int, target: int, order: Order) -> Decoded:
    """The sound in the descriptor ``file`` into ``target``; both can seek.

    Raises Unreadable. At no time are more than three blocks of ``BLOCK_S`` seconds held.
    """
    import soundfile

    size = os.fstat(file).st_size
    head = os.pread(file, _HEAD, 0)
    _check_head(head, size)
    os.lseek(file, 0, os.SEEK_SET)
    count = _Count()
    try:
        with soundfile.SoundFile(file, closefd=False) as sound:
            rate, frames = sound.samplerate, sound.frames
            _check_header(sound, order.max_seconds)
            blocks = _blocks(sound, order.max_seconds, count)
            samples = _write(target, blocks, rate, order.rate)
    except soundfile.LibsndfileError:
        raise Unreadable(f"The file is broken, or not one of {READ}.") from None
    except RequestError as error:
        raise Unreadable(f"The file holds {error.got}; it must hold {error.want}.") from None
    if count.frames == 0:
        raise Unreadable("The file holds no sound.")
    if is_cut_wav(head[:WAV_HEAD], size) or count.frames < frames:
        raise Unreadable(f"The file ends after {count.frames / rate:.2f} s, before its sound does.")
    return Decoded(samples=samples, rate=order.rate or rate, seconds=count.frames / rate)


class _Count:
    frames = 0


def _check_head(head: bytes, size: int) -> None:
    if size == 0:
        raise Unreadable("The file is empty.")
    for at, magic, what in _OTHERS:
        if head[at : at + len(magic)] == magic:
            raise Unreadable(f"The file is {what} file; what is read is {READ}.")
    wave = head[:4] == b"RIFF" and head[8:12] == b"WAVE"
    mpeg = head[:3] == b"ID3" or (head[:1] == b"\xff" and head[1:2] >= b"\xe0")
    if not (wave or mpeg or head[:4] in (b"fLaC", b"OggS")):
        raise Unreadable(f"The file is none of those that are read: {READ}.")


def _check_header(sound: Any, max_seconds: float) -> None:
    """What the header promises: kind of file, channels, rate and length."""
    if sound.format not in CONTAINERS:
        raise Unreadable(f"The file is none of those that are read: {READ}.")
    if not 1 <= sound.channels <= MAX_CHANNELS:
        raise Unreadable(
            f"The file has {sound.channels} channels; at most {MAX_CHANNELS} are read."
        )
    if not MIN_RATE <= sound.samplerate <= MAX_RATE:
        raise Unreadable(
            f"The file has {sound.samplerate} samples per second; "
            f"{MIN_RATE} to {MAX_RATE} are read."
        )
    if sound.frames >= _UNKNOWN:
        raise Unreadable("The file does not say how long it is: write it with its length.")
    if sound.frames > max_seconds * sound.samplerate:
        raise _too_long(f"lasts {sound.frames / sound.samplerate:.1f} s by its header", max_seconds)


def _blocks(sound: Any, max_seconds: float, count: _Count) -> Iterator[np.ndarray]:
    """Mono blocks of ``BLOCK_S`` seconds; raises Unreadable where they go on for too long."""
    limit = max_seconds * sound.samplerate
    while True:
        samples_TC = sound.read(BLOCK_S * sound.samplerate, dtype="float32", always_2d=True)
        if len(samples_TC) == 0:
            return
        count.frames += len(samples_TC)
        if count.frames > limit:
            raise _too_long("goes on for longer", max_seconds)
        yield mono(samples_TC, where="the file")


def _write(target: int, blocks: Iterator[np.ndarray], rate: int, wanted: int | None) -> int:
    """Write the blocks, at the rate that is wanted; how many samples that is."""
    if wanted is not None:
        blocks = resample_blocks(blocks, rate, wanted)
    samples = 0
    for block_T in blocks:
        with np.ascontiguousarray(block_T, dtype=np.float32).data.cast("B") as rest:
            done = 0
            while done < len(rest):
                done += os.write(target, rest[done:])
        samples += len(block_T)
    return samples


def _too_long(what: str, max_seconds: float) -> Unreadable:
    return Unreadable(f"The sound {what}; at most {max_seconds:g} s are taken.", "audio_too_long")
