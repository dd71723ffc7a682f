"""Frames on a stream socket: four bytes of length, then one message.

The same parser serves a thread that blocks and an event loop.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from mstar_core.serving import codec
from mstar_core.serving.messages import FrameError

MAX_FRAME = 16 << 20
"""Bytes of one message. Larger things go through shared memory."""
HEAD = 4
CHUNK = 256 << 10
"""Bytes asked of the kernel at once."""


def framed(message: codec.Struct) -> bytes:
    """A message as it travels. Raises FrameError for one that is too large."""
    body = codec.pack(message)
    if len(body) > MAX_FRAME:
        raise FrameError(f"a message of {len(body)} bytes; at most {MAX_FRAME}")
    return len(body).to_bytes(HEAD, "little") + body


class Frames:
    """Bytes in as they come, whole frames out."""

    def __init__(self, most: int = MAX_FRAME) -> None:
        """Frames of more than ``most`` bytes are refused as soon as their length is known."""
        self._most = most
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that ``data`` completes, in order. Raises FrameError for a bad length."""
        held = self._held
        held += data
        frames, at = [], 0
        while len(held) - at >= HEAD:
            size = int.from_bytes(held[at : at + HEAD], "little")
            if not 0 < size <= self._most:
                raise FrameError(f"a frame of {size} bytes; from 1 to {self._most}")
            end = at + HEAD + size
            if len(held) < end:
                break
            frames.append(bytes(held[at + HEAD : end]))
            at = end
        del held[:at]
        return frames


def frames_of(connection: socket.socket) -> Iterator[bytes]:
    """Frames of a blocking socket until it ends. Raises FrameError and OSError."""
    frames = Frames()
    while data := connection.recv(CHUNK):
        yield from frames.feed(data)
