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
from mstar_core.engine.door import Limits, check_queue, check_request, check_settings, passed_by
from mstar_core.engine.edges import EdgeRing
from mstar_core.engine.ends import late, stuck
from mstar_core.engine.entrance import Entrance
from mstar_core.engine.events import EngineEvent, FinishEvent, facts_of
from mstar_core.engine.isolation import Isolation
from mstar_core.engine.launching import Launcher
from mstar_core.engine.lifecycle import Entry, Lifecycle
from mstar_core.engine.node import NodeRuntime
from mstar_core.engine.offload import Offloads
from mstar_core.engine.openings import openings
from mstar_core.engine.prefix import PrefixReuse
from mstar_core.engine.pressure import Pressure
from mstar_core.engine.reading import Reader, Streams
from mstar_core.engine.tenancy import Tenancy
from mstar_core.errors import DeviceFault, MstarError, Refusal, RequestError
from mstar_core.model.front import Request
from mstar_core.model.walks import Sequence as Parts
from mstar_core.model.walks import Walk
from mstar_core.resources.fence import Fences
from mstar_core.resources.table import RequestTable
from mstar_core.sched import Deadlines, Line, RequestState, Scheduler
from mstar_core.sched.admission import by_rank, rank_of
from mstar_core.sched.request import tracks_of
from mstar_core.text.stream import FinishReason

log = logging.getLogger(__name__)


@define(eq=False, kw_only=True)
class EngineCore:
    """Requests in, events out, one turn at a time. Not thread-safe: one thread drives it."""

    nodes: Mapping[str, NodeRuntime]
    walks: Mapping[str, Walk]
    graph: Parts
    tenancy: Tenancy
    lifecycle: Lifecycle
    scheduler: Scheduler
    line: Line
    pressure: Pressure
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
    _reader: Reader = field(init=False)
    _arrived: int = field(default=0, init=False)
    _launcher: Launcher = field(init=False)
    _isolation: Isolation = field(init=False)
    _entrance: Entrance = field(init=False)
    _deadlines: Deadlines = field(factory=Deadlines, init=False)
    _turn: int = field(default=0, init=False)
    _laps: Laps | None = field(default=None, init=False)
    _may_admit: bool = field(default=False, init=False)
    """Something has changed since admission last found no room."""

    def __attrs_post_init__(self) -> None:
        rings = self.tenancy.rings
        outputs = (output for walk in self.walks.values() for output in walk.outputs)
        self._reader = Reader(
            rings=rings,
            reported=frozenset(output.name for output in outputs if output.reported),
            streams=Streams.of(self.walks.values()),
            events=self.events,
            finish=self._finish,
            fail=self._fail,
        )
        self._entrance = Entrance(
            line=self.line, tenancy=self.tenancy, reuse=self.reuse, running=self._running
        )
        self._isolation = Isolation(
            device=self.lifecycle.device,
            pressure=self.pressure,
            running=self._running,
            flight=self._flight,
            reuse=self.reuse,
            fail=self._fail,
        )
        self._launcher = Launcher(
            scheduler=self.scheduler,
            lifecycle=self.lifecycle,
            pressure=self.pressure,
            running=self._running,
            flight=self._flight,
            isolation=self._isolation,
        )

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
        tracks = tracks_of(self.graph, passed_by(request, self.walks))
        check_request(request, self.walks, tracks, self.limits)
        check_settings(request, self.nodes)
        state = RequestState(
            request=request,
            number=self._arrived,
            tracks=tracks,
            rank=rank_of(self._turn, request.priority, self._arrived),
            openings=openings(request, self.nodes, tracks, self.pressure.chunk),
        )
        self.tenancy.check(state.openings)
        check_queue(state, len(self.line), self.line.num_tokens, self.limits)
        self._arrived += 1
        self._live[request.id] = state
        self._deadlines.add(state)
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
            self._launcher.settle()
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
            "waiting_tokens": self.line.num_tokens,
            "recomputed": self.pressure.num_recomputed,
            "caught": self._isolation.num_caught,
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

    def position(self, request_id: str) -> int | None:
        """How many are before a request in line; None for one that does not wait there."""
        state = self._live.get(request_id)
        return self.line.position(state) if state is not None and state.handle < 0 else None

    @property
    def _offloads(self) -> Offloads:
        return self.pressure.offloads

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
        self._turn += 1
        for state in self._deadlines.over():
            self._fail(state, late(state))
        self._may_admit |= self.pressure.move()
        lets_in = self.pressure.lets_in(self._running)
        if not self._offloads.is_empty:
            self._move(lets_in)
        if lets_in:
            self._admit()
        launched = self._launcher.launch()
        if self._laps is not None:
            self._laps.lap("queue")
        if launched:
            while len(self._flight) > self.in_flight:
                self._retire()
        elif self._flight:
            self._retire()
        elif len(self._live) > self._offloads.num_resting:
            if not (self.pressure.is_moving or (lets_in and self._may_admit)):
                self._no_progress()
        else:
            if self.conservation and not self._live:
                self.check_conserved()
            return False
        return True

    def _move(self, lets_in: bool) -> None:
        """Copy out who has left, and copy in who is called back and fits."""
        for entry, back in self._offloads.move(lets_in):
            self._flight.append(entry)
            if back is not None:
                self._launcher.settle()
                insort(self._running, back, key=by_rank)
        self._may_admit = True

    def _no_progress(self) -> None:
        """Nothing can be launched or is in flight, and nobody may yield: the youngest fails.

        Of those that run, if any do: they hold what the others lack.
        """
        state = max(self._running or self._live.values(), key=by_rank)
        log.error("request %s makes way, since no step can be launched: %s", state.id, state)
        self._fail(state, stuck(state))

    def drain(self) -> Iterator[EngineEvent]:
        """Events so far, oldest first."""
        while self.events:
            yield self.events.popleft()

    def _admit(self) -> None:
        if not self._may_admit:
            return
        admitted, broken = self._entrance.admit(self._offloads.called)
        self._may_admit = False
        if admitted:
            self._launcher.settle()
        for state, error in broken:
            self._fail(state, error)

    def _retire(self) -> None:
        entry = self._flight.popleft()
        try:
            outcome = self.lifecycle.retire(entry)
            if self._laps is not None:
                self._laps.lap("wait")
            if self.reuse is not None:
                self.reuse.read(entry.rows, outcome)
        except DeviceFault:
            raise
        except Exception as error:
            log.exception("step %d (walk %s) failed", entry.number, entry.step.walk)
            self._launcher.settle()
            self._isolation.catch(entry.rows, error)
        else:
            self._reader.read(entry.rows, outcome)
            if self._isolation.suspects:
                self._isolation.read(entry.rows)
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
        self._launcher.settle()
        self._may_admit = True
        state.over = True
        del self._live[state.id]
        self._isolation.suspects.discard(state)
        if self.reuse is not None:
            self.reuse.forget(state)
        prompts = [w for w in self.walks.values() if w.feed == "prompt" and w.samples]
        self.events.append(
            FinishEvent(
                request=state.id,
                reason=reason,
                prompt_items=sum(len(state.request.arrays[w.inputs[0].name]) for w in prompts),
                generated=len(state.tokens),
                preemptions=state.preemptions,
                cached_tokens=state.cached,
                queued_s=state.queued_s,
                error=error,
                stop_logprob=state.stop_logprob,
                reported=state.reported,
            )
        )
        if state.handle < 0:
            self.line.leave(state)
            return
        if not (self._offloads.forget(state) or self.pressure.forget(state)):
            self._running.remove(state)
        self.tenancy.close(state.handle, state.last_entry)
