"""The engine in process, in a closed loop: as many requests open as were asked for, at all times.

No thread and no queue per request: a request's events are noted on the engine's own thread, and
the event that ends one lets the next one in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
from attrs import define, field, frozen

from mstar_core.bench.stats import Figures, Sample, figures
from mstar_core.config.sampling import SamplingSettings
from mstar_core.engine import Engine
from mstar_core.engine.events import EngineEvent, FinishEvent, TokenEvent
from mstar_core.errors import MstarError
from mstar_core.model.front import Request


@frozen(kw_only=True)
class Shape:
    """What every request of a run is."""

    requests: int
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    vocab: int
    """Prompts are random ids below this."""
    seed: int = 0


def measure(engine: Engine, shape: Shape, promises: dict[str, float] | None = None) -> Figures:
    """Run the requests to their ends. Raises MstarError where the engine takes none any more."""
    return figures(ClosedLoop(engine).run(requests_of(engine, shape), shape.concurrency), promises)


def requests_of(engine: Engine, shape: Shape) -> list[Request]:
    """Greedy requests over random ids that go on to their limit, the same for the same seed.

    Raises RequestError for a model whose prompts are no ids, or ids or lengths that it refuses.
    """
    random = np.random.default_rng(shape.seed)
    return [
        engine.front.ids_request(
            random.integers(0, shape.vocab, shape.prompt_tokens).tolist(),
            max_new_tokens=shape.output_tokens,
            ignore_stop_ids=True,
            sampling=SamplingSettings(),
        )
        for _ in range(shape.requests)
    ]


class ClosedLoop:
    """Requests in, samples out; ``concurrency`` of them are open until none is left."""

    def __init__(self, engine: Engine) -> None:
        """``engine`` may serve others meanwhile."""
        self._engine = engine
        self._door = threading.Lock()
        self._over = threading.Event()
        self._left: Iterator[Request] = iter(())
        self._open = 0
        self._ended: list[_Open] = []
        self._failed: MstarError | None = None

    def run(self, requests: Sequence[Request], concurrency: int) -> list[Sample]:
        """Run ``requests``; the samples in the order in which they ended."""
        self._left, self._open = iter(requests), min(concurrency, len(requests))
        for _ in range(self._open):
            self._next()
        self._over.wait()
        if self._failed is not None:
            raise self._failed
        return [request.sample() for request in self._ended]

    def _next(self) -> None:
        """Let the next request in; with none left, one place of the loop is over."""
        with self._door:
            request = next(self._left, None)
            if request is None:
                self._open -= 1
                if not self._open:
                    self._over.set()
                return
        opened = _Open(loop=self, prompt_tokens=_length(request))
        try:
            self._engine.submit(request, opened)
        except MstarError as error:  # the engine is closed, or has a fault
            self._failed = error
            self._over.set()

    def ended(self, request: _Open) -> None:
        """One request is over. Called on the engine's thread, so nothing is computed here."""
        self._ended.append(request)
        self._next()


@define(kw_only=True, eq=False)
class _Open:
    """A request that is open; it is called with its events."""

    loop: ClosedLoop
    prompt_tokens: int
    sent_s: float = field(factory=time.perf_counter, init=False)
    read_s: list[float] = field(factory=list, init=False)
    end_s: float = field(default=0.0, init=False)
    finish: FinishEvent | None = field(default=None, init=False)

    def __call__(self, event: EngineEvent) -> None:
        now_s = time.perf_counter()
        if isinstance(event, TokenEvent):
            self.read_s.append(now_s)
        elif isinstance(event, FinishEvent):
            self.end_s, self.finish = now_s, event
            self.loop.ended(self)

    def sample(self) -> Sample:
        """What became of it."""
        read_s, finish = self.read_s, self.finish
        error = None if finish is None or finish.error is None else finish.error["got"]
        return Sample(
            due_s=self.sent_s,
            sent_s=self.sent_s,
            end_s=self.end_s,
            first_s=read_s[0] if read_s else None,
            gaps_s=np.diff(read_s).tolist(),
            chunks=len(read_s),
            events=len(read_s) + 1,
            prompt_tokens=self.prompt_tokens,
            output_tokens=len(read_s) if finish is None else finish.generated,
            error=error,
        )


def _length(request: Request) -> int:
    return max((len(array) for array in request.arrays.values()), default=0)
