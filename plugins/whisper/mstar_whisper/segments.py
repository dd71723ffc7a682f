"""From ids with timestamps to stretches of speech."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mstar_core.model.segment import Segment
from mstar_whisper.config import Tokens

STEP_S = 0.02
"""Seconds from one timestamp's id to the next."""


def segments_of(
    ids: Sequence[int], seconds: float, tokens: Tokens, decode: Callable[[Sequence[int]], str]
) -> Iterator[Segment]:
    """Text between timestamps; none lies beyond the ``seconds`` that the sound lasts.

    A timestamp behind text closes it, and text behind it begins there unless another one says
    later. Text in front of the first timestamp begins at 0, text behind the last ends with the
    sound. What is no text (an id that steers the decoder) is left out.
    """
    start, first = 0.0, 0
    said: list[int] = []
    for at, token in enumerate(ids):
        if token < tokens.eot:
            first = first if said else at
            said.append(int(token))
        elif token >= tokens.timestamp_begin:
            time = min(STEP_S * (token - tokens.timestamp_begin), seconds)
            if said:
                yield _segment(start, max(start, time), said, first, decode)
                said = []
            start = time
    if said:
        yield _segment(start, max(start, seconds), said, first, decode)


def _segment(
    start: float,
    end: float,
    said: Sequence[int],
    first: int,
    decode: Callable[[Sequence[int]], str],
) -> Segment:
    return Segment(
        start=round(start, 2), end=round(end, 2), text=decode(said), first=first, ids=tuple(said)
    )
