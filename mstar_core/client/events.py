"""From the body of a stream to its events, and whether it has come to its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from mstar_core.client.errors import api_error, bad_answer, lost
from mstar_core.client.reading import items_of, object_of, transcript_from, usage_of
from mstar_core.client.results import CompletionEvent, Delta, Finish, TranscriptEvent
from mstar_core.client.sse import EventParser, ServerEvent

E = TypeVar("E")


class Reading(ABC, Generic[E]):
    """One stream, as its bytes come in."""

    def __init__(self, where: str, request_id: str | None) -> None:
        """``where`` names the call in errors."""
        self.where = where
        self.request_id = request_id

    @abstractmethod
    def feed(self, piece: bytes) -> Iterator[E]:
        """The events in ``piece``; an error comes behind the events that came before it."""

    @abstractmethod
    def end(self) -> None:
        """The answer has ended. Raises ConnectionLost where the stream has not said so itself."""


class AudioReading(Reading[bytes]):
    """Sound: any piece is an event, and the answer's own length says whether it is whole."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        yield piece

    def end(self) -> None:
        pass


class EventReading(Reading[E]):
    """A stream of server-sent events, each a JSON object."""

    def __init__(self, where: str, request_id: str | None) -> None:
        super().__init__(where, request_id)
        self._parser = EventParser(where)
        self._done = False

    def feed(self, piece: bytes) -> Iterator[E]:
        for event in self._parser.feed(piece):
            if event.data == "[DONE]":
                self._done = True
            else:
                yield from self._read(self._object(event))

    def end(self) -> None:
        missing = self._missing()
        if missing:
            raise lost(self.where, f"a stream that ended without {missing}", self.request_id)

    def _read(self, told: Mapping[str, Any]) -> list[E]:
        try:
            return list(self._events(told))
        except (AttributeError, TypeError):  # a field is of another type
            raise bad_answer(self.where, "an event of another shape", "the protocol's") from None

    @abstractmethod
    def _events(self, told: Mapping[str, Any]) -> Iterator[E]:
        """The events of one object."""

    @abstractmethod
    def _missing(self) -> str:
        """What a whole stream has and this one lacks, or nothing."""

    def _object(self, event: ServerEvent) -> Mapping[str, Any]:
        told = object_of(self.where, event.data)
        if told.get("error") or event.name == "error" or told.get("type") == "error":
            raise api_error(self.where, 200, told, request_id=self.request_id)
        return told


class CompletionReading(EventReading[CompletionEvent]):
    """A chat or completion: whole when each choice has a finish reason, and ``[DONE]`` came."""

    def __init__(self, where: str, request_id: str | None) -> None:
        super().__init__(where, request_id)
        self._open: dict[int, bool] = {}

    def _events(self, told: Mapping[str, Any]) -> Iterator[CompletionEvent]:
        for choice in items_of(self.where, told, "choices"):
            index = choice.get("index", 0)
            self._open.setdefault(index, True)
            delta = _delta(choice, index)
            if delta is not None:
                yield delta
            if choice.get("finish_reason"):
                self._open[index] = False
                yield Finish(index=index, reason=choice["finish_reason"])
        if told.get("usage"):
            yield usage_of(told["usage"])

    def _missing(self) -> str:
        if not self._open or any(self._open.values()):
            return "a finish_reason"
        return "" if self._done else "[DONE]"


class TranscriptReading(EventReading[TranscriptEvent]):
    """A transcription: whole when the event with its whole text came."""

    def __init__(self, where: str, request_id: str | None) -> None:
        super().__init__(where, request_id)
        self._whole = False

    def _events(self, told: Mapping[str, Any]) -> Iterator[TranscriptEvent]:
        kind = told.get("type")
        if kind == "transcript.text.delta":
            yield Delta(text=told.get("delta") or "", logprobs=told.get("logprobs"))
        elif kind == "transcript.text.done":
            self._whole = True
            yield transcript_from(self.where, told, self.request_id)

    def _missing(self) -> str:
        return "" if self._whole else "transcript.text.done"


def _delta(choice: Mapping[str, Any], index: int) -> Delta | None:
    """What a chunk adds to its choice, if it adds anything."""
    told: Mapping[str, Any] = choice.get("delta") or {}
    text = told.get("content") or choice.get("text") or ""
    reasoning = told.get("reasoning_content") or told.get("reasoning") or ""
    calls = tuple(told.get("tool_calls") or ())
    logprobs = choice.get("logprobs")
    if not (text or reasoning or calls or logprobs):
        return None
    return Delta(text=text, index=index, reasoning=reasoning, tool_calls=calls, logprobs=logprobs)
