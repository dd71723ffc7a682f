"""The engine as a program uses it: open it, hand requests in, iterate over what comes out.

::

    with Engine.open("model.yaml") as engine:
        for result in engine.run([engine.front.text_request("Hello")]):
            print(engine.front.decode(result.ids))

One thread of its own drives the turns. No signal handler is installed; closing frees everything.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mstar_core.config.resolve import Resolved
from mstar_core.engine.core import EngineCore
from mstar_core.engine.device import Device
from mstar_core.engine.events import EngineEvent, FinishEvent, Result, TokenEvent, facts_of
from mstar_core.engine.opening import open_core
from mstar_core.engine.report import WarmupReport
from mstar_core.engine.wire import Wired
from mstar_core.errors import DeviceFault, RequestError, Words
from mstar_core.model.front import Front, Request

log = logging.getLogger(__name__)
Listener = Callable[[EngineEvent], None]


class Engine:
    """A running engine. Thread-safe: any thread may submit, stop, abort and iterate."""

    def __init__(self, core: EngineCore, wired: Wired, report: WarmupReport) -> None:
        """Use :meth:`open`. Starts the thread that drives ``core``."""
        self.report = report
        self._core = core
        self._wired = wired
        self._front: Front | None = None
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._listeners: dict[str, Listener] = {}
        self._door = threading.Lock()
        """Held while a request is let in or taken off, and while the door is closed."""
        self._fault: Exception | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._drive, name="mstar-engine", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        config: str | Path | Resolved,
        sets: Sequence[str] = (),
        *,
        device: Device | None = None,
        offline: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Self:
        """Load plugins, wire, warm up and start.

        ``config`` is a path, the name of a config that a plugin ships, or resolved; ``device``
        replaces the configured one (a CPU with lag, in tests). Raises ConfigError,
        CheckpointError or PluginError; then nothing is left behind.
        """
        core, wired, report = open_core(
            config, sets, device=device, offline=offline, progress=progress
        )
        return cls(core, wired, report)

    @property
    def front(self) -> Front:
        """The model's front; its tokenizer is loaded when first asked for."""
        if self._front is None:
            self._front = self._wired.model.front()
        return self._front

    def run(self, requests: Iterable[Request]) -> list[Result]:
        """Run requests to their ends; results in the order given.

        A request that is refused at the door, or fails, has ``finish_reason`` ``error`` and says
        why; the others go on. If the caller is interrupted its requests are aborted.
        """
        streams: list[_Stream] = []
        try:
            for request in requests:
                streams.append(self._listen(request))  # noqa: PERF401  what was let in is aborted
            return [_gather(stream.request_id, stream) for stream in streams]
        except BaseException:
            for stream in streams:
                self._leave(stream.request_id, stream.listener)
            raise

    def stream(self, request: Request) -> Iterator[EngineEvent]:
        """Events of one request as they are read, a FinishEvent last. Closing it aborts.

        Raises RequestError for a request that is refused at the door.
        """
        events = self._listen(request)
        try:
            for event in events:
                _raise_where_refused(event)
                yield event
        finally:
            self._leave(request.id, events.listener)

    async def astream(self, request: Request) -> AsyncIterator[EngineEvent]:
        """Like :meth:`stream`, for asyncio."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[EngineEvent]()

        def listen(event: EngineEvent) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, event)

        self._submit(request, listen)
        try:
            while True:
                event = await arrived.get()
                _raise_where_refused(event)
                yield event
                if isinstance(event, FinishEvent):
                    return
        finally:
            self._leave(request.id, listen)

    def stop(self, request_id: str, accepted: int) -> None:
        """End a request after ``accepted`` tokens (a stop string was found there)."""
        self._inbox.put(lambda: self._core.stop(request_id, accepted))

    def abort(self, request_id: str) -> None:
        """End a request now; an id that is unknown or over is ignored."""
        self._inbox.put(lambda: self._core.abort(request_id))

    def stats(self) -> dict[str, Any]:
        """Counts of steps and rows so far, and what is held."""
        return self._core.stats()

    def close(self) -> None:
        """Abort what runs, stop the thread, tell plugins, free all memory. Idempotent."""
        with self._door:
            if self._closed:
                return
            self._closed = True
            self._inbox.put(None)
        self._thread.join()
        self._wired.wiring.unseal_for_stop()
        self._wired.wiring.ask("stopping", reason="closed")
        self._wired.nodes.clear()
        self._wired.buffers.release()

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
        stream = _Stream(request.id)
        self._submit(request, stream.listener)
        return stream

    def _submit(self, request: Request, listener: Listener) -> None:
        with self._door:
            if self._closed or self._fault is not None:
                raise RequestError(
                    where="engine",
                    got=Words("closed" if self._closed else f"a fault: {self._fault}"),
                    want="a running engine",
                    fix="open the engine again",
                )
            if request.id in self._listeners:
                listener(_error(request.id, _taken(request).facts()))
                return
            self._listeners[request.id] = listener
            self._inbox.put(lambda: self._arrive(request))

    def _arrive(self, request: Request) -> None:
        try:
            self._core.submit(request)
        except RequestError as error:
            self._send(_error(request.id, error.facts()))
        except Exception as error:  # a bug while checking one request fails that request
            log.exception("request %s could not be checked", request.id)
            self._send(_error(request.id, facts_of(f"request {request.id}", error)))

    def _leave(self, request_id: str, listener: Listener) -> None:
        """The consumer is gone: end its request, and no other that has the same id by now."""

        def leave() -> None:
            if self._listeners.get(request_id) is listener:
                self._core.abort(request_id)

        self._inbox.put(leave)

    def _drive(self) -> None:
        """The engine's thread: sleeps only while there is nothing to do."""
        try:
            while self._take_in(block=self._core.idle):
                self._core.turn()
                self._deliver()
            self._core.abort_all()
            while not self._core.idle:
                self._core.turn()
            self._deliver()
        except DeviceFault as fault:
            log.exception("device fault: the engine ends")
            self._end(fault)
        except Exception as error:  # a bug: nobody may be left waiting
            log.exception("the engine's thread ended")
            self._end(error)

    def _take_in(self, *, block: bool) -> bool:
        """Apply everything in the inbox; False when the engine is to close."""
        while True:
            try:
                call = self._inbox.get(block=block)
            except queue.Empty:
                return True
            if call is None:
                return False
            call()
            self._deliver()
            block = False

    def _deliver(self) -> None:
        for event in self._core.drain():
            self._send(event)

    def _send(self, event: EngineEvent) -> None:
        with self._door:
            listener = self._listeners.get(event.request)
            if isinstance(event, FinishEvent):
                self._listeners.pop(event.request, None)
        if listener is None:
            return
        try:
            listener(event)
        except RuntimeError:  # the consumer's event loop was closed: nobody is left to read
            self._core.abort(event.request)

    def _end(self, error: Exception) -> None:
        with self._door:
            self._fault = error
            waiting = list(self._listeners)
        self._deliver()
        for request_id in waiting:
            generated = self._core.num_generated(request_id)
            self._send(_error(request_id, facts_of(f"request {request_id}", error), generated))


