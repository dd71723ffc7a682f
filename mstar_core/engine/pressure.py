"""Memory pressure: what a step that is short of memory is answered with, in this order.

::

    fewer rows ─► wait a turn, if what cools will do ─► the youngest yields ─► hold; others run
                                                          │
                          its steps are read, its tokens kept
                          ├─ copied out, all resources together, and reloaded (engine/offload.py)
                          └─ given up: in line again, with prompt and tokens as its prompt

Pages that only a cache refers to count as free, so they go before anybody yields. A victim is
younger than the row it makes way for, so the oldest always advances. Nobody else yields while what
a victim held is still to come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs
import numpy as np
from attrs import define, field

from mstar_core.engine.lifecycle import Entry, Lifecycle
from mstar_core.engine.node import NodeRuntime
from mstar_core.engine.offload import Offloads
from mstar_core.engine.openings import openings
from mstar_core.engine.tenancy import Tenancy
from mstar_core.sched import Line, RequestState, Row, Scheduler
from mstar_core.sched.pressure import is_cheaper_to_run, victim_for
from mstar_core.step import Shortage, Step

Preempt = Literal["auto", "offload", "recompute"]
Again = Callable[[Mapping[str, np.ndarray], Sequence[int]], Mapping[str, np.ndarray] | None]
"""``Model.run_again``."""


@define(eq=False, kw_only=True)
class Pressure:
    """Who yields, and how; and those who wait until their steps are read to be run again."""

    nodes: Mapping[str, NodeRuntime]
    lifecycle: Lifecycle
    scheduler: Scheduler
    tenancy: Tenancy
    offloads: Offloads
    line: Line
    run_again: Again
    preempt: Preempt
    host_bytes: int
    """``limits.host_offload_bytes``: what may be away in host memory at once."""
    parameters: int
    """Of the whole model."""
    chunk: int | None
    """The most tokens of a step, where admission takes a first chunk alone."""
    num_recomputed: int = field(default=0, init=False)
    _short: RequestState | None = field(default=None, init=False)
    """The oldest that was short of memory and has not been launched since."""
    _giving_up: list[RequestState] = field(factory=list, init=False)

    @property
    def is_moving(self) -> bool:
        """Memory of somebody who yielded is still to come."""
        return bool(self._giving_up) or self.offloads.num_leaving > 0

    def launch(self, step: Step, rows: list[Row]) -> tuple[Entry | Shortage, list[Row]]:
        """Launch as many leading rows as fit; or the first row, and what it alone lacks."""
        while True:
            answer = self.lifecycle.launch(step, rows)
            if isinstance(answer, Entry) and any(row.state is self._short for row in rows):
                self._short = None
            if isinstance(answer, Entry) or len(rows) == 1:
                return answer, rows
            rows = rows[: max(1, min(answer.rows_that_fit, len(rows) - 1))]
            step = self.scheduler.fewer(step, rows)

    def make_way(
        self, row: RequestState, short: Shortage, running: Sequence[RequestState]
    ) -> RequestState | None:
        """Who yields so that ``row`` may run; None where waiting, or nobody, helps."""
        if self._short is None or row.rank < self._short.rank:
            self._short = row
        if short.need <= short.free + short.cooling or self.is_moving:
            return None
        victim = victim_for(row, running, lambda state: self._how(state) is not None)
        if victim is None:
            return None
        victim.preemptions += 1
        if self._how(victim) == "offload":
            self.offloads.leave(victim)
            self.offloads.call_back(victim.id)
        else:
            self.give_up(victim)
        return victim

    def give_up(self, state: RequestState) -> None:
        """Send ``state``, which no step is chosen for, back to the line once its steps are read."""
        self._giving_up.append(state)

    def lets_in(self, running: Sequence[RequestState]) -> bool:
        """Whether others may take memory: not before those who run and lack it."""
        if self._short is not None and self._short not in running:
            self._short = None
        return self._short is None

    def move(self) -> bool:
        """Send those whose steps are read back to the line; whether there were any."""
        ready = [state for state in self._giving_up if not state.unread]
        for state in ready:
            self._giving_up.remove(state)
            self.tenancy.close(state.handle, state.last_entry)
            self._start_anew(state)
            self.line.join(state)
            self.num_recomputed += 1
        return bool(ready)

    def forget(self, state: RequestState) -> bool:
        """The request is over; whether it was here."""
        if state not in self._giving_up:
            return False
        self._giving_up.remove(state)
        return True

    def _start_anew(self, state: RequestState) -> None:
        request, again = state.request, None
        if self.runs_again(state):
            again = self.run_again(request.arrays, state.tokens)
        given = 0 if again is None else len(state.tokens)
        state.handle, state.passed, state.undone, state.reason = -1, 0, False, None
        state.again = len(state.tokens) - given
        state.arrays = request.arrays if again is None else again
        for track in state.tracks:
            track.restart(given)
        left = attrs.evolve(
            request, arrays=state.arrays, max_new_tokens=request.max_new_tokens - given
        )
        anew = openings(left, self.nodes, state.tracks, self.chunk)
        for name, old in state.openings.items():
            state.openings[name] = attrs.evolve(
                anew[name], settings=old.settings, prompt_ids=old.prompt_ids, generated=given
            )

    def _how(self, state: RequestState) -> Preempt | None:
        """How ``state`` would yield, or None."""
        if state.failing:
            return None
        again = self.runs_again(state)
        num_bytes = self.offloads.num_bytes_of(state.handle)
        fits = self.offloads.num_bytes_away + num_bytes <= self.host_bytes
        if not fits or self.offloads.refusal() is not None:
            return "recompute" if again else None
        if not again or self.preempt == "offload":
            return "offload"
        cheaper = is_cheaper_to_run(_tokens_run(state), self.parameters, num_bytes)
        return "recompute" if cheaper or self.preempt == "recompute" else "offload"

    def runs_again(self, state: RequestState) -> bool:
        """Whether prompt and tokens are enough to bring everything back."""
        if state.last_entry < 0:
            return True
        rebuilt = all(
            resource.rebuilds(state.openings[name])
            for name, node in self.nodes.items()
            for resource in node.resources.values()
        )
        alone = len(state.tracks) == 1 and not self.tenancy.rings
        return rebuilt and alone and self.run_again(state.request.arrays, state.tokens) is not None


def _tokens_run(state: RequestState) -> int:
    track = state.tracks[0]
    prompt = max(map(len, state.arrays.values()))
    return min(track.done, prompt) if track.at == 0 else prompt + track.done
