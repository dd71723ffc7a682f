"""The loop that starts the children, hears them, restarts them, and ends them."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import time
from typing import Literal

from mstar_core.config.server import ServerConfig
from mstar_core.errors import ConfigError, MstarError
from mstar_core.logs import say
from mstar_core.serving import orders
from mstar_core.serving.child import OURS
from mstar_core.serving.listening import Listening
from mstar_core.serving.startup import StartUp, table
from mstar_core.serving.supervisor.banner import banner
from mstar_core.serving.supervisor.pairing import connect
from mstar_core.serving.supervisor.policy import Restarts
from mstar_core.serving.supervisor.progress import Progress
from mstar_core.serving.supervisor.signals import heard_signals
from mstar_core.serving.supervisor.worker import ABORT_GRACE_S, Worker, how

log = logging.getLogger(__name__)
TOO_OFTEN = 3
"""Exit code: a child ended too often."""
TURN_S = 0.25
STOP_GRACE_S = 5.0
"""What a child gets to end when it is told to."""


class Supervisor:
    """One server: an engine, its API processes, and the socket that these accept on."""

    def __init__(
        self, config: ServerConfig, start: orders.Start, listening: Listening, *, began: float
    ) -> None:
        """``began``: when the command was started (monotonic seconds), for the start-up table."""
        self._config = config
        self._start = start
        self._listening = listening
        self._began = began
        say(f"listening on {listening.url}")
        self._engine = self._worker("engine", 0)
        self._apis = [self._worker("api", index) for index in range(config.processes)]
        self._workers = [self._engine, *self._apis]
        self._mode: Literal["starting", "serving", "draining", "stopping"] = "starting"
        self._progress = Progress(orders.State("starting"))
        self._start_up: StartUp | None = None
        self._drained: dict[int, int] = {}
        self._deadline = 0.0
        self._final = 0
        self._code: int | None = None
        self._error: MstarError | None = None
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Serve until told to stop; the exit code. Raises ConfigError of a child that starts."""
        with heard_signals() as heard:
            self._selector.register(heard, selectors.EVENT_READ)
            try:
                for worker in self._workers:
                    self._spawn(worker)
                while self._code is None:
                    self._turn(heard)
            finally:
                self._end_all()
                self._selector.close()
        if self._error is not None:
            raise self._error
        return self._code

    def _turn(self, heard: socket.socket) -> None:
        has_unsent = [worker for worker in self._workers if worker.flush()]
        for key, _ in self._selector.select(0.02 if has_unsent else TURN_S):
            if key.data is None:
                for number in heard.recv(64):
                    self._signal(number)
            else:
                self._hear(key.data)
        now = time.monotonic()
        for worker in self._workers:
            self._look_after(worker, now)
        if self._mode == "draining":
            self._drain_on(now)
        if self._mode == "stopping" and (
            now > self._deadline or not any(worker.alive for worker in self._workers)
        ):
            self._code = self._final

    # children ------------------------------------------------------------------------------

    def _worker(self, role: str, index: int) -> Worker:
        restarts = Restarts(
            max_restarts=self._config.max_restarts, window_s=self._config.restart_window_s
        )
        return Worker(role=role, index=index, restarts=restarts)

    def _spawn(self, worker: Worker) -> None:
        self._selector.register(worker.spawn(), selectors.EVENT_READ, worker)
        start = orders.Start(
            config=self._start.config,
            sets=self._start.sets,
            index=worker.index,
            offline=self._start.offline,
            log_level=self._start.log_level,
            log_format=self._start.log_format,
            late=self._start_up is not None and self._config.processes > 1,
            spawned=worker.spawned,
        )
        fds = [self._listening.sock.fileno()] if worker.role == "api" else []
        worker.send(start, fds)
        for api in self._apis if worker is self._engine else [worker]:
            if api.alive and self._engine.alive:
                connect(self._engine, api, self._config.media_bytes)
        if worker is not self._engine:
            worker.send(self._progress.state)

    def _look_after(self, worker: Worker, now: float) -> None:
        code = worker.reap()
        if code is not None:
            self._ended(worker, code, now)
        elif worker.due is not None and now >= worker.due:
            self._spawn(worker)
        elif worker.kill_at is not None and now >= worker.kill_at:
            worker.kill()
        elif (
            self._mode in ("starting", "serving")
            and worker.ready is not None
            and worker.kill_at is None
        ):
            hung = worker.pulse.hung(now, self._config.stall_s)
            if hung is not None:
                self._hung(worker, hung, now)

    def _hung(self, worker: Worker, why: str, now: float) -> None:
        log.error("%s %s: it writes its stacks, and is started again", worker.name, why)
        if worker is self._engine:
            self._tell(orders.State("stalled"))
        worker.abort(now)

    def _ended(self, worker: Worker, code: int, now: float) -> None:
        self._hear(worker)  # its last words
        self._forget(worker)
        worker.close()
        if self._mode in ("draining", "stopping"):
            if code != 0:
                log.error("%s ended while the server stops: %s", worker.name, how(code))
            return
        if worker.failed is not None:
            self._error = ConfigError.of_facts(worker.failed.facts)
        if self._mode == "starting":
            log.error("%s ended while it started: %s", worker.name, how(code))
            self._stop(OURS if worker.failed is None else worker.failed.code, 0.0)
            return
        delay = worker.restarts.ended(now)
        log.error("%s ended: %s%s", worker.name, how(code), _told(self._error))
        self._error = None
        if delay is None:
            log.error("%s ended too often: the server ends", worker.name)
            self._stop(TOO_OFTEN, STOP_GRACE_S)
            return
        worker.ready, worker.due = None, now + delay
        if worker is self._engine:
            self._tell(orders.State("restarting"))

    # messages ------------------------------------------------------------------------------

    def _hear(self, worker: Worker) -> None:
        received = worker.receive()
        if received is None:
            self._forget(worker)
            if worker.kill_at is None:
                worker.kill_at = time.monotonic() + ABORT_GRACE_S
            return
        for one in received:
            for fd in one.fds:
                os.close(fd)
            self._take(worker, one.message)

    def _take(self, worker: Worker, message: orders.Message) -> None:
        now = time.monotonic()
        match message:
            case orders.Beat():
                worker.pulse.beat(message, now)
            case orders.Phase():
                if worker is self._engine and self._progress.note(message):
                    self._tell(self._progress.state)
            case orders.Ready():
                worker.note_ready(message, now)
                if worker is self._engine:
                    self._tell(orders.State("ready", max_context=message.facts["max_context"]))
                if self._start_up is not None:
                    worker.send(orders.StartedUp(self._start_up.as_dict()))
                elif all(each.ready for each in self._workers):
                    self._all_ready(now)
            case orders.Failed():
                worker.failed = message
            case orders.Drained():
                self._drained[worker.index] = message.cut
            case orders.Scrape():
                self._scrape(worker, message)
            case orders.Scraped():
                self._apis[message.asker].send(message)
            case _:
                log.error("%s sent a message that is not for its parent", worker.name)

    def _tell(self, state: orders.State) -> None:
        self._progress.state = state
        for api in self._apis:
            api.send(state)

    def _scrape(self, asker: Worker, message: orders.Scrape) -> None:
        for api in self._apis:
            if api is asker:
                continue
            if api.ready is not None and api.alive:
                api.send(message)
            else:
                asker.send(orders.Scraped(message.asker, message.id, ""))

    def _all_ready(self, now: float) -> None:
        """The start is over: everybody may say so, and a person reads where its time went."""
        last = max(self._apis, key=lambda api: api.ready_at)
        engine, api = self._engine.ready, last.ready
        if engine is None or api is None:
            return
        self._mode = "serving"
        self._start_up = table(
            began=self._began,
            spawned=self._engine.spawned,
            engine_ready=self._engine.ready_at,
            engine=engine.laps,
            api=api.laps,
            ended=now,
        )
        for one in self._apis:
            one.send(orders.StartedUp(self._start_up.as_dict()))
        url = self._listening.url
        lines = banner(url, self._config, engine.facts, api.facts, self._start_up)
        say("\n".join(lines))

    # the end -------------------------------------------------------------------------------

    def _signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            return
        if self._mode in ("draining", "stopping"):
            log.warning("told again to stop: everything ends now")
            self._code = 128 + number
        elif self._mode == "starting":
            self._stop(0, 0.0)
        else:
            self._drain()

    def _drain(self) -> None:
        log.info("draining: open requests have %g s", self._config.drain_s)
        self._mode = "draining"
        self._deadline = time.monotonic() + self._config.drain_s + STOP_GRACE_S
        for worker in self._workers:
            worker.due = None
        for api in self._apis:
            api.send(orders.Drain(self._config.drain_s))

    def _drain_on(self, now: float) -> None:
        if now < self._deadline and any(
            api.alive and api.index not in self._drained for api in self._apis
        ):
            return
        cut = sum(self._drained.values())
        if cut:
            log.warning("%d requests did not end in time, and were ended with an error", cut)
        self._stop(0, STOP_GRACE_S)

    def _stop(self, code: int, grace_s: float) -> None:
        """Tell everybody to end, and end with ``code`` when they have, or the time is over."""
        self._mode, self._final = "stopping", code
        self._deadline = time.monotonic() + grace_s
        for worker in self._workers:
            worker.due = None
            worker.send(orders.Stop())

    def _forget(self, worker: Worker) -> None:
        """Wait for nothing more from the worker's channel."""
        if worker.control is not None and worker.control in self._selector.get_map():
            self._selector.unregister(worker.control)

    def _end_all(self) -> None:
        """Kill and collect whoever is left. Nothing of the server remains."""
        for worker in self._workers:
            worker.kill()
        end = time.monotonic() + STOP_GRACE_S
        while any(worker.alive for worker in self._workers) and time.monotonic() < end:
            if not any(worker.reap() is not None for worker in self._workers):
                time.sleep(0.005)
        for worker in self._workers:
            worker.close()
        self._listening.close()


def _told(error: MstarError | None) -> str:
    return "" if error is None else f"\n{error}"
