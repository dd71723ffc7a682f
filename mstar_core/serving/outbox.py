"""What goes from the engine's thread to a connection's writer: that thread appends, and no more."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import define

from mstar_core.engine.events import EngineEvent, FinishEvent, TokenEvent
from mstar_core.serving.messages import Cancelled, End, Scores, Stats, Tokens

T = TypeVar("T")

MAX_EVENTS = 8192
"""Events of one frame, so that it stays small whatever has piled up."""


@define(eq=False, kw_only=True)
class Live:
    """One request of a connection; the engine calls it with each of its events."""

    outbox: Outbox
    stream: int
    id: str
    group: str
    scored: bool = False
    """Whether it asked for log-probabilities."""

    def __call__(self, event: EngineEvent) -> None:
        self.outbox.put(self, event)


Event = tuple[Live, EngineEvent]


class Outbox:
    """Events and answers for one writer. Any thread puts; nobody waits to put, and none is lost.

    It holds what a peer that does not read has not taken: of each request at most its
    ``max_new_tokens`` events and an end, the answers to what that peer asked, and counts.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._answers: deque[Cancelled | Stats] = deque()
        self._arrived = threading.Event()
        self._closed = False

    def put(self, live: Live, event: EngineEvent) -> None:
        """Put an event of a request."""
        self._events.append((live, event))
        if not self._arrived.is_set():
            self._arrived.set()

    def answer(self, message: Cancelled | Stats) -> None:
        """Put a message that is no request's."""
        self._answers.append(message)
        self._arrived.set()

    def close(self) -> None:
        """Nothing is taken any more."""
        self._closed = True
        self._arrived.set()

    def take(self) -> tuple[list[Event], list[Cancelled | Stats]] | None:
        """Wait until there is something and take it, oldest first; None once it is closed."""
        self._arrived.wait()
        self._arrived.clear()
        if self._closed:
            return None
        events = _popped(self._events)
        answers = _popped(self._answers)
        if self._events or self._answers:
            self._arrived.set()
        return events, answers


def columns(events: Sequence[Event], end_of: Callable[[Live, FinishEvent], End]) -> Tokens:
    """Events of many streams as one message; ``end_of`` says how a stream ended."""
    tokens: dict[int, list[int]] = {}
    scores: dict[int, Scores] = {}
    ends: list[End] = []
    for live, event in events:
        if isinstance(event, FinishEvent):
            ends.append(end_of(live, event))
        if not isinstance(event, TokenEvent):
            continue
        mine = tokens.get(live.stream)
        if mine is None:
            mine = tokens[live.stream] = []
        mine.append(event.token)
        if live.scored:
            _score(scores, live.stream, event)
    return Tokens(
        streams=list(tokens),
        counts=[len(mine) for mine in tokens.values()],
        tokens=[token for mine in tokens.values() for token in mine],
        scores=list(scores.values()),
        ends=ends,
    )


def _score(scores: dict[int, Scores], stream: int, event: TokenEvent) -> None:
    score = scores.get(stream)
    if score is None:
        score = scores[stream] = Scores(stream, [], [])
    score.logprobs.append(event.logprob)
    score.tops.append(list(event.top))


def _popped(items: deque[T]) -> list[T]:
    return [items.popleft() for _ in range(min(len(items), MAX_EVENTS))]
