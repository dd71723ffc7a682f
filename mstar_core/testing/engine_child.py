"""A real engine process without a supervisor, and a link to it: for tests of what lies between."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from mstar_core.serving.arena import make_arena
from mstar_core.serving.control import Control
from mstar_core.serving.link import EngineState
from mstar_core.serving.orders import Connect, Failed, Ready, Start
from mstar_core.serving.remote import RemoteLink

M = TypeVar("M")


class EngineChild:
    """One engine process; as a context manager it is gone at the end."""

    def __init__(self, config: str = "echo", sets: Sequence[str] = (), before: str = "") -> None:
        """Starts it, behind the Python ``before``; :meth:`wait_ready` waits for it."""
        self.control, theirs = Control.pair()
        fd = theirs.fileno()
        code = f"{before}\nfrom mstar_core.serving.engine_process import main\nmain()"
        command = [sys.executable, "-c", code, str(fd)]
        with theirs:
            self.process = subprocess.Popen(
                command, pass_fds=(fd,), stderr=subprocess.PIPE, text=True
            )
        spawned = time.monotonic()
        self.control.send(Start(config=config, sets=list(sets), offline=True, spawned=spawned))

    def until(self, kind: type[M], wanted: Callable[[Any], bool] = lambda _: True) -> M:
        """The next message of ``kind`` that is ``wanted``, waited for up to a minute."""
        end = time.monotonic() + 60
        while (left := end - time.monotonic()) > 0:
            received = self.control.wait(left)
            if received is None:
                break
            if isinstance(received.message, kind) and wanted(received.message):
                return received.message
            if isinstance(received.message, Failed):
                raise AssertionError(f"the engine did not start: {received.message.facts}")
        raise AssertionError(f"no {kind.__name__} in a minute")

    def wait_ready(self) -> Ready:
        """Wait until it serves."""
        return self.until(Ready)

    def dial(self, api: int = 0, media_bytes: int = 1 << 20) -> tuple[int, int]:
        """Connect API process ``api``; the descriptors of its end: the socket and the memory."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        memory = make_arena(media_bytes)
        with theirs:
            self.control.send(Connect(api), (theirs.fileno(), memory))
        return ours.detach(), memory

    async def join(self, link: RemoteLink, api: int = 0, media_bytes: int = 1 << 20) -> RemoteLink:
        """Attach ``link``, as ready."""
        await link.attach(*self.dial(api, media_bytes))
        link.state = EngineState(phase="ready")
        return link

    def kill(self) -> None:
        """End it without warning, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def close(self) -> str:
        """Close the channel, wait until the process is gone (killing it in the end); its stderr."""
        self.control.close()
        try:
            _, written = self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, written = self.process.communicate()
        return str(written)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def num_descriptors() -> int:
    """Descriptors that this process has open."""
    return len(os.listdir("/proc/self/fd"))
