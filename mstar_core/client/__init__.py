"""Calls to an OpenAI-compatible server, from Python's standard library alone.

::

    from mstar_core.client import Client

    with Client("http://127.0.0.1:8000") as client:
        with client.stream_chat([{"role": "user", "content": "Name three rivers."}]) as events:
            for event in events:
                ...

:class:`AsyncClient` has the same calls for asyncio, which is imported when it is asked for.
Nothing here imports torch, numpy or the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mstar_core.client.client import Client
from mstar_core.client.connection import Stream
from mstar_core.client.errors import (
    ApiError,
    BadAnswer,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    TimedOut,
)
from mstar_core.client.results import (
    Choice,
    Completion,
    Delta,
    Finish,
    Model,
    Readiness,
    Transcript,
    Usage,
)

if TYPE_CHECKING:
    from mstar_core.client.async_client import AsyncClient
    from mstar_core.client.async_connection import AsyncStream

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncStream",
    "BadAnswer",
    "Choice",
    "Client",
    "ClientError",
    "Completion",
    "ConnectFailed",
    "ConnectionLost",
    "Delta",
    "Finish",
    "Model",
    "Readiness",
    "Stream",
    "TimedOut",
    "Transcript",
    "Usage",
]


def __getattr__(name: str) -> Any:
    """The async half, imported when it is first named."""
    if name not in ("AsyncClient", "AsyncStream"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mstar_core.client import async_client

    return getattr(async_client, name)
