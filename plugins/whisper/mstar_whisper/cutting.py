"""What an answer says of its window, and where the next window begins: the published rule.

::

    <0.0> a b <1.2><1.2> c d <2.8><2.8> e f      two pieces; e f is heard again from 2.8 on
    <0.0> a b <1.2><1.2> c d <2.8>               two pieces; nothing is said behind 2.8
    <0.0> a b                                    one piece, to the end of the window
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from mstar_whisper.config import FRAMES_PER_POSITION, Tokens


@frozen(kw_only=True)
class Piece:
    """A stretch of an answer."""

    start: int
    """Steps of 0.02 s from the beginning of the window."""
    end: int
    ids: tuple[int, ...]
    """With the timestamps that enclose it."""
    first: int
    """Where in the answer they begin."""


@frozen(kw_only=True)
class Cut:
    """The pieces of an answer, in order."""

    pieces: tuple[Piece, ...]
    advance: int
    """Frames from the beginning of the window to that of the next."""

    @property
    def said(self) -> tuple[int, ...]:
        """What a later window may be told, timestamps among it."""
        return tuple(i for piece in self.pieces for i in piece.ids)


def cut(ids: Sequence[int], num_frames: int, tokens: Tokens, *, whole: bool = False) -> Cut:
    """Cut the answer ``ids``, without its stop id, to a window of ``num_frames`` of sound.

    ``whole``: nothing is heard again, so text that no timestamp closes lasts to the window's end.
    """
    zero = tokens.timestamp_begin
    stamp = [i >= zero for i in ids]
    ends = [i for i in range(1, len(ids)) if stamp[i - 1] and stamp[i]]
    if not ends:
        return _whole(ids, num_frames, zero)
    advance = num_frames
    if stamp[-2:] == [False, True]:
        ends.append(len(ids))
    elif whole:
        ends.append(len(ids))
        return _pieces(ids, ends, num_frames, zero, last=num_frames // FRAMES_PER_POSITION)
    else:
        advance = FRAMES_PER_POSITION * max(1, ids[ends[-1] - 1] - zero)
    return _pieces(ids, ends, advance, zero)


def _pieces(
    ids: Sequence[int], ends: Sequence[int], advance: int, zero: int, last: int | None = None
) -> Cut:
    """Pieces of ``ids`` up to each of ``ends``; the last ends at ``last``, if it says nothing."""
    pieces = [
        Piece(
            start=ids[first] - zero,
            end=ids[end - 1] - zero,
            ids=tuple(ids[first:end]),
            first=first,
        )
        for first, end in zip([0, *ends], ends, strict=False)
    ]
    if last is not None:
        pieces[-1] = evolve(pieces[-1], end=last)
    return Cut(pieces=tuple(pieces), advance=advance)


def _whole(ids: Sequence[int], num_frames: int, zero: int) -> Cut:
    """Without a pair of timestamps the answer is one piece, to its last one that says anything."""
    stamps = [i - zero for i in ids if i >= zero]
    end = stamps[-1] if stamps and stamps[-1] else num_frames // FRAMES_PER_POSITION
    return Cut(pieces=(Piece(start=0, end=end, ids=tuple(ids), first=0),), advance=num_frames)
