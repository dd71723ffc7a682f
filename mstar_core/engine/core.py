"""The engine's turn, without a thread: a schedule is a function of its arrivals.

One turn: apply stops and arrivals, admit, launch step M, retire step M − d, d = ``in_flight``. A
turn that launches nothing retires one entry. Retirement happens nowhere else, and in launch order.
A token is sampled on the device and is fed to the next step there; the host reads it when its
step is retired, up to d steps later. A row that turns out to have stopped has then been launched d
times too often: those rows are dropped when their steps are retired, and what the request held
cools until they are.
"""

from __future__ import annotations

import logging
import traceback
from bisect import insort
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from attrs import define, field

from mstar_core.clock import Laps
from mstar_core.engine.door import Limits, check_request, openings
from mstar_core.engine.edges import EdgeRing
from mstar_core.engine.events import EngineEvent, FinishEvent, facts_of
from mstar_core.engine.lifecycle import Entry, Lifecycle
from mstar_core.engine.node import NodeRuntime
from mstar_core.engine.offload import Offloads
from mstar_core.engine.prefix import PrefixReuse
from mstar_core.engine.reading import Reader
from mstar_core.engine.steady import SteadyBatch
from mstar_core.engine.tenancy import Openings, Tenancy
from mstar_core.errors import DeviceFault, MstarError, Refusal, RequestError
from mstar_core.model.front import Request
from mstar_core.model.walks import Sequence, Walk
from mstar_core.resources.fence import Fences
from mstar_core.resources.table import RequestTable
from mstar_core.sched import RequestState, ReserveWhole, Scheduler
from mstar_core.sched.request import tracks_of
from mstar_core.step import Shortage
from mstar_core.text.stream import FinishReason

log = logging.getLogger(__name__)


