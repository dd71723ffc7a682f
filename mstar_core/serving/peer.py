"""The engine process as an API process sees it: one connection, from its beginning to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from mstar_core.serving.arena import Arena
from mstar_core.serving.crossing import arrays_of
from mstar_core.serving.framing import Frames, framed
from mstar_core.serving.generation import RemoteGeneration
from mstar_core.serving.link import Ended
from mstar_core.serving.messages import (
    Cancelled,
    End,
    FrameError,
    FromApi,
    FromEngine,
    Items,
    Stats,
    Tokens,
    decoded,
)

log = logging.getLogger(__name__)
MAX_UNSENT = 8 << 20
"""Bytes that the engine process may not have taken yet; past it nothing more is let in."""
LOST = Ended(reason="error", code="engine_restarted")


class Peer(asyncio.Protocol):
    """One engine process, from its connection to the end of it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, arena: Arena, lost: Callable[[Peer], None]
    ) -> None:
        self.loop = loop
        self.arena = arena
        self.live: dict[int, RemoteGeneration] = {}
        self.asked: dict[int, asyncio.Future[int]] = {}
        self.stats: dict[str, Any] = {}
        self.is_full = False
        """More is unsent than ``MAX_UNSENT``."""
        self._lost = lost
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None

    def send(self, message: FromApi) -> None:
        """Send, or keep until the socket takes it; to an engine that is gone, nothing."""
        if self._transport is not None:
            self._transport.write(framed(message))

    def close(self) -> None:
        """End the connection; everything under way ends."""
        if self._transport is not None:
            self._transport.abort()

    def free(self, generation: RemoteGeneration) -> None:
        """Give back the shared memory of a request."""
        for start in generation.blocks:
            self.arena.free(start)
        generation.blocks.clear()

    # -- what asyncio calls ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MAX_UNSENT)

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                self._hear(decoded(body, FromEngine))
        except FrameError as error:
            log.error("the engine process sent what is no message: %s", error)
            self.close()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        live, self.live = self.live, {}
        for generation in live.values():
            generation.end(LOST)
        for asked in self.asked.values():
            if not asked.done():
                asked.set_result(0)
        self.arena.close()
        self._lost(self)

    # -- what the engine says --------------------------------------------------------------

    def _hear(self, message: Tokens | Items | Cancelled | Stats) -> None:
        if isinstance(message, Tokens):
            self._take(message)
        elif isinstance(message, Items):
            generation = self.live.get(message.stream)
            if generation is not None:
                for name, items in arrays_of(message):
                    generation.add_items(name, items)
        elif isinstance(message, Stats):
            self.stats = message.stats
        else:
            asked = self.asked.pop(message.ask, None)
            if asked is not None and not asked.done():
                asked.set_result(message.count)

    def _take(self, message: Tokens) -> None:
        """Hand out a frame; streams that are over are passed by."""
        live, tokens, at = self.live, message.tokens, 0
        for stream, number in zip(message.streams, message.counts, strict=True):
            generation = live.get(stream)
            if generation is not None:
                generation.add(tokens[at : at + number])
            at += number
        for scores in message.scores:
            generation = live.get(scores.stream)
            if generation is not None:
                generation.score(scores.logprobs, scores.tops)
        for end in message.ends:
            generation = live.pop(end.stream, None)
            if generation is not None:
                self._end(generation, end)

    def _end(self, generation: RemoteGeneration, end: End) -> None:
        self.free(generation)
        generation.end(
            Ended(
                reason=end.reason,
                prompt_items=end.prompt_items,
                generated=end.generated,
                cached_tokens=end.cached_tokens,
                preemptions=end.preemptions,
                error=end.error,
                code=end.code,
                queued_s=end.queued_s,
                stop_logprob=end.stop_logprob,
                reported=end.reported or {},
            )
        )
