"""The plan of a model without rules for long sound: all of it in one request, or refused."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import RequestError
from mstar_core.model.front import Front, Request
from mstar_core.model.segment import Segment
from mstar_core.model.transcription import Answered, Sound, Transcription

LONG = ("batched", "word_timestamps", "hotwords")
"""Wishes that only a plan of the model's own grants."""


class AtOnce(Transcription):
    """One request over the whole sound, which is in memory while it is made."""

    def __init__(self, front: Front, sound: Sound, options: Mapping[str, Any]) -> None:
        """Raises RequestError for what only a plan of the model's own grants."""
        given = {name: value for name, value in options.items() if value is not None}
        for name in LONG:
            if given.pop(name, None):
                raise RequestError(
                    where=name,
                    got=options[name],
                    want="nothing: this model hears a sound in one request",
                    fix=f"leave {name} out",
                )
        given.pop("state", None)
        self._temperature = float(given.pop("temperature", 0.0))
        self._sampling = SamplingSettings(
            temperature=self._temperature, seed=given.pop("seed", None), logprobs=0
        )
        self._front, self._sound, self._options = front, sound, given
        self._request: Request | None = None
        self._duration: float | None = None
        self._over = False

    def next(self) -> list[Request]:
        if self._request is not None:
            return []
        samples_T = np.concatenate([np.empty(0, np.float32), *self._sound.blocks()])
        self._duration = len(samples_T) / self._sound.rate
        self._request = self._front.audio_request(
            samples_T, self._sound.rate, timestamps=True, sampling=self._sampling, **self._options
        )
        return [self._request]

    def take(self, answered: Answered) -> list[Segment]:
        if self._over or self._request is None or answered.id != self._request.id:
            raise RequestError(
                where="answered.id",
                got=answered.id,
                want="the id of the plan's request, while it runs",
                fix="answer it once",
            )
        self._over = True
        segments = self._front.segments(list(answered.ids), self._duration or 0.0)
        return [self._judged(segment, answered) for segment in segments]

    @property
    def seconds(self) -> float:
        return (self._duration or 0.0) if self._over else 0.0

    @property
    def duration(self) -> float | None:
        return self._duration

    @property
    def language(self) -> str | None:
        said: str | None = self._options.get("language")
        return said or self._front.traits().get("default_language")

    @property
    def language_probability(self) -> float | None:
        return None

    def state(self) -> dict[str, Any]:
        return {}

    def _judged(self, segment: Segment, answered: Answered) -> Segment:
        """``segment`` with the mean of its own tokens' log-probabilities."""
        own = answered.logprobs[segment.first : segment.first + len(segment.ids)]
        data = segment.text.encode()
        return attrs.evolve(
            segment,
            temperature=self._temperature,
            avg_logprob=math.fsum(own) / len(own) if own else None,
            compression_ratio=len(data) / len(zlib.compress(data)),
        )
