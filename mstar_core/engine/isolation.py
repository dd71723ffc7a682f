"""A step of several rows has failed: whose fault it was is found out, and the others run on.

::

    a step fails ─┬─ of one row: that request fails
                  └─ of several: all give their memory up, and are run again
                                  │   from prompt and tokens, where that brings everything back,
                                  │   else from the prompt alone, giving the same tokens once more
                                  └─► where the step failed each goes alone: it fails, or is past

Nothing of a failed step can be kept, since it may have written some of its rows' memory. A request
that is kept apart waits for its last step to be read, and takes turns with all others. Where the
device had no memory for an eager step, half of the rows go together first, then half of those. One
that was caught three times stays alone to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from attrs import define, field

from mstar_core.engine.device import Device
from mstar_core.engine.ends import too_large
from mstar_core.engine.lifecycle import Entry
from mstar_core.engine.prefix import PrefixReuse
from mstar_core.engine.pressure import Pressure
from mstar_core.model.walks import Once
from mstar_core.sched import RequestState, Row, Track
from mstar_core.sched.admission import by_rank
from mstar_core.sched.request import Mark

TIMES = 3
"""How often a request may be caught before it stays alone."""
_FAR = 1 << 62


@define(eq=False, kw_only=True)
class Isolation:
    """Who was in a step that failed and is not past it."""

    device: Device
    pressure: Pressure
    running: list[RequestState]
    flight: deque[Entry]
    reuse: PrefixReuse | None
    fail: Callable[[RequestState, Exception], None]
    suspects: set[RequestState] = field(factory=set, init=False)
    num_caught: int = field(default=0, init=False)
    """Requests that were run again for a step's failure, each time counted."""
    _others_first: bool = field(default=False, init=False)

    def catch(self, rows: Sequence[Row], error: Exception, launched: bool = True) -> None:
        """A step of ``rows`` failed: each request of it fails, or gives all up and is run again."""
        no_memory = isinstance(error, torch.OutOfMemoryError)
        if no_memory:
            self.device.trim()
        company = max(1, len(rows) // 2) if no_memory else 1
        live = [row for row in rows if not (row.state.over or row.state.undone)]
        for row in live:
            state = row.state
            if len(rows) > 1 or (no_memory and not state.apart):
                state.mark = self._mark(row, company, launched)
                self._undo(state)
            else:
                self.fail(state, too_large(state) if no_memory else error)
        for row in rows:
            row.track.unread -= launched

    def turns(self) -> Iterable[Sequence[RequestState]]:
        """Of whom the next step is chosen: of the first group for which one can be launched."""
        if not self.suspects:
            return (self.running,)
        apart = [state for state in self.running if state.apart]
        others = [state for state in self.running if not state.apart]
        self._others_first = not self._others_first
        groups = _groups([state for state in apart if not state.unread])
        return (others, *groups) if self._others_first else (*groups, others)

    def read(self, rows: Sequence[Row]) -> None:
        """These rows' step was read: who is past where it was caught is no suspect any more."""
        for row in rows:
            mark = row.state.mark
            if mark is None or row.state.undone or row.state.unread:
                continue
            if (mark.track.at, mark.track.done) > mark.end or mark.track.ended:
                row.state.mark = None
                self.suspects.discard(row.state)

    def _undo(self, state: RequestState) -> None:
        """Take ``state`` out of wherever it is, to be run again."""
        if state in self.running:
            self.running.remove(state)
        elif not self.pressure.forget(state):
            self.pressure.offloads.forget(state)
        state.undone, state.failing = True, False
        state.caught += 1
        self.num_caught += 1
        self.suspects.add(state)
        if self.reuse is not None:
            self.reuse.forget(state)
        self.pressure.give_up(state)

    def _mark(self, row: Row, company: int, launched: bool) -> Mark:
        """Where ``row`` failed, in the coordinates of the request's next run."""
        state, track = row.state, row.track
        prompts = sum(isinstance(part, Once) for part in track.parts)
        begin, end = (0, 0), (prompts - 1, _FAR)
        if state.caught + 1 >= TIMES:
            end = (_FAR, 0)
        elif not self.pressure.runs_again(state) and (row.carry or track.drains is not None):
            first = track.done - self._in_flight(track) - row.span * launched
            begin, end = (track.at, first), (track.at, first + row.span - 1)
            if track.drains is not None:  # the items may come in other groups
                capacity = self.pressure.tenancy.rings[track.drains].edge.capacity
                begin = (track.at, first - capacity + 1)
        return Mark(track, begin, end, company)

    def _in_flight(self, track: Track) -> int:
        """Items of steps of ``track`` that have not been read."""
        return sum(r.span for entry in self.flight for r in entry.rows if r.track is track)


def _groups(ready: Sequence[RequestState]) -> Iterator[Sequence[RequestState]]:
    """Who may go together, each by rank: first who has waited longest, and who may go with it."""
    left = sorted(ready, key=lambda state: state.last_entry)
    while left:
        company = _company(left[0])
        group = [state for state in left if _company(state) >= company][:company]
        yield sorted(group, key=by_rank)
        left = [state for state in left if state not in group]


def _company(state: RequestState) -> int:
    return 1 if state.mark is None else state.mark.company
