"""One child that there should always be: the engine, or an API process."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from attrs import define, field

from mstar_core.serving.control import Control, Received
from mstar_core.serving.messages import FrameError
from mstar_core.serving.orders import Failed, Message, Ready
from mstar_core.serving.supervisor.policy import Pulse, Restarts

log = logging.getLogger(__name__)
ABORT_GRACE_S = 2.0
"""What a hung child gets to write its stacks."""
MODULES = {
    "engine": "mstar_core.serving.engine_process",
    "api": "mstar_core.serving.api_process",
}


@define(eq=False, kw_only=True)
class Worker:
    """A place for one child, which may be empty, and what is known of the child in it."""

    role: str
    """``engine`` or ``api``."""
    index: int
    restarts: Restarts
    process: subprocess.Popen[bytes] | None = None
    control: Control | None = None
    spawned: float = 0.0
    ready: Ready | None = None
    ready_at: float = 0.0
    failed: Failed | None = None
    pulse: Pulse = field(factory=lambda: Pulse(0.0, 0.0))
    due: float | None = None
    """When a child is to be started here (monotonic seconds)."""
    kill_at: float | None = None
    """When a child that was told to end is killed."""

    @property
    def name(self) -> str:
        """For the log."""
        return "engine" if self.role == "engine" else f"API process {self.index}"

    @property
    def alive(self) -> bool:
        """Whether there is a child."""
        return self.process is not None

    def spawn(self) -> Control:
        """Start a child; the channel to it."""
        self.control, theirs = Control.pair()
        fd = theirs.fileno()
        self.spawned = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULES[self.role], str(fd)],
            stdin=subprocess.DEVNULL,
            pass_fds=[fd],
            process_group=0,
        )
        theirs.close()
        self.ready = self.failed = self.due = self.kill_at = None
        log.info("%s is process %d", self.name, self.process.pid)
        return self.control

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Tell the child; one that is gone is not told."""
        if self.control is not None:
            try:
                self.control.send(message, fds)
            except (BrokenPipeError, ConnectionResetError):
                return  # its end is noticed where ends are

    def receive(self) -> list[Received] | None:
        """What the child has said; None once it says nothing more."""
        if self.control is None:
            return None
        try:
            return self.control.receive()
        except EOFError:
            return None
        except FrameError:
            log.exception("%s talks nonsense", self.name)
            return None

    def flush(self) -> bool:
        """Send what waits for a child that reads slowly; whether some still does."""
        if self.control is None or not self.control.has_unsent:
            return False
        try:
            self.control.flush()
        except (BrokenPipeError, ConnectionResetError):
            return False
        return self.control.has_unsent

    def note_ready(self, ready: Ready, now: float) -> None:
        """The child serves."""
        self.ready, self.ready_at = ready, now
        self.pulse = Pulse(now, now)
        self.restarts.ready()

    def abort(self, now: float) -> None:
        """Let the child write its stacks and die; kill it if it does not."""
        if self.process is not None:
            self.process.send_signal(signal.SIGABRT)
            self.kill_at = now + ABORT_GRACE_S

    def kill(self) -> None:
        """End the child and all that it started."""
        if self.process is not None:
            _kill_group(self.process.pid)

    def reap(self) -> int | None:
        """If the child has ended: collect it and all that it started. Its return code, or None."""
        if self.process is None:
            return None
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        _kill_group(self.process.pid)  # its number is its own until it is collected
        code = self.process.wait()
        self.process = None
        self.kill_at = None
        return code

    def close(self) -> None:
        """The channel of a child that has ended."""
        if self.control is not None:
            self.control.close()
            self.control = None


def how(code: int) -> str:
    """A return code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
