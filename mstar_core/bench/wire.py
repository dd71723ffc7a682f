"""A load generator's connection: one request at a time, its answer timed as the bytes arrive."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from mstar_core.bench.answers import Answer
from mstar_core.client.errors import ConnectionLost
from mstar_core.client.http1 import Head, Item, ResponseParser
from mstar_core.client.settings import Settings


class Wire(asyncio.Protocol):
    """A kept connection. Of asyncio's protocol: it is called for every piece, without a task."""

    def __init__(self) -> None:
        self._parser = ResponseParser("load")
        self._answer: Answer | None = None
        self._over: asyncio.Future[None] | None = None
        self.usable = True
        """Whether another request may be sent."""

    @classmethod
    async def open(cls, settings: Settings) -> Wire:
        """Connect. Raises OSError."""
        loop, address = asyncio.get_running_loop(), settings.address
        async with asyncio.timeout(settings.connect_s):
            if address.unix is not None:
                _, wire = await loop.create_unix_connection(cls, address.unix)
            else:
                _, wire = await loop.create_connection(
                    cls, address.host, address.port, ssl=settings.context()
                )
        return wire

    async def exchange(self, request: bytes, answer: Answer, read_s: float) -> None:
        """Send ``request`` and fill ``answer``. Raises ClientError, OSError or TimeoutError."""
        self._answer = answer
        self._over = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            async with asyncio.timeout(read_s):
                await self._over
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None

    def close(self) -> None:
        """Break it off."""
        self.usable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        now_s, answer = time.monotonic(), self._answer
        if answer is None:
            self.close()  # nothing was asked
            return
        try:
            for item in self._parser.feed(data):
                self._take(item, answer, now_s)
        except Exception as error:
            self._fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        if self._answer is None:
            return
        try:
            self._parser.eof()
        except ConnectionLost as why:
            self._fail(error or why)
        else:
            self._end()

    def _take(self, item: Item, answer: Answer, now_s: float) -> None:
        if isinstance(item, bytes):
            answer.take(item, now_s)
        elif isinstance(item, Head):
            self.usable = item.keeps_alive
            answer.begin(item)
        else:
            self._end()

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)
