"""An API process: HTTP on the inherited socket, the model's front, and a link to the engine.

The supervisor starts it (``python -m mstar_core.serving.api_process FD``) and tells it where the
engine is. It answers at once; it is ready when a request of each kind went all the way.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Coroutine
from typing import Any, NoReturn

from mstar_core.config.resolve import Resolved, resolve
from mstar_core.model.front import Front
from mstar_core.plugins.discover import discover
from mstar_core.plugins.record import shipped_configs
from mstar_core.serving import orders
from mstar_core.serving.app import create_app
from mstar_core.serving.child import Child, leave, run_child
from mstar_core.serving.control import Received
from mstar_core.serving.exchange import Service
from mstar_core.serving.http_server import HttpServer, loop_factory
from mstar_core.serving.keys import Keys
from mstar_core.serving.peers import Peers
from mstar_core.serving.readiness import Readiness
from mstar_core.serving.remote import RemoteLink

log = logging.getLogger(__name__)
BEAT_S, FLUSH_S = 0.5, 0.02


def main() -> NoReturn:
    """The process, to its exit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _left_to_the_supervisor)
    leave(run_child(serve))


def _left_to_the_supervisor(number: int, frame: object) -> None:
    """A handler, since what is ignored stays ignored in programs that this process starts."""


def serve(child: Child) -> None:
    """Serve until told to stop. Raises ConfigError, CheckpointError or PluginError."""
    sock = socket.socket(fileno=child.fds[0])
    sock.setblocking(False)
    with asyncio.Runner(loop_factory=loop_factory(sock)) as runner:
        runner.run(ApiProcess(child, sock).run())


class ApiProcess:
    """What the process has, on its event loop."""

    def __init__(self, child: Child, sock: socket.socket) -> None:
        start = child.start
        self._child = child
        self._control = child.control
        self._sock = sock
        self._resolved = resolve(start.config, start.sets, lambda: shipped_configs(discover()))
        server = self._resolved.config.server
        self._link = RemoteLink()
        self._peers = Peers(self._send, start.index, server.processes)
        self._service = Service(
            limits=self._resolved.config.limits,
            link=self._link,
            server=server,
            peers=self._peers,
        )
        keys = Keys() if server.api_key_file is None else Keys.read(server.api_key_file)
        self._http = HttpServer(create_app(self._service, keys), server)
        self._readiness = Readiness(
            resolved=self._resolved,
            service=self._service,
            link=self._link,
            laps=child.laps,
            begin=self._begin,
            on_warm=self._tell_ready,
        )
        self._messages: asyncio.Queue[Received | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: BaseException | None = None
        self._accepting: asyncio.Task[Any] | None = None
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Serve to the end. What a part of it raises ends all of it."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control.fileno(), self._read)
        self._read()
        if self._child.start.late:
            self._begin(self._accept_late())
        else:
            self._accept()
        for part in (self._follow(), self._beat(), self._load()):
            self._begin(part)
        try:
            await self._ended.wait()
            if self._failure is not None:
                raise self._failure
        finally:
            loop.remove_reader(self._control.fileno())
            self._http.should_exit = True
            self._link.fail_all("draining")
            for task in self._tasks - {self._accepting}:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._link.detach()
            self._service.close()

    # what the supervisor says ----------------------------------------------------------------

    def _read(self) -> None:
        try:
            for received in self._control.receive():
                self._messages.put_nowait(received)
        except EOFError:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._messages.put_nowait(None)

    def _send(self, message: orders.Message) -> None:
        self._control.send(message)
        if self._control.has_unsent:
            asyncio.get_running_loop().call_later(FLUSH_S, self._control.flush)

    async def _follow(self) -> None:
        while (received := await self._messages.get()) is not None:
            match received.message:
                case orders.Connect():
                    await self._link.attach(*received.fds)
                case orders.State() as state:
                    self._readiness.engine_is(state)
                case orders.StartedUp(table):
                    self._service.start_up = table
                    self._readiness.say()
                case orders.Drain(seconds):
                    self._begin(self._drain(seconds))
                case orders.Scrape(asker, number):
                    self._send(orders.Scraped(asker, number, self._exposition()))
                case orders.Scraped() as answer:
                    self._peers.answered(answer)
                case orders.Stop():
                    break
        self._ended.set()

    def _accept(self) -> None:
        """Answer whoever connects."""
        self._accepting = self._begin(self._http.serve(sockets=[self._sock]))

    async def _accept_late(self) -> None:
        await self._readiness.is_said.wait()
        self._accept()

    def _tell_ready(self, facts: dict[str, Any]) -> None:
        self._send(orders.Ready(self._child.laps.rows, facts))

    async def _drain(self, seconds: float) -> None:
        self._send(orders.Drained(await self._readiness.drain(seconds)))

    async def _beat(self) -> None:
        while True:
            self._send(orders.Beat())
            await asyncio.sleep(BEAT_S)

    def _exposition(self) -> str:
        service = self._service
        return service.metrics.render(self._link.stats(), service.admission.open).decode()

    async def _load(self) -> None:
        self._child.laps.mark("import")
        front = await asyncio.to_thread(_front, self._resolved, self._child.start.offline)
        self._child.laps.mark("front")
        self._readiness.front_is(front)

    def _begin(self, part: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task whose error ends the process."""
        task = asyncio.create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
            self._ended.set()


def _front(resolved: Resolved, offline: bool) -> Front:
    """In a thread: it imports the plugin, which may bring torch, and loads a tokenizer."""
    from mstar_core.engine.opening import open_front

    return open_front(resolved, offline=offline)


if __name__ == "__main__":
    main()
