"""Sound in, a request in numbers out; ids in, text out. Free of torch and of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from mstar_core.audio import mono
from mstar_core.config.sampling import SamplingSettings, plain
from mstar_core.errors import RequestError, Words
from mstar_core.model.front import Front, Request
from mstar_core.model.segment import Segment
from mstar_core.model.transcription import Sound, Transcription
from mstar_core.resample import check_rate, resample
from mstar_whisper.config import SAMPLE_RATE, WhisperConfig
from mstar_whisper.mel import log_mel
from mstar_whisper.prompt import (
    DEFAULT_TASK,
    ENGLISH,
    LongWishes,
    Wishes,
    check_wishes,
    prompt_ids,
)
from mstar_whisper.segments import segments_of
from mstar_whisper.tokenizer import open_tokenizer
from mstar_whisper.transcription import WhisperTranscription

TIMESTAMPS = "timestamps"
"""The name of the logit rule that a request with timestamps switches on."""


class WhisperFront(Front):
    """Hears one window of sound (30 seconds in every published size) a request."""

    def __init__(self, folder: Path, config: WhisperConfig, default_language: str | None) -> None:
        self.folder = folder
        self.config = config
        self.default_language = default_language
        self.stop_ids = frozenset({config.tokens.eot})

    def audio_request(
        self,
        samples: np.ndarray,
        rate: int,
        *,
        max_new_tokens: int | None = None,
        sampling: SamplingSettings | None = None,
        **options: Any,
    ) -> Request:
        """A request for the text of ``samples``, float ``[T]`` or ``[T, channels]`` at ``rate`` Hz.

        ``options`` are the fields of :class:`~mstar_whisper.prompt.Wishes`. Raises RequestError for
        sound that is empty, not finite or longer than a window, and for wishes that the model does
        not have. ``max_new_tokens`` never exceeds what the decoder's positions leave.
        """
        wishes = Wishes.of({"language": self.default_language} | _given(options))
        mel = log_mel(self._one_window(samples, rate), self.config.mel_bins, self.frames)
        ids = self.prompt(wishes, self.previous_ids(wishes.prompt))
        drawn = SamplingSettings() if sampling is None else sampling
        request = self.window_request(mel, ids, drawn, timestamps=wishes.timestamps)
        if max_new_tokens is None:
            return request
        return evolve(request, max_new_tokens=min(request.max_new_tokens, _count(max_new_tokens)))

    def transcription(
        self, sound: Sound, *, state: Mapping[str, Any] | None = None, **options: Any
    ) -> Transcription:
        """A plan for ``sound``; ``options`` are :class:`~mstar_whisper.prompt.LongWishes`.

        Without a language a multilingual model finds out what is spoken, in the first window. A
        threshold that is None decides nothing; another option that is None is not given.
        """
        off = {k: None for k, v in options.items() if v is None and k.endswith("_threshold")}
        wishes = LongWishes.of({"language": self.default_language} | _given(options) | off)
        check_wishes(self.config.tokens, wishes)
        return WhisperTranscription(self, sound, wishes, state or {})

    def window_request(
        self,
        mel: np.ndarray,
        prompt: Sequence[int],
        sampling: SamplingSettings,
        timestamps: bool = True,
    ) -> Request:
        """What is said in the window ``mel`` ``[bins, frames]``, behind the ids of ``prompt``."""
        return Request(
            arrays={"mel": mel[None], "ids": np.asarray(prompt, dtype=np.int64)},
            max_new_tokens=self.config.target_positions - len(prompt),
            stop_ids=self.stop_ids,
            sampling=sampling,
            settings={"sampler_rules": {TIMESTAMPS: timestamps}},
        )

    def prompt(self, wishes: Wishes, previous: Sequence[int]) -> list[int]:
        """The decoder's prompt, after the ids ``previous`` of earlier text."""
        return prompt_ids(self.config.tokens, wishes, previous, self.config.target_positions)

    @property
    def most_previous(self) -> int:
        """Ids of earlier text that a prompt has room for."""
        return self.config.target_positions // 2 - 1

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``; ids that steer the decoder, timestamps among them, are left out."""
        text_ids = [int(i) for i in ids if i < self.config.tokens.eot]
        return str(self.tokenizer.decode(text_ids, skip_special_tokens=True))

    def segments(self, ids: Sequence[int], seconds: float) -> list[Segment]:
        """What was said between pairs of timestamps; text that none closes lasts to the end."""
        return list(segments_of(ids, seconds, self.config.tokens, self.decode))

    def traits(self) -> dict[str, Any]:
        """What clients may want to know of a transcript's limits and languages."""
        tokens = self.config.tokens
        return {
            "input_sample_rate": SAMPLE_RATE,
            "languages": sorted(tokens.languages) or [ENGLISH],
            "default_language": self.default_language if tokens.multilingual else ENGLISH,
            "tasks": sorted(tokens.tasks) or [DEFAULT_TASK],
            "word_timestamps": True,
        }

    @property
    def frames(self) -> int:
        """Mel frames of a window."""
        return self.config.window_frames

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer. Raises CheckpointError where it has none that loads."""
        return open_tokenizer(self.folder)

    def _one_window(self, samples: np.ndarray, rate: int) -> np.ndarray:
        """float32 ``[T]`` at ``SAMPLE_RATE``, at most a window long."""
        heard_T = mono(samples, where="audio")
        check_rate(rate)
        limit = self.config.window_seconds
        if len(heard_T) > limit * rate:
            raise RequestError(
                where="audio",
                got=Words(f"{len(heard_T) / rate:.2f} s of sound"),
                want=f"at most {limit:g} s",
                fix=f"cut the sound into pieces of at most {limit:g} s",
            )
        return resample(heard_T, rate, SAMPLE_RATE)[: self.config.window_samples]

    def previous_ids(self, prompt: str | None) -> list[int]:
        """The ids of earlier text. Raises RequestError for text that would steer the decoder."""
        if prompt is None or not prompt.strip():
            return []
        ids = self.tokenizer.encode(" " + prompt.strip(), add_special_tokens=False)
        if any(i >= self.config.tokens.eot for i in ids):
            raise RequestError(
                where="prompt",
                got=prompt,
                want="text without the model's own control tokens",
                fix="remove what is written as <|...|>",
            )
        return list(ids)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say something."""
    return {name: value for name, value in options.items() if value is not None}


def _count(max_new_tokens: int) -> int:
    count = plain(max_new_tokens)
    if type(count) is not int or count < 1:
        raise RequestError(
            where="max_new_tokens",
            got=max_new_tokens,
            want="a whole number of at least 1 (tokens)",
            fix="leave it out to let the model end by itself",
        )
    return count
