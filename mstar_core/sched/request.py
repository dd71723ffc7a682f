"""Where a request is: its tracks through the walk graph, and what was launched and read of each.

A request's life::

    waiting ──admit──> running ──launch, retire, launch …──> over
       ▲                  │  └── tracks: one per branch of the graph that runs at once
       ├──run again── yields to an older one ──copy──> away ──> running
       └──run again── was in a step that failed

Counts come in pairs: what was *launched* (the host's record of steps under way) and what was
*accepted* (read, and kept). Only launched counts decide what may be launched next, so a schedule
never waits for a value.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from attrs import define, field, frozen

from mstar_core.model.front import Request
from mstar_core.model.walks import Loop, Once, Reported, Sequence, Stream, Walk
from mstar_core.text.stream import FinishReason


@define(eq=False, kw_only=True)
class Track:
    """One branch of the graph: parts in order, and how far they were launched."""

    parts: tuple[Once | Loop, ...]
    feeds: str | None = None
    """The edge whose items this track makes (the producer of a stream)."""
    drains: str | None = None
    """The edge that this track empties (the consumer of a stream)."""
    at: int = 0
    """Index of the current part."""
    done: int = 0
    """Items of the current part that were launched."""
    sampled: int = 0
    """Tokens whose step was launched."""
    accepted: int = 0
    """Tokens that were read and kept."""
    unread: int = 0
    """Steps launched and not retired."""
    items: int = 0
    """Of a stream: items that steps made or used, as far as they were read and kept."""
    ended: bool = False
    row: Any = None
    """Its next row, where nothing but its own steps changes that: of a loop the same in each."""

    @property
    def walk(self) -> str | None:
        """The walk of the current part; None past the last."""
        return self.parts[self.at].walk if self.at < len(self.parts) else None

    @property
    def loops(self) -> bool:
        """Whether the current part is a loop."""
        return self.at < len(self.parts) and isinstance(self.parts[self.at], Loop)

    def advance(self) -> None:
        """Go on to the next part."""
        self.at += 1
        self.done, self.row = 0, None

    def restart(self, accepted: int) -> None:
        """Back to the first part, with ``accepted`` tokens behind it; the rest is forgotten."""
        self.at = self.done = self.unread = self.items = 0
        self.row = None
        self.sampled = self.accepted = accepted
        self.ended = False


@frozen(eq=False)
class Mark:
    """Where a step failed that a request was in: it goes past there in small company."""

    track: Track
    begin: tuple[int, int]
    """Part, and items of it: from here on the request is kept apart."""
    end: tuple[int, int]
    """Once the track is past this, and that has been read, it is kept apart no more."""
    company: int
    """Rows of a step that it is in, at most."""


@define(eq=False, kw_only=True)
class RequestState:
    """One request inside the engine."""

    request: Request
    number: int
    """Order of arrival."""
    tracks: tuple[Track, ...]
    rank: tuple[int, int] = field()
    """The lower, the earlier it is served and the later it yields (``sched/admission.py``)."""
    arrays: Mapping[str, np.ndarray] = field()
    """Its prompt: the request's own, or that and the tokens given, where it is run again."""
    openings: dict[str, Any] = field(factory=dict)
    """Per node: itself in the numbers that the node's resources need."""
    passed: int = 0
    """How often others went before it while it waited and did not fit."""
    preemptions: int = 0
    """How often it yielded its memory."""
    handle: int = -1
    """Row of the request table while admitted."""
    arrived_s: float = field(factory=time.monotonic)
    queued_s: float | None = None
    """Seconds that it waited until it was admitted for the first time."""
    last_entry: int = -1
    """The last entry that names the request: its fence."""
    tokens: list[int] = field(factory=list)
    """Tokens accepted so far."""
    cached: int = 0
    """Tokens of the prompt that were taken over, not computed."""
    failing: bool = False
    """A step of it could not be launched: nothing more is, until that step's reading."""
    undone: bool = False
    """It is to be run again: what is in flight of it is read in vain."""
    again: int = 0
    """Of its tokens, those at the end that a second run has yet to give again."""
    caught: int = 0
    """How often a step failed that it was in."""
    mark: Mark | None = None
    """Where that was, until it is past it."""
    stop_logprob: float | None = None
    """Of the stop id that ended it."""
    reported: dict[str, Reported] = field(factory=dict)
    """What the model has reported of it so far."""
    told: int = 0
    """Items of its stream that were told."""
    reason: FinishReason | None = None
    """Why its first track ended: a consumer ends after its producer, for the producer's reason."""
    over: bool = False

    @rank.default
    def _in_order(self) -> tuple[int, int]:
        return 0, self.number

    @arrays.default
    def _own(self) -> Mapping[str, np.ndarray]:
        return self.request.arrays

    @property
    def num_tokens(self) -> int:
        """Prompt and new tokens: what it counts for in line."""
        return max(map(len, self.request.arrays.values())) + self.request.max_new_tokens

    @property
    def id(self) -> str:
        """The caller's name of the request."""
        return self.request.id

    @property
    def num_given(self) -> int:
        """Its tokens, up to where its run is."""
        return len(self.tokens) - self.again

    @property
    def apart(self) -> bool:
        """It has come to where a step failed that it was in, and is not past it."""
        mark = self.mark
        return mark is not None and (mark.track.at, mark.track.done) >= mark.begin

    @property
    def unread(self) -> bool:
        """A step of it is in flight."""
        return any(track.unread for track in self.tracks)

    def items(self, walk: Walk) -> int:
        """Items of a walk that is fed from the prompt."""
        return len(self.arrays[walk.inputs[0].name])


def tracks_of(graph: Sequence, passed_by: Collection[str] = ()) -> tuple[Track, ...]:
    """The tracks of a fresh request: one, or a producer and a consumer where the graph streams.

    A stream stands alone, or is the last part of its sequence. Walks of ``passed_by`` are no part.
    """
    parts: list[Once | Loop] = []
    for part in graph.parts:
        if isinstance(part, Stream):
            inner = part.producer.parts if isinstance(part.producer, Sequence) else (part.producer,)
            parts.extend(p for p in inner if not isinstance(p, Stream))
            return (
                Track(parts=_without(parts, passed_by), feeds=part.edge),
                Track(parts=(part.consumer,), drains=part.edge),
            )
        parts.append(part)
    return (Track(parts=_without(parts, passed_by)),)


def _without(parts: list[Once | Loop], passed_by: Collection[str]) -> tuple[Once | Loop, ...]:
    return tuple(part for part in parts if part.walk not in passed_by)
