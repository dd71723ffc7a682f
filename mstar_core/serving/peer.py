"""The engine process as an API process sees it: one connection, and the requests on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from mstar_core.serving.arena import Arena
from mstar_core.serving.framing import Frames, framed
from mstar_core.serving.link import Arrived, Ended
from mstar_core.serving.messages import (
    Abort,
    Cancelled,
    End,
    FrameError,
    FromApi,
    FromEngine,
    Stats,
    Stop,
    Tokens,
    decoded,
)

log = logging.getLogger(__name__)
MAX_UNSENT = 8 << 20
"""Bytes that the engine process may not have taken yet; past it nothing more is let in."""
LOST = Ended(reason="error", code="engine_restarted")


class RemoteGeneration:
    """One request inside the engine process.

    What nobody has read is kept here: never more than the ``max_new_tokens`` of the request. After
    ``abort`` nothing is kept but the end.
    """

    def __init__(self, peer: Peer, stream: int) -> None:
        self.stream = stream
        self.blocks: list[int] = []
        """Where its large arrays lie, until it ends."""
        self._peer = peer
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._tops: list[list[tuple[int, float]]] = []
        self._ended: Ended | None = None
        self._left = False
        self._waiting: asyncio.Future[None] | None = None

    async def arrived(self) -> Arrived:
        """See :class:`~mstar_core.serving.link.Generation`."""
        if not self._tokens and self._ended is None:
            self._waiting = self._peer.loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        came = Arrived(
            tokens=self._tokens, logprobs=self._logprobs, tops=self._tops, ended=self._ended
        )
        self._forget()
        return came

    def stop(self, accepted: int) -> None:
        """See :class:`~mstar_core.serving.link.Generation`."""
        if self._ended is None:
            self._peer.send(Stop(self.stream, accepted))

    def abort(self) -> None:
        """See :class:`~mstar_core.serving.link.Generation`."""
        if self._ended is None and not self._left:
            self._left = True
            self._forget()
            self._peer.send(Abort(self.stream))

    def add(self, tokens: list[int]) -> None:
        """More tokens; whoever waits is woken once."""
        if not self._left:
            self._tokens += tokens
            self._wake()

    def score(self, logprobs: list[float], tops: list[list[tuple[int, float]]]) -> None:
        """The log-probabilities of the tokens that were just added."""
        if not self._left:
            self._logprobs += logprobs
            self._tops += tops

    def end(self, ended: Ended) -> None:
        """Nothing more comes. The first end is the one that is told."""
        if self._ended is None:
            self._ended = ended
            self._wake()

    def _wake(self) -> None:
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _forget(self) -> None:
        self._tokens, self._logprobs, self._tops = [], [], []


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

    def _hear(self, message: Tokens | Cancelled | Stats) -> None:
        if isinstance(message, Tokens):
            self._take(message)
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
            )
        )
