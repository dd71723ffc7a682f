"""One request's text: detokenising, stop ids and stop strings together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from attrs import frozen

from mstar_core.text.detokenize import Decode, Detokenizer
from mstar_core.text.stop import StopStrings

FinishReason = Literal["stop", "length", "abort", "error"]


@frozen(kw_only=True)
class TextDelta:
    """What one push of token ids added."""

    text: str = ""
    """Settled text; never half a character, never part of a stop."""
    num_tokens: int = 0
    """Tokens accepted: up to and with the one that stopped; those after it are dropped."""
    finish_reason: FinishReason | None = None
    stop: str | int | None = None
    """The stop string or stop id that ended the text."""


class TextStream:
    """Token ids in, text out, to the first stop.

    The sum of the pieces does not depend on how the ids are grouped. ``decode`` gives the text of
    a list of ids (see :data:`Decode`). With ``include_stop`` the stop string or the stop id's text
    is given out too. Raises RequestError for a stop string that is empty.
    """

    def __init__(
        self,
        decode: Decode,
        *,
        stops: Sequence[str] = (),
        stop_ids: Collection[int] = (),
        include_stop: bool = False,
    ) -> None:
        self._detokenizer = Detokenizer(decode)
        self._stops = StopStrings(stops, include_stop)
        self._step = 1 if stops else None
        self._stop_ids = frozenset(stop_ids)
        self._include_stop = include_stop
        self._end: TextDelta | None = None

    @property
    def is_finished(self) -> bool:
        """Whether a stop was hit or the stream was finished; later ids are dropped."""
        return self._end is not None

    def push(self, ids: Sequence[int]) -> TextDelta:
        """Add generated ids; where there are stop strings one at a time, to count them exactly."""
        if self._end is not None:
            return self._end
        ids = list(ids)
        at = next((i for i, token in enumerate(ids) if token in self._stop_ids), None)
        before = ids if at is None else ids[:at]
        text, num_tokens = "", 0
        while num_tokens < len(before):
            some = before[num_tokens : num_tokens + (self._step or len(before))]
            num_tokens += len(some)
            emit, hit = self._stops.push(self._detokenizer.push(some))
            text += emit
            if hit is not None:
                return self._ended(text, num_tokens, "stop", hit)
        if at is None:
            return TextDelta(text=text, num_tokens=num_tokens)
        said = self._detokenizer.push([ids[at]]) if self._include_stop else ""
        return self._flushed(text, said, num_tokens + 1, "stop", ids[at])

    def finish(self, reason: FinishReason = "length") -> TextDelta:
        """No more ids will come: give out what is held."""
        if self._end is not None:
            return self._end
        return self._flushed("", "", 0, reason, None)

    def _flushed(
        self, text: str, said: str, num_tokens: int, reason: FinishReason, stop: int | None
    ) -> TextDelta:
        emit, hit = self._stops.push(said + self._detokenizer.finish())
        text += emit
        if hit is not None:
            return self._ended(text, num_tokens, "stop", hit)
        return self._ended(text + self._stops.finish(), num_tokens, reason, stop)

    def _ended(
        self, text: str, num_tokens: int, reason: FinishReason, stop: str | int | None
    ) -> TextDelta:
        self._end = TextDelta(finish_reason=reason, stop=stop)
        return TextDelta(text=text, num_tokens=num_tokens, finish_reason=reason, stop=stop)
