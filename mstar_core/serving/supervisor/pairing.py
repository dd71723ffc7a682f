"""The way between an API process and the engine, made by their parent: no names, no ports."""

from __future__ import annotations

import os
import socket

from mstar_core.serving.arena import make_arena
from mstar_core.serving.orders import Connect
from mstar_core.serving.supervisor.worker import Worker


def connect(engine: Worker, api: Worker, media_bytes: int) -> None:
    """Give both a new socket to each other, and the same new memory."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    memory = make_arena(media_bytes)
    try:
        engine.send(Connect(api.index), [one.fileno(), memory])
        api.send(Connect(api.index), [other.fileno(), memory])
    finally:
        one.close()
        other.close()
        os.close(memory)
