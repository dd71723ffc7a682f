"""Deadlines: which requests have run out of time. Tests give a clock of their own."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from weakref import ref

from attrs import define, field

from mstar_core.sched.request import RequestState


@define(eq=False)
class Deadlines:
    """The deadlines of requests, the earliest first. They keep no request alive."""

    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    _due: list[tuple[float, int, ref[RequestState]]] = field(factory=list, init=False)

    def add(self, state: RequestState) -> None:
        """A request has arrived."""
        if state.request.deadline_s is not None:
            due = self.clock() + state.request.deadline_s
            heapq.heappush(self._due, (due, state.number, ref(state)))

    def over(self) -> Iterator[RequestState]:
        """Requests that are not over and whose deadline has passed, each once."""
        while self._due and self._due[0][0] <= self.clock():
            state = heapq.heappop(self._due)[2]()
            if state is not None and not state.over:
                yield state
