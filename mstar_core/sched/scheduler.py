"""The choice of the next step: which walk, which rows, how many items of each.

A schedule is a function of arrivals and retirements, never of a clock or of a value that has not
been read. Among the walks that have rows ready, the one that ran least recently goes next, so
neither prompts nor decodes can starve the other; within a walk, rows go by rank.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from attrs import define, evolve, field, frozen

from mstar_core.model.walks import Walk
from mstar_core.sched.mixing import mixed_rows
from mstar_core.sched.request import RequestState, Track
from mstar_core.step import Step


@frozen(eq=False)
class Row:
    """One row of a step: whose it is and how much of it runs."""

    state: RequestState
    track: Track
    walk: str
    """The request's own, also where the step runs it with others."""
    start: int
    span: int
    samples: bool
    carry: bool = False
    """Its inputs come from its carry row (a loop), whatever else the step holds."""
    limit: int = sys.maxsize
    """Of a loop: the tokens at which it is over."""


@define(eq=False, kw_only=True)
class Scheduler:
    """Chooses steps. ``waiting_items(edge, handle)`` says what an edge holds for a request."""

    walks: Mapping[str, Walk]
    max_rows: int
    token_budget: int
    min_chunk: int
    waiting_items: Callable[[str, int], int]
    edge_room: Callable[[str, int], int]
    chunks: Mapping[str, tuple[int, ...]] = field(factory=dict)
    """Edge of a stream → what its consumer waits for (``Edge.chunks``)."""
    cuts: Mapping[str, int] = field(factory=dict)
    """Walk → the multiples of items at which its steps end."""
    sole: bool = field(init=False, default=False)
    """The last choice took every row that was ready, of the only walk that had any, and nothing
    but an end can change that."""
    _last_run: dict[str, int] = field(init=False, factory=dict)
    _turn: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._last_run = dict.fromkeys(self.walks, -1)

    def next(
        self, running: Sequence[RequestState], held: Collection[str] = ()
    ) -> tuple[Step, list[Row]] | None:
        """The next step and its rows, or None when nothing can be launched.

        ``running`` goes by rank; walks of ``held`` are left out.
        """
        ready: dict[str, list[Row]] = {}
        for state in running:
            if state.failing:
                continue
            for track in state.tracks:
                row = track.row
                if row is None:
                    row = self._ready(state, track)
                    if row is None:
                        continue
                elif track.ended or track.sampled >= row.limit:
                    continue
                if row.walk in ready:
                    ready[row.walk].append(row)
                else:
                    ready[row.walk] = [row]
        for name in held:
            ready.pop(name, None)
        if not ready:
            return None
        order = {name: i for i, name in enumerate(self.walks)}
        name = min(ready, key=lambda n: (self._last_run[n], order[n]))
        name, rows = mixed_rows(name, self.walks, ready, self._fit) or (
            name,
            self._fit(self.walks[name], ready[name], ()),
        )
        alone = len(ready) == 1 and _repeats(self.walks[name]) and len(rows) == len(ready[name])
        self.sole = alone and not any(row.state.request.gated for row in rows)
        self._turn += 1
        for each in (name, *self.walks[name].combines):
            self._last_run[each] = self._turn
        return self.step(name, rows), rows

    def launched_again(self, rows: Sequence[Row], steps: int, number: int) -> None:
        """The same loop rows were launched ``steps`` more times, the last as entry ``number``."""
        for row in rows:
            row.track.done += steps
            row.track.unread += steps
            row.track.sampled += steps
            row.state.last_entry = number

    def launched(self, rows: Sequence[Row], number: int) -> None:
        """Count a step as launched: the records that the next choice is made from."""
        for row in rows:
            track = row.track
            track.done += row.span
            track.unread += 1
            track.sampled += row.samples
            row.state.last_entry = number
            if row.carry:
                continue
            track.row = None
            if track.drains is None and self._used_up(row.state, track, self.walks[row.walk]):
                track.advance()

    def remaining(self, state: RequestState, track: Track) -> int:
        """Items of the track's current walk that could still be launched."""
        if track.walk is None:
            return 0
        walk = self.walks[track.walk]
        if walk.feed == "prompt":
            return state.items(walk) - track.done
        if walk.feed == "edge":
            return self._waiting(state, track, walk.edge or "")
        return max(0, state.request.max_new_tokens - track.sampled)

    def _waiting(self, state: RequestState, track: Track, edge: str) -> int:
        """Items of the edge that may be used: of a stream none before they make a chunk."""
        waiting = self.waiting_items(edge, state.handle)
        if track.drains is None or waiting >= due(self.chunks.get(edge, (1,)), track.done):
            return waiting
        producer = next(t for t in state.tracks if t.feeds == edge)
        makes_more = not producer.ended and self.remaining(state, producer) > 0
        return 0 if makes_more else waiting

    def _used_up(self, state: RequestState, track: Track, walk: Walk) -> bool:
        if walk.feed == "prompt":
            return track.done >= state.items(walk)
        return self.waiting_items(walk.edge or "", state.handle) == 0

    def _ready(self, state: RequestState, track: Track) -> Row | None:
        if track.ended or track.walk is None or (state.request.gated and track.unread):
            return None
        walk, left = self.walks[track.walk], self.remaining(state, track)
        if walk.feed == "loop":
            left = min(left, 1)
        for output in walk.outputs:
            if output.edge is not None:
                left = min(left, self.edge_room(output.edge, state.handle))
        if left <= 0:
            return None
        start = track.done if walk.feed == "prompt" else 0
        if walk.name in self.cuts:
            left = min(left, self.cuts[walk.name] - start % self.cuts[walk.name])
        carry, most = walk.feed == "loop", state.request.max_new_tokens
        is_last = walk.feed != "prompt" or start + left >= state.items(walk)
        row = Row(
            state=state,
            track=track,
            walk=walk.name,
            start=start,
            span=left,
            samples=walk.samples and is_last,
            carry=carry,
            limit=most if carry else sys.maxsize,
        )
        if walk.feed != "edge" and not _fills(walk) and not state.request.gated:
            track.row = row
        return row

    def _fit(self, walk: Walk, ready: Sequence[Row], taken: Sequence[Row]) -> list[Row]:
        """``taken``, and behind it the leading rows of ``ready`` that fit the step.

        They are cut to the budget where the walk may be chunked.
        """
        left = self.token_budget if walk.max_items is None else walk.max_items
        left -= sum(row.span for row in taken)
        if walk.feed == "loop":
            most = min(self.max_rows - len(taken), max(left, not taken))
            return [*taken, *ready[: max(most, 0)]]
        rows = list(taken)
        for row in ready[: self.max_rows - len(taken)]:
            span = row.span
            if span > left:
                if not walk.chunkable or left < min(self.min_chunk, span):
                    if rows:
                        break
                    span = span if not walk.chunkable else left
                else:
                    span = left
            whole = span == row.span
            rows.append(row if whole else evolve(row, span=span, samples=False))
            left -= span
            if left <= 0:
                break
        return rows

    def step(self, name: str, rows: Sequence[Row]) -> Step:
        """The declaration of these rows."""
        walk, num = self.walks[name], len(rows)
        loops = walk.feed == "loop"
        return Step(
            node=walk.node,
            walk=walk.name,
            handles_B=np.fromiter([r.state.handle for r in rows], np.int64, num),
            spans_B=_each(1 if loops else [r.span for r in rows], np.int64, num),
            carry_B=_each(loops or [r.carry for r in rows], np.bool_, num),
            samples_B=_each(walk.samples if loops else [r.samples for r in rows], np.bool_, num),
            starts_B=_each(0 if loops else [r.start for r in rows], np.int64, num),
        )

    def fewer(self, step: Step, rows: Sequence[Row]) -> Step:
        """The declaration of leading ``rows`` of ``step``: of their own walk, if they share one."""
        own = {row.walk for row in rows}
        return self.step(own.pop() if len(own) == 1 else step.walk, rows)


def _repeats(walk: Walk) -> bool:
    """A loop that fills no edge: what it makes gives no other walk its turn, and needs no room."""
    return walk.feed == "loop" and not _fills(walk)


def _fills(walk: Walk) -> bool:
    return any(output.edge for output in walk.outputs)


def due(chunks: Sequence[int], done: int) -> int:
    """Items from ``done`` on to the end of the chunk that is under way."""
    *first, last = chunks
    end = 0
    for chunk in first:
        end += chunk
        if done < end:
            return end - done
    return last - (done - end) % last


def _each(values: int | list[int], dtype: type, num: int) -> np.ndarray:
    """One value for all rows, or one per row."""
    return np.full(num, values, dtype) if isinstance(values, int) else np.array(values, dtype)
