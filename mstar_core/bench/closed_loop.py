"""Requests to an engine in process, so many open at all times, and what came of each.

No thread and no queue per request: a request's events are noted on the engine's own thread, and
the event that ends one lets the next one in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from attrs import define, field

from mstar_core.bench.stats import Sample
from mstar_core.engine.driver import Listener
from mstar_core.engine.events import EngineEvent, FinishEvent, Result, TokenEvent
from mstar_core.errors import MstarError
from mstar_core.model.front import Request


class Submits(Protocol):
    """What takes requests in as an engine does."""

    def submit(self, request: Request, listener: Listener) -> None:
        """``listener`` is called with each event of ``request``."""
        ...


class ClosedLoop:
    """Requests in, what was heard of each out; ``concurrency`` are open until none is left."""

    def __init__(self, engine: Submits, told: Callable[[int], None] | None = None) -> None:
        """``engine`` may serve others meanwhile; ``told`` hears how many requests are over."""
        self._engine = engine
        self._told = told
        self._door = threading.Lock()
        self._over = threading.Event()
        self._left: Iterator[Request] = iter(())
        self._open = 0
        self._ended: list[Heard] = []
        self._failed: MstarError | None = None

    def run(self, requests: Sequence[Request], concurrency: int) -> list[Heard]:
        """Run ``requests``; in the order in which they ended.

        Raises MstarError where the engine takes none any more.
        """
        self._left, self._open = iter(requests), min(concurrency, len(requests))
        for _ in range(self._open):
            self._next()
        if requests:
            self._over.wait()
        if self._failed is not None:
            raise self._failed
        return self._ended

    def _next(self) -> None:
        """Let the next request in; with none left, one place of the loop is over."""
        with self._door:
            request = next(self._left, None)
            if request is None:
                self._open -= 1
                if not self._open:
                    self._over.set()
                return
        opened = Heard(loop=self, request=request)
        try:
            self._engine.submit(request, opened)
        except MstarError as error:  # the engine is closed, or has a fault
            self._failed = error
            self._over.set()

    def ended(self, heard: Heard) -> None:
        """One request is over. Called on the engine's thread, so nothing is computed here."""
        self._ended.append(heard)
        if self._told is not None:
            self._told(len(self._ended))
        self._next()


@define(kw_only=True, eq=False)
class Heard:
    """A request, and what was heard of it until now; it is called with its events."""

    loop: ClosedLoop
    request: Request
    sent_s: float = field(factory=time.perf_counter, init=False)
    tokens: list[TokenEvent] = field(factory=list, init=False)
    read_s: list[float] = field(factory=list, init=False)
    """When each of them was read."""
    end_s: float = field(default=0.0, init=False)
    finish: FinishEvent | None = field(default=None, init=False)

    def __call__(self, event: EngineEvent) -> None:
        now_s = time.perf_counter()
        if isinstance(event, TokenEvent):
            self.tokens.append(event)
            self.read_s.append(now_s)
        elif isinstance(event, FinishEvent):
            self.end_s, self.finish = now_s, event
            self.loop.ended(self)

    def result(self) -> Result:
        """Its tokens, and how it ended."""
        ends = [] if self.finish is None else [self.finish]
        return Result.of(self.request.id, [*self.tokens, *ends])

    def sample(self) -> Sample:
        """Its times and counts."""
        read_s, finish = self.read_s, self.finish
        facts = None if finish is None else finish.error
        error = None if facts is None else f"{facts['got']}; want {facts['want']}"
        return Sample(
            due_s=self.sent_s,
            sent_s=self.sent_s,
            end_s=self.end_s,
            first_s=read_s[0] if read_s else None,
            gaps_s=np.diff(read_s).tolist(),
            chunks=len(read_s),
            events=len(read_s) + 1,
            prompt_tokens=max(map(len, self.request.arrays.values()), default=0),
            output_tokens=len(read_s) if finish is None else finish.generated,
            error=error,
        )
