"""A stretch of speech with its text, as a speech recognition model's front tells it."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Segment:
    """Text that was said between two times."""

    start: float
    """Seconds from the beginning of the sound."""
    end: float
    text: str
    first: int
    """Where in the answer's ids its own begin."""
    ids: tuple[int, ...]
    """Token ids of the text, without timestamps."""
