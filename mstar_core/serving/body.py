"""The body of a request, counted while it comes, and in a time that is limited."""

from __future__ import annotations

import asyncio

from starlette.requests import Request as HttpRequest
from starlette.types import Message, Receive, Scope

from mstar_core.config.limits import LimitsConfig
from mstar_core.serving.depth import json_shape
from mstar_core.serving.errors import ApiError

MAX_FIELDS = 1 << 17
"""Fields of all objects of a JSON body: to read millions of them would keep all others waiting."""


class LimitedReceive:
    """An ASGI ``receive`` that raises ApiError where the body is too large or too slow."""

    def __init__(self, scope: Scope, receive: Receive, limits: LimitsConfig) -> None:
        self._headers = scope["headers"]
        self._receive = receive
        self._limits = limits
        self._taken = 0
        self._deadline = 0.0
        self.complete = False

    async def __call__(self) -> Message:
        """Raises ApiError ``body_too_large`` or ``request_timeout``."""
        if self.complete:
            return await self._receive()
        if not self._deadline:
            self._begin()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise ApiError("request_timeout", "The body of the request came too slowly.") from None
        if message["type"] == "http.request":
            self._taken += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
            self._check(self._taken)
        return message

    def _begin(self) -> None:
        """Refuse what says itself that it is too large, before any of it is read."""
        self._deadline = asyncio.get_running_loop().time() + self._limits.body_timeout_s
        for name, value in self._headers:
            if name == b"content-length" and value.isdigit():
                self._check(int(value[:20]))

    def _check(self, size: int) -> None:
        if size > self._limits.max_body_bytes:
            most = self._limits.max_body_bytes
            raise ApiError("body_too_large", f"The body is larger than {most} bytes.")


async def read_json(http: HttpRequest, most_levels: int) -> None:
    """Read the body of a JSON route, so that ``http.body()`` has it from here on.

    Raises ApiError ``unsupported_media_type``, ``body_too_large`` or ``limit_exceeded``.
    """
    kind = media_type(http)
    if kind != "application/json":
        raise ApiError("unsupported_media_type", "The body must be application/json.")
    body = await http.body()
    marks = body.count(b"[") + body.count(b"{")
    if marks <= most_levels and body.count(b":") <= MAX_FIELDS:
        return
    levels, fields = json_shape(body)
    if levels > most_levels:
        raise ApiError("limit_exceeded", f"The body nests more than {most_levels} levels deep.")
    if fields > MAX_FIELDS:
        raise ApiError("limit_exceeded", f"The body has more than {MAX_FIELDS} fields.")


def check_form(http: HttpRequest) -> None:
    """Raises ApiError ``unsupported_media_type`` for what is no multipart form."""
    if media_type(http) != "multipart/form-data":
        message = "The body must be multipart/form-data or application/json."
        raise ApiError("unsupported_media_type", message)


def media_type(http: HttpRequest) -> str:
    """The type of the body without its parameters, in lower case."""
    return http.headers.get("content-type", "").partition(";")[0].strip().lower()
