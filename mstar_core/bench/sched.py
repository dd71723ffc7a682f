"""Time of the scheduler alone: late requests, admission, the choice of a step, and its counts.

The model is null: a step takes no time, its tokens are read at once, and memory is a count of
pages. Every request that ends is followed by an arrival, so as many run and wait in the last step
as in the first. Nothing of torch runs.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from attrs import define, field, frozen

from mstar_core.bench.resting import resting
from mstar_core.model.front import Request
from mstar_core.model.walks import Input, Loop, Once, Sequence, Walk
from mstar_core.sched import Deadlines, Line, RequestState, Row, Scheduler
from mstar_core.sched.admission import rank_of
from mstar_core.sched.request import tracks_of
from mstar_core.step import Shortage

PAGE_TOKENS = 64
GRAPH = Sequence((Once("prefill"), Loop("decode")))
INPUTS = (Input(name="ids", loops=True),)
WALKS = (
    Walk(name="prefill", node="null", feed="prompt", inputs=INPUTS, samples=True, chunkable=True),
    Walk(name="decode", node="null", feed="loop", inputs=INPUTS, samples=True),
)


@frozen(kw_only=True)
class SchedTimes:
    """Microseconds of one step."""

    running: int
    waiting: int
    steps: int
    full_step_us: float
    """Median over steps of more than half of those that run: decode steps."""
    step_us: float
    """Median over all steps; those of a prompt or two are among them."""
    step_p99_us: float
    mean_running: float
    mean_rows: float
    """Of a step."""
    admitted: int
    """Requests let in over all steps."""


@define(eq=False, kw_only=True)
class NullEngine:
    """The scheduler's part of an engine."""

    running_most: int
    free_pages: int
    random: np.random.Generator
    line: Line = field(init=False)
    scheduler: Scheduler = field(init=False)
    deadlines: Deadlines = field(factory=Deadlines, init=False)
    running: list[RequestState] = field(factory=list, init=False)
    pages: dict[int, int] = field(factory=dict, init=False)
    turn: int = field(default=0, init=False)
    arrived: int = field(default=0, init=False)
    admitted: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.line = Line(self.running_most)
        self.scheduler = Scheduler(
            walks={walk.name: walk for walk in WALKS},
            max_rows=self.running_most,
            token_budget=2048,
            min_chunk=16,
            waiting_items=lambda edge, handle: 0,
            edge_room=lambda edge, handle: 0,
        )

    def arrive(self) -> RequestState:
        """One more request, of 1 to 512 prompt tokens and 32 to 512 new ones."""
        prompt, new = int(self.random.integers(1, 513)), int(self.random.integers(32, 513))
        request = Request(
            arrays={"ids": np.zeros(prompt, np.int64)},
            max_new_tokens=new,
            deadline_s=3600.0,
            id=str(self.arrived),
        )
        number, self.arrived = self.arrived, self.arrived + 1
        return RequestState(
            request=request,
            number=number,
            tracks=tracks_of(GRAPH),
            rank=rank_of(self.turn, 0, number),
            handle=-1,
        )

    def step(self) -> list[Row]:
        """One turn: late requests, admission, a choice, its counts."""
        self.turn += 1
        for state in self.deadlines.over():
            self.line.leave(state)
        if len(self.running) < self.running_most:
            for state in self.line.admit(len(self.running), self.short):
                state.handle = state.number
                self.pages[state.number] = self.need(state)
                self.free_pages -= self.pages[state.number]
                self.running.append(state)
                self.admitted += 1
        choice = self.scheduler.next(self.running)
        if choice is None:
            return []
        self.scheduler.launched(choice[1], self.turn)
        return choice[1]

    def read(self, rows: list[Row]) -> None:
        """The step has been read; who ends gives memory back, and another arrives."""
        for row in rows:
            row.track.unread -= 1
            row.track.accepted += row.samples
            if row.track.accepted >= row.state.request.max_new_tokens:
                self.running.remove(row.state)
                self.free_pages += self.pages.pop(row.state.number)
                self.join(self.arrive())

    def join(self, state: RequestState) -> None:
        """Into the line, with its deadline."""
        self.deadlines.add(state)
        self.line.join(state)

    def need(self, state: RequestState) -> int:
        """Pages of its longest stream."""
        return -(-state.num_tokens // PAGE_TOKENS)

    def short(self, state: RequestState) -> Shortage | None:
        """What is missing to let it in."""
        need = self.need(state)
        if need <= self.free_pages:
            return None
        return Shortage(key="pages", need=need, free=self.free_pages)


def measure(running: int, waiting: int, steps: int) -> SchedTimes:
    """``steps`` steps with ``running`` requests of ``waiting`` more that wait.

    Pages are short now and then, so that some that wait are passed.
    """
    engine = NullEngine(
        running_most=running,
        free_pages=running * 10,
        random=np.random.default_rng(0),
    )
    for _ in range(running + waiting):
        engine.join(engine.arrive())
    for _ in range(2 * running):
        engine.read(engine.step())
    engine.admitted = 0
    spent, sizes, ran = list[float](), list[int](), 0
    with resting():
        for _ in range(steps):
            begin = time.perf_counter_ns()
            chosen = engine.step()
            ran += len(engine.running)
            engine.read(chosen)
            spent.append((time.perf_counter_ns() - begin) / 1e3)
            sizes.append(len(chosen))
    full = [us for us, rows in zip(spent, sizes, strict=True) if 2 * rows > running]
    spent.sort()
    return SchedTimes(
        running=running,
        waiting=waiting,
        steps=steps,
        full_step_us=statistics.median(full or spent),
        step_us=statistics.median(spent),
        step_p99_us=spent[min(len(spent) - 1, len(spent) * 99 // 100)],
        mean_running=ran / steps,
        mean_rows=sum(sizes) / steps,
        admitted=engine.admitted,
    )
