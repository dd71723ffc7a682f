"""Where calls for the engine's thread lie, and what that thread waits at."""

from __future__ import annotations

import queue
from collections.abc import Callable

Call = Callable[[], None]


class Inbox:
    """Calls for one thread, from any thread, in order.

    A program whose thread has more to wait for than calls (sockets, say) gives the engine an inbox
    of its own: ``get`` is asked whenever everything so far has been told to who listens for it.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()

    def put(self, call: Call | None) -> None:
        """Put a call; None ends the thread. A collection of garbage may put inside another put."""
        self._calls.put(call)

    def get(self, *, block: bool) -> Call | None:
        """The next call; with ``block``, wait for one. Raises queue.Empty where there is none."""
        return self._calls.get(block=block)

    def end(self) -> None:
        """Nobody gets a call any more, and nobody is told anything."""
