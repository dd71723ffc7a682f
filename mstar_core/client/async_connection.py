"""A connection of an event loop, and the stream of events that comes out of one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from mstar_core.client.calls import Sent, StreamCall
from mstar_core.client.errors import ClientError
from mstar_core.client.http1 import Head, Item, ResponseParser
from mstar_core.client.settings import READ_BYTES, Settings

E = TypeVar("E")


class AsyncConnection:
    """One connection, and the answers that come out of it."""

    def __init__(
        self, settings: Settings, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Use :meth:`open`."""
        self._settings = settings
        self._sent = Sent(path="")
        self._parser = ResponseParser("")
        self._items: deque[Item] = deque()
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, settings: Settings, where: str) -> Self:
        """Connect. Raises ConnectFailed."""
        try:
            async with asyncio.timeout(settings.connect_s):
                return cls(settings, *await _connect(settings))
        except OSError as error:  # of which TimeoutError is one
            raise settings.unreachable(where, error) from error

    def is_stale(self) -> bool:
        """Whether the server has closed it while it was idle."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def ask(self, sent: Sent, data: bytes) -> Head:
        """Send ``data``, the request ``sent`` as bytes; the head of its answer."""
        self._sent = sent
        self._parser.where = sent.where
        self._writer.write(data)
        try:
            async with asyncio.timeout(self._settings.read_s):
                await self._writer.drain()
        except TimeoutError:
            raise self._settings.timed_out(sent) from None
        except OSError:
            pass  # it may have answered before it closed: too large a body is refused like this
        while True:
            item = await self._next()
            if isinstance(item, Head):
                return item

    async def piece(self) -> bytes | None:
        """The next piece of the answer's body; None at its end."""
        item = await self._next()
        return item if isinstance(item, bytes) else None

    def close(self) -> None:
        """Close the connection; a server that still answers sees it."""
        self._writer.transport.abort()

    async def _next(self) -> Item:
        while not self._items:
            try:
                async with asyncio.timeout(self._settings.read_s):
                    data = await self._reader.read(READ_BYTES)
            except TimeoutError:
                raise self._settings.timed_out(self._sent) from None
            except OSError as error:
                raise self._settings.broken(self._sent, error) from error
            self._items.extend(self._parser.feed(data) if data else self._parser.eof())
        return self._items.popleft()


Open = Callable[[Sent, tuple[int, ...]], Awaitable[tuple[AsyncConnection, Head]]]
Keep = Callable[[AsyncConnection, Head], None]


class AsyncStream(Generic[E]):
    """The events of one call, as they come. Closing it early has the server give the call up.

    Leaving an ``async for`` with ``break`` does not close it: use ``async with``, or ``close``.
    """

    def __init__(self, call: StreamCall[E], begin: Open, keep: Keep) -> None:
        """The call is sent, by ``begin``, when the stream is entered or first asked for an event;
        ``keep`` takes the connection back at its end."""
        self._call, self._open, self._keep = call, begin, keep
        self._connection: AsyncConnection | None = None
        self._begun = False
        self._events: Iterator[E] = iter(())
        self.request_id: str | None = None
        """The server's name for the request, once it has answered."""

    async def begin(self) -> Self:
        """Send the call, if it is not sent. Raises what the client's calls raise."""
        if not self._begun:
            self._begun = True
            self._connection, self._head = await self._open(self._call.sent, ())
            self.request_id = self._head.headers.get("x-request-id")
            self._reading = self._call.reading(self._call.sent.where, self.request_id)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        await self.begin()
        while self._connection is not None:
            try:
                for event in self._events:
                    return event
                piece = await self._connection.piece()
                if piece is None:
                    self._reading.end()
                    self._keep(self._connection, self._head)
                    self._connection = None
                else:
                    self._events = self._reading.feed(piece)
            except BaseException as error:
                self.close()
                if isinstance(error, ClientError):
                    error.request_id = error.request_id or self.request_id
                raise
        raise StopAsyncIteration

    def close(self) -> None:
        """End it, whole or not. Idempotent."""
        self._begun = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def __aenter__(self) -> Self:
        return await self.begin()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _connect(settings: Settings) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection. Raises OSError."""
    address = settings.address
    if address.unix is not None:
        return await asyncio.open_unix_connection(address.unix)
    return await asyncio.open_connection(address.host, address.port, ssl=settings.context())
