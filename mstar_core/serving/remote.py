"""The way to an engine in another process: a socket, and shared memory for what is large.

All calls are made on the event loop. :meth:`RemoteLink.attach` joins it to an engine process, the
first one and each that comes after it; what was under way when one ends has ended with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np

from mstar_core.model.front import Request
from mstar_core.serving.arena import Arena
from mstar_core.serving.crossing import submit_of
from mstar_core.serving.errors import ApiError
from mstar_core.serving.generation import RemoteGeneration
from mstar_core.serving.link import Ended, EngineState
from mstar_core.serving.messages import Cancel
from mstar_core.serving.peer import Peer

INLINE_BYTES = 64 << 10
"""Arrays up to this size travel in the message; larger ones lie in shared memory."""


class RemoteLink:
    """A :class:`~mstar_core.serving.link.Link` to another process."""

    def __init__(self) -> None:
        self.state = EngineState()
        """Set by whoever the supervisor tells; the end of a connection makes it ``restarting``."""
        self._peer: Peer | None = None
        self._numbers = count(1)
        self._attached = 0

    @property
    def num_live(self) -> int:
        """Requests whose end has not come."""
        return 0 if self._peer is None else len(self._peer.live)

    async def attach(self, socket_fd: int, memory_fd: int) -> None:
        """An engine process is at the other end of ``socket_fd``; an older connection is ended.

        Takes over both descriptors; ``memory_fd`` is one of ``arena.make_arena``.
        """
        self.detach()
        loop = asyncio.get_running_loop()
        connection = socket.socket(fileno=socket_fd)
        connection.setblocking(False)
        try:
            arena = Arena(memory_fd)
        finally:
            os.close(memory_fd)
        peer = Peer(loop, arena, self._lost)
        await loop.create_unix_connection(lambda: peer, sock=connection)
        self._peer = peer
        self._attached += 1

    def detach(self) -> None:
        """End the connection; every generation ends with ``engine_restarted``. Idempotent."""
        if self._peer is not None:
            self._peer.close()

    def submit(self, request: Request, *, group: str) -> RemoteGeneration:
        """See :class:`~mstar_core.serving.link.Link`.

        Raises ApiError, also ``limit_exceeded`` for an input that is larger than the shared memory;
        RequestError for arrays of a type that does not cross.
        """
        if self.state.phase == "draining":
            raise ApiError("draining", "The server is about to stop.", retry_after_s=1)
        if not self.state.is_ready:
            raise ApiError("not_ready", "The engine is not ready; see /ready.", retry_after_s=1)
        return self.begin(request, group=group)

    def begin(self, request: Request, *, group: str) -> RemoteGeneration:
        """``submit`` whatever the state is: before it is ``ready``, requests warm everything up.

        What belongs to a group that has begun is let in also where no other is.
        """
        peer = self._peer
        if peer is None:
            raise ApiError("not_ready", "The engine is not ready; see /ready.", retry_after_s=1)
        if peer.is_full and all(each.group != group for each in peer.live.values()):
            raise ApiError("overloaded", "The engine does not keep up.", retry_after_s=1)
        generation = RemoteGeneration(peer, next(self._numbers), group)

        def place(array: np.ndarray) -> bytes | int:
            if array.nbytes <= INLINE_BYTES:
                return array.tobytes()
            start = peer.arena.put(array)
            if start is None:
                raise _no_room(array.nbytes, peer.arena.size)
            generation.blocks.append(start)
            return start

        try:
            peer.send(submit_of(request, generation.stream, group, place))
        except BaseException:
            peer.free(generation)
            raise
        peer.live[generation.stream] = generation
        return generation

    def fail_all(self, code: str) -> int:
        """End every live request with ``code`` of ``serving.errors``; how many there were."""
        live = [] if self._peer is None else list(self._peer.live.values())
        for generation in live:
            generation.abort()
            generation.end(Ended(reason="error", code=code))
        return len(live)

    async def cancel(self, group: str) -> int:
        """See :class:`~mstar_core.serving.link.Link`; 0 where the engine ends meanwhile."""
        peer = self._peer
        if peer is None:
            return 0
        ask = next(self._numbers)
        asked = peer.asked[ask] = peer.loop.create_future()
        peer.send(Cancel(ask, group))
        number: int = await asked
        return number

    def stats(self) -> Mapping[str, Any]:
        """See :class:`~mstar_core.serving.link.Link`; told anew each half second."""
        told = {} if self._peer is None else self._peer.stats
        return {**told, "restarts": max(self._attached - 1, 0)}

    def _lost(self, peer: Peer) -> None:
        if peer is self._peer:
            self._peer = None
            self.state = EngineState(phase="restarting")


def _no_room(wanted: int, size: int) -> ApiError:
    if wanted > size:
        return ApiError("limit_exceeded", f"An input of {wanted} bytes; at most {size} fit.")
    return ApiError("overloaded", "Too many large inputs are open.", retry_after_s=1)
