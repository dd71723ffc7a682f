"""Admission: an act of taking. A request is admitted whole, or waits in line holding nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from mstar_core.sched.request import RequestState
from mstar_core.step import Shortage


class ReserveWhole:
    """First come, first served; each request reserves prompt + max_new_tokens to its end.

    So no admitted request can run out of pages, and none has to be evicted. The price is memory
    that short answers never use.
    """

    def __init__(self, max_running: int) -> None:
        self.max_running = max_running
        self._line: deque[RequestState] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def join(self, state: RequestState) -> None:
        """Queue at the end of the line."""
        self._line.append(state)

    def leave(self, state: RequestState) -> None:
        """Give the place in the line up (aborted while waiting)."""
        self._line.remove(state)

    def admit(
        self, running: int, ask: Callable[[RequestState], Shortage | None]
    ) -> Iterator[RequestState]:
        """Requests to open now, in order; the caller opens each before it asks for the next."""
        while self._line and running < self.max_running and ask(self._line[0]) is None:
            running += 1
            yield self._line.popleft()
