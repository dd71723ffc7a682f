"""What the engine's thread waits at in the engine process: calls, and the sockets of API processes.

That thread reads the sockets itself, between two turns and while it has nothing to do, and it
writes what there is to tell before it rests: so a request changes threads nowhere in this process.
While turns go on, each connection's own thread writes.
"""

from __future__ import annotations

import queue
import selectors
import socket
from collections import deque
from typing import Protocol

from mstar_core.engine.inbox import Call, Inbox


class Watched(Protocol):
    """A connection, as the engine's thread sees to it. None of these may raise."""

    @property
    def socket(self) -> socket.socket: ...

    def read(self) -> bool:
        """Take what has come; False when nothing more will."""
        ...

    def flush(self, *, resting: bool) -> None:
        """Have what there is to tell written: here where the thread is about to rest."""
        ...

    def unwatched(self) -> None:
        """Neither of the others is called any more."""
        ...


class Inlet(Inbox):
    """An inbox that is also the ear of the engine process. Any thread puts; one gets."""

    def __init__(self) -> None:
        self._waiting: deque[Call | None] = deque()
        self._selector = selectors.DefaultSelector()
        self._bell, self._rung = socket.socketpair()
        self._bell.setblocking(False)
        self._rung.setblocking(False)
        self._selector.register(self._rung, selectors.EVENT_READ)
        self._watched: list[Watched] = []
        self._resting = False

    def put(self, call: Call | None) -> None:
        self._waiting.append(call)
        if self._resting:
            try:
                self._bell.send(b"\0")
            except OSError:  # it has been rung often enough, or nobody gets calls any more
                return

    def get(self, *, block: bool) -> Call | None:
        while not self._waiting:
            for each in self._watched:
                each.flush(resting=block)
            self._listen(rests=block)
            if not block and not self._waiting:
                raise queue.Empty
        return self._waiting.popleft()

    def watch(self, connection: Watched) -> None:
        """See to a connection from now on; any thread may ask."""
        self.put(lambda: self._begin(connection))

    def end(self) -> None:
        """Every connection is left to itself."""
        for each in list(self._watched):
            self._leave(each)
        self._selector.close()
        self._bell.close()
        self._rung.close()

    def _begin(self, connection: Watched) -> None:
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        self._watched.append(connection)

    def _leave(self, connection: Watched) -> None:
        self._selector.unregister(connection.socket)
        self._watched.remove(connection)
        connection.unwatched()

    def _listen(self, *, rests: bool) -> None:
        """Read what has come; where the thread ``rests``, wait until something does."""
        self._resting = rests
        ready = self._selector.select(None if rests and not self._waiting else 0)
        self._resting = False
        for key, _ in ready:
            if key.data is None:
                self._rung.recv(4096)
            elif not key.data.read():
                self._leave(key.data)
