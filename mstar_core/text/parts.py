"""Long text in parts: cut behind sentences, else where there is the least to break."""

# ruff: noqa: RUF001 (marks of several scripts)

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_SENTENCE = re.compile(
    r"""[.!?…؟।]+ ["'”’»)\]]* (?=\s)    # before space
      | [。！？｡]+ [”’」』）]*             # before anything
      | (?=\n\s*\n)                     # of a paragraph""",
    re.VERBOSE,
)
_WEAKER = (
    re.compile(r"(?=\n)"),
    re.compile(r"[,;:–—](?=\s)|[，；：、،]"),
    re.compile(r"(?=\s)"),
)
"""Ends of lines, of clauses, of words."""
_AHEAD = 64
"""Characters behind a part that are looked at."""
_INITIAL = re.compile(r"(?:^|[\s.(])[^\W\d_]\.$")
_JOINER = "\u200d"


def parts(text: str, most: int) -> list[str]:
    """``text`` in parts of at most ``most`` characters, without the space around each.

    A part has as many whole sentences as fit. A sentence that is longer is cut behind a line, a
    comma and its like, between words, or, without any of them, between characters. Nothing but
    space is lost, and text of nothing but space has no parts.
    """
    found = []
    rest = text.strip()
    while len(rest) > most:
        cut = _cut(rest, most)
        found.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*found, rest] if rest else found


def _cut(text: str, most: int) -> int:
    """Where the first part of ``text``, which is longer than ``most``, ends."""
    if ends := list(_sentence_ends(text, most)):
        return ends[-1]
    for pattern in _WEAKER:
        ends = [match.end() for match in pattern.finditer(text, 0, most + 1)]
        if ends and ends[0] <= most:
            return max(end for end in ends if end <= most)
    cut = most
    while cut > 1 and (_goes_on(text[cut]) or text[cut - 1] == _JOINER):
        cut -= 1
    return cut if cut > 1 else most


def _sentence_ends(text: str, most: int) -> Iterator[int]:
    """Where sentences end: not behind an initial, nor where it goes on in small letters."""
    for match in _SENTENCE.finditer(text, 0, most + _AHEAD):
        end = match.end()
        behind = text[end : end + _AHEAD]
        is_over = behind.startswith("\n") or not behind.lstrip()[:1].islower()
        if end <= most and is_over and not _INITIAL.search(text, max(0, end - 3), end):
            yield end


def _goes_on(character: str) -> bool:
    """Whether it belongs to the character before it."""
    return character == _JOINER or unicodedata.category(character).startswith("M")
