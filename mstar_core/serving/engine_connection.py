"""One API process, as the engine process sees it: a socket, a thread that reads, one that writes.

The reader hands requests to the engine's thread, whose part is to append each event to the outbox.
The writer makes one message of everything that has come since its last write. When the socket ends,
or brings what is no message, the requests that came over it are aborted.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from mstar_core.engine.driver import Driver
from mstar_core.engine.events import FinishEvent
from mstar_core.errors import RequestError
from mstar_core.serving.arena import ArenaView
from mstar_core.serving.crossing import request_of
from mstar_core.serving.framing import framed, frames_of
from mstar_core.serving.messages import (
    Abort,
    Cancel,
    Cancelled,
    End,
    FrameError,
    FromApi,
    Stats,
    Stop,
    Submit,
    decoded,
)
from mstar_core.serving.outbox import Live, Outbox, columns

log = logging.getLogger(__name__)
MAX_FACT = 4096
"""Characters of one fact of an error."""


class EngineConnection:
    """The requests of one API process. ``driver`` is None until the engine is open."""

    def __init__(
        self,
        api: int,
        connection: socket.socket,
        view: ArenaView,
        driver: Driver | None,
        cancel: Callable[[str], int],
    ) -> None:
        """Takes over the socket, and begins."""
        self.api = api
        self.driver = driver
        self.live: dict[int, Live] = {}
        self._cancel = cancel
        self._socket = connection
        self._view = view
        self._outbox = Outbox()
        name = f"mstar-api-{api}"
        self._threads = (
            threading.Thread(target=self._read, name=f"{name}-in", daemon=True),
            threading.Thread(target=self._write, name=f"{name}-out", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    @property
    def is_open(self) -> bool:
        """Whether something may still come or go."""
        return any(thread.is_alive() for thread in self._threads)

    def tell(self, stats: Stats) -> None:
        """Send the engine's counts."""
        self._outbox.answer(stats)

    def abort_group(self, group: str) -> int:
        """Abort the requests of ``group``; how many there were."""
        mine = [live for live in list(self.live.values()) if live.group == group]
        for live in mine:
            self._leave(live)
        return len(mine)

    def close(self) -> None:
        """End it from this side, as if the other had."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other side was faster
            return

    # -- the thread that reads -------------------------------------------------------------

    def _read(self) -> None:
        try:
            for body in frames_of(self._socket):
                self._hear(decoded(body, FromApi))
        except FrameError as error:
            log.error("API process %d sent what is no message: %s", self.api, error)
        except OSError:
            log.info("the connection to API process %d broke", self.api)
        except Exception:
            log.exception("the connection to API process %d ends", self.api)
        finally:
            self._outbox.close()
            self.close()
            for live in list(self.live.values()):
                self._leave(live)

    def _hear(self, message: Submit | Stop | Abort | Cancel) -> None:
        if isinstance(message, Submit):
            self._submit(message)
        elif isinstance(message, Cancel):
            self._outbox.answer(Cancelled(message.ask, self._cancel(message.group)))
        elif (live := self.live.get(message.stream)) is None:
            return  # it is over
        elif isinstance(message, Stop):
            self._stop(live, message.accepted)
        else:
            self._leave(live)

    def _submit(self, message: Submit) -> None:
        if message.stream in self.live:
            raise FrameError(f"stream {message.stream} is in use")
        live = self.live[message.stream] = Live(
            outbox=self._outbox,
            stream=message.stream,
            id=message.id,
            group=message.group,
            scored=message.sampling.logprobs is not None,
        )
        try:
            request = request_of(message, self._view)
            if self.driver is not None:
                self.driver.submit(request, live)
                return
            error = None
        except RequestError as refused:
            error = refused.facts()
        live(_refusal(live, error))

    def _stop(self, live: Live, accepted: int) -> None:
        if (driver := self.driver) is not None:
            driver.call(lambda: driver.core.stop(live.id, accepted))

    def _leave(self, live: Live) -> None:
        if self.driver is not None:
            self.driver.leave(live.id, live)

    # -- the thread that writes ------------------------------------------------------------

    def _write(self) -> None:
        try:
            while (taken := self._outbox.take()) is not None:
                events, answers = taken
                frames = [framed(answer) for answer in answers]
                if events:
                    frames.append(framed(columns(events, self._end_of)))
                self._socket.sendall(b"".join(frames))
        except OSError:
            log.info("API process %d does not read any more", self.api)
        except Exception:
            log.exception("the connection to API process %d ends", self.api)
        self.close()
        self._threads[0].join()  # it aborts what is left
        self._socket.close()

    def _end_of(self, live: Live, finish: FinishEvent) -> End:
        self.live.pop(live.stream, None)
        error, code = finish.error, None
        if finish.reason == "error" and (finish.busy or not finish.refused):
            code = "overloaded" if finish.busy else "request_failed"
        if finish.reason == "error" and (self.driver is None or self.driver.fault is not None):
            error, code = None, "not_ready" if self.driver is None else "engine_restarted"
        return End(
            live.stream,
            finish.reason,
            finish.prompt_items,
            finish.generated,
            finish.cached_tokens,
            finish.preemptions,
            None if error is None else {name: text[:MAX_FACT] for name, text in error.items()},
            code,
            finish.queued_s,
            finish.stop_logprob,
            dict(finish.reported) or None,
        )


def _refusal(live: Live, error: dict[str, str] | None) -> FinishEvent:
    return FinishEvent(
        request=live.id, reason="error", prompt_items=0, generated=0, error=error, refused=True
    )
