"""The engine process's side of all connections: who is connected, and what concerns all of them."""

from __future__ import annotations

import logging
import os
import socket
import threading

from mstar_core.engine.driver import Driver
from mstar_core.serving.arena import ArenaView
from mstar_core.serving.engine_connection import EngineConnection
from mstar_core.serving.inlet import Inlet
from mstar_core.serving.messages import FrameError, Stats

log = logging.getLogger(__name__)


class EngineHost:
    """The connections of an engine process, one for each API process. Thread-safe.

    A connection that is made before the engine is open lies still until it is.
    """

    def __init__(self) -> None:
        self.inlet = Inlet()
        """The inbox of the engine that is to be served."""
        self._driver: Driver | None = None
        self._early: list[tuple[int, tuple[int, ...]]] = []
        self._connections: dict[int, EngineConnection] = {}
        self._lock = threading.Lock()

    def serve(self, driver: Driver) -> None:
        """The engine is open: from now on requests go to ``driver``, which waits at the inlet."""
        with self._lock:
            self._driver = driver
            for api, fds in self._early:
                self._open(api, fds, driver)
            self._early.clear()

    def connect(self, api: int, fds: tuple[int, ...]) -> None:
        """API process ``api`` is at the other end of a new socket; an older one is closed.

        Takes over ``fds``: the socket and the memory. What is no such pair is logged and closed.
        """
        with self._lock:
            if self._driver is None:
                self._early.append((api, fds))
            else:
                self._open(api, fds, self._driver)

    def _open(self, api: int, fds: tuple[int, ...], driver: Driver) -> None:
        before = self._connections.pop(api, None)
        if before is not None:
            before.close()
        try:
            connection, view = _opened(fds)
        except FrameError as error:
            log.error("no connection to API process %d: %s", api, error)
            return
        opened = EngineConnection(api, connection, view, driver, self.cancel)
        self._connections[api] = opened
        self.inlet.watch(opened)

    def cancel(self, group: str) -> int:
        """Abort the requests of ``group`` on all connections; how many there were."""
        return sum(connection.abort_group(group) for connection in self._all())

    def tell(self, stats: Stats) -> None:
        """Send the engine's counts to everyone, and forget connections that have ended."""
        for connection in self._all():
            connection.tell(stats)
        with self._lock:
            ended = [api for api, each in self._connections.items() if not each.is_open]
            for api in ended:
                del self._connections[api]

    def close(self) -> None:
        """End all connections; their requests are aborted."""
        for connection in self._all():
            connection.close()

    def _all(self) -> list[EngineConnection]:
        with self._lock:
            return list(self._connections.values())


def _opened(fds: tuple[int, ...]) -> tuple[socket.socket, ArenaView]:
    """A socket that blocks, and the memory. Raises FrameError, with all of ``fds`` closed."""
    if len(fds) == 2:
        try:
            view = ArenaView(fds[1])
        except FrameError:
            os.close(fds[0])
            raise
        finally:
            os.close(fds[1])
        connection = socket.socket(fileno=fds[0])
        connection.setblocking(True)
        return connection, view
    for fd in fds:
        os.close(fd)
    raise FrameError(f"{len(fds)} descriptors instead of a socket and its memory")
