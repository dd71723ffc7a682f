"""A stretch of speech with its text, as a speech recognition model's front tells it."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Word:
    """One word of a segment, with the space before it."""

    start: float
    """Seconds from the beginning of the sound."""
    end: float
    text: str
    probability: float
    """Geometric mean over its tokens."""


@frozen(kw_only=True)
class Segment:
    """Text that was said between two times."""

    start: float
    """Seconds from the beginning of the sound."""
    end: float
    text: str
    first: int = 0
    """Where in the answer's ids its own begin."""
    ids: tuple[int, ...]
    """Token ids of the text, without timestamps."""
    avg_logprob: float | None = None
    """Mean log-probability of the answer's tokens, its end among them; None where unknown, like
    the three below."""
    compression_ratio: float | None = None
    """How much shorter the answer's text gets by compression: high for text that repeats itself."""
    no_speech_prob: float | None = None
    """How likely the model took the window for one without speech."""
    temperature: float | None = None
    """That the answer was drawn at; 0 took the likeliest tokens."""
    words: tuple[Word, ...] | None = None
    """None where they were not asked for."""
