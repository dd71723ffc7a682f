"""Signals as bytes on a socket, for a loop that waits on sockets."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


@contextmanager
def heard_signals() -> Iterator[socket.socket]:
    """A socket that gets one byte, its number, for each signal of ``HEARD``."""
    read, write = socket.socketpair()
    read.setblocking(False)
    write.setblocking(False)
    before = {number: signal.signal(number, _nothing) for number in HEARD}
    before_fd = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(before_fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        read.close()
        write.close()


def _nothing(number: int, frame: object) -> None:
    """The byte on the socket is all that a signal does."""