class _Stream:
    """The events of one request, to their end; its ``listener`` is called by the engine."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self._arrived: queue.SimpleQueue[EngineEvent] = queue.SimpleQueue()
        self.listener: Listener = self._arrived.put

    def __iter__(self) -> Iterator[EngineEvent]:
        while True:
            event = self._arrived.get()
            yield event
            if isinstance(event, FinishEvent):
                return


def _gather(request_id: str, events: Iterable[EngineEvent]) -> Result:
    ids: list[int] = []
    logprobs: list[float] = []
    top: list[tuple[tuple[int, float], ...]] = []
    finish: FinishEvent | None = None
    for event in events:
        if isinstance(event, TokenEvent):
            ids.append(event.token)
            logprobs.append(event.logprob)
            top.append(event.top)
        else:
            finish = event
    reason, error = (finish.reason, finish.error) if finish else ("error", None)
    kept = len(ids) if finish is None else finish.generated
    return Result(
        id=request_id,
        ids=ids[:kept],
        logprobs=logprobs[:kept],
        top=top[:kept],
        finish_reason=reason,
        cached_tokens=0 if finish is None else finish.cached_tokens,
        error=error,
    )


def _error(request_id: str, facts: Mapping[str, str], generated: int = 0) -> FinishEvent:
    return FinishEvent(
        request=request_id, reason="error", prompt_items=0, generated=generated, error=facts
    )


def _taken(request: Request) -> RequestError:
    return RequestError(
        where="id", got=request.id, want="an id that no live request has", fix="leave the id out"
    )


def _raise_where_refused(event: EngineEvent) -> None:
    if isinstance(event, FinishEvent) and event.error is not None and not event.generated:
        facts = event.error
        raise RequestError(
            where=facts["where"], got=Words(facts["got"]), want=facts["want"], fix=facts["fix"]
        )
