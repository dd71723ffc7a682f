"""The way back: who answers, the headers that every answer gets, and errors in one shape."""

from __future__ import annotations

import math

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Send

from mstar_core.serving.codec import to_json
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import Exchange

CLOSES = frozenset({"body_too_large", "request_timeout"})
"""Answers behind which the connection ends, since the rest of the body is not read."""


class Reply:
    """An ASGI ``send`` that knows what has been sent."""

    def __init__(self, send: Send, exchange: Exchange) -> None:
        self.status = 0
        """0: the answer has not begun."""
        self.is_over = False
        self._send = send
        self._exchange = exchange
        self._has_body = exchange.http.method != "HEAD"
        self._streams_events = False

    async def __call__(self, message: Message) -> None:
        """Raises ClientDisconnect where the server's own ``send`` says so."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": self._headers(message)}
        elif message["type"] == "http.response.body":
            self.is_over = not message.get("more_body", False)
            if not self._has_body:
                message = {**message, "body": b""}
        try:
            await self._send(message)
        except OSError:
            raise ClientDisconnect from None

    async def fail(self, error: ApiError) -> None:
        """Tell the client, as far as it still can be told: a body, or an event and the end."""
        if not self.status:
            await error_response(error)({"type": "http"}, _nothing, self)
        elif self._streams_events and not self.is_over:
            event = b"data: " + to_json(error.body()) + b"\n\n"
            await self({"type": "http.response.body", "body": event})

    def _headers(self, message: Message) -> list[tuple[bytes, bytes]]:
        headers = list(message.get("headers", ()))
        self._streams_events = any(
            name == b"content-type" and value.startswith(b"text/event-stream")
            for name, value in headers
        )
        headers.append((b"x-request-id", self._exchange.id.encode("ascii")))
        for name, value in self._exchange.headers.items():
            headers.append((name.encode("ascii"), value.encode("latin-1", "replace")))
        return headers


def error_response(error: ApiError) -> Response:
    """``error`` as an answer, with ``Retry-After`` in whole seconds where it says when."""
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.code in CLOSES:
        headers["connection"] = "close"
    return Response(
        to_json(error.body()), error.status, headers=headers, media_type="application/json"
    )


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
