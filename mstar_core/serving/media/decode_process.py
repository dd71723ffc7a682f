"""``python -m mstar_core.serving.media.decode_process FD``: a fresh process for every sound.

It has what decoding needs loaded and forks for each order that comes through ``FD`` (a socket that
keeps messages apart), so a decoder that a file overran ends with that file. The child is
confined by the kernel (address space, processor time, wall clock, open files) and ends when nobody
waits for its answer any longer. The parent ends when ``FD`` does.
"""

from __future__ import annotations

import fcntl
import gc
import math
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from mstar_core.serving import codec
from mstar_core.serving.media import decode as _decode  # loaded before the first fork
from mstar_core.serving.media.order import Order, Outcome, Refused

_MAX_FILES = 16


def main(control: socket.socket) -> None:
    """Fork for every order, until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _load()
    gc.freeze()
    start = _address_space()
    while True:
        data, files, _, _ = socket.recv_fds(control, 4096, 2)
        if not data:
            return
        if os.fork() == 0:
            control.close()
            _child(codec.packed(data, Order), socket.socket(fileno=files[0]), files[1], start)
        for file in files:
            os.close(file)


def _child(order: Order, answer: socket.socket, file: int, start: int) -> None:
    """Decode one file, answer, and end."""
    try:
        _end_with(answer)
        _confine(order, start)
        target = os.memfd_create("sound", os.MFD_CLOEXEC)
        socket.send_fds(answer, [codec.pack(_outcome(file, target, order))], [target])
    finally:
        os._exit(0)


def _outcome(file: int, target: int, order: Order) -> Outcome:
    try:
        return _decode.decode(file, target, order)
    except _decode.Unreadable as error:
        return error.refused
    except (MemoryError, OSError):
        message = "Decoding the file needs more memory than is allowed."
        return Refused(code="invalid_audio", message=message)


def _end_with(answer: socket.socket) -> None:
    """Let the kernel end this process when the other end is closed (SIGIO, unhandled).

    Raises EOFError where it is closed already.
    """
    fcntl.fcntl(answer, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(answer, fcntl.F_GETFL)
    fcntl.fcntl(answer, fcntl.F_SETFL, flags | os.O_ASYNC)
    with suppress(BlockingIOError):
        if not answer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise EOFError


def _confine(order: Order, start: int) -> None:
    """Bound what this process may take; what a decoder has to say to stderr is dropped."""
    space = start + order.memory
    most = math.ceil(order.timeout_s) + 1
    for what, limit in (
        (resource.RLIMIT_AS, space),
        (resource.RLIMIT_CPU, most),
        (resource.RLIMIT_FSIZE, order.memory),
        (resource.RLIMIT_NOFILE, _MAX_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))
    signal.setitimer(signal.ITIMER_REAL, order.timeout_s)
    os.dup2(os.open(os.devnull, os.O_RDWR), 2)


def _address_space() -> int:
    """Bytes that this process has mapped."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def _load() -> None:
    """Decode a tenth of a second, so that no child has to load anything."""
    import io

    import numpy as np
    import soundfile

    held = io.BytesIO()
    soundfile.write(held, np.zeros(1600, dtype=np.float32), 16_000, format="WAV")
    for data in (held.getvalue(), b"RIFF1234WAVE"):
        file, target = os.memfd_create("warm"), os.memfd_create("warm")
        os.write(file, data)
        _outcome(file, target, Order(max_seconds=1, rate=8_000, memory=1 << 30, timeout_s=1))
        os.close(file)
        os.close(target)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
