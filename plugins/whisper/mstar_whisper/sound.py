"""Mel windows of a sound of any length, read forward in blocks; a window or two are held.

::

    blocks ── 16 kHz ──► samples kept ─► energy of the window's frames ─► scaled by the peak
    first reading: how long it is, and its loudest bin      second reading: window by window
"""

from __future__ import annotations

import numpy as np
from attrs import frozen

from mstar_core.audio import mono
from mstar_core.model.transcription import Sound
from mstar_core.resample import resample_blocks
from mstar_whisper.config import HOP, SAMPLE_RATE
from mstar_whisper.mel import FFT, log_energy, scaled

EDGE = FFT // 2
"""Samples that a frame reaches to either side of its middle."""
QUIET = 20
"""Frames around a cut that are to be quiet together: 0.2 s."""
LEVEL = 10
"""Frames over which a level is taken: 0.1 s."""
LOUD_DB = 25.0
"""What is this much below a stretch's loud parts (the 95th of 100 levels) is a pause."""


@frozen(kw_only=True)
class Level:
    """How loud a stretch of sound is."""

    loudest_db: float
    """Of full scale."""
    spread_db: float
    """From its quiet parts to its loud ones (the 5th and the 95th of 100 levels)."""


class Samples:
    """A stretch of a sound at ``SAMPLE_RATE``, which moves forward."""

    def __init__(self, sound: Sound) -> None:
        heard = (mono(block, where="audio") for block in sound.blocks() if len(block))
        self._blocks = resample_blocks(heard, sound.rate, SAMPLE_RATE)
        self._kept = np.empty(0, np.float32)
        self._start = 0

    @property
    def end(self) -> int:
        """Samples that have been read."""
        return self._start + len(self._kept)

    def more(self) -> bool:
        """Read a block; False at the end. Raises RequestError for what is no sound."""
        block = next(self._blocks, None)
        if block is None:
            return False
        self._kept = np.concatenate([self._kept, block])
        return True

    def drop(self, before: int) -> None:
        """Forget what lies before sample ``before``."""
        gone = min(max(0, before - self._start), len(self._kept))
        self._kept = self._kept[gone:]
        self._start += gone

    def around(self, first: int, last: int, total: int) -> np.ndarray:
        """Float64 under the frames ``[first, last)``, of a sound of ``total`` samples.

        It is mirrored at both its ends; samples that have not come are silence.
        """
        at_T = np.abs(np.arange(HOP * first - EDGE, HOP * (last - 1) + EDGE))
        at_T = np.where(at_T < total, at_T, 2 * (total - 1) - at_T) - self._start
        known_T = at_T < len(self._kept)
        out_T = np.zeros(len(at_T))
        out_T[known_T] = self._kept[at_T[known_T]]
        return out_T


class Windows:
    """The windows of ``sound``. A sound of less than a window ends in silence."""

    def __init__(self, sound: Sound, mel_bins: int, window_frames: int) -> None:
        self._sound = sound
        self._bins = mel_bins
        self._width = window_frames
        self._samples: Samples | None = None
        self._total = 0
        self._peak = -np.inf
        self.num_samples = 0
        """At ``SAMPLE_RATE``."""

    @property
    def num_frames(self) -> int:
        """Whole frames of the sound, at least one."""
        return max(1, self.num_samples // HOP)

    @property
    def seconds(self) -> float:
        """How long the sound lasts; 0 until it has been measured."""
        return self.num_samples / SAMPLE_RATE

    def measure(self) -> None:
        """Read the sound to its end. Raises RequestError for what is no sound, and for none."""
        samples, first, more = Samples(self._sound), 0, True
        while more:
            more = samples.more()
            total = samples.end if more else max(samples.end, self._width * HOP)
            last = (total - EDGE) // HOP if more else total // HOP
            if last > first:
                energy = log_energy(samples.around(first, last, total), self._bins)
                self._peak = max(self._peak, float(energy.max()))
                first = last
                samples.drop(HOP * first - EDGE)
        if samples.end == 0:
            mono(np.empty(0, np.float32), where="audio")
        self.num_samples, self._total = samples.end, total

    def mel(self, first: int, num_frames: int) -> np.ndarray:
        """Float32 ``[bins, window]`` that begins at frame ``first``, no earlier than the last one.

        Of a sound longer than a window, what lies ``num_frames`` or more behind is 0.
        """
        last = min(first + self._width, self._total // HOP)
        if self._total > self._width * HOP:
            last = min(last, first + num_frames)
        samples = self._reached(first, HOP * last + EDGE)
        energy = log_energy(samples.around(first, last, self._total), self._bins)
        window = np.zeros((self._bins, self._width), np.float32)
        window[:, : last - first] = scaled(energy, self._peak)
        return window

    def quietest(self, low: int, high: int) -> int:
        """The frame from ``low`` to ``high`` around which the least is heard."""
        samples = self._reached(0, HOP * high + EDGE)
        power_F = _power(samples.around(low, high, self._total)[EDGE : EDGE + HOP * (high - low)])
        around_F = np.convolve(power_F, np.ones(QUIET), mode="valid")
        return low + QUIET // 2 + len(around_F) - 1 - int(around_F[::-1].argmin())

    def level(self, first: int, num_frames: int) -> Level:
        """How loud it is from frame ``first`` on."""
        power_F = self._power(first, num_frames)
        if len(power_F) > LEVEL:
            power_F = np.convolve(power_F, np.ones(LEVEL) / LEVEL, mode="valid")
        db_F = 10 * np.log10(np.maximum(power_F / HOP, 1e-20))
        low, high = np.percentile(db_F, (5, 95))
        return Level(loudest_db=float(db_F.max()), spread_db=float(high - low))

    def loud(self, first: int, num_frames: int) -> np.ndarray:
        """Bool ``[num_frames]`` from frame ``first`` on: it is no pause."""
        power_F = np.convolve(self._power(first, num_frames), np.ones(LEVEL // 2), mode="same")
        db_F = 10 * np.log10(np.maximum(power_F[:num_frames], 1e-20))
        return np.asarray(db_F > np.percentile(db_F, 95) - LOUD_DB)

    def _power(self, first: int, num_frames: int) -> np.ndarray:
        """The energy of each of ``num_frames`` from ``first`` on."""
        last = first + num_frames
        samples = self._reached(first, HOP * last)
        return _power(samples.around(first, last, self._total)[EDGE : EDGE + HOP * num_frames])

    def _reached(self, first: int, end: int) -> Samples:
        """The samples of the second reading, from frame ``first`` to at least sample ``end``."""
        if self._samples is None:
            self._samples = Samples(self._sound)
        samples = self._samples
        while samples.end < min(end, self.num_samples) and samples.more():
            samples.drop(HOP * first - EDGE)
        samples.drop(HOP * first - EDGE)
        return samples


def _power(samples_T: np.ndarray) -> np.ndarray:
    """The energy of each frame's own samples; the last may lack some."""
    return np.asarray(np.add.reduceat(samples_T**2, np.arange(0, len(samples_T), HOP)))
