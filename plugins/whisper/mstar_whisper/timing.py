"""When words were said: by the published alignment, and by where there is sound.

::

    sound      ████████████░░░░░░░░░░░░░░░░██████████████████    █ loud   ░ a pause
    aligned     │ he │ was.         │ Had       │ he │ married
    told        │ he │ was. │               │Had│ he │ married

A word is aligned from its first token to the one behind its last. What is told is our own in four
things, at pauses: a word begins and ends with sound; one that holds a pause ends before it, but for
the first behind a punctuation mark, which begins behind it; that one, where it is shorter than the
others, begins sooner, as far as there is sound that is no other's; and none reaches beyond the next
window's beginning. Without a pause the times are the alignment's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, fsum
from statistics import median

import numpy as np

from mstar_core.model.segment import Word
from mstar_whisper.config import FRAMES_PER_POSITION, FRAMES_PER_S
from mstar_whisper.judging import Judged
from mstar_whisper.window import Window
from mstar_whisper.words import Decode, words_of

PAUSE = 15
"""Frames that are not loud, more than words have within them. Levels are taken over 5 frames, so
it takes some 0.2 s of silence."""
LONGEST = 70
"""Frames that words usually last, at most: 0.7 s, as published."""
FEW = 5
"""Frames that tell nothing: of sound, since a word may be aligned to reach into the next by them;
of none, since there may be so many within a word."""
_MARKS = tuple(".。!！?？,，、;；:：")  # noqa: RUF001 they are meant


def timed(
    text: Sequence[int], judged: Judged, window: Window, decode: Decode, language: str
) -> Iterator[Word]:
    """The words of a piece of the answer ``judged``, which was aligned, and when they were said.

    ``text``: where in the answer's ids the piece's text is.
    """
    words = words_of([judged.ids[i] for i in text], decode, language)
    loud_F = window.loud_F
    at = [min(round(FRAMES_PER_POSITION * begin), len(loud_F)) for begin in judged.begins]
    owns = [text[word.first : word.end] for word in words]
    lasting = [at[own[-1] + 1] - at[own[0]] for own in owns]
    usual = min(round(median([each for each in lasting if each] or [0])), LONGEST)
    opens, free = True, at[_behind(text[0], judged.ids, decode)] if words else 0
    for word, own in zip(words, owns, strict=True):
        begin, end = _said(at[own[0]], at[own[-1] + 1], loud_F, opens)
        if opens:
            begin = min(begin, max(_sounding(begin, loud_F), end - usual, free))
        scores = [judged.logprobs[i] for i in own]
        yield Word(
            start=(window.first + begin) / FRAMES_PER_S,
            end=(window.first + end) / FRAMES_PER_S,
            text=word.text,
            probability=exp(fsum(scores) / len(scores)),
        )
        opens, free = word.text.rstrip().endswith(_MARKS), at[own[-1] + 1]


def _behind(first: int, ids: Sequence[int], decode: Decode) -> int:
    """The id behind the last one in front of ``first`` that has a letter or digit, or 0."""
    while first and not any(map(str.isalnum, decode(ids[first - 1 : first]))):
        first -= 1
    return first


def _said(begin: int, end: int, loud_F: np.ndarray, opens: bool) -> tuple[int, int]:
    """The frames of ``[begin, end)`` on one side of the pauses in it; all, if it is one pause."""
    loud = begin + np.flatnonzero(loud_F[begin:end])
    if not len(loud):
        return begin, end
    runs = np.split(loud, np.flatnonzero(np.diff(loud) > PAUSE) + 1)
    run = runs[0]
    if opens:
        run = next((each for each in reversed(runs) if len(each) > FEW), runs[-1])
    return int(run[0]), int(run[-1]) + 1


def _sounding(begin: int, loud_F: np.ndarray) -> int:
    """The frame behind the last stillness before ``begin``; ``begin``, if none is near."""
    first = max(0, begin - LONGEST)
    loud = np.array([first - 1, *(first + np.flatnonzero(loud_F[first:begin])), begin])
    still = np.flatnonzero(np.diff(loud) > FEW)
    return int(loud[still[-1] + 1]) if len(still) else begin
