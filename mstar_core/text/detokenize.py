"""Incremental detokenising: each piece is whole characters, all pieces together the full decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
"""Token ids to text. Bytes that are no character yet must decode to U+FFFD, and text that is
followed by more tokens must stay as it is (so: without clean-up of spaces)."""

UNFINISHED = "\ufffd"
WINDOW = 24
"""Tokens decoded at once before the window moves on."""
CONTEXT = 6
"""Tokens kept in front of the next one, so that a leading space is decoded as in the full text."""
MAX_HELD = 32
"""Replacement characters at the end that are held. One is the rule; a tokenizer with byte fallback
turns all bytes of its run, at most a window and a character, into one each until they are text."""


class Detokenizer:
    """Text of a growing list of token ids.

    Only a window of the newest ids is decoded at each push, so the cost of a token does not grow
    with the text (it does with a run of tokens that have no text). The window's beginning is
    moved to a place where no character was open; text that never closes one (bytes that are not
    UTF-8) moves it anywhere once it is twice as long.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._shown = ""
        """The part of the window's text that was given out already."""
        self._clean: list[int] = []
        """Places in the window, rising, after which no character was open."""
        self._limit = WINDOW

    def push(self, ids: Sequence[int]) -> str:
        """The text that ``ids`` settle: never half a character, and ``""`` if none is settled."""
        return "".join(self._push(ids[at : at + CONTEXT]) for at in range(0, len(ids), CONTEXT))

    def finish(self) -> str:
        """What is still held: a character that was cut off, as U+FFFD."""
        text = self._decode(self._window) if self._window else ""
        if not text.startswith(self._shown):  # a run of byte fallback that was text before
            return UNFINISHED if text.endswith(UNFINISHED) else ""
        delta, self._shown = text[len(self._shown) :], text
        return delta

    def _push(self, ids: Sequence[int]) -> str:
        self._window.extend(ids)
        text = self._decode(self._window)
        num_held = _num_held(text)
        settled = text[: len(text) - num_held]
        delta = settled[len(self._shown) :]
        if delta:
            self._shown = settled
        if num_held == 0:
            self._clean.append(len(self._window))
        if len(self._window) > self._limit:
            self._move(num_held)
        return delta

    def _move(self, num_held: int) -> None:
        """Drop ids at the window's beginning, if what is left has text in front of its open end."""
        size = len(self._window)
        clean = [place for place in self._clean if place <= size - CONTEXT]
        if size <= 2 * WINDOW and (num_held or not clean):
            return
        start = clean[-1] if clean else size - WINDOW
        text = self._decode(self._window[start:])
        if len(text) <= num_held:
            self._limit = 2 * size  # tokens without text: look again once there are twice as many
            return
        self._window = self._window[start:]
        self._clean = [place - start for place in self._clean if place > start]
        self._shown = text[: len(text) - num_held]
        self._limit = WINDOW


def _num_held(text: str) -> int:
    """Characters at the end that further bytes may still turn into others."""
    num_open = len(text) - len(text.rstrip(UNFINISHED))
    return num_open if num_open <= MAX_HELD else 1
