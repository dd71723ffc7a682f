"""What a retired step says of each row: a token, a stop, an end, or a row that came too late."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

import numpy as np
from attrs import define, field, frozen

from mstar_core.engine.edges import EdgeRing
from mstar_core.engine.ends import not_repeated
from mstar_core.engine.events import EngineEvent, ItemsEvent, TokenEvent
from mstar_core.errors import RequestError, Words
from mstar_core.model.walks import Walk
from mstar_core.sched import RequestState, Row, Track
from mstar_core.step import Outcome
from mstar_core.text.stream import FinishReason

log = logging.getLogger(__name__)


@frozen(kw_only=True)
class Streams:
    """What the reader knows of walks that make and use items of edges, by the walk's name."""

    filled: Mapping[str, frozenset[str]]
    """Edges that its outputs travel."""
    told: Mapping[str, tuple[str, ...]]
    """Outputs that are told item by item."""

    @classmethod
    def of(cls, walks: Iterable[Walk]) -> Self:
        """As the walks declare it."""
        filled, told = {}, {}
        for walk in walks:
            filled[walk.name] = frozenset(o.edge for o in walk.outputs if o.edge is not None)
            told[walk.name] = tuple(o.name for o in walk.outputs if o.told)
        return cls(filled=filled, told=told)


@frozen(kw_only=True, eq=False)
class Read:
    """One step's outcome, with what is asked of every row as lists."""

    outcome: Outcome
    ids_B: list[int]
    logprob_B: list[float] | None
    finite_B: list[bool] | None
    """None where all are finite, or nothing says."""
    reported: frozenset[str]
    """The reported outputs that the step has."""

    @classmethod
    def of(cls, outcome: Outcome, reported: frozenset[str]) -> Self:
        """The rows of ``outcome``; ``reported`` outputs are looked for."""
        arrays = outcome.arrays
        finite_B = arrays.get("finite")
        return cls(
            outcome=outcome,
            ids_B=arrays["ids"].tolist() if "ids" in arrays else [],
            logprob_B=arrays["logprob"].tolist() if "logprob" in arrays else None,
            finite_B=None if finite_B is None or finite_B.all() else finite_B.tolist(),
            reported=reported.intersection(arrays),
        )


@define(eq=False, kw_only=True)
class Reader:
    """Turns outcomes into events; a request that ends or fails is handed on."""

    rings: Mapping[str, EdgeRing]
    reported: frozenset[str]
    """Outputs that are told with a request's end."""
    streams: Streams
    """The walks that fill and empty the edges of streams."""
    events: deque[EngineEvent]
    finish: Callable[[RequestState, FinishReason], None]
    fail: Callable[[RequestState, Exception], None]
    dropped_rows: int = field(default=0, init=False)
    """Rows that ran after their request had stopped."""

    def read(self, rows: Sequence[Row], outcome: Outcome) -> None:
        """All rows of a step that has been read, in order."""
        read = Read.of(outcome, self.reported)
        for i, row in enumerate(rows):
            try:
                self.read_row(row, i, read)
            except Exception as error:  # a bug while one row is read fails that request
                log.exception("request %s could not be read", row.state.id)
                self.fail(row.state, error)

    def read_row(self, row: Row, i: int, read: Read) -> None:
        """Row ``i`` of the step."""
        state, track = row.state, row.track
        track.unread -= 1
        if state.over or track.ended or state.undone:
            self.dropped_rows += 1
            return
        if read.finite_B is not None and not read.finite_B[i]:
            self.fail(state, _not_finite(state, read.outcome.number))
            return
        for name in read.reported:
            if np.isfinite(value := read.outcome.arrays[name][i]).all():
                state.reported[name] = value.tolist()
        if track.feeds is not None or track.drains is not None:
            self._items(state, track, i, read.outcome)
        if row.samples:
            self._token(state, track, i, read)
        for each in state.tracks:
            if not (each.unread or each.ended or state.over):
                self._end_track(state, each)

    def _items(self, state: RequestState, track: Track, i: int, outcome: Outcome) -> None:
        """Count what the row made or used of its stream, and tell what came of what it used.

        What was made behind a stop, before the stop was read, is not counted: nothing is told of
        it, nor twice of what a second run makes again.
        """
        before = track.items
        if track.feeds in self.streams.filled.get(outcome.walk, ()):
            track.items += int(outcome.spans_B[i])
        if track.drains is None:
            return
        track.items += int(outcome.spans_B[i])
        producer = next(t for t in state.tracks if t.feeds == track.drains)
        begin, end = max(before, state.told), min(track.items, producer.items)
        names = self.streams.told.get(outcome.walk, ())
        if not names or begin >= end:
            return
        state.told, first = end, int(outcome.spans_B[:i].sum()) - before
        pieces = {name: outcome.arrays[name][first + begin : first + end] for name in names}
        self.events.append(ItemsEvent(request=state.id, arrays=pieces))

    def _token(self, state: RequestState, track: Track, i: int, read: Read) -> None:
        request, token = state.request, read.ids_B[i]
        track.accepted += 1
        if state.again:
            self._again(state, track, token)
            return
        logprob = read.logprob_B[i] if read.logprob_B is not None else 0.0
        if token in request.stop_ids and not request.ignore_stop_ids:
            state.stop_logprob = logprob
            self._close_track(state, track, "stop")
            return
        state.tokens.append(token)
        count = request.sampling.logprobs
        top = _top(read.outcome.arrays, i, count) if count else ()
        self.events.append(TokenEvent(request=request.id, token=token, logprob=logprob, top=top))
        if track.accepted >= request.max_new_tokens:
            self._close_track(state, track, "length")

    def _again(self, state: RequestState, track: Track, token: int) -> None:
        """A token of a second run, which the request was given in the first."""
        first = state.tokens[-state.again]
        state.again -= 1
        if token != first:
            self.fail(state, not_repeated(state, first, token))
        elif track.accepted >= state.request.max_new_tokens:
            self._close_track(state, track, "length")

    def _end_track(self, state: RequestState, track: Track) -> None:
        """Of a track whose steps are all read: it has ended if its parts are used up."""
        if track.drains is not None:
            producer = next(t for t in state.tracks if t.feeds == track.drains)
            if producer.ended and not self.rings[track.drains].waiting(state.handle):
                self._close_track(state, track, "stop")
        elif track.walk is None:
            self._close_track(state, track, "stop")

    def _close_track(self, state: RequestState, track: Track, reason: FinishReason) -> None:
        track.ended = True
        state.reason = state.reason or reason
        if all(t.ended for t in state.tracks):
            self.finish(state, state.reason)


def _not_finite(state: RequestState, number: int) -> RequestError:
    return RequestError(
        where=f"request {state.id}, step {number}",
        got=Words("values that are not finite"),
        want="finite values",
        fix="check the weights and the dtype; other requests are not affected",
    )


def _top(arrays: Mapping[str, np.ndarray], i: int, count: int) -> tuple[tuple[int, float], ...]:
    if "top_ids" not in arrays:
        return ()
    ids, values = arrays["top_ids"][i][:count], arrays["top_logprobs"][i][:count]
    return tuple(zip(ids.tolist(), values.tolist(), strict=True))
