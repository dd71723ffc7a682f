"""One API process, as the engine process sees it: a socket, read by the engine's thread.

What there is to tell is written as one message of everything that has come since the last write.
When the socket ends, or brings what is no message, the requests that came over it are aborted.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from mstar_core.engine.driver import Driver
from mstar_core.engine.events import FinishEvent
from mstar_core.errors import RequestError
from mstar_core.serving.arena import ArenaView
from mstar_core.serving.crossing import request_of
from mstar_core.serving.framing import CHUNK, Frames, framed
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
from mstar_core.serving.outbox import Live, Outbox, messages_of
from mstar_core.serving.sender import Sender

log = logging.getLogger(__name__)
MAX_FACT = 4096
"""Characters of one fact of an error."""


class EngineConnection:
    """The requests of one API process; a :class:`~mstar_core.serving.inlet.Watched`."""

    def __init__(
        self,
        api: int,
        connection: socket.socket,
        view: ArenaView,
        driver: Driver,
        cancel: Callable[[str], int],
    ) -> None:
        """Takes over the socket, and begins to write; an inlet has it read."""
        self.api = api
        self.socket = connection
        self.live: dict[int, Live] = {}
        self._driver = driver
        self._cancel = cancel
        self._view = view
        self._frames = Frames()
        self._outbox = Outbox()
        self._sender = Sender(connection, self._outbox, self._taken, f"api-{api}")

    @property
    def is_open(self) -> bool:
        """Whether something may still come or go."""
        return self._sender.is_open

    def tell(self, stats: Stats) -> None:
        """Send the engine's counts."""
        self._outbox.answer(stats)
        self._outbox.wake()

    def abort_group(self, group: str) -> int:
        """Abort the requests of ``group``; how many there were."""
        mine = [live for live in list(self.live.values()) if live.group == group]
        for live in mine:
            self._leave(live)
        return len(mine)

    def close(self) -> None:
        """End it from this side, as if the other had."""
        self._sender.shut()

    # -- the engine's thread ---------------------------------------------------------------

    def read(self) -> bool:
        """See :class:`~mstar_core.serving.inlet.Watched`."""
        try:
            data = self.socket.recv(CHUNK, socket.MSG_DONTWAIT)
            for body in self._frames.feed(data):
                self._hear(decoded(body, FromApi))
            return bool(data)
        except BlockingIOError:
            return True
        except FrameError as error:
            log.error("API process %d sent what is no message: %s", self.api, error)
        except OSError:
            log.info("the connection to API process %d broke", self.api)
        except Exception:
            log.exception("the connection to API process %d ends", self.api)
        return False

    def flush(self, *, resting: bool) -> None:
        """See :class:`~mstar_core.serving.inlet.Watched`."""
        self._sender.flush(resting=resting)

    def unwatched(self) -> None:
        """See :class:`~mstar_core.serving.inlet.Watched`."""
        for live in list(self.live.values()):
            self._leave(live)
        self._sender.end()

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
            self._driver.submit(request_of(message, self._view), live)
        except RequestError as refused:
            live(_refusal(live, refused.facts()))

    def _stop(self, live: Live, accepted: int) -> None:
        driver = self._driver
        driver.call(lambda: driver.core.stop(live.id, accepted))

    def _leave(self, live: Live) -> None:
        self._driver.leave(live.id, live)

    # -- whichever thread writes ----------------------------------------------------------

    def _taken(self) -> bytes:
        """What there is to tell, as frames."""
        events, answers = self._outbox.take()
        frames = [framed(answer) for answer in answers]
        if events:
            frames += map(framed, messages_of(events, self._end_of))
        return b"".join(frames)

    def _end_of(self, live: Live, finish: FinishEvent) -> End:
        self.live.pop(live.stream, None)
        error, code = finish.error, None
        if finish.reason == "error" and (finish.busy or not finish.refused):
            code = "overloaded" if finish.busy else "request_failed"
        if finish.reason == "error" and self._driver.fault is not None:
            error, code = None, "engine_restarted"
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
