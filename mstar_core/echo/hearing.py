"""Sound of any length for echo: each window of 30 seconds says how long it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import RequestError
from mstar_core.model.front import Request
from mstar_core.model.segment import Segment, Word
from mstar_core.model.transcription import Answered, Sound, Transcription

if TYPE_CHECKING:
    from mstar_core.echo.front import EchoFront

WINDOW_S = 30
AT_ONCE = 4
"""Windows that are heard together, batched."""


class EchoTranscription(Transcription):
    """A request and a segment for each window; the first says the ``prompt``, if there is one."""

    def __init__(self, front: EchoFront, sound: Sound, options: Mapping[str, Any]) -> None:
        self._front = front
        self._rate = sound.rate
        self._words = bool(options.get("word_timestamps"))
        self._language: str | None = options.get("language")
        self._prompt: str | None = options.get("prompt")
        self._at_once = AT_ONCE if options.get("batched") else 1
        self._sampling = SamplingSettings(logprobs=0)
        self._given = int((options.get("state") or {}).get("windows", 0))
        """Windows whose segments have been given."""
        self._windows = _windows(sound)
        self._read = 0
        self._open: deque[tuple[Request, float]] = deque()
        """What runs or waits to be given, and the seconds of its window."""
        self._answers: dict[str, Answered] = {}
        self._seconds = float(self._given * WINDOW_S)
        self._duration: float | None = None

    def next(self) -> list[Request]:
        made: list[Request] = []
        while len(self._open) < self._at_once and self._duration is None:
            window_T = next(self._windows, None)
            if window_T is None:
                self._duration = self._read / self._rate
                break
            place = self._read // (WINDOW_S * self._rate)
            self._read += len(window_T)
            if place >= self._given:
                prompt = self._prompt if place == 0 else None
                made.append(
                    self._front.audio_request(
                        window_T, self._rate, prompt=prompt, sampling=self._sampling
                    )
                )
                self._open.append((made[-1], len(window_T) / self._rate))
        return made

    def take(self, answered: Answered) -> list[Segment]:
        running = {request.id for request, _ in self._open} - set(self._answers)
        if answered.id not in running:
            raise RequestError(
                where="answered.id",
                got=answered.id,
                want="the id of a request of this plan that runs",
                fix="answer each request once",
            )
        self._answers[answered.id] = answered
        segments = []
        while self._open and self._open[0][0].id in self._answers:
            request, seconds = self._open.popleft()
            segments.append(self._segment(self._answers.pop(request.id), seconds))
        return segments

    @property
    def seconds(self) -> float:
        return self._seconds

    @property
    def duration(self) -> float | None:
        return self._duration

    @property
    def language(self) -> str | None:
        return self._language

    @property
    def language_probability(self) -> float | None:
        return None

    def state(self) -> dict[str, Any]:
        return {"windows": self._given}

    def _segment(self, answered: Answered, seconds: float) -> Segment:
        text = (" " if self._given else "") + self._front.decode(answered.ids)
        start = self._seconds
        self._seconds += seconds
        self._given += 1
        scores = answered.logprobs
        return Segment(
            start=start,
            end=self._seconds,
            text=text,
            ids=tuple(answered.ids),
            avg_logprob=sum(scores) / len(scores) if scores else None,
            temperature=0.0,
            words=_words(text, start, seconds) if self._words else None,
        )


def _windows(sound: Sound) -> Iterator[np.ndarray]:
    """float32 ``[T]`` of ``WINDOW_S``, the last one shorter."""
    size, kept = WINDOW_S * sound.rate, np.empty(0, np.float32)
    for block_T in sound.blocks():
        kept = np.concatenate([kept, block_T])
        while len(kept) >= size:
            yield kept[:size]
            kept = kept[size:]
    if len(kept):
        yield kept


def _words(text: str, start: float, seconds: float) -> tuple[Word, ...]:
    """The words of ``text``, one after the other in even steps."""
    said = text.split()
    step = seconds / max(len(said), 1)
    return tuple(
        Word(start=start + i * step, end=start + (i + 1) * step, text=f" {word}", probability=1.0)
        for i, word in enumerate(said)
    )
