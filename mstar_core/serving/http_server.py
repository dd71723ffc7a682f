"""The HTTP server library, set up: quiet, on an inherited socket, with bounds on request heads."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from mstar_core.config.server import ServerConfig
from mstar_core.serving import codec
from mstar_core.serving.errors import ApiError

MAX_HEAD_BYTES = 64 << 10
"""Request line and headers."""
HEAD_S = 20.0
"""Time for a connection to send the head of its request, from its first byte, or from the start."""
IDLE_S = 75.0
"""Time that a connection may stay open without a request."""
CLOSE_S = 2.0
"""Time that connections get to close when the server ends."""


class HttpServer(uvicorn.Server):
    """One HTTP server on a socket that listens already. Signals are left to the supervisor."""

    def __init__(self, app: ASGIApp, server: ServerConfig, protocol: Any = None) -> None:
        """``protocol``: by default the fastest that is installed."""
        protocol = protocol or (plain_http if find_spec("httptools") is None else fast_http)()
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                timeout_keep_alive=int(IDLE_S),
                timeout_graceful_shutdown=int(CLOSE_S),
                ssl_certfile=server.tls_cert,
                ssl_keyfile=server.tls_key,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """No signal handler is installed."""
        yield


def loop_factory(sock: socket.socket) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed; None is asyncio's own, which a unix socket needs."""
    if sock.family == socket.AF_UNIX or find_spec("uvloop") is None:
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class HeadGuard:
    """Mixed into a protocol: a head that is too long, or does not come, ends its connection."""

    transport: Any
    loop: Any
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def awaits_head(self) -> bool:
        """Whether the head of the next request is not complete."""
        raise NotImplementedError

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)  # type: ignore[misc]
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Parse, and bound what is parsed for a head."""
        super().data_received(data)  # type: ignore[misc]
        if not self.awaits_head():
            self._head_bytes = 0
            self._rest()
            return
        self._head_bytes += len(data)
        if self._timer is None:
            self._wait()
        if self._head_bytes > MAX_HEAD_BYTES:
            self._cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._rest()
        super().connection_lost(exc)  # type: ignore[misc]

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets the shape of all errors, and its connection ends."""
        error = ApiError("invalid_value", "The request is not valid HTTP.")
        body = codec.to_json(error.body())
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nx-request-id: {uuid.uuid4().hex}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()

    def _wait(self) -> None:
        self._timer = self.loop.call_later(HEAD_S, self._cut)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        self._rest()
        self.transport.close()


def fast_http() -> Any:
    """The protocol over httptools (extra ``serve-fast``), with the guard."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class FastHttp(HeadGuard, HttpToolsProtocol):
        is_in_head = True

        def awaits_head(self) -> bool:
            return self.is_in_head

        def on_message_begin(self) -> None:
            self.is_in_head = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self.is_in_head = False
            super().on_headers_complete()

    return FastHttp


def plain_http() -> Any:
    """The protocol over h11, with the guard."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class PlainHttp(HeadGuard, H11Protocol):
        def awaits_head(self) -> bool:
            return self.conn.their_state is h11.IDLE

    return PlainHttp
