"""The thread that drives a core: calls in, turns, and each event to who listens for it.

It knows nothing of the :class:`~mstar_core.engine.engine.Engine` over it, so an engine that nobody
holds any more is collected, and ends the thread as it goes.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping

import attrs

from mstar_core.engine.core import EngineCore
from mstar_core.engine.events import EngineEvent, FinishEvent, facts_of
from mstar_core.engine.inbox import Inbox
from mstar_core.errors import BusyError, DeviceFault, RequestError, Words
from mstar_core.model.front import Request

log = logging.getLogger(__name__)
Listener = Callable[[EngineEvent], None]


class Driver:
    """One thread over one core. Any thread may call; the core is touched by this one alone."""

    def __init__(self, core: EngineCore, inbox: Inbox | None = None) -> None:
        """Starts the thread, which waits at ``inbox``."""
        self.core = core
        self.fault: Exception | None = None
        self.closed = False
        self.acts = 0
        """Turns and calls that have come to their end; while one is under way it stands still."""
        self.resting = True
        """The thread waits for something to do."""
        self._inbox = inbox or Inbox()
        self._listeners: dict[str, Listener] = {}
        self._door = threading.RLock()
        """Held while a request is let in or taken off, and while the door is closed; a collection
        of garbage may close it in the middle of either."""
        self.thread = threading.Thread(target=self._drive, name="mstar-engine", daemon=True)
        self.thread.start()

    def submit(self, request: Request, listener: Listener) -> None:
        """Let a request in: ``listener`` is called with each of its events, on this thread.

        Raises RequestError once the engine is closed or has a fault.
        """
        with self._door:
            if self.closed or self.fault is not None:
                raise RequestError(
                    where="engine",
                    got=Words("closed" if self.closed else f"a fault: {self.fault}"),
                    want="a running engine",
                    fix="open the engine again",
                )
            if request.id in self._listeners:
                listener(_refused(request, _taken(request)))
                return
            self._listeners[request.id] = listener
            self._inbox.put(lambda: self._arrive(request))

    def call(self, call: Callable[[], None]) -> None:
        """Have the thread run ``call`` between two turns; a raise in it is logged, and no more."""
        self._inbox.put(call)

    def leave(self, request_id: str, listener: Listener) -> None:
        """The consumer is gone: end its request, and no other that has the same id by now."""

        def leave() -> None:
            if self._listeners.get(request_id) is listener:
                self.core.abort(request_id)

        self.call(leave)

    def close(self) -> bool:
        """Abort what runs and end the thread; whether it has ended, so on itself never."""
        with self._door:
            if not self.closed:
                self.closed = True
                self._inbox.put(None)
        if threading.current_thread() is self.thread:
            return False
        self.thread.join()
        return True

    def _arrive(self, request: Request) -> None:
        try:
            self.core.submit(request)
        except RequestError as error:
            self._send(_refused(request, error))
        except Exception as error:  # a bug while checking one request fails that request
            log.exception("request %s could not be checked", request.id)
            self._send(_error(request.id, facts_of(f"request {request.id}", error)))

    def _drive(self) -> None:
        """The thread: it sleeps only while there is nothing to do."""
        try:
            while self._take_in(block=self.core.idle):
                self.core.turn()
                self.acts += 1
                self._deliver()
            self.core.abort_all()
            while not self.core.idle:
                self.core.turn()
            self._deliver()
        except DeviceFault as fault:
            log.exception("device fault: the engine ends")
            self._end(fault)
        except Exception as error:  # a bug: nobody may be left waiting
            log.exception("the engine's thread ended")
            self._end(error)
        finally:
            self._inbox.end()

    def _take_in(self, *, block: bool) -> bool:
        """Apply everything in the inbox; False when the engine is to close."""
        while True:
            self.resting = block
            try:
                call = self._inbox.get(block=block)
            except queue.Empty:
                return True
            self.resting = False
            if call is None:
                return False
            try:
                call()
            except DeviceFault:
                raise
            except Exception:  # one bad call is nobody else's end
                log.exception("a call to the engine failed")
            self.acts += 1
            self._deliver()
            block = False

    def _deliver(self) -> None:
        for event in self.core.drain():
            self._send(event)

    def _send(self, event: EngineEvent) -> None:
        if isinstance(event, FinishEvent):
            with self._door:
                listener = self._listeners.pop(event.request, None)
        else:
            listener = self._listeners.get(event.request)
        if listener is None:
            return
        try:
            listener(event)
        except RuntimeError:  # the consumer's event loop was closed: nobody is left to read
            self.core.abort(event.request)

    def _end(self, error: Exception) -> None:
        with self._door:
            self.fault = error
            waiting = list(self._listeners)
        self._deliver()
        for request_id in waiting:
            generated = self.core.num_generated(request_id)
            self._send(_error(request_id, facts_of(f"request {request_id}", error), generated))


def _error(request_id: str, facts: Mapping[str, str], generated: int = 0) -> FinishEvent:
    return FinishEvent(
        request=request_id, reason="error", prompt_items=0, generated=generated, error=facts
    )


def _refused(request: Request, error: RequestError) -> FinishEvent:
    busy = isinstance(error, BusyError)
    return attrs.evolve(_error(request.id, error.facts()), refused=True, busy=busy)


def _taken(request: Request) -> RequestError:
    return RequestError(
        where="id", got=request.id, want="an id that no live request has", fix="leave the id out"
    )
