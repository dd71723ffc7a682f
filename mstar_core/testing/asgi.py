"""Calls an ASGI application message by message, so that a test decides what arrives when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from attrs import define, field
from starlette.types import ASGIApp, Message


@define
class Told:
    """What an application sent."""

    messages: list[Message] = field(factory=list)

    @property
    def status(self) -> int:
        """0 where it answered nothing."""
        return next((m["status"] for m in self.messages if "status" in m), 0)

    @property
    def headers(self) -> dict[str, str]:
        """By name in lower case; the last of a name counts."""
        pairs: list[tuple[bytes, bytes]] = next(
            (m["headers"] for m in self.messages if "headers" in m), []
        )
        return {name.decode(): value.decode("latin-1") for name, value in pairs}

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.messages)

    @property
    def is_complete(self) -> bool:
        """The end of the body was sent."""
        return bool(self.messages) and self.messages[-1].get("more_body", False) is False

    def json(self) -> Any:
        return json.loads(self.body)


async def call(
    app: ASGIApp,
    path: str,
    body: bytes | Sequence[bytes] = b"",
    *,
    method: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
    leaves: bool = False,
    stalls: bool = False,
) -> Told:
    """One request from start to end. It is a POST where it has a body, else a GET.

    ``body`` comes in one message a chunk. Behind it the client waits; or it ``leaves``, which is a
    disconnect; or, with ``stalls``, the body's end never comes. ``host: localhost`` and, with a
    body, ``content-type: application/json`` are sent unless ``headers`` have them.
    """
    chunks = [body] if isinstance(body, bytes) else list(body)
    given = {name.lower() for name, _ in headers}
    sent = list(headers)
    if "host" not in given:
        sent.append(("host", "localhost"))
    if "content-type" not in given and any(chunks):
        sent.append(("content-type", "application/json"))
    scope = scope_of(path, method or ("POST" if any(chunks) else "GET"), sent)
    told = Told()
    left = list(chunks)
    never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    async def receive() -> Message:
        if left:
            chunk = left.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(left) or stalls}
        if leaves:
            return {"type": "http.disconnect"}
        return await asyncio.shield(never)

    async def send(message: Message) -> None:
        told.messages.append(message)

    await app(scope, receive, send)
    return told


def scope_of(path: str, method: str, headers: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """What a server would say of a request from this machine."""
    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogateescape"),
        "query_string": b"",
        "root_path": "",
        "headers": pairs,
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
