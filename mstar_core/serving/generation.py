"""One request inside the engine process, as a route of an API process reads it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from mstar_core.serving.link import NO_ITEMS, Arrived, Ended
from mstar_core.serving.messages import Abort, Stop

if TYPE_CHECKING:
    from mstar_core.serving.peer import Peer

MAX_ITEM_BYTES = 64 << 20
"""Bytes of items that nobody has read yet: more than ten minutes of sound of most models."""
TOO_SLOW = Ended(reason="error", code="client_too_slow")


class RemoteGeneration:
    """One request inside the engine process.

    What nobody has read is kept here: never more tokens than the ``max_new_tokens`` of the request,
    and items up to ``MAX_ITEM_BYTES``, past which the request ends. After ``abort`` nothing is kept
    but the end.
    """

    def __init__(self, peer: Peer, stream: int, group: str) -> None:
        self.stream = stream
        self.group = group
        self.blocks: list[int] = []
        """Where its large arrays lie, until it ends."""
        self._peer = peer
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._tops: list[list[tuple[int, float]]] = []
        self._items: dict[str, list[np.ndarray]] = {}
        self._item_bytes = 0
        self._ended: Ended | None = None
        self._left = False
        self._waiting: asyncio.Future[None] | None = None

    async def arrived(self) -> Arrived:
        """See :class:`~mstar_core.serving.link.Generation`."""
        if not self._tokens and not self._items and self._ended is None:
            self._waiting = self._peer.loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        came = Arrived(
            tokens=self._tokens,
            logprobs=self._logprobs,
            tops=self._tops,
            items=_joined(self._items) if self._items else NO_ITEMS,
            ended=self._ended,
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

    def add_items(self, name: str, items: np.ndarray) -> None:
        """More items of one output."""
        if self._left or self._ended is not None:
            return
        self._items.setdefault(name, []).append(items)
        self._item_bytes += items.nbytes
        if self._item_bytes > MAX_ITEM_BYTES:
            self.abort()
            self.end(TOO_SLOW)
        self._wake()

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
        if self._items:
            self._items, self._item_bytes = {}, 0


def _joined(items: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    return {
        name: pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        for name, pieces in items.items()
    }
