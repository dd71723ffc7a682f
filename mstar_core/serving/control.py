"""The channel between the supervisor and each of its children: messages, with descriptors.

One socketpair a child, inherited. A frame is ``length, descriptors, MessagePack`` of a message of
:mod:`mstar_core.serving.orders`. A closed channel is the order to end: a child whose supervisor is
gone does not stay.
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
from typing import Any

from attrs import frozen

from mstar_core.serving import codec
from mstar_core.serving.messages import FrameError, decoded
from mstar_core.serving.orders import Message

MAX_FRAME = 16 << 20
"""Bytes of a message; the longest is the metrics of a process."""
MAX_FDS = 8
_HEAD = struct.Struct("!IB")


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

    @property
    def is_hung_up(self) -> bool:
        """Whether the other end is closed, whatever came before that."""
        poll = select.poll()
        poll.register(self._sock, select.POLLHUP)
        return bool(poll.poll(0))

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
        """Cut whole messages off what was read. Raises FrameError for what is none."""
        while len(self._in) >= _HEAD.size:
            length, num_fds = _HEAD.unpack_from(self._in)
            if length > MAX_FRAME or num_fds > MAX_FDS:
                raise FrameError("not a frame of the control channel")
            end = _HEAD.size + length
            if len(self._in) < end:
                return
            message = decoded(self._in[_HEAD.size : end], Message)
            fds = tuple(self._fds.popleft() for _ in range(num_fds))
            del self._in[:end]
            self._got.append(Received(message, fds))


_CLOEXEC = socket.MSG_CMSG_CLOEXEC


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)
