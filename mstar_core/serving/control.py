"""The channel between the supervisor and each of its children: typed messages, with descriptors.

One socketpair a child, inherited. A frame is ``length, descriptors, MessagePack``. A closed channel
is the order to end: a child whose supervisor is gone does not stay.

::

    supervisor → child   Start · Connect · State · StartedUp · Drain · Stop · Scrape · Scraped
    child → supervisor   Phase · Ready · Beat · Drained · Failed · Scrape · Scraped
"""

from __future__ import annotations

import array
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from attrs import frozen

from mstar_core.serving import codec

MAX_FRAME = 16 << 20
"""Bytes of a message; the longest is the metrics of a process."""
MAX_FDS = 8
_HEAD = struct.Struct("!IB")


class Start(codec.Struct, tag=True, frozen=True):
    """The first message to a child. An API process gets the listening socket with it."""

    config: str
    sets: list[str]
    """``KEY=VALUE``; the flags of the command are among them."""
    index: int = 0
    """Which API process, from 0."""
    offline: bool = False
    insecure: bool = False
    log_level: str = "info"
    log_format: Literal["text", "json"] = "text"
    late: bool = False
    """An API process that accepts nobody before it is ready, since others serve meanwhile."""
    spawned: float = 0.0
    """When the child was started, on the monotonic clock (seconds)."""


class Connect(codec.Struct, tag=True, frozen=True):
    """The way between API process ``api`` and the engine is new; what went before is over.

    With it come two descriptors: a stream socket whose other end the other process has, and the
    memory (a memfd of ``server.media_bytes``) that both map.
    """

    api: int


class State(codec.Struct, tag=True, frozen=True):
    """To API processes: where the engine is (see ``link.EngineState``)."""

    phase: str
    done: int = 0
    total: int = 0
    eta_s: float | None = None
    max_context: int = 0
    """Tokens, known from ``ready`` on."""


class StartedUp(codec.Struct, tag=True, frozen=True):
    """To API processes: all are ready. The start-up table (``startup.StartUp.as_dict``)."""

    table: dict[str, Any]


class Drain(codec.Struct, tag=True, frozen=True):
    """To API processes: take nothing new; what is open has so many seconds. → ``Drained``."""

    seconds: float


class Stop(codec.Struct, tag=True, frozen=True):
    """End now, with exit code 0."""


class Phase(codec.Struct, tag=True, frozen=True):
    """Start-up goes on: the phase, and how much of it is done (bytes, buckets, …)."""

    phase: str
    done: int = 0
    total: int = 0


class Ready(codec.Struct, tag=True, frozen=True):
    """The child serves. ``laps``: its start-up in order, as (phase, seconds)."""

    laps: list[tuple[str, float]]
    facts: dict[str, Any]
    """Of the engine ``max_context`` (tokens) and ``report``; of an API process ``model`` (name)
    and ``routes`` (paths)."""


class Beat(codec.Struct, tag=True, frozen=True):
    """Each half second. A busy engine whose ``turns`` stand still is hung, as is who is silent."""

    turns: int = 0
    busy: bool = False


class Drained(codec.Struct, tag=True, frozen=True):
    """Nothing is open any more. ``cut``: requests that had to be ended with an error."""

    cut: int = 0


class Failed(codec.Struct, tag=True, frozen=True):
    """The child ends, and why: where / got / want / fix, and the exit code that it means."""

    facts: dict[str, str]
    code: int


class Scrape(codec.Struct, tag=True, frozen=True):
    """API process ``asker`` wants the metrics of all others; it is passed on to each of them."""

    asker: int
    id: int


class Scraped(codec.Struct, tag=True, frozen=True):
    """One answer to ``Scrape``; it is passed on to ``asker``. Empty from a process that is gone."""

    asker: int
    id: int
    text: str


Message = (
    Start
    | Connect
    | State
    | StartedUp
    | Drain
    | Stop
    | Phase
    | Ready
    | Beat
    | Drained
    | Failed
    | Scrape
    | Scraped
)


