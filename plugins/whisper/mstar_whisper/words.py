"""Tokens to words and their times, by the published rules.

They are cut at spaces, or character by character. A word begins where its first token does, and
ends where the token behind its last one begins. Punctuation is written with the word that it stands
at, and is no part of its time; nor is a pause at its ends, which is no rule of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import exp, fsum

import numpy as np
from attrs import define

from mstar_core.model.segment import Word
from mstar_whisper.config import FRAMES_PER_POSITION, FRAMES_PER_S
from mstar_whisper.judging import Judged
from mstar_whisper.window import Window

UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Codes of the languages that write no spaces between words."""
_OPENING = "\"'“¡¿([{-"
_CLOSING = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001 they are meant
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_PART = "\ufffd"
"""What a token is decoded to that holds a part of a character."""

Decode = Callable[[Sequence[int]], str]


@define(kw_only=True)
class TokenWord:
    """A word, with the space before it."""

    text: str
    """With the punctuation at it."""
    first: int
    """Its first token without that, counted in the text that it is a word of."""
    end: int
    """One behind its last."""


def timed(word: TokenWord, text: Sequence[int], judged: Judged, window: Window) -> Word:
    """When ``word`` of the answer ``judged``, which was aligned, was said.

    ``text``: which of the answer's ids are those that the word's tokens count. No word reaches
    into a pause, if it is not all pause, nor beyond the frames of ``window.loud_F``.
    """
    own, loud_F = text[word.first : word.end], window.loud_F
    ends = (FRAMES_PER_POSITION * judged.begins[i] for i in (own[0], own[-1] + 1))
    begin, end = (min(round(at), len(loud_F)) for at in ends)
    said = np.flatnonzero(loud_F[begin:end])
    if len(said):
        begin, end = begin + int(said[0]), begin + int(said[-1]) + 1
    scores = [judged.logprobs[i] for i in own]
    return Word(
        start=(window.first + begin) / FRAMES_PER_S,
        end=(window.first + end) / FRAMES_PER_S,
        text=word.text,
        probability=exp(fsum(scores) / len(scores)),
    )


def words_of(ids: Sequence[int], decode: Decode, language: str) -> list[TokenWord]:
    """The words of ``ids``, which are text in ``language``; together they are all of it."""
    words: Iterable[TokenWord] = _characters(ids, decode)
    if language not in UNSPACED:
        words = _by_spaces(words)
    return _before_punctuation(_behind_punctuation([*words]))


def _characters(ids: Sequence[int], decode: Decode) -> Iterator[TokenWord]:
    """As few tokens as are whole characters."""
    text, first, done = decode(ids), 0, 0
    for end in range(1, len(ids) + 1):
        piece = decode(ids[first:end])
        part = piece.find(_PART)
        if part < 0 or done + part >= len(text) or text[done + part] == _PART:
            yield TokenWord(text=piece, first=first, end=end)
            first, done = end, done + len(piece)


def _by_spaces(pieces: Iterable[TokenWord]) -> list[TokenWord]:
    words: list[TokenWord] = []
    for piece in pieces:
        if not words or piece.text.startswith(" ") or piece.text.strip() in _PUNCTUATION:
            words.append(piece)
        else:
            words[-1].text += piece.text
            words[-1].end = piece.end
    return words


def _behind_punctuation(words: Sequence[TokenWord]) -> list[TokenWord]:
    """What opens stands at the word behind it."""
    merged: list[TokenWord] = []
    for word in reversed(words):
        if merged and word.text.startswith(" ") and word.text.strip() in _OPENING:
            merged[-1].text = word.text + merged[-1].text
        else:
            merged.append(word)
    return merged[::-1]


def _before_punctuation(words: Iterable[TokenWord]) -> list[TokenWord]:
    """What closes stands at the word before it."""
    merged: list[TokenWord] = []
    for word in words:
        if merged and not merged[-1].text.endswith(" ") and word.text in _CLOSING:
            merged[-1].text += word.text
        else:
            merged.append(word)
    return merged
