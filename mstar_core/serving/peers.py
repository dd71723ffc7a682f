"""The other API processes of the same server, asked for their metrics through the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from mstar_core.serving.orders import Message, Scrape, Scraped

WAIT_S = 2.0
"""A process that does not answer in time is left out."""


class Peers:
    """All API processes but this one."""

    def __init__(self, send: Callable[[Message], None], index: int, processes: int) -> None:
        self._send = send
        self._index = index
        self._others = processes - 1
        self._ids = count(1)
        self._asked: dict[int, asyncio.Queue[str]] = {}

    async def expositions(self) -> list[bytes]:
        """The metrics of each that answers, as text in Prometheus' format."""
        if not self._others:
            return []
        ask = next(self._ids)
        answers = self._asked[ask] = asyncio.Queue()
        found: list[str] = []
        try:
            self._send(Scrape(self._index, ask))
            async with asyncio.timeout(WAIT_S):
                while len(found) < self._others:
                    found.append(await answers.get())
        except TimeoutError:
            pass  # those that answered are what there is
        finally:
            del self._asked[ask]
        return [text.encode() for text in found if text]

    def answered(self, message: Scraped) -> None:
        """One of them has answered."""
        if (answers := self._asked.get(message.id)) is not None:
            answers.put_nowait(message.text)
