"""Tokens to words, by the published rules.

They are cut at spaces, or character by character. Punctuation is written with the word that it
stands at, and is no part of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from attrs import define

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
