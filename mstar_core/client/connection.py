"""A connection that blocks, and the stream of events that comes out of one."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from mstar_core.client.calls import Sent, StreamCall
from mstar_core.client.errors import ClientError
from mstar_core.client.http1 import Head, Item, ResponseParser
from mstar_core.client.settings import READ_BYTES, Settings

E = TypeVar("E")


class Connection:
    """One socket, and the answers that come out of it."""

    def __init__(self, settings: Settings, where: str) -> None:
        """Connects. Raises ConnectFailed."""
        self._settings = settings
        self._sent = Sent(path="")
        self._parser = ResponseParser(where)
        self._items: deque[Item] = deque()
        try:
            self._socket = _connect(settings)
        except OSError as error:
            raise settings.unreachable(where, error) from error
        self._socket.settimeout(settings.read_s)

    def is_stale(self) -> bool:
        """Whether the server has closed it, or said something unasked, while it was idle."""
        readable, _, _ = select.select([self._socket], [], [], 0)
        return bool(readable)

    def ask(self, sent: Sent, data: bytes) -> Head:
        """Send ``data``, the request ``sent`` as bytes; the head of its answer."""
        self._sent = sent
        self._parser.where = sent.where
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise self._settings.timed_out(sent) from None
        except OSError:
            pass  # it may have answered before it closed: too large a body is refused like this
        while True:
            item = self._next()
            if isinstance(item, Head):
                return item

    def piece(self) -> bytes | None:
        """The next piece of the answer's body; None at its end."""
        item = self._next()
        return item if isinstance(item, bytes) else None

    def close(self) -> None:
        """Close the socket; a server that still answers sees it."""
        self._socket.close()

    def _next(self) -> Item:
        while not self._items:
            try:
                data = self._socket.recv(READ_BYTES)
            except TimeoutError:
                raise self._settings.timed_out(self._sent) from None
            except OSError as error:
                raise self._settings.broken(self._sent, error) from error
            self._items.extend(self._parser.feed(data) if data else self._parser.eof())
        return self._items.popleft()


Keep = Callable[[Connection, Head], None]


class Stream(Generic[E]):
    """The events of one call, as they come. Closing it early has the server give the call up."""

    def __init__(self, connection: Connection, head: Head, call: StreamCall[E], keep: Keep) -> None:
        """``head`` begins the answer; ``keep`` takes the connection back at its end."""
        self._connection, self._head, self._keep = connection, head, keep
        self.request_id = head.headers.get("x-request-id")
        """The server's name for the request."""
        self._open = True
        self._reading = call.reading(call.sent.where, self.request_id)
        self._events: Iterator[E] = iter(())

    def __iter__(self) -> Iterator[E]:
        return self

    def __next__(self) -> E:
        while self._open:
            try:
                for event in self._events:
                    return event
                piece = self._connection.piece()
                if piece is None:
                    self._reading.end()
                    self._open = False
                    self._keep(self._connection, self._head)
                else:
                    self._events = self._reading.feed(piece)
            except BaseException as error:
                self.close()
                if isinstance(error, ClientError):
                    error.request_id = error.request_id or self.request_id
                raise
        raise StopIteration

    def close(self) -> None:
        """End it, whole or not. Idempotent."""
        if self._open:
            self._open = False
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()


def _connect(settings: Settings) -> socket.socket:
    """A connected socket. Raises OSError."""
    address = settings.address
    if address.unix is not None:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(settings.connect_s)
        try:
            made.connect(address.unix)
        except BaseException:
            made.close()
            raise
        return made
    made = socket.create_connection((address.host, address.port), settings.connect_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    context = settings.context()
    if context is None:
        return made
    try:
        return context.wrap_socket(made, server_hostname=address.host)
    except BaseException:
        made.close()
        raise