@frozen
class Received:
    """A message and the descriptors that came with it; whoever takes it owns them."""

    message: Any
    fds: tuple[int, ...] = ()


class Control:
    """One end of the channel. It never blocks but in :meth:`wait`; any thread may send."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._lock = threading.Lock()
        self._out: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._in = bytearray()
        self._fds: deque[int] = deque()
        self._got: deque[Received] = deque()
        self._closed = False

    @classmethod
    def inherited(cls, fd: int) -> Control:
        """The end that a parent left open at ``fd``."""
        os.set_inheritable(fd, False)
        return cls(socket.socket(fileno=fd))

    @classmethod
    def pair(cls) -> tuple[Control, socket.socket]:
        """Our end, and the socket whose descriptor a child inherits."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), theirs

    def fileno(self) -> int:
        """For a selector or an event loop."""
        return self._sock.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether :meth:`flush` is to be called once the socket takes more."""
        return bool(self._out)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send, or keep what the socket does not take yet. Raises BrokenPipeError once closed.

        The descriptors are copied: the caller closes its own whenever it likes.
        """
        body = codec.pack(message)
        kept = tuple(os.dup(fd) for fd in fds)
        with self._lock:
            self._out.append((memoryview(_HEAD.pack(len(body), len(fds)) + body), kept))
            self._flush()

    def flush(self) -> None:
        """Send what was kept. Raises BrokenPipeError once closed."""
        with self._lock:
            self._flush()

    def receive(self) -> list[Received]:
        """All that has come. Raises EOFError once the other end is closed and all is taken."""
        while not self._closed and self._read():
            pass
        found = list(self._got)
        self._got.clear()
        if self._closed and not found:
            raise EOFError("the control channel is closed")
        return found

    def wait(self, timeout_s: float | None = None) -> Received | None:
        """The next message, waited for; None when the time is over. Raises EOFError."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while not self._got:
            left = None if end is None else max(end - time.monotonic(), 0)
            if not poll.poll(None if left is None else left * 1000):
                return None
            self._read()
            if self._closed and not self._got:
                raise EOFError("the control channel is closed")
        return self._got.popleft()

    def close(self) -> None:
        """Close it and all descriptors in it. Idempotent."""
        with self._lock:
            for _, fds in self._out:
                _close(fds)
            self._out.clear()
            _close(tuple(self._fds))
            self._fds.clear()
            for received in self._got:
                _close(received.fds)
            self._got.clear()
            self._sock.close()

    def _flush(self) -> None:
        while self._out:
            data, fds = self._out[0]
            try:
                sent = socket.send_fds(self._sock, [data], fds) if fds else self._sock.send(data)
            except BlockingIOError:
                return
            _close(fds)
            if sent == len(data):
                self._out.popleft()
            else:
                self._out[0] = (data[sent:], ())

    def _read(self) -> bool:
        """Take what one call gives; whether there was something."""
        try:
            data, ancillary, _, _ = self._sock.recvmsg(
                1 << 16, socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize), _CLOEXEC
            )
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data, ancillary = b"", []
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._fds.extend(array.array("i", payload[: len(payload) // 4 * 4]))
        if not data:
            self._closed = True
            return False
        self._in += data
        self._split()
        return True

    def _split(self) -> None:
        """Cut whole messages off what was read. Raises ValueError for what is none."""
        while len(self._in) >= _HEAD.size:
            length, num_fds = _HEAD.unpack_from(self._in)
            if length > MAX_FRAME or num_fds > MAX_FDS:
                raise ValueError("not a frame of the control channel")
            end = _HEAD.size + length
            if len(self._in) < end:
                return
            message = codec.packed(bytes(self._in[_HEAD.size : end]), Message)
            fds = tuple(self._fds.popleft() for _ in range(num_fds))
            del self._in[:end]
            self._got.append(Received(message, fds))


_CLOEXEC = socket.MSG_CMSG_CLOEXEC


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)
