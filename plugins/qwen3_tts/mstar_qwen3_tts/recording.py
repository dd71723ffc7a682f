"""A recording of a voice to imitate: checked, at the model's rate, and cut into frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from mstar_core.audio import mono
from mstar_core.errors import RequestError, Words
from mstar_core.resample import resample
from mstar_qwen3_tts.config import RECORDED_FRAMES, TtsConfig
from mstar_qwen3_tts.ear_sizes import FRAME
from mstar_qwen3_tts.mel import HOP, RATE, log_mel

LEAST_S, MOST_S = 1.0, RECORDED_FRAMES * FRAME / RATE
"""How long a recording may be."""
MOST_MEL = RECORDED_FRAMES * FRAME // HOP
"""Mel frames of the longest."""
SILENT, QUIET, RAISED = 1e-4, 0.1, 0.5
"""Of full scale: what peaks below the first is silence, what peaks below the second is made louder,
to peak at the third."""
OFFSET = 0.01
"""A mean above this share of the peak is no sound, and is taken away."""


@frozen(kw_only=True, eq=False)
class Recording:
    """Somebody speaks: the model hears it and imitates the voice."""

    samples: np.ndarray
    """float32 ``[T]`` at 24 kHz."""
    text: str | None = None
    """What is said."""
    ids: Sequence[int] = ()
    """The same as the ids of a turn, in its place."""
    speaker_only: bool = False
    """The voice is imitated, and nothing of how it speaks here: ``text`` is not needed."""

    @classmethod
    def of(
        cls,
        samples: np.ndarray,
        rate: int,
        *,
        text: str | None = None,
        ids: Sequence[int] = (),
        speaker_only: bool = False,
    ) -> Recording:
        """From ``samples`` float32 ``[T]`` or ``[T, channels]`` at any ``rate`` in Hz.

        A constant offset is taken away and a quiet recording is made louder; else the sound stays
        as it is. Raises RequestError for sound that is no recording of a voice, for one that is too
        short or too long, and where the text of what is said is missing.
        """
        if not speaker_only and not (text and text.strip()) and not ids:
            raise RequestError(
                where="reference_text",
                got=Words("nothing"),
                want="all that is said in the recording, in words",
                fix="write it down, or ask for speaker_only",
            )
        sound_T = mono(np.asarray(samples), "reference")
        seconds = len(sound_T) / rate if rate > 0 else 0.0
        if seconds > MOST_S:
            want = f"at most {MOST_S:g} seconds"
            raise _wrong(f"{seconds:.1f} seconds", want, "cut out a part of it")
        sound_T = _levelled(resample(sound_T, rate, RATE))
        if seconds < LEAST_S:
            want = f"at least {LEAST_S:g} second"
            raise _wrong(f"{seconds:.2f} seconds", want, "give more of it")
        return cls(samples=sound_T, text=text, ids=ids, speaker_only=speaker_only)

    @property
    def num_frames(self) -> int:
        """Frames of codes that it becomes."""
        return 0 if self.speaker_only else -(-len(self.samples) // FRAME)

    def check(self, config: TtsConfig) -> None:
        """Nothing: it was checked when it was made."""

    def arrays(self, config: TtsConfig) -> dict[str, np.ndarray]:
        """``mel`` and ``mel_at``; unless only the speaker counts ``recording`` float32
        ``[frames, 1920]``, ``recording_at`` and ``valid``, the samples of each frame."""
        bins = config.ears.speaker.bins if config.ears is not None else 0
        mel_LC = log_mel(self.samples, bins)
        found: dict[str, np.ndarray] = {"mel": mel_LC, "mel_at": np.arange(len(mel_LC))}
        if self.speaker_only:
            return found
        left = -len(self.samples) % FRAME
        valid_T = np.full(self.num_frames, FRAME)
        valid_T[-1] -= left
        found["recording"] = np.pad(self.samples, (0, left)).reshape(-1, FRAME)
        found["recording_at"], found["valid"] = np.arange(self.num_frames), valid_T
        return found


def _levelled(samples_T: np.ndarray) -> np.ndarray:
    """Around zero, and loud enough. Raises RequestError for silence."""
    peak = float(np.abs(samples_T).max(initial=0.0))
    mean = float(samples_T.mean(dtype=np.float64)) if len(samples_T) else 0.0
    if abs(mean) > OFFSET * peak:
        samples_T = samples_T - np.float32(mean)
        peak = float(np.abs(samples_T).max())
    if peak < SILENT:
        raise _wrong(f"a peak of {peak:.1g} of full scale", "a voice", "check how it was made")
    return samples_T * np.float32(RAISED / peak) if peak < QUIET else samples_T


def _wrong(got: str, want: str, fix: str) -> RequestError:
    return RequestError(where="reference", got=Words(got), want=want, fix=fix)
