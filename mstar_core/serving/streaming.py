"""Answers that wait for the engine: they end with their client, with their time, or as they should.

Whatever way an answer ends, its generations are over when it has: a route opens each of them with
:func:`submitted` inside the work that it hands to :func:`attended` (one body) or to
:class:`Stream` (bytes as they come), and both cancel the work that they do not need any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mstar_core.model.front import Request
from mstar_core.serving.codec import to_json
from mstar_core.serving.errors import ApiError, of_facts
from mstar_core.serving.exchange import Exchange
from mstar_core.serving.link import Ended, Generation
from mstar_core.serving.sse import KEEP_ALIVE, event

T = TypeVar("T")
_log = logging.getLogger(__name__)
_TICK_S = 1.0
_SAID = {
    "cancelled": "The request was cancelled.",
    "client_too_slow": "The client read too slowly.",
    "draining": "The server is stopping.",
    "engine_restarted": "The engine was started again while the request ran; send it again.",
    "request_failed": "The request failed in the engine.",
}


@contextmanager
def submitted(exchange: Exchange, request: Request) -> Iterator[Generation]:
    """``request`` inside the engine, and at the end of the block no more, however that is left."""
    generation = exchange.service.link.submit(request, group=exchange.group)
    try:
        yield generation
    finally:
        generation.abort()


def failure(ended: Ended) -> ApiError | None:
    """What the client is told of a generation that did not end by itself; None for one that did."""
    if ended.code is None and ended.reason in ("stop", "length"):
        return None
    own = "request_failed" if ended.prompt_items else "invalid_value"
    code = ended.code or ("cancelled" if ended.reason == "abort" else own)
    if ended.error is not None:
        return of_facts(ended.error, code)
    return ApiError(code, _SAID.get(code, _SAID["request_failed"]))


async def attended(exchange: Exchange, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the client leaves or the time is over.

    Raises ApiError ``request_timeout``, or ``cancelled`` where nobody is left to read it.
    """
    task = asyncio.ensure_future(work)
    away = asyncio.ensure_future(_left(exchange.http.receive))
    try:
        await asyncio.wait(
            {task, away}, timeout=_time_left(exchange), return_when=asyncio.FIRST_COMPLETED
        )
        if task.done():
            return task.result()
        raise _gone(exchange) if away.done() else _late(exchange)
    finally:
        await _over(task, away)


class Stream(Response):
    """A body that is written while it is made, by work that calls :meth:`write`.

    What is written while the client is being sent something is sent together. A client that leaves
    more than ``limits.max_unread_bytes`` waiting, or reads nothing for ``unread_timeout_s``, is cut
    off. Silence is broken by ``comment`` every ``server.keep_alive_s``. ``told`` turns an error
    into the last bytes of a body that has begun; None: the body ends without them.
    """

    def __init__(
        self,
        exchange: Exchange,
        *,
        media_type: str = "text/event-stream",
        comment: bytes | None = KEEP_ALIVE,
        told: Callable[[ApiError], bytes] | None = lambda error: event(to_json(error.body())),
    ) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._exchange = exchange
        self._comment = comment
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._waiting = 0
        self._written = self._loop.time()
        self._sending: float | None = None
        self._late = False
        self._wake: asyncio.Future[None] = self._loop.create_future()
        self._cut: asyncio.Future[None] = self._loop.create_future()

    def write(self, data: bytes) -> None:
        """Hand ``data`` to the client; it waits here while the client reads what came before."""
        self._parts.append(data)
        self._waiting += len(data)
        self._written = self._loop.time()
        if self._waiting > self._exchange.service.limits.max_unread_bytes and not self._cut.done():
            self._cut.set_result(None)
        self._nudge()

    async def begin(self, work: Coroutine[Any, Any, None]) -> Self:
        """Start ``work``, and wait for its first bytes.

        So what fails before them still has a status of its own: raises the ApiError of ``work``,
        and those of :func:`attended`.
        """
        self._work = asyncio.ensure_future(work)
        self._work.add_done_callback(self._nudge)
        self._away = asyncio.ensure_future(_left(self._exchange.http.receive))
        self._timer = self._loop.call_later(self._tick_s, self._tick)
        try:
            await asyncio.wait({self._wake, self._away}, return_when=asyncio.FIRST_COMPLETED)
            if self._away.done():
                raise _gone(self._exchange)
            if self._work.done() and not self._parts and (error := self._error()):
                raise error
        except BaseException:
            await self._end()
            raise
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all of it. An answer that is cut off is left unfinished, so the server closes."""
        pump = asyncio.ensure_future(self._pump(send))
        try:
            await asyncio.wait({pump, self._away, self._cut}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
            elif self._away.done():
                _gone(self._exchange)
            else:
                self._exchange.line["outcome"] = "client_too_slow"
        finally:
            await self._end(pump)

    async def _pump(self, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        while self._parts or not self._work.done():
            if not self._parts:
                self._wake = self._loop.create_future()
                await self._wake
                continue
            data = b"".join(self._parts) if len(self._parts) > 1 else self._parts[0]
            self._parts.clear()
            self._waiting = 0
            self._sending = self._loop.time()
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._sending = None
        error = self._error()
        last = self._told(error) if error and self._told else b""
        await send({"type": "http.response.body", "body": last, "more_body": False})

    def _nudge(self, work: object = None) -> None:
        if not self._wake.done():
            self._wake.set_result(None)

    def _error(self) -> ApiError | None:
        """How the work failed, if it did; a fault of ours is logged, and told without its text."""
        if self._late:
            return _late(self._exchange)
        error = self._work.exception()
        if error is None or isinstance(error, ApiError):
            return error
        self._exchange.line["outcome"] = "error"
        _log.error("request %s: its stream failed", self._exchange.id, exc_info=error)
        return ApiError("internal_error", "An internal error; the log has it.")

    @property
    def _tick_s(self) -> float:
        service = self._exchange.service
        return min(service.server.keep_alive_s, service.limits.unread_timeout_s / 4, _TICK_S)

    def _tick(self) -> None:
        """What time brings: a comment, the end of a client's patience or of ours."""
        now, service = self._loop.time(), self._exchange.service
        stuck_s = 0.0 if self._sending is None else now - self._sending
        if stuck_s > service.limits.unread_timeout_s and not self._cut.done():
            self._cut.set_result(None)
        if _time_left(self._exchange) <= 0 and not self._late:
            self._late = True
            self._work.cancel()
        if self._comment and now - self._written >= service.server.keep_alive_s:
            self.write(self._comment)
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    async def _end(self, *more: asyncio.Future[Any]) -> None:
        self._timer.cancel()
        await _over(self._work, self._away, *more)


async def _left(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _over(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs, and wait until its blocks are left; its errors are not news."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _time_left(exchange: Exchange) -> float:
    """Seconds that the request still has; below 0 once they are over."""
    spent = time.perf_counter() - exchange.started
    return exchange.service.limits.request_timeout_s - spent


def _gone(exchange: Exchange) -> ApiError:
    exchange.line["outcome"] = "client_disconnect"
    return ApiError("cancelled", "The client closed its connection.")


def _late(exchange: Exchange) -> ApiError:
    exchange.line["outcome"] = "timeout"
    limit = exchange.service.limits.request_timeout_s
    return ApiError("request_timeout", f"The request was not done within {limit:g} seconds.")
