"""Writes to a socket what an outbox has.

The engine's thread writes what the socket takes at once, when it is about to rest; in all other
cases a thread of the sender's own does, so that a turn waits for nobody.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from mstar_core.serving.outbox import Outbox

log = logging.getLogger(__name__)


class Sender:
    """The writing side of one connection. ``frames`` takes from the outbox and gives bytes."""

    def __init__(
        self, connection: socket.socket, outbox: Outbox, frames: Callable[[], bytes], name: str
    ) -> None:
        """Starts the thread, which closes the socket once :meth:`end` was called."""
        self._socket = connection
        self._outbox = outbox
        self._frames = frames
        self._name = name
        self._sending = threading.Lock()
        self._unsent = b""
        """What the engine's thread began to send and the socket did not take."""
        self._may_close = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mstar-{name}", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether something may still be sent."""
        return self._thread.is_alive()

    def flush(self, *, resting: bool) -> None:
        """Have what there is written: here where the thread that asks is about to rest."""
        if self._outbox.is_empty:
            return
        if resting and self._sending.acquire(blocking=False):
            try:
                if self._send_now():
                    return
            except Exception:
                log.exception("the connection to %s ends", self._name)
                self.shut()
            finally:
                self._sending.release()
        self._outbox.wake()

    def shut(self) -> None:
        """End the connection from this side, as if the other had."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other side was faster
            return

    def end(self) -> None:
        """Nothing more is put into the outbox, and nobody else uses the socket."""
        self._may_close.set()
        self._outbox.close()

    def _send_now(self) -> bool:
        """Send what the socket takes at once, and keep the rest; whether that was all."""
        self._unsent += self._frames()
        try:
            sent = self._socket.send(self._unsent, socket.MSG_DONTWAIT)
        except OSError:  # it is full, or at its end: the thread will see which
            return False
        self._unsent = self._unsent[sent:]
        return self._outbox.is_empty and not self._unsent

    def _run(self) -> None:
        try:
            goes_on = True
            while goes_on:
                goes_on = self._outbox.wait()
                with self._sending:
                    data, self._unsent = self._unsent, b""
                    self._socket.sendall(data + self._frames())
                if not self._outbox.is_empty:
                    self._outbox.wake()
        except OSError:
            log.info("%s does not read any more", self._name)
        except Exception:
            log.exception("the connection to %s ends", self._name)
        self.shut()
        self._may_close.wait()
        self._socket.close()