@define(eq=False, kw_only=True)
class EngineCore:
    """Requests in, events out, one turn at a time. Not thread-safe: one thread drives it."""

    nodes: Mapping[str, NodeRuntime]
    walks: Mapping[str, Walk]
    graph: Sequence
    tenancy: Tenancy
    lifecycle: Lifecycle
    scheduler: Scheduler
    line: ReserveWhole
    in_flight: int
    limits: Limits
    reuse: PrefixReuse | None = None
    """The prefix cache, where the model has one."""
    conservation: bool = False
    """``debug.conservation``: whenever the core is idle, everything must have come back."""
    events: deque[EngineEvent] = field(factory=deque, init=False)
    _live: dict[str, RequestState] = field(factory=dict, init=False)
    _running: list[RequestState] = field(factory=list, init=False)
    _flight: deque[Entry] = field(factory=deque, init=False)
    _openings: dict[str, Openings] = field(factory=dict, init=False)
    _reader: Reader = field(init=False)
    _arrived: int = field(default=0, init=False)
    _steady: SteadyBatch | None = field(default=None, init=False)
    _offloads: Offloads = field(init=False)
    _laps: Laps | None = field(default=None, init=False)
    _may_admit: bool = field(default=False, init=False)
    """Something has changed since admission last found no room."""

    def __attrs_post_init__(self) -> None:
        rings = self.tenancy.rings
        self._offloads = Offloads(nodes=self.nodes, rings=rings, lifecycle=self.lifecycle)
        self._reader = Reader(rings=rings, events=self.events, finish=self._finish, fail=self._fail)

    # -- what callers ask ------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Stand in line. Raises RequestError for a request that could never be served."""
        if request.id in self._live:
            raise RequestError(
                where="id",
                got=request.id,
                want="an id that no live request has",
                fix="leave the id out, or wait until the other request is over",
            )
        tracks = tracks_of(self.graph)
        check_request(request, self.walks, tracks, self.limits)
        opening = openings(request, self.nodes, tracks)
        self.tenancy.check(opening)
        state = RequestState(request=request, number=self._arrived, tracks=tracks)
        self._arrived += 1
        self._live[request.id] = state
        self._openings[request.id] = opening
        self.line.join(state)
        self._may_admit = True

    def stop(self, request_id: str, accepted: int, reason: FinishReason = "stop") -> None:
        """End a request after its first ``accepted`` tokens; unknown or finished ids are ignored.

        The finish event goes out at once; memory follows the last step that names the request.
        """
        state = self._live.get(request_id)
        if state is not None:
            del state.tokens[accepted:]
            self._finish(state, reason)

    def abort(self, request_id: str) -> None:
        """End a request now, keeping what was read."""
        state = self._live.get(request_id)
        if state is not None:
            self._finish(state, "abort")

    def offload(self, request_id: str) -> Refusal | None:
        """Copy a running request off the device once its steps are read, unless it has ended then.

        Says why this engine cannot; ids of requests that do not run are ignored.
        """
        refusal, state = self._offloads.refusal(), self._live.get(request_id)
        if refusal is None and state is not None and state in self._running:
            self._settle()
            self._running.remove(state)
            self._offloads.leave(state)
        return refusal

    def reload(self, request_id: str) -> None:
        """Bring an offloaded request back as soon as all of it fits; other ids are ignored."""
        self._offloads.call_back(request_id)

    def abort_all(self) -> None:
        """End every request now."""
        for state in list(self._live.values()):
            self._finish(state, "abort")

    def num_generated(self, request_id: str) -> int:
        """Tokens that a live request has been given; 0 for one that is unknown or over."""
        state = self._live.get(request_id)
        return 0 if state is None else len(state.tokens)

    def stats(self) -> dict[str, Any]:
        """Counts of steps and rows so far, and what is held."""
        check = self.lifecycle.check
        return {
            **self.lifecycle.snapshot(),
            "dropped_rows": self.dropped_rows,
            "waiting": len(self.line),
            "running": len(self._running),
            "in_flight": len(self._flight),
            "held": self.held(),
            "offload": attrs.asdict(self._offloads.counts),
            "prefix": None if self.reuse is None else self.reuse.stats(),
            "row_check": None if check is None else check.stats(),
        }

    def take_laps(self, laps: Laps) -> Laps:
        """Take ``laps`` in every turn from here on."""
        self._laps = self.lifecycle.laps = laps
        return laps

    def check_rows(self) -> None:
        """With ``debug.row_check``: raise RuntimeError if any checked cell has differed."""
        check = self.lifecycle.check
        if check is not None and check.counts.mismatches:
            raise RuntimeError(f"{check.counts.mismatches} cells differ: {check.counts.first}")

    def held(self) -> dict[str, tuple[int, int]]:
        """``node.key unit`` → (free or cooling, total)."""
        return self.tenancy.held()

    def check_conserved(self) -> None:
        """With no request live, everything must be free or cooling. Raises RuntimeError if not."""
        self.tenancy.check_conserved()

    @property
    def dropped_rows(self) -> int:
        """Rows that ran after their request had stopped."""
        return self._reader.dropped_rows

    @property
    def rings(self) -> Mapping[str, EdgeRing]:
        """The edges between walks, by name."""
        return self.tenancy.rings

    @property
    def fences(self) -> Fences:
        """What retired entries have freed."""
        return self.tenancy.fences

    @property
    def table(self) -> RequestTable:
        """The handles of admitted requests."""
        return self.tenancy.table

    @property
    def idle(self) -> bool:
        """Nothing waits, runs or is in flight."""
        return not self._live and not self._flight

    @property
    def num_running(self) -> int:
        """Requests admitted and not over."""
        return len(self._running)

    # -- the turn --------------------------------------------------------------------------

    def turn(self) -> bool:
        """One turn. False when there was nothing to do."""
        if self._laps is not None:
            self._laps.begin()
        if not self._offloads.is_empty:
            self._move()
        self._admit()
        launched = self._launch()
        if self._laps is not None:
            self._laps.lap("queue")
        if launched:
            while len(self._flight) > self.in_flight:
                self._retire()
        elif self._flight:
            self._retire()
        elif len(self._live) > self._offloads.num_resting:
            self._no_progress()
        else:
            if self.conservation and not self._live:
                self.check_conserved()
            return False
        return True

    def _move(self) -> None:
        """Copy out who has left, and copy in who is called back and fits."""
        for entry, back in self._offloads.move():
            self._flight.append(entry)
            if back is not None:
                self._settle()
                insort(self._running, back, key=lambda state: state.number)
        self._may_admit = True

    def _no_progress(self) -> None:
        """Nothing can be launched, nothing is in flight, and yet somebody waits: a bug. Say so."""
        for state in list(self._live.values()):
            log.error("request %s cannot make progress: %s", state.id, state)
            self._fail(state, RuntimeError("the scheduler made no progress"))

    def drain(self) -> Iterator[EngineEvent]:
        """Events so far, oldest first."""
        while self.events:
            yield self.events.popleft()

    def _admit(self) -> None:
        if not self._may_admit:
            return
        self._may_admit = False
        for state in self.line.admit(len(self._running), self._short_to_open):
            state.handle = self.tenancy.open(self._openings[state.id])
            if self.reuse is not None:
                self.reuse.admit(state)
            self._running.append(state)
            self._settle()

    def _short_to_open(self, state: RequestState) -> Shortage | None:
        return self.tenancy.short(self._openings[state.id])

    def _launch(self) -> bool:
        """Whether a step was launched, or its requests failed."""
        if self._steady is not None and self._launch_steady(self._steady):
            return True
        choice = self.scheduler.next(self._running)
        if choice is None:
            return False
        step, rows = choice
        try:
            entry = self.lifecycle.launch(step, rows)
        except DeviceFault:
            raise
        except Exception as error:  # nothing was launched: its requests fail, the others go on
            log.exception("a step of walk %s could not be prepared", step.walk)
            for row in rows:
                self._fail(row.state, error)
            return True
        if isinstance(entry, Shortage):
            log.debug("step refused: %s", entry)
            return False
        self.scheduler.launched(rows, entry.number)
        for row in rows:
            row.state.failing |= entry.error is not None
        self._flight.append(entry)
        if self.scheduler.sole:
            self._steady = self.lifecycle.steady_batch(entry)
        return True

    def _launch_steady(self, batch: SteadyBatch) -> bool:
        """The same step once more, if no row has reached its limit and there is room."""
        entry = self.lifecycle.launch_steady(batch) if batch.left > 0 else None
        if not isinstance(entry, Entry):
            self._settle()
            return False
        batch.left -= 1
        batch.launched += 1
        batch.last_number = entry.number
        self._flight.append(entry)
        if entry.error is not None:
            self._settle()
            for row in batch.rows:
                row.state.failing = True
        return True

    def _settle(self) -> None:
        """The batch is no longer steady: tell the scheduler what was launched of it."""
        batch, self._steady = self._steady, None
        if batch is not None and batch.launched:
            self.scheduler.launched_again(batch.rows, batch.launched, batch.last_number)

    def _retire(self) -> None:
        entry = self._flight.popleft()
        try:
            outcome = self.lifecycle.retire(entry)
            if self._laps is not None:
                self._laps.lap("wait")
        except DeviceFault:
            raise
        except Exception as error:  # a raise in a forward fails the batch
            log.exception("step %d (walk %s) failed", entry.number, entry.step.walk)
            for row in entry.rows:
                self._fail(row.state, error)
        else:
            for i, row in enumerate(entry.rows):
                if self.reuse is not None:
                    self.reuse.read(row, i, outcome)
                self._reader.read(row, i, outcome)
        self._may_admit |= self.tenancy.recycle()
        if self._laps is not None:
            self._laps.lap("deliver")

    # -- ends ------------------------------------------------------------------------------

    def _fail(self, state: RequestState, error: Exception) -> None:
        if state.over:
            return
        if not isinstance(error, MstarError):
            log.debug("%s", "".join(traceback.format_exception(error)))
        self._finish(state, "error", facts_of(f"request {state.id}", error))

    def _finish(
        self, state: RequestState, reason: FinishReason, error: Mapping[str, str] | None = None
    ) -> None:
        self._settle()
        self._may_admit = True
        state.over = True
        del self._live[state.id]
        del self._openings[state.id]
        if self.reuse is not None:
            self.reuse.forget(state)
        prompts = [w for w in self.walks.values() if w.feed == "prompt" and w.samples]
        self.events.append(
            FinishEvent(
                request=state.id,
                reason=reason,
                prompt_items=sum(state.items(w) for w in prompts),
                generated=len(state.tokens),
                cached_tokens=state.cached,
                error=error,
            )
        )
        if state.handle < 0:
            self.line.leave(state)
            return
        if not self._offloads.forget(state):
            self._running.remove(state)
        self.tenancy.close(state.handle, state.last_entry)
