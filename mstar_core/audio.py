"""Sound files in, mono float32 samples out; and a change of sample rate. Free of torch.

Files are told apart by their content, never by their name. Reading needs the ``audio`` extra; the
resampler needs numpy only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from types import ModuleType

import numpy as np
from attrs import frozen
from numpy.lib.stride_tricks import as_strided

from mstar_core.errors import ConfigError, RequestError, Words

FORMATS = "wav, flac, ogg or mp3"
ZERO_CROSSINGS = 64
"""Zero crossings of the resampler's sinc on either side of its middle."""
PASSBAND = 0.95
"""Middle of the resampler's transition band, as a share of the lower Nyquist frequency."""
KAISER_BETA = 10.0
"""Shape of the sinc's window: what lies beyond the lower Nyquist frequency is 100 dB down."""
OVERSHOOT = 2.0
"""The largest sample, in full scales, that is taken for sound: a decoder may exceed 1 a little."""
MIN_RATE, MAX_RATE = 1_000, 768_000
"""The sample rates that are taken for one, in Hz."""
_BLOCK = 4096


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
    file = Path(path)
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
            promised, rate = sound.frames, sound.samplerate
            samples_TC = sound.read(dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise _broken(file, error.error_string) from error
    if _is_cut_wav(file) or len(samples_TC) < promised:
        raise _broken(
            file, f"a file that ends after {len(samples_TC)} samples, before its sound does"
        )
    return Audio(samples_T=mono(samples_TC, where=str(file)), rate=rate)


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


def resample(samples_T: np.ndarray, rate: int, new_rate: int) -> np.ndarray:
    """float32 ``[T]`` at ``rate`` Hz → float32 ``[ceil(T * new_rate / rate)]`` at ``new_rate`` Hz.

    A sinc under a Kaiser window, evaluated exactly at every output (polyphase). Frequencies up to
    0.9 of the lower Nyquist frequency come out within 0.0001 of full scale; those beyond it are
    100 dB down. Raises RequestError for a rate that is not a whole number in the accepted range.
    """
    check_rate(rate)
    check_rate(new_rate)
    if rate == new_rate or len(samples_T) == 0:
        return samples_T.astype(np.float32, copy=False)
    common = math.gcd(rate, new_rate)
    up, down = new_rate // common, rate // common
    cutoff = PASSBAND * min(1.0, up / down)
    half = math.ceil(ZERO_CROSSINGS / cutoff)
    padded_T = np.pad(samples_T.astype(np.float64), (half, half + down + 1))
    out_T = np.empty(-(-len(samples_T) * up // down), dtype=np.float32)
    for phase in range(min(up, len(out_T))):
        start, fraction = divmod(phase * down, up)
        taps_K = _taps(half, cutoff, fraction / up)
        target = out_T[phase::up]
        for block, windows in _windows(padded_T[start:], len(target), down, len(taps_K)):
            target[block] = windows @ taps_K
    return out_T


def check_rate(rate: int) -> None:
    """Raises RequestError for a rate that is not a whole number of Hz in the accepted range."""
    if type(rate) is not int or not MIN_RATE <= rate <= MAX_RATE:
        raise RequestError(
            where="rate",
            got=rate,
            want=f"a whole number from {MIN_RATE} to {MAX_RATE} (samples per second)",
            fix="give the rate at which the samples were taken",
        )


def _taps(half: int, cutoff: float, fraction: float) -> np.ndarray:
    """The filter ``[2 * half + 1]`` for an output ``fraction`` of a sample after its middle tap."""
    at_K = np.arange(-half, half + 1) - fraction
    window_K = np.i0(KAISER_BETA * np.sqrt(np.maximum(0.0, 1 - (at_K / (half + 1)) ** 2)))
    taps_K = np.sinc(cutoff * at_K) * window_K
    return np.asarray(taps_K / taps_K.sum())


def _windows(
    samples_T: np.ndarray, count: int, hop: int, width: int
) -> Iterator[tuple[slice, np.ndarray]]:
    """``count`` windows of ``width`` samples, ``hop`` apart, a block at a time (a copy of each)."""
    step = samples_T.strides[0]
    for first in range(0, count, _BLOCK):
        rows = min(_BLOCK, count - first)
        view = as_strided(samples_T[first * hop :], (rows, width), (hop * step, step))
        yield slice(first, first + rows), np.ascontiguousarray(view)


def _is_cut_wav(file: Path) -> bool:
    """Whether a RIFF file is shorter than its header says. Streams say 0 or all ones: unknown."""
    with file.open("rb") as raw:
        head = raw.read(12)
    if len(head) < 12 or head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return False
    promised = int.from_bytes(head[4:8], "little")
    return promised not in (0, 0xFFFFFFFF) and promised + 8 > file.stat().st_size + 1


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
