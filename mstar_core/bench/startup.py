"""The start of a server as one who waits for it sees it, with the server's own table of phases."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, TypeVar

from attrs import define, field, frozen

from mstar_core.client import ApiError, Client, ConnectFailed
from mstar_core.errors import MstarError, Words

LISTENING = re.compile(r"listening on (http\S+)")
PHASE = re.compile(r"^  (\w[\w ]*?) +(\d+\.\d+)$")
"""A row of the table that the server prints when it is ready."""
Wanted = TypeVar("Wanted")
POLL_S = 0.005
STOP_S = 60.0


@frozen(kw_only=True)
class StartTimes:
    """Seconds from the start of the process, but for the two requests, which have their own."""

    bound_s: float
    """The port was bound: the server says where it listens."""
    live_s: float
    """``/live`` answered 200."""
    ready_s: float
    """``/ready`` answered 200."""
    first_request_s: float | None
    """How long the first request took; None where the model neither chats nor continues text."""
    second_request_s: float | None
    phases_s: Mapping[str, float]
    """By the server's own account, in its order."""


def measure(arguments: Sequence[str], timeout_s: float) -> StartTimes:
    """Start ``mstar-core serve ARGUMENTS --port 0``, ask it once and once again, and stop it.

    Raises MstarError where it ends, or is not ready in time.
    """
    command = [sys.executable, "-m", "mstar_core", "serve", *arguments, "--port", "0"]
    begin_s = time.perf_counter()
    with _Server(command) as server:

        def since() -> float:
            return time.perf_counter() - begin_s

        url = server.wait(lambda: server.url, timeout_s)
        bound_s = since()
        with Client(url, retries=0) as client:
            server.wait(lambda: _is_live(client), timeout_s - since())
            live_s = since()
            server.wait(lambda: _is_ready(client), timeout_s - since())
            ready_s = since()
            first_s, second_s = _request_s(client), _request_s(client)
        server.wait(lambda: server.phases or since() > ready_s + 1, 2)
        return StartTimes(
            bound_s=bound_s,
            live_s=live_s,
            ready_s=ready_s,
            first_request_s=first_s,
            second_request_s=second_s,
            phases_s=dict(server.phases),
        )


def _is_live(client: Client) -> bool:
    try:
        return client.live()
    except ConnectFailed:
        return False


def _is_ready(client: Client) -> bool:
    return client.ready().ready


def _request_s(client: Client) -> float | None:
    """Seconds of a short request of the kind that the server takes."""
    begin_s = time.perf_counter()
    turn = {"role": "user", "content": "Hello"}
    asks: list[Callable[[], Any]] = [
        lambda: client.chat([turn], max_tokens=8),
        lambda: client.complete("Hello", max_tokens=8),
    ]
    for ask in asks:
        try:
            ask()
        except ApiError as error:
            if error.status not in (400, 404, 405):
                raise
        else:
            return time.perf_counter() - begin_s
    return None


@define(eq=False)
class _Server:
    """A server's process, and what it says on stderr."""

    command: Sequence[str]
    url: str = field(default="", init=False)
    phases: dict[str, float] = field(factory=dict, init=False)
    said: list[str] = field(factory=list, init=False)
    process: subprocess.Popen[str] = field(init=False)
    listener: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.listener = threading.Thread(target=self._listen, args=(self.process.stderr,))
        self.listener.start()

    def wait(self, found: Callable[[], Wanted], timeout_s: float) -> Wanted:
        """What ``found`` gives once it gives anything. Raises MstarError past the time."""
        end_s = time.perf_counter() + timeout_s
        while not (value := found()):
            if self.process.poll() is not None or time.perf_counter() > end_s:
                raise self._failed()
            time.sleep(POLL_S)
        return value

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.listener.join()

    def _listen(self, stderr: IO[str]) -> None:
        with stderr:
            for line in stderr:
                self.said.append(line.rstrip("\n"))
                where, row = LISTENING.search(line), PHASE.match(line.rstrip("\n"))
                if where is not None:
                    self.url = self.url or where[1]
                if row is not None:
                    self.phases[" ".join(row[1].split())] = float(row[2])

    def _failed(self) -> MstarError:
        code = self.process.poll()
        how = "no more time" if code is None else f"an end with exit code {code}"
        return MstarError(
            where="mstar-core serve",
            got=Words("\n        ".join([how, *self.said[-10:]])),
            want="a server that is ready",
            fix="start it by hand, or give it more time with --timeout",
        )
