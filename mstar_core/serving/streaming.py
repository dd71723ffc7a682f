"""Answers that wait for the engine: they end with their client, with their time, or as they should.

Whatever way an answer ends, its generations are over when it has: a route opens each of them with
:func:`submitted` inside the work that it hands to :func:`attended` (one body) or to
:class:`Stream` (bytes as they come), and both cancel the work that they do not need any more. The
time of a request is the application's to keep; it cancels what is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mstar_core.model.front import Request
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.link import Generation
from mstar_core.serving.sse import KEEP_ALIVE

T = TypeVar("T")
_TICK_S = 1.0


@contextmanager
def submitted(exchange: Exchange, request: Request) -> Iterator[Generation]:
    """``request`` inside the engine, and at the end of the block no more, however that is left."""
    generation = exchange.service.link.submit(request, group=exchange.group)
    try:
        yield generation
    finally:
        generation.abort()


async def attended(exchange: Exchange, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the client leaves: ClientDisconnect."""
    task = asyncio.ensure_future(work)
    away = asyncio.ensure_future(_left(exchange.http.receive))
    away.add_done_callback(lambda _: task.cancel())
    try:
        return await task
    except asyncio.CancelledError:
        if away.done():
            raise ClientDisconnect from None
        raise
    finally:
        away.cancel()


async def over(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs, and wait until its blocks are left; its errors are not news."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Stream(Response):
    """A body that is written while it is made, by work that calls :meth:`write`.

    What is written while the client is being sent something is sent together. A client that leaves
    more than ``limits.max_unread_bytes`` waiting, or reads nothing for ``unread_timeout_s``, is cut
    off. Silence is broken by ``comment`` every ``server.keep_alive_s``.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        media_type: str = "text/event-stream",
        comment: bytes | None = KEEP_ALIVE,
    ) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._exchange = exchange
        self._comment = comment
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._waiting = 0
        """Bytes in ``parts``."""
        self._written_s = self._loop.time()
        self._sending_s: float | None = None
        """When the send began that the client has not taken yet."""
        self._news: asyncio.Future[None] = self._loop.create_future()
        self._too_slow: asyncio.Future[None] = self._loop.create_future()

    def write(self, data: bytes) -> None:
        """Hand ``data`` to the client; it waits here while the client reads what came before."""
        self._parts.append(data)
        self._waiting += len(data)
        self._written_s = self._loop.time()
        if self._waiting > self._exchange.service.limits.max_unread_bytes:
            _set(self._too_slow)
        _set(self._news)

    @property
    def waiting(self) -> int:
        """Bytes that wait for the client."""
        return self._waiting

    async def begin(self, work: Coroutine[Any, Any, None]) -> Self:
        """Start ``work``, and wait for its first bytes.

        So what fails before them still has a status of its own: raises what ``work`` raises, and
        ClientDisconnect.
        """
        self._work = asyncio.ensure_future(work)
        self._work.add_done_callback(lambda _: _set(self._news))
        self._away = asyncio.ensure_future(_left(self._exchange.http.receive))
        self._timer = self._loop.call_later(self._tick_s, self._tick)
        try:
            await asyncio.wait({self._news, self._away}, return_when=asyncio.FIRST_COMPLETED)
            if self._away.done():
                raise ClientDisconnect
            if self._work.done() and not self._parts:
                self._work.result()
        except BaseException:
            await self._end()
            raise
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all of it. Raises what the work raises, behind the bytes that it has written.

        An answer that is cut off is left unfinished, so that the server closes the connection.
        """
        pump = asyncio.ensure_future(self._pump(send))
        ends = {pump, self._away, self._too_slow}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
            elif self._away.done():
                raise ClientDisconnect
            else:
                self._exchange.line["outcome"] = "client_too_slow"
        finally:
            await self._end(pump)

    async def _pump(self, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        while self._parts or not self._work.done():
            if not self._parts:
                self._news = self._loop.create_future()
                await self._news
                continue
            data = b"".join(self._parts) if len(self._parts) > 1 else self._parts[0]
            self._parts.clear()
            self._waiting = 0
            self._sending_s = self._loop.time()
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._sending_s = None
        self._work.result()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @property
    def _tick_s(self) -> float:
        service = self._exchange.service
        return min(service.server.keep_alive_s, service.limits.unread_timeout_s / 4, _TICK_S)

    def _tick(self) -> None:
        """What time brings: the end of our patience with a client, and a sign of life for it."""
        now_s, service = self._loop.time(), self._exchange.service
        if self._sending_s is not None:
            if now_s - self._sending_s > service.limits.unread_timeout_s:
                _set(self._too_slow)
        elif self._comment and now_s - self._written_s >= service.server.keep_alive_s:
            self.write(self._comment)
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    async def _end(self, *more: asyncio.Future[Any]) -> None:
        self._timer.cancel()
        await over(self._work, self._away, *more)


async def _left(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
