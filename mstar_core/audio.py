"""Sound files in, mono float32 samples out. Free of torch.

Files are told apart by their content, never by their name. Reading needs the ``audio`` extra.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from attrs import frozen

from mstar_core.errors import ConfigError, RequestError, Words

FORMATS = "wav, flac, ogg or mp3"
OVERSHOOT = 2.0
"""The largest sample, in full scales, that is taken for sound: a decoder may exceed 1 a little."""
WAV_HEAD = 12
"""Bytes by which a file is known, of a RIFF file with its length."""
_BLOCK_S = 30


@frozen(kw_only=True, eq=False)
class Audio:
    """Mono sound."""

    samples_T: np.ndarray
    """float32 ``[T]``, full scale 1."""
    rate: int
    """Samples per second."""

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples_T) / self.rate


def read_audio(path: str | PathLike[str]) -> Audio:
    """The sound in a file, all channels averaged.

    Raises RequestError where there is no such file, or it is empty, not sound, cut short or
    without samples; ConfigError where the library that reads files is not installed.
    """
    head = audio_head(path)
    samples_T = np.concatenate(list(audio_blocks(path, seconds=_BLOCK_S)))
    return Audio(samples_T=samples_T, rate=head.rate)


@frozen(kw_only=True)
class AudioHead:
    """What a file says of its sound before it is read."""

    rate: int
    """Samples per second."""
    frames: int

    @property
    def seconds(self) -> float:
        """How long it says that it lasts."""
        return self.frames / self.rate


def audio_head(path: str | PathLike[str]) -> AudioHead:
    """What a file says of its sound. Raises as :func:`read_audio` does."""
    with _opened(Path(path)) as sound:
        return AudioHead(rate=sound.samplerate, frames=sound.frames)


def audio_blocks(path: str | PathLike[str], seconds: int) -> Iterator[np.ndarray]:
    """The sound in a file, block by block: float32 ``[T]`` of ``seconds``, the last one shorter.

    One block is held. Raises as :func:`read_audio` does; of a file that is cut short, or has no
    samples, behind its last block.
    """
    file, count = Path(path), 0
    with _opened(file) as sound:
        promised, size = sound.frames, seconds * sound.samplerate
        while len(samples_TC := sound.read(size, dtype="float32", always_2d=True)):
            count += len(samples_TC)
            yield mono(samples_TC, where=str(file))
    with file.open("rb") as raw:
        head = raw.read(WAV_HEAD)
    if is_cut_wav(head, file.stat().st_size) or count < promised:
        raise _broken(file, f"a file that ends after {count} samples, before its sound does")
    if count == 0:
        mono(np.empty(0, np.float32), where=str(file))


def is_sound(head: bytes) -> bool:
    """Whether a file whose first ``WAV_HEAD`` bytes are ``head`` is one of those that are read."""
    wave = head[:4] == b"RIFF" and head[8:12] == b"WAVE"
    layer_3 = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2
    return wave or layer_3 or head[:4] in (b"fLaC", b"OggS") or head[:3] == b"ID3"


def mono(samples: np.ndarray, where: str = "samples") -> np.ndarray:
    """Samples ``[T]`` or ``[T, channels]`` → float32 ``[T]``, the mean of the channels.

    Raises RequestError for zero samples, another number of axes, integers, NaN or infinity, and
    for samples beyond ``OVERSHOOT``.
    """
    samples = np.asarray(samples)
    got = None
    if samples.ndim not in (1, 2):
        got = f"an array of {samples.ndim} axes"
    elif samples.size == 0:
        got = "zero samples"
    elif samples.dtype.kind != "f":
        got = f"samples of type {samples.dtype}"
    elif not np.isfinite(samples).all():
        got = "samples that are NaN or infinite"
    elif (largest := float(np.abs(samples).max())) > OVERSHOOT:
        got = f"samples of up to {largest:g}"
    if got is not None:
        raise RequestError(
            where=where,
            got=Words(got),
            want="at least one sample, floating point within -1 and 1, [T] or [T, channels]",
            fix="give sound that has samples; divide integer samples by their full scale",
        )
    samples = samples.astype(np.float32, copy=False)
    return samples if samples.ndim == 1 else samples.mean(axis=1, dtype=np.float32)


def is_cut_wav(head: bytes, size: int) -> bool:
    """Whether a RIFF file that begins with ``head`` is longer by its header than ``size`` bytes.

    Streams say 0 or all ones: unknown.
    """
    if len(head) < WAV_HEAD or head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return False
    promised = int.from_bytes(head[4:8], "little")
    return promised not in (0, 0xFFFFFFFF) and promised + 8 > size + 1


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """The file as the library reads it; what the library cannot read is an error of ours."""
    if not file.is_file():
        raise RequestError(
            where=str(file),
            got=Words("a folder" if file.is_dir() else "no such file"),
            want=f"a {FORMATS} file",
            fix="correct the path",
        )
    if file.stat().st_size == 0:
        raise _broken(file, "a file of 0 bytes")
    soundfile = _soundfile()
    try:
        with soundfile.SoundFile(os.fsencode(file)) as sound:
            yield sound
    except soundfile.LibsndfileError as error:
        raise _broken(file, error.error_string) from error


def _broken(file: Path, got: str) -> RequestError:
    return RequestError(
        where=str(file),
        got=Words(got),
        want=f"a whole {FORMATS} file, by its content",
        fix="convert the file to one of these formats, or fetch it again",
    )


def _soundfile() -> ModuleType:
    try:
        import soundfile
    except ImportError as error:
        raise ConfigError(
            where="reading sound files",
            got=Words(f"soundfile cannot be imported ({error})"),
            want="the package soundfile",
            fix="install mstar-core[audio]",
        ) from error
    module: ModuleType = soundfile
    return module
