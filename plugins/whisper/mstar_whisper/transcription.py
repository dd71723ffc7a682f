"""Sound of any length to segments: one window after the other, or several together.

::

    sequential   ─ window ─ seek ─ window ─ seek ─ window ─►   each is told what was said before
    batched      ─ window ─►  ─ window ─►  ─ window ─►         cut at quiet places, side by side
    a window     [language ─►] answer ─► judged ─► again, at the next temperature, while doubtful
                                          [─► alignment of the answer that is taken]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import exp
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from mstar_core.config.sampling import SamplingSettings
from mstar_core.errors import RequestError
from mstar_core.model.front import Request
from mstar_core.model.segment import Segment, Word
from mstar_core.model.transcription import Answered, Sound, Transcription
from mstar_whisper.asking import alignment_request, language_request
from mstar_whisper.config import FRAMES_PER_POSITION, FRAMES_PER_S
from mstar_whisper.cutting import Piece, cut
from mstar_whisper.judging import Judged, chosen, is_still
from mstar_whisper.prompt import ENGLISH, TRANSLATE, LongWishes
from mstar_whisper.sound import Windows
from mstar_whisper.timing import timed
from mstar_whisper.window import Course, Window

if TYPE_CHECKING:
    from mstar_whisper.front import WhisperFront

WIDTH = 8
"""Windows that are heard together, batched."""


class WhisperTranscription(Transcription):
    """See :class:`~mstar_core.model.transcription.Transcription`."""

    def __init__(
        self, front: WhisperFront, sound: Sound, wishes: LongWishes, state: Mapping[str, Any]
    ) -> None:
        self._front, self._wishes = front, wishes
        self._tokens = front.config.tokens
        self._windows = Windows(sound, front.config.mel_bins, front.frames)
        self._open: deque[Window] = deque()
        self._seek: int = state.get("seek", 0)
        """The frame up to which all segments have been given."""
        self._begun = self._seek
        """The frame up to which windows have begun."""
        self._hot = front.previous_ids(wishes.hotwords)[: front.most_previous // 2]
        self._previous = [*state.get("previous", front.previous_ids(wishes.prompt))]
        known = wishes.language if self._tokens.multilingual else ENGLISH
        self._language: str | None = state.get("language") or known
        self._probability: float | None = state.get("language_probability")

    def next(self) -> list[Request]:
        if not self._windows.num_samples:
            self._windows.measure()
        self._skip_still()
        while self._may_begin():
            self._open.append(self._next_window())
        return [request for window in self._open for request in window.handed()]

    def take(self, answered: Answered) -> list[Segment]:
        window = next((w for w in self._open if w.waits_for == answered.id), None)
        if window is None:
            raise RequestError(
                where="answered.id",
                got=answered.id,
                want="the id of a request of this plan that runs",
                fix="answer each request once",
            )
        window.take(answered)
        segments: list[Segment] = []
        while self._open and (judged := self._open[0].judged) is not None:
            segments += self._closed(self._open.popleft(), judged)
        return segments

    @property
    def seconds(self) -> float:
        return min(self._seek / FRAMES_PER_S, self._windows.seconds)

    @property
    def duration(self) -> float | None:
        return self._windows.seconds or None

    @property
    def language(self) -> str | None:
        return self._language

    @property
    def language_probability(self) -> float | None:
        return self._probability

    def state(self) -> dict[str, Any]:
        return {
            "seek": self._seek,
            "previous": list(self._previous),
            "language": self._language,
            "language_probability": self._probability,
        }

    def _may_begin(self) -> bool:
        wide = self._wishes.batched and self._language is not None
        begun = self._begun if self._open else self._seek
        return len(self._open) < (WIDTH if wide else 1) and begun < self._windows.num_frames

    def _skip_still(self) -> None:
        """Go on behind windows in which nothing is to be heard."""
        while not self._open and self._may_begin():
            num_frames = min(self._front.frames, self._windows.num_frames - self._seek)
            if not is_still(self._windows.level(self._seek, num_frames), self._wishes):
                return
            self._seek += num_frames

    def _next_window(self) -> Window:
        first = self._begun if self._open else self._seek
        left, most = self._windows.num_frames - first, self._front.frames
        num_frames = min(most, left)
        if self._wishes.batched and left > most:
            num_frames = self._windows.quietest(first + 2 * most // 3, first + most) - first
        self._begun = first + num_frames
        course = self._course(first, num_frames, self._windows.mel(first, num_frames))
        loud_F = self._windows.loud(first, num_frames)
        return Window(first=first, num_frames=num_frames, course=course, loud_F=loud_F)

    def _course(self, first: int, num_frames: int, mel: np.ndarray) -> Course:
        """Hear the window ``mel``, whose sound lasts ``num_frames`` from frame ``first`` on."""
        level = self._windows.level(first, num_frames)
        if self._language is None:
            answered = yield language_request(self._tokens, mel)
            self._language = self._tokens.language_of(answered.ids[0])
            self._probability = exp(answered.logprobs[0])
        wishes = attrs.evolve(self._wishes, language=self._language, timestamps=True)
        prompt, at = self._front.prompt(wishes, self._told(first)), wishes.temperature
        tried: list[Judged] = []
        for rung, temperature in enumerate(at):
            seed = wishes.seed + first * len(at) + rung
            sampling = SamplingSettings(temperature=temperature, seed=seed, logprobs=0)
            answered = yield self._front.window_request(mel, prompt, sampling)
            tried.append(Judged.of(answered, temperature, level.spread_db, self._front.decode))
            if not tried[-1].is_doubtful(wishes):
                break
        judged = chosen(tried, wishes)
        if wishes.word_timestamps and judged.text and not judged.is_silent(wishes):
            positions = max(1, num_frames // FRAMES_PER_POSITION)
            request = alignment_request(self._tokens, mel, prompt, judged, positions)
            judged = judged.aligned((yield request))
        return judged

    def _told(self, first: int) -> list[int]:
        """The ids of what a window that begins at frame ``first`` is told."""
        previous = self._previous[len(self._hot) - self._front.most_previous :]
        return [*self._hot, *([] if self._wishes.batched and first else previous)]

    def _closed(self, window: Window, judged: Judged) -> list[Segment]:
        """The segments of a window that is over; the plan goes on behind them."""
        if judged.is_silent(self._wishes):
            self._seek = window.first + window.num_frames
            return []
        found = cut(judged.ids, window.num_frames, self._tokens, whole=self._wishes.batched)
        self._seek = window.first + found.advance
        if self._wishes.condition_on_previous_text and not self._wishes.batched:
            said = [] if judged.is_hot else [*self._previous, *found.said]
            self._previous = said[-self._front.most_previous :]
        window.loud_F = window.loud_F[: found.advance]
        segments = (self._segment(piece, window, judged) for piece in found.pieces)
        return [segment for segment in segments if segment.text.strip()]

    def _segment(self, piece: Piece, window: Window, judged: Judged) -> Segment:
        """``piece`` of ``window``: from its first word to its last, where words are timed."""
        most = window.num_frames
        frames = (min(FRAMES_PER_POSITION * step, most) for step in (piece.start, piece.end))
        start, end = ((window.first + frame) / FRAMES_PER_S for frame in frames)
        words = self._words(piece, window, judged) if judged.begins else None
        if words:
            start, end = words[0].start, words[-1].end
        return Segment(
            start=start,
            end=max(start, end),
            text=self._front.decode(piece.ids),
            ids=tuple(i for i in piece.ids if i < self._tokens.eot),
            avg_logprob=judged.avg_logprob,
            compression_ratio=judged.compression_ratio,
            no_speech_prob=judged.no_speech_prob,
            temperature=judged.temperature,
            words=words,
        )

    def _words(self, piece: Piece, window: Window, judged: Judged) -> tuple[Word, ...]:
        language = ENGLISH if self._wishes.task == TRANSLATE else self._language or ENGLISH
        text = [i for i, id_ in enumerate(piece.ids, piece.first) if id_ < self._tokens.eot]
        return tuple(timed(text, judged, window, self._front.decode, language))
