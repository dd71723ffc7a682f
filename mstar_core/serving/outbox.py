"""What goes from the engine's thread to an API process, until it is written."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import define

from mstar_core.engine.events import EngineEvent, FinishEvent, ItemsEvent, TokenEvent
from mstar_core.serving.crossing import items_of
from mstar_core.serving.messages import Cancelled, End, Items, Scores, Stats, Tokens

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
    """Events and answers for whoever writes. Any thread puts; nobody waits to put, none is lost.

    It holds what a peer that does not read has not taken: of each request at most its
    ``max_new_tokens`` tokens, what its stream makes of them, and an end; the answers to what that
    peer asked, and counts. Putting wakes nobody: :meth:`wake` does, once for everything that was
    put.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._answers: deque[Cancelled | Stats] = deque()
        self._woken = threading.Event()
        self._closed = False

    def put(self, live: Live, event: EngineEvent) -> None:
        """Put an event of a request."""
        self._events.append((live, event))

    def answer(self, message: Cancelled | Stats) -> None:
        """Put a message that is no request's."""
        self._answers.append(message)

    @property
    def is_empty(self) -> bool:
        """Everything has been taken."""
        return not (self._events or self._answers)

    def take(self) -> tuple[list[Event], list[Cancelled | Stats]]:
        """What there is, oldest first, and no more than one frame of it."""
        return _popped(self._events), _popped(self._answers)

    def wake(self) -> None:
        """Have :meth:`wait` return."""
        if not self._woken.is_set():
            self._woken.set()

    def close(self) -> None:
        """Nothing more is put. What there is may still be taken."""
        self._closed = True
        self._woken.set()

    def wait(self) -> bool:
        """Until somebody wakes us; False once it is closed and everything has been taken."""
        self._woken.wait()
        self._woken.clear()
        if not self._closed:
            return True
        self._woken.set()
        return not self.is_empty


def messages_of(
    events: Sequence[Event], end_of: Callable[[Live, FinishEvent], End]
) -> list[Tokens | Items]:
    """Events of many streams as messages; ``end_of`` says how a stream ended.

    Items come in messages of their own, before the one that has all tokens and ends.
    """
    made: list[tuple[int, ItemsEvent]] = []
    told = _columns(events, end_of, made)
    items = [each for stream, event in made for each in items_of(stream, event.arrays)]
    return [*items, told]


def _columns(
    events: Sequence[Event],
    end_of: Callable[[Live, FinishEvent], End],
    made: list[tuple[int, ItemsEvent]],
) -> Tokens:
    """Tokens and ends as one message; items are put to ``made``."""
    tokens: dict[int, list[int]] = {}
    scores: dict[int, Scores] = {}
    ends: list[End] = []
    for live, event in events:
        if not isinstance(event, TokenEvent):
            if isinstance(event, FinishEvent):
                ends.append(end_of(live, event))
            else:
                made.append((live.stream, event))
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
