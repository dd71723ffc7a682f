"""How long steps of a chosen shape take in a running engine: as a whole, and in their graph."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from typing import Self

from attrs import frozen

from mstar_core.bench.closed_loop import ClosedLoop
from mstar_core.bench.graph_times import GraphTimes, graph_times
from mstar_core.bench.offline import Shape, requests_of
from mstar_core.bench.stats import Figures, figures
from mstar_core.engine import Engine
from mstar_core.engine.driver import Listener
from mstar_core.model.front import Request
from mstar_core.step import Bucket

PROMPT_ROUNDS = 6
"""How often prompts arrive together."""
LONGEST_WAIT_S = 30.0


@frozen(kw_only=True)
class StepTime:
    """Steps of one shape."""

    step_us: float | None
    """Median from one step's tokens to the next; of prompts, from their arrival to their tokens."""
    graph_us: float | None
    """Median of the graph by the device's own clock; None: such a step is not captured."""
    replays: int


def decode_time(engine: Engine, rows: int, context: int, steps: int, vocab: int) -> StepTime:
    """``rows`` requests that decode together, ``steps`` tokens each, about ``context`` behind them.

    Prompts are random ids below ``vocab``. Nothing else must run.
    """
    shape = Shape(
        requests=rows,
        concurrency=rows,
        prompt_tokens=max(1, context - steps // 2),
        output_tokens=steps,
        vocab=vocab,
        seed=rows,
    )
    core = engine.driver.core
    with graph_times(core) as times:
        gaps = _together(engine, shape).itl_ms
    walks = {walk.name for walk in core.walks.values() if walk.is_decode}
    graph_us, replays = _graph_us(times, lambda b: b.walk in walks and b.rows == rows)
    step_us = None if gaps is None else gaps.median * 1e3
    return StepTime(step_us=step_us, graph_us=graph_us, replays=replays)


def prompt_time(engine: Engine, prompts: int, tokens: int, vocab: int) -> StepTime:
    """``prompts`` prompts of ``tokens`` ids that arrive together and end with their first token."""
    shape = Shape(
        requests=prompts * PROMPT_ROUNDS,
        concurrency=prompts,
        prompt_tokens=tokens,
        output_tokens=1,
        vocab=vocab,
        seed=prompts,
    )
    core = engine.driver.core
    with graph_times(core) as times:
        first = _together(engine, shape).ttft_ms
    walks = {walk.name for walk in core.walks.values() if walk.feed == "prompt"}
    whole = prompts * tokens
    graph_us, replays = _graph_us(times, lambda b: b.walk in walks and b.tokens == whole)
    step_us = None if first is None else first.median * 1e3
    return StepTime(step_us=step_us, graph_us=graph_us, replays=replays)


def _together(engine: Engine, shape: Shape) -> Figures:
    """A closed loop that begins once all of its first requests are in."""
    requests = requests_of(engine, shape)
    with _Gate(engine, shape.concurrency) as gate:
        heard = ClosedLoop(gate).run(requests, shape.concurrency)
    return figures([one.sample() for one in heard])


class _Gate:
    """An engine that waits for as many requests before it takes its next turn, or for the end."""

    def __init__(self, engine: Engine, requests: int) -> None:
        self._engine, self._left, self._in = engine, requests, threading.Event()
        engine.driver.call(self._wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._in.set()

    def submit(self, request: Request, listener: Listener) -> None:
        self._engine.submit(request, listener)
        self._left -= 1
        if self._left == 0:
            self._in.set()

    def _wait(self) -> None:
        self._in.wait(LONGEST_WAIT_S)


def _graph_us(times: GraphTimes, fits: Callable[[Bucket], bool]) -> tuple[float | None, int]:
    """The median over the replays of buckets that fit, and how many there were."""
    us = [each for bucket, found in times.us().items() if fits(bucket) for each in found]
    return (statistics.median(us) if us else None), len(us)
