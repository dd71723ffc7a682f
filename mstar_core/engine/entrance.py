"""Who is let in: asked of every resource and edge, then opened in all of them together.

What one request's opening raises is that request's end, and leaves nothing taken.
"""

from __future__ import annotations

import logging
import time
from bisect import insort
from collections.abc import Sequence

from attrs import define

from mstar_core.engine.prefix import PrefixReuse
from mstar_core.engine.tenancy import Tenancy
from mstar_core.errors import DeviceFault
from mstar_core.sched import Line, RequestState
from mstar_core.sched.admission import by_rank
from mstar_core.step import Shortage

log = logging.getLogger(__name__)
Broken = list[tuple[RequestState, Exception]]
_REFUSED = Shortage(key="request", need=1, free=0, unit="openings that raise")


@define(eq=False, kw_only=True)
class Entrance:
    """From the line to those that run."""

    line: Line
    tenancy: Tenancy
    reuse: PrefixReuse | None
    running: list[RequestState]
    """By rank."""

    def admit(self, away: Sequence[RequestState]) -> tuple[int, Broken]:
        """Let in who fits; how many that are, and who is to fail, with why.

        ``away``: those that wait to come back, by rank.
        """
        broken: Broken = []

        def short(state: RequestState) -> Shortage | None:
            try:
                return self.tenancy.short(state.openings)
            except DeviceFault:
                raise
            except Exception as error:
                broken.append((state, error))
                return _REFUSED

        admitted, taken = 0, list[RequestState]()
        for state in self.line.admit(len(self.running), short, away):
            try:
                self._open(state)
                admitted += 1
            except DeviceFault:
                raise
            except Exception as error:
                broken.append((state, error))
                taken.append(state)
        for state in taken:
            self.line.join(state)
        for state, why in broken:
            log.error("request %s could not be let in", state.id, exc_info=why)
        return admitted, broken

    def _open(self, state: RequestState) -> None:
        handle = self.tenancy.open(state.openings)
        try:
            state.handle = handle
            if self.reuse is not None:
                self.reuse.admit(state)
        except Exception:
            state.handle = -1
            self.tenancy.close(handle, -1)
            raise
        if state.queued_s is None:
            state.queued_s = time.monotonic() - state.arrived_s
        insort(self.running, state, key=by_rank)
