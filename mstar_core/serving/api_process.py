"""An API process: HTTP on the inherited socket, the model's front, and a link to the engine.

The supervisor starts it (``python -m mstar_core.serving.api_process FD``) and tells it where the
engine is. It answers at once; it is ready when a request of each kind went all the way.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NoReturn

from mstar_core.config.resolve import Resolved, resolve
from mstar_core.model.front import Front
from mstar_core.plugins.discover import discover
from mstar_core.plugins.record import shipped_configs
from mstar_core.serving import orders
from mstar_core.serving.app import create_app
from mstar_core.serving.child import Child, run_child
from mstar_core.serving.control import Received
from mstar_core.serving.errors import ApiError
from mstar_core.serving.exchange import ModelCard, Service
from mstar_core.serving.http_server import HttpServer, loop_factory
from mstar_core.serving.keys import Keys
from mstar_core.serving.link import EngineState
from mstar_core.serving.peers import Peers
from mstar_core.serving.remote import RemoteLink
from mstar_core.serving.routes.table import all_routes
from mstar_core.serving.warming import MAKERS, warm_up

log = logging.getLogger(__name__)
BEAT_S = 0.5
DRAIN_LOOK_S = 0.02
CUT_S = 2.0
"""Time in which requests that were cut off tell their clients."""


def main() -> NoReturn:
    """The process, to its exit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _left_to_the_supervisor)
    sys.exit(run_child(serve))


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
        self._resolved = _resolved(start)
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
        self._engine = orders.State("starting")
        self._front: Front | None = None
        self._mode = "starting"
        self._is_warm = False
        self._messages: asyncio.Queue[Received | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: BaseException | None = None
        self._accepting: asyncio.Task[Any] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Serve to the end. What a part of it raises ends all of it."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control.fileno(), self._read)
        self._read()
        if not self._child.start.late:
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
            asyncio.get_running_loop().call_later(DRAIN_LOOK_S, self._control.flush)

    async def _follow(self) -> None:
        while (received := await self._messages.get()) is not None:
            match received.message:
                case orders.Connect():
                    await self._link.attach(*received.fds)
                case orders.State() as state:
                    self._engine = state
                    self._update()
                case orders.StartedUp(table):
                    self._service.start_up = table
                    self._say_ready()
                case orders.Drain(seconds):
                    self._mode = "draining"
                    self._update()
                    self._begin(self._drain(seconds))
                case orders.Scrape(asker, number):
                    self._send(orders.Scraped(asker, number, self._exposition()))
                case orders.Scraped() as answer:
                    self._peers.answered(answer)
                case orders.Stop():
                    break
        self._ended.set()

    def _accept(self) -> None:
        """Answer whoever connects. Idempotent."""
        if self._accepting is None:
            self._accepting = self._begin(self._http.serve(sockets=[self._sock]))

    async def _beat(self) -> None:
        while True:
            self._send(orders.Beat())
            await asyncio.sleep(BEAT_S)

    def _exposition(self) -> str:
        service = self._service
        return service.metrics.render(self._link.stats(), service.admission.open).decode()

    # from start to ready ---------------------------------------------------------------------

    async def _load(self) -> None:
        self._child.laps.mark("import")
        self._front = await asyncio.to_thread(_front, self._resolved, self._child.start.offline)
        self._child.laps.mark("front")
        self._update()

    def _update(self) -> None:
        """Say where the engine is, and warm up as soon as it and the front are there."""
        self._is_warm = False
        if self._mode == "draining":
            self._link.state = EngineState(phase="draining")
            return
        if self._warming is not None:
            self._warming.cancel()
            self._warming = None
        engine = self._engine
        if engine.phase != "ready":
            self._link.state = EngineState(
                phase=engine.phase, done=engine.done, total=engine.total, eta_s=engine.eta_s
            )
        elif self._front is None:
            self._link.state = EngineState(phase="front")
        else:
            self._warming = self._begin(self._warm_up(self._front, engine.max_context))

    async def _warm_up(self, front: Front, max_context: int) -> None:
        if self._mode == "starting":
            self._child.laps.mark("wait")
        kinds = sorted(front.capabilities() & set(MAKERS))
        for done, kind in enumerate(kinds):
            self._link.state = EngineState(phase="warm-up", done=done, total=len(kinds))
            try:
                if not await warm_up(front, self._link, kind):
                    return  # the engine ended; its next state says more
            except ApiError:
                return
            if self._mode == "starting":
                self._child.laps.mark(f"warm {kind}")
        if "audio" in front.capabilities():
            with suppress(ApiError):  # not installed: the routes say so
                self._service.decoder.start()
        self._service.front, self._service.card = front, self._card(front, max_context)
        self._is_warm = True
        self._say_ready()
        if self._mode == "starting":
            self._mode = "serving"
            self._send(orders.Ready(self._child.laps.rows, self._facts(self._service.card)))

    def _say_ready(self) -> None:
        """Take requests, unless another process has yet to be ready for the first time."""
        is_alone = self._service.server.processes == 1
        if self._is_warm and (is_alone or self._service.start_up is not None):
            self._link.state = EngineState(phase="ready")
            self._accept()

    def _card(self, front: Front, max_context: int) -> ModelCard:
        before = self._service.card
        return ModelCard(
            name=self._service.server.model_name or self._resolved.file.stem,
            capabilities=front.capabilities(),
            max_context=max_context,
            created=int(time.time()) if before is None else before.created,
            traits=front.traits(),
        )

    def _facts(self, card: ModelCard) -> dict[str, Any]:
        server, limits = self._service.server, self._service.limits
        offered = {
            route.path
            for route in all_routes()
            if route.capability is None or route.capability in card.capabilities
        }
        return {
            "model": card.name,
            "routes": sorted(offered if server.ui else offered - {"/"}),
            "limits": {
                "open requests": limits.max_open,
                "rows a step": self._resolved.config.engine.max_rows,
                "body bytes": limits.max_body_bytes,
            },
        }

    # the end ---------------------------------------------------------------------------------

    async def _drain(self, seconds: float) -> None:
        """Let open requests end, then end them; say so."""
        end = time.monotonic() + seconds
        await self._until_idle(end)
        cut = self._link.fail_all("draining")
        await self._until_idle(time.monotonic() + CUT_S)
        self._send(orders.Drained(cut))

    async def _until_idle(self, end: float) -> None:
        while self._service.admission.open and time.monotonic() < end:
            await asyncio.sleep(DRAIN_LOOK_S)

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


def _resolved(start: orders.Start) -> Resolved:
    return resolve(start.config, start.sets, lambda: shipped_configs(discover()))


def _front(resolved: Resolved, offline: bool) -> Front:
    """In a thread: it imports the plugin, which may bring torch, and loads a tokenizer."""
    from mstar_core.engine.opening import open_front

    return open_front(resolved, offline=offline)


if __name__ == "__main__":
    main()
