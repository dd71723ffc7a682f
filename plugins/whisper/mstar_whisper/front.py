"""Sound in, a request in numbers out; ids in, text out. Free of torch and of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mstar_core.audio import mono
from mstar_core.config.sampling import SamplingSettings, plain
from mstar_core.errors import CheckpointError, RequestError, Words
from mstar_core.model.front import Front, Request
from mstar_core.model.segment import Segment
from mstar_core.resample import check_rate, resample
from mstar_whisper.config import SAMPLE_RATE, WhisperConfig
from mstar_whisper.mel import log_mel
from mstar_whisper.prompt import DEFAULT_TASK, ENGLISH, Wishes, prompt_ids
from mstar_whisper.segments import segments_of

TOKENIZER_FILES = ("tokenizer.json", "vocab.json")
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
        ids = prompt_ids(
            self.config.tokens,
            wishes,
            self._previous_ids(wishes.prompt),
            self.config.target_positions,
        )
        room = self.config.target_positions - len(ids)
        return Request(
            arrays={"mel": mel[None], "ids": np.asarray(ids, dtype=np.int64)},
            max_new_tokens=room if max_new_tokens is None else min(room, _count(max_new_tokens)),
            stop_ids=self.stop_ids,
            sampling=SamplingSettings() if sampling is None else sampling,
            settings={"sampler_rules": {TIMESTAMPS: wishes.timestamps}},
        )

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
            "max_audio_seconds": self.config.window_seconds,
            "input_sample_rate": SAMPLE_RATE,
            "languages": sorted(tokens.languages) or [ENGLISH],
            "default_language": self.default_language if tokens.multilingual else ENGLISH,
            "tasks": sorted(tokens.tasks) or [DEFAULT_TASK],
        }

    @property
    def frames(self) -> int:
        """Mel frames of a window."""
        return self.config.window_frames

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer. Raises CheckpointError where it has none that loads."""
        from transformers import AutoTokenizer

        got: object = Words(f"none of {', '.join(TOKENIZER_FILES)}")
        if any((self.folder / name).is_file() for name in TOKENIZER_FILES):
            try:
                return AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
            except (OSError, ValueError) as error:
                got = Words(error)
        raise CheckpointError(
            where=str(self.folder),
            got=got,
            want="the tokenizer that came with the weights",
            fix="add tokenizer.json to the checkpoint folder",
        )

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

    def _previous_ids(self, prompt: str | None) -> list[int]:
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
