"""The engine as a program uses it: open it, hand requests in, iterate over what comes out.

::

    with Engine.open("model.yaml") as engine:
        for result in engine.run([engine.front.text_request("Hello")]):
            print(engine.front.decode(result.ids))

One thread of its own drives the turns. No signal handler is installed; closing frees everything,
and an engine that nobody closes is closed when it is collected, or when the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mstar_core.config.resolve import Resolved
from mstar_core.config.sampling import plain
from mstar_core.engine.core import EngineCore
from mstar_core.engine.device import Device
from mstar_core.engine.driver import Driver, Listener
from mstar_core.engine.events import EngineEvent, FinishEvent, Result
from mstar_core.engine.inbox import Inbox
from mstar_core.engine.opening import open_core
from mstar_core.engine.report import WarmupReport
from mstar_core.engine.wire import Wired
from mstar_core.errors import RequestError, Words
from mstar_core.model.front import Front, Request

log = logging.getLogger(__name__)


class Engine:
    """A running engine. Thread-safe: any thread may submit, stop, abort and iterate."""

    def __init__(
        self, core: EngineCore, wired: Wired, report: WarmupReport, inbox: Inbox | None = None
    ) -> None:
        """Use :meth:`open`. Starts the thread that drives ``core``."""
        self.report = report
        self._core = core
        self._wired = wired
        self._front: Front | None = None
        self._driver = Driver(core, inbox)
        self._end = weakref.finalize(self, _end, self._driver, wired)

    @classmethod
    def open(
        cls,
        config: str | Path | Resolved,
        sets: Sequence[str] = (),
        *,
        device: Device | None = None,
        offline: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
        inbox: Inbox | None = None,
    ) -> Self:
        """Load plugins, wire, warm up and start.

        ``config`` is a path, the name of a config that a plugin ships, or resolved; ``device``
        replaces the configured one (a CPU with lag, in tests); the engine's thread waits at
        ``inbox``. Raises ConfigError, CheckpointError or PluginError; then nothing is left behind.
        """
        core, wired, report = open_core(
            config, sets, device=device, offline=offline, progress=progress
        )
        return cls(core, wired, report, inbox)

    @property
    def driver(self) -> Driver:
        """The engine's thread, for a program that listens to its events on that thread."""
        return self._driver

    @property
    def front(self) -> Front:
        """The model's front; its tokenizer is loaded when first asked for."""
        if self._front is None:
            self._front = self._wired.model.front()
        return self._front

    @property
    def prompt_ids(self) -> int | None:
        """What every id of a prompt is below; None for a model whose prompts are no ids."""
        inputs = (i for w in self._core.walks.values() if w.feed == "prompt" for i in w.inputs)
        return next((i.below for i in inputs if i.below is not None), None)

    def run(self, requests: Iterable[Request]) -> list[Result]:
        """Run requests to their ends; results in the order given.

        A request that is refused at the door, or fails, has ``finish_reason`` ``error`` and says
        why; the others go on. If the caller is interrupted its requests are aborted. Stop strings
        (``Request.stop``) are text, and nothing here is: see ``stream_text``.
        """
        streams: list[_Stream] = []
        try:
            for request in requests:
                streams.append(self._listen(request))  # noqa: PERF401  what was let in is aborted
            return [Result.of(stream.request.id, stream) for stream in streams]
        except BaseException:
            for stream in streams:
                self._driver.leave(stream.request.id, stream.listener)
            raise

    def stream(self, request: Request) -> Iterator[EngineEvent]:
        """Events of one request as they are read, a FinishEvent last. Closing it aborts.

        Raises RequestError for a request that is refused at the door, or fails before its first
        token; one that fails later says so in its FinishEvent.
        """
        events = self._listen(request)
        try:
            for event in events:
                _raise_where_refused(event)
                yield event
        finally:
            self._driver.leave(request.id, events.listener)

    async def astream(self, request: Request) -> AsyncIterator[EngineEvent]:
        """Like :meth:`stream`, for asyncio."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[EngineEvent]()

        def listen(event: EngineEvent) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, event)

        self.submit(request, listen)
        try:
            while True:
                event = await arrived.get()
                _raise_where_refused(event)
                yield event
                if isinstance(event, FinishEvent):
                    return
        finally:
            self._driver.leave(request.id, listen)

    def submit(self, request: Request, listener: Listener) -> None:
        """Let a request in: ``listener`` is called with each of its events, a FinishEvent last.

        It is called on the engine's own thread, which waits for it: it notes what it is told, and
        may submit, stop and abort. Raises RequestError for what is no request, or once the engine
        is closed or has a fault.
        """
        if not isinstance(request, Request):
            raise RequestError(
                where="request",
                got=Words(f"a {type(request).__name__}"),
                want="a Request",
                fix="build it with the model's front, engine.front",
            )
        self._driver.submit(request, listener)

    def stop(self, request_id: str, accepted: int) -> None:
        """End a request after ``accepted`` tokens (a stop string was found there).

        An id that is unknown or over is ignored. Raises RequestError for what is no id or count.
        """
        kept = plain(accepted)
        if type(kept) is not int or kept < 0:
            raise RequestError(
                where="accepted",
                got=accepted,
                want="an integer of at least 0 (tokens)",
                fix="give the number of tokens that the request keeps",
            )
        _check_id(request_id)
        core = self._core
        self._driver.call(lambda: core.stop(request_id, kept))

    def abort(self, request_id: str) -> None:
        """End a request now; an id that is unknown or over is ignored.

        Raises RequestError for what is no id.
        """
        _check_id(request_id)
        core = self._core
        self._driver.call(lambda: core.abort(request_id))

    def position(self, request_id: str) -> int | None:
        """How many requests are before one that waits to be admitted; None for one that does not.

        A moment's answer: the line moves on.
        """
        return self._core.position(request_id)

    def stats(self) -> dict[str, Any]:
        """Counts of steps and rows so far, and what is held."""
        return self._core.stats()

    def close(self) -> None:
        """Abort what runs, stop the thread, tell plugins, free all memory. Idempotent."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _listen(self, request: Request) -> _Stream:
        stream = _Stream(request)
        self.submit(request, stream.listener)
        return stream


def _end(driver: Driver, wired: Wired) -> None:
    """Of :meth:`Engine.close`; it must hold nothing of the engine, which may be gone."""
    if driver.close():
        wired.wiring.unseal_for_stop()
        for failed in wired.wiring.ask("stopping", reason="closed").findings:
            log.warning("%s", failed)
        wired.nodes.clear()
        wired.buffers.release()


def _check_id(request_id: str) -> None:
    if not isinstance(request_id, str):
        raise RequestError(
            where="request_id", got=request_id, want="the id of a request", fix="give request.id"
        )


class _Stream:
    """The events of one request, to their end; its ``listener`` is called by the engine."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._arrived: queue.SimpleQueue[EngineEvent] = queue.SimpleQueue()
        self.listener: Listener = self._arrived.put

    def __iter__(self) -> Iterator[EngineEvent]:
        while True:
            event = self._arrived.get()
            yield event
            if isinstance(event, FinishEvent):
                return


def _raise_where_refused(event: EngineEvent) -> None:
    if isinstance(event, FinishEvent) and event.error is not None and not event.generated:
        raise RequestError.of_facts(event.error)
